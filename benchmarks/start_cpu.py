"""CPU time of a start, of this checkout and of another one by turns: on busy cores only their ratio tells.

    python benchmarks/start_cpu.py CHECKOUT [--runs 9]

User and system time of the process and of the children it has waited for, until its first frame is written (then it is
killed), or until `snapshot` ends. Medians, with warm .pyc files; eight made-up GPUs.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, ROOT, TimedTerminal, fake_gpus, machine, table

SMALL = ROOT / "sample_traces/ncu/2025.3.1/sgemm-ladder.ncu-rep.xz"
Env = Mapping[str, str | None]


def until_shown(*arguments: str, wanted: bytes) -> Callable[[Env], None]:
    """A start that is over when the screen has written something."""

    def start(env: Env) -> None:
        with TimedTerminal([*LLMTOP, *arguments], env) as terminal:
            terminal.wait_for_output(wanted)
            terminal.signal(signal.SIGKILL)
            terminal.wait_exit()

    return start


def snapshot(env: Env) -> None:
    """A look without a screen."""
    plain = {"PATH": os.environ["PATH"]} | {name: value for name, value in env.items() if value is not None}
    subprocess.run([*LLMTOP, "snapshot", "--json", "--seconds", "1"], env=plain, check=True, capture_output=True)


STARTS: Mapping[str, Callable[[Env], None]] = {
    "`open`, small report (.xz): tabs": until_shown("open", str(SMALL), wanted=b"1 Kernels"),
    "live screen: panes": until_shown(wanted=b"6 CPU-GPU"),
    "`snapshot --json`": snapshot,
}


def cpu_s(start: Callable[[Env], None], env: Env) -> float:
    """What one start takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start(env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a table of medians."""
    arguments = argparse.ArgumentParser(description="CPU time of a start, by turns with that of another checkout.")
    arguments.add_argument("checkout", type=Path, help="the other one")
    arguments.add_argument("--runs", type=int, default=9)
    options = arguments.parse_args()
    rows = []
    with fake_gpus(8) as gpus:
        # Python is not to look for packages in the current folder first.
        trees = [
            {**gpus, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(tree)} for tree in (options.checkout.resolve(), ROOT)
        ]
        for name, start in STARTS.items():
            taken = [[cpu_s(start, env) for env in trees] for _ in range(options.runs + 1)][1:]  # the first makes .pyc
            other, own = (statistics.median(column) for column in zip(*taken, strict=True))
            rows.append((name, f"{1e3 * other:.0f} ms", f"{1e3 * own:.0f} ms", f"{own / other:.2f}"))
    print(machine())
    print(table(("start", "the other", "this one", "ratio"), rows))


if __name__ == "__main__":
    main()
