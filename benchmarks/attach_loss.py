"""What a server loses while llmtop watches it: with and without, by turns, with a confidence interval.

    python benchmarks/attach_loss.py                  a decode loop on the GPU; without one, the demo server on the CPU
    python benchmarks/attach_loss.py --work demo      the demo server in any case
    python benchmarks/attach_loss.py --work launches  small kernels, each launched from Python: the worst for probes
    python benchmarks/attach_loss.py --pairs 20 --window 6 --interval 0.25

The order is A B A B ... A: a window with llmtop attached (B) is compared with the mean of the windows before and after
it (A), which takes slow drift out. The work never waits for requests: what it does in a second is what it can do.
llmtop runs its real screen in a pseudo-terminal, with all collectors that can run here.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, DemoServer, TimedTerminal, machine, table

SETTLE_S = 3.0
"""From llmtop's first frame to the window: its start is not what being attached costs."""
REST_S = 1.0
"""From llmtop's end to the next window without it."""
PHASE_S = 0.2
"""The GPU loop tells its count this often."""
CLIENTS = 8
"""As many as the demo's small model computes at a time."""
BUDGET = 0.01
"""A server may lose one per cent."""


class Work(Protocol):
    """Something that runs as fast as it can, and counts."""

    pid: int
    unit: str

    def rate(self, seconds: float) -> float:
        """Units per second of the next `seconds`."""
        ...


class GpuLoop:
    """A decode loop on the GPU: the matrices of an 8-billion-parameter model, 16 rows, one synchronisation a step."""

    unit = "decode steps/s"

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._output = process.stdout
        self._counts: list[tuple[int, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output or ():
            t_ns, steps = line.split()
            self._counts.append((int(t_ns), int(steps)))

    def rate(self, seconds: float) -> float:
        start_ns = time.monotonic_ns()
        time.sleep(seconds)
        inside = [count for count in self._counts if count[0] >= start_ns]
        if len(inside) < 2:
            raise RuntimeError("the loop on the GPU has stopped")
        (first_ns, first), (last_ns, last) = inside[0], inside[-1]
        return (last - first) / (last_ns - first_ns) * 1e9

    def wait_until_going(self, timeout_s: float = 120.0) -> None:
        """Wait for its first counts: torch and the weights take their time."""
        deadline = time.monotonic() + timeout_s
        while len(self._counts) < 5:
            if time.monotonic() > deadline or not self._reader.is_alive():
                raise RuntimeError("the loop on the GPU did not start")
            time.sleep(0.1)


class Demo:
    """The demo server with as many clients as it can serve at a time, each asking again at once."""

    unit = "tokens/s"

    def __init__(self, url: str, pid: int) -> None:
        self.pid = pid
        self._url = url
        for _ in range(CLIENTS):
            threading.Thread(target=self._ask_on, daemon=True).start()

    def _ask_on(self) -> None:
        host = self._url.removeprefix("http://")
        body = json.dumps({"prompt": "the quick brown fox jumps", "max_tokens": 96})
        while True:
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                connection.getresponse().read()
            except OSError:  # the server is going down: the measurement is over
                return
            finally:
                connection.close()

    def rate(self, seconds: float) -> float:
        start_s, before = time.perf_counter(), self._tokens()
        time.sleep(seconds)
        return (self._tokens() - before) / (time.perf_counter() - start_s)

    def _tokens(self) -> float:
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


@contextmanager
def start_work(kind: str) -> Iterator[Work]:
    """The work to be watched; ends with the block."""
    if kind == "demo":
        with DemoServer("--device", "cpu") as server:
            yield Demo(server.url, server.pid)
        return
    command = [sys.executable, __file__, "--loop", "--work", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            loop = GpuLoop(process)
            loop.wait_until_going()
            yield loop
        finally:
            process.kill()


def run_loop(kind: str) -> int:
    """The decode loop itself: prints (monotonic ns, steps so far) until it is ended."""
    phase = _launches if kind == "launches" else _decode
    steps = 0
    for done in phase():
        steps += done
        print(time.monotonic_ns(), steps, flush=True)
    return 0


def _decode() -> Iterator[int]:
    """Steps of a GPU-bound loop, a phase at a time."""
    from benchmarks import gpu_truth

    torch = gpu_truth._torch()
    layers = gpu_truth._layers(torch, 32)
    while True:
        yield gpu_truth._phase(torch, layers, "decode", 16, PHASE_S)[0]


def _launches() -> Iterator[int]:
    """Steps of a CPU-bound loop, a phase at a time."""
    from benchmarks import tell_apart

    step = tell_apart.cpu_step()
    while True:
        done, end_s = 0, time.perf_counter() + PHASE_S
        while time.perf_counter() < end_s:
            step()
            done += 1
        yield done


def has_gpu() -> bool:
    """Whether torch is here and sees a GPU; asked in another process, so that this one stays off the GPU."""
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def watched_rate(work: Work, window_s: float, interval_s: float) -> float:
    """The work's rate while llmtop is attached."""
    command = [*LLMTOP, "--attach", str(work.pid), "--interval", f"{interval_s:g}"]
    with TimedTerminal(command) as terminal:
        terminal.wait_for_output(b"Roofline", timeout_s=20)
        time.sleep(SETTLE_S)
        rate = work.rate(window_s)
        terminal.check_running()
        terminal.signal(signal.SIGTERM)
        terminal.wait_exit()
    return rate


def losses(without: Sequence[float], watched: Sequence[float]) -> list[float]:
    """What each window with llmtop lost against the mean of its neighbours, as a share.

    >>> losses([128.0, 128.0, 132.0], [120.0, 130.0])
    [0.0625, 0.0]
    """
    return [1 - b / ((before + after) / 2) for b, (before, after) in zip(watched, pairwise(without), strict=True)]


def mean_with_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The mean, and the ends of its confidence interval by Student's t.

    >>> tuple(round(value, 2) for value in mean_with_interval([1.0, 2.0, 3.0]))
    (2.0, -0.48, 4.48)
    """
    mean = statistics.fmean(values)
    half = student_t(confidence, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def student_t(confidence: float, degrees: int) -> float:
    """The two-sided quantile of Student's t: its density integrated (Simpson), and solved by bisection.

    >>> round(student_t(0.95, 9), 3), round(student_t(0.95, 2), 3), round(student_t(0.99, 30), 3)
    (2.262, 4.303, 2.75)
    """
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)

    def inside(t: float, steps: int = 2000) -> float:
        points = (scale * (1 + (t * i / steps) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(steps + 1))
        weights = (1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1))
        return float(2 * t / steps / 3 * sum(w * p for w, p in zip(weights, points, strict=True)))

    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return low


def report(work: Work, without: Sequence[float], watched: Sequence[float]) -> int:
    """Print the windows and the verdict; 1 when even the least loss that fits is beyond the budget."""
    lost = losses(without, watched)
    rows = [
        (str(i + 1), f"{a:.2f}", f"{b:.2f}", f"{loss:+.2%}")
        for i, (a, b, loss) in enumerate(zip(without, watched, lost, strict=False))
    ]
    print(table(("pair", f"without, {work.unit}", "attached", "loss"), rows))
    mean, low, high = mean_with_interval(lost)
    noise = [1 - after / before for before, after in pairwise(without)]
    middle, spread = statistics.median(lost), statistics.stdev(noise)
    print(f"loss while attached: {mean:+.2%}, 95 % confidence {low:+.2%} to {high:+.2%}, median {middle:+.2%}")
    print(
        f"from one window without llmtop to the next: {statistics.fmean(noise):+.2%}, standard deviation {spread:.2%}"
    )
    verdict = "within" if high < BUDGET else "beyond" if low > BUDGET else "not told apart from"
    print(f"budget {BUDGET:.0%}: {verdict}")
    return int(low > BUDGET)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("auto", "gpu", "launches", "demo"), default="auto")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--window", type=float, default=4.0, help="seconds of each window")
    parser.add_argument("--interval", type=float, default=0.5, help="llmtop's, in seconds")
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        return run_loop(options.work)
    kind = options.work if options.work != "auto" else "gpu" if has_gpu() else "demo"
    print(machine())
    probes = "off" if os.environ.get("LLMTOP_NO_EBPF") else "where allowed"
    print(f"work: {kind}; llmtop at {1 / options.interval:g} Hz, eBPF {probes}")
    without, watched = [], []
    with start_work(kind) as work:
        time.sleep(SETTLE_S)
        without.append(work.rate(options.window))
        for _ in range(options.pairs):
            watched.append(watched_rate(work, options.window, options.interval))
            time.sleep(REST_S)
            without.append(work.rate(options.window))
        return report(work, without, watched)


if __name__ == "__main__":
    raise SystemExit(main())
