"""What llmtop costs beside a server as large as vLLM: processor time of its every process and thread.

    sudo python benchmarks/vllm_cost.py [--seconds 60] [--rounds 3] [--modes full,off] [--against CHECKOUT]
    sudo python benchmarks/vllm_cost.py --pid PID     a server that runs here, under its own load, on its own GPUs

The server is a stand-in (vllm_stand_in.py): an API server and an engine with 170 threads, of which ten wake 500 times
a second, and a metrics page of 100 kB; one made-up GPU beside it. With `--against` another checkout of llmtop
looks at the same server at the same time, and the ratio of the medians is printed: whatever else the machine does meets
both alike. Start and warm-up are left out. Without root there are no probes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, ROOT, TimedTerminal, fake_gpus, machine, median, table

HERE = Path(__file__).resolve().parent
LIBRARY = """
#include <unistd.h>
int cuLaunchKernel(void) { for (volatile int i = 0; i < 300; i++); return 0; }
int cuStreamSynchronize(void) { usleep(20000); return 0; }
"""
"""A GPU that takes 20 ms for a step, so that the engine waits for most of the time."""
BUDGETS = {"TUI": 4.0, "probes": 1.0}
_HELPERS = {"--budget": "probes", "perf": "probes", "nvml.helper": "GPUs"}
"""What a helper is told by, in its command line."""


@contextmanager
def stand_in() -> Iterator[tuple[int, int]]:
    """The server: PIDs of its API server and of its engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library, engine, program = folder / "libcuda.so.1", folder / "stand_in_server", folder / "vllm"
        (folder / "library.c").write_text(LIBRARY)
        flags = ["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, folder / "library.c"], check=True)
        source = [HERE / "stand_in_server.c", library, f"-Wl,-rpath,{folder}"]
        subprocess.run(["gcc", "-O1", "-pthread", "-o", engine, *source], check=True)
        program.symlink_to(HERE / "vllm_stand_in.py")
        argv = [sys.executable, str(program), "serve", "meta-llama/Llama-3.1-8B-Instruct", "--engine", str(engine)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            if not (said := server.stdout.readline()):
                sys.exit("the stand-in did not start")
            time.sleep(2.0)  # its engine finds out how fast it is
            try:
                yield server.pid, int(said.split()[1])
            finally:
                server.terminate()


@contextmanager
def server(pid: int | None) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    """The PID to attach to and llmtop's environment: the given server's, or the stand-in's beside a made-up GPU."""
    if pid is not None:
        yield pid, {}
        return
    with stand_in() as (front, engine), fake_gpus(1, user=engine) as env:
        yield front, env


def spent_s(pid: int) -> defaultdict[str, float]:
    """Processor time so far: of llmtop as "TUI", and of its kinds of helpers; that of threads that have ended too."""
    spent: defaultdict[str, float] = defaultdict(float)
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        kind = "TUI" if process.pid == pid else _kind(process)
        times = process.cpu_times()
        spent[kind] += times.user + times.system
    return spent


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    return next((kind for word, kind in _HELPERS.items() if word in words), process.name())


@dataclass(frozen=True, slots=True)
class Window:
    """Shares of a core in percent, by what `spent_s` tells apart, and kB/s written to the terminal."""

    shares: Mapping[str, float]
    kb_per_s: float


def measure(
    checkouts: Mapping[str, Path], mode: str, pid: int, options: argparse.Namespace, env: Mapping[str, str | None]
) -> dict[str, list[Window]]:
    """The windows of each checkout's llmtop, all of them running at the same time."""
    argv = [*LLMTOP, "--attach", str(pid), "--interval", f"{options.interval:g}", "--probes", mode]
    windows: dict[str, list[Window]] = {name: [] for name in checkouts}
    with ExitStack() as stack:
        terminals = {
            name: stack.enter_context(TimedTerminal(argv, {**env, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}))
            for name, path in checkouts.items()
        }
        time.sleep(options.warm_up)
        for _ in range(options.rounds):
            before = {name: (time.perf_counter(), spent_s(one.pid)) for name, one in terminals.items()}
            time.sleep(options.seconds)
            for name, one in terminals.items():
                one.check_running()
                windows[name].append(_window(one, *before[name]))
    return windows


def _window(terminal: TimedTerminal, start_s: float, before: Mapping[str, float]) -> Window:
    after, end_s = spent_s(terminal.pid), time.perf_counter()
    shares = {name: (after[name] - before.get(name, 0.0)) / (end_s - start_s) * 100 for name in after}
    return Window(shares, terminal.bytes_between(start_s, end_s) / (end_s - start_s) / 1000)


def main() -> int:
    """Print a table; 1 where a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each window")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds before each window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=float, default=0.5)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["full", "off"], help="of --probes")
    parser.add_argument("--pid", type=int, help="of a server that runs here, in place of the stand-in")
    parser.add_argument("--against", type=Path, help="another checkout, measured at the same time")
    options = parser.parse_args()
    print(machine())
    checkouts = {"this": ROOT} | ({"that": options.against.resolve()} if options.against else {})
    with server(options.pid) as (pid, env):
        runs: dict[tuple[str, str], list[Window]] = {}
        for mode in options.modes:
            for name, windows in measure(checkouts, mode, pid, options, env).items():
                runs[mode, name] = windows
                for window in windows:
                    told = ", ".join(f"{part} {window.shares.get(part, 0.0):.2f} %" for part in (*BUDGETS, "GPUs"))
                    print(f"{mode} {name}: {told}, {window.kb_per_s:.1f} kB/s", file=sys.stderr, flush=True)
    return report(runs)


def report(runs: Mapping[tuple[str, str], list[Window]]) -> int:
    """The medians, and by how much they fell."""
    rows, is_beyond = [], False
    for mode in dict.fromkeys(mode for mode, _ in runs):
        for part in (*BUDGETS, "GPUs"):
            here, there = (
                median([one.shares.get(part, 0.0) for one in runs.get((mode, name), [])]) for name in ("this", "that")
            )
            assert here is not None
            is_beyond |= here > BUDGETS.get(part, 100.0)
            ratio = f"{here / there:.2f}" if there else None
            budget = f"{BUDGETS[part]:g}" if part in BUDGETS else None
            rows.append((mode, part, f"{here:.2f}", None if there is None else f"{there:.2f}", ratio, budget))
    print(table(("probes", "process", "% of a core", "the other's", "ratio", "budget %"), rows))
    return int(is_beyond)


if __name__ == "__main__":
    raise SystemExit(main())
