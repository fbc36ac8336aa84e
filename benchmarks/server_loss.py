"""What a real server loses while llmtop watches it, with each kind of probes: paired windows, 95 % confidence.

    python benchmarks/server_loss.py --url http://127.0.0.1:8000 --pid PID --minutes 2     a server that runs here
    python benchmarks/server_loss.py --demo                                                the demo server, on the CPU
    python benchmarks/server_loss.py --url ... --pid ... --clients 64 --minutes 20 --modes off,light,full --settle 0

Clients ask again as soon as they are answered, so that the server does what it can; they do not stream, so that they
take little themselves. Windows without llmtop lie between all others; a watched window is compared with the mean of the
two beside it, which takes slow drift out. It begins when llmtop has been attached for `--settle` seconds; with 0 what
its start costs is part of it. Two minutes make eight pairs of one kind of probes. Tokens are the server's own count
(/metrics); CPU time is the scheduler's of all its threads (schedstat), which other programs on the machine disturb
less than they do tokens. Give it as many minutes as there are: the intervals tell whether they were enough.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.attach_loss import losses, mean_with_interval
from benchmarks.bench import LLMTOP, DemoServer, TimedTerminal, Use, machine, table
from llmtop import procfs
from llmtop.servers.recognise import find_target

BUDGET = 0.01
WARM_UP_S, REST_S = 6.0, 0.5
_TOKENS = re.compile(r"^\w+:(?:generation_tokens_total|tokens_predicted_total)(?:\{.*\})? (\S+)", re.MULTILINE)
"""vLLM's, SGLang's and the demo's names, and llama.cpp's, which moves at the end of a request only."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was done in one window. `cpu_us` is of the whole server, per token; `own` llmtop's share of a core."""

    tokens_per_s: float
    cpu_us: float
    own: float = 0.0


class Load:
    """Clients that each ask again as soon as they are answered."""

    def __init__(self, url: str, clients: int, tokens: int) -> None:
        self._url, self._tokens = url, tokens
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            self._model = json.load(answer)["data"][0]["id"]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on, args=(i,), daemon=True) for i in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _ask_on(self, number: int) -> None:
        body = {"model": self._model, "max_tokens": self._tokens, "ignore_eos": True, "stream": False}
        turn = 0
        while not self._over.is_set():
            turn += 1
            text = json.dumps(body | {"prompt": f"{number} {turn} the quick brown fox jumps over the lazy dog"})
            request = urllib.request.Request(
                f"{self._url}/v1/completions", text.encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    answer.read()
            except (URLError, OSError) as error:
                if not self._over.is_set():
                    print(f"a client was refused: {error}", file=sys.stderr)
                    time.sleep(1.0)


class Server:
    """A server that runs here.

    Args:
        url: Of its HTTP side.
        pid: Any process of it.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        target = find_target(pid)
        self._pids = {target.root_pid, *(one.pid for one in target.processes)}
        self._pids |= set(procfs.family().descendants(target.root_pid))

    def tokens(self) -> float:
        """Tokens generated so far."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            return sum(map(float, _TOKENS.findall(answer.read().decode())))

    def cpu_ns(self) -> int:
        """What its threads have run so far; of one that ends meanwhile the time is lost, of a server's they do not."""
        ran = 0
        for pid in self._pids:
            for tid in procfs.threads(pid):
                content = procfs.read_bytes(f"/proc/{pid}/task/{tid}/schedstat")
                ran += int(content.split()[0]) if content else 0
        return ran

    def window(self, seconds: float) -> Window:
        """Look at it for a while."""
        start_s, tokens, cpu_ns = time.perf_counter(), self.tokens(), self.cpu_ns()
        time.sleep(seconds)
        done, ran = self.tokens() - tokens, self.cpu_ns() - cpu_ns
        if done <= 0:
            sys.exit("the server made no tokens: is it the one of this URL, and does /metrics count them?")
        return Window(done / (time.perf_counter() - start_s), ran / done / 1e3)

    def watched(self, mode: str, seconds: float, interval: float, settle_s: float) -> Window:
        """The same while llmtop is attached; its start included where it is not given time to settle."""
        command = [*LLMTOP, "--attach", str(self.pid), "--probes", mode, "--interval", f"{interval:g}"]
        with TimedTerminal(command) as terminal:
            time.sleep(settle_s)
            before = Use.of(terminal.pid) if settle_s else None
            found = self.window(seconds)
            terminal.check_running()
            use = Use.of(terminal.pid)
            terminal.signal(signal.SIGTERM)
            terminal.wait_exit()
        spent_s = use.own_s + use.children_s - (before.own_s + before.children_s if before else 0.0)
        return Window(found.tokens_per_s, found.cpu_us, spent_s / seconds)


@contextmanager
def the_server(options: argparse.Namespace) -> Iterator[Server]:
    """The server that was named, or the demo's."""
    if not options.demo:
        yield Server(options.url.rstrip("/"), options.pid)
        return
    with DemoServer("--device", "cpu") as demo:
        yield Server(demo.url, demo.pid)


def measure(server: Server, options: argparse.Namespace) -> dict[str, tuple[list[Window], list[Window]]]:
    """For each mode the watched windows, and the windows beside them, one more."""
    modes: Sequence[str] = options.modes
    end_s = time.monotonic() + options.minutes * 60
    without = [server.window(options.window)]
    pairs: dict[str, tuple[list[Window], list[Window]]] = {mode: ([], []) for mode in modes}
    while time.monotonic() < end_s:
        for mode in modes:
            seen = server.watched(mode, options.window, options.interval, options.settle)
            time.sleep(REST_S)
            without.append(server.window(options.window))
            pairs[mode][0].append(seen)
            pairs[mode][1].extend(without[-2:])
            lost = 1 - seen.tokens_per_s / _mean(without[-2:])
            print(f"{mode:5} {seen.tokens_per_s:9.1f} tokens/s, {lost:+.1%}; {seen.cpu_us:.0f} us a token", flush=True)
    return pairs


def _mean(windows: Sequence[Window]) -> float:
    return sum(one.tokens_per_s for one in windows) / len(windows)


def report(pairs: dict[str, tuple[list[Window], list[Window]]]) -> int:
    """Print a line a mode; 1 where even the least loss that fits is beyond the budget."""
    rows, worst = [], 0
    for mode, (watched, beside) in pairs.items():
        if len(watched) < 2:
            sys.exit("too few windows: more --minutes")
        lost, more = [], []
        for i, one in enumerate(watched):
            before, after = beside[2 * i : 2 * i + 2]
            lost += losses([before.tokens_per_s, after.tokens_per_s], [one.tokens_per_s])
            more += [-loss for loss in losses([before.cpu_us, after.cpu_us], [one.cpu_us])]
        mean, low, high = mean_with_interval(lost)
        cpu, cpu_low, cpu_high = mean_with_interval(more)
        verdict = "within" if high < BUDGET else "beyond" if low > BUDGET else "not told"
        worst |= low > BUDGET
        own = sum(one.own for one in watched) / len(watched)
        rows.append(
            (
                mode,
                str(len(watched)),
                f"{mean:+.2%} ({low:+.2%} to {high:+.2%})",
                f"{max(lost):+.1%}",
                f"{cpu:+.2%} ({cpu_low:+.2%} to {cpu_high:+.2%})",
                f"{own:.1%}",
                verdict,
            )
        )
    head = ("probes", "pairs", "tokens lost (95 %)", "worst", "CPU per token (95 %)", "llmtop, of a core", "under 1 %")
    print(table(head, rows))
    return worst


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of the server's HTTP side")
    parser.add_argument("--pid", type=int, help="any process of the server")
    parser.add_argument("--demo", action="store_true", help="the demo server instead")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["full"], help="full, light, off")
    parser.add_argument("--window", type=float, default=4.5, help="seconds of each window")
    parser.add_argument("--interval", type=float, default=0.5, help="llmtop's, in seconds")
    parser.add_argument("--settle", type=float, default=4.0, help="seconds from llmtop's start to its window")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all of it")
    options = parser.parse_args()
    if not options.demo and not (options.url and options.pid):
        parser.error("either --demo, or --url and --pid")
    print(machine())
    print(
        f"{options.clients} clients, answers of {options.tokens} tokens, windows of {options.window:g} s, "
        f"{options.settle:g} s after each start of llmtop"
    )
    with the_server(options) as server, Load(server.url, options.clients, options.tokens):
        time.sleep(WARM_UP_S)
        return report(measure(server, options))


if __name__ == "__main__":
    raise SystemExit(main())
