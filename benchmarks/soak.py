"""Does llmtop grow? Attached to a server under load for half an hour, with probes, while someone presses keys.

    python benchmarks/soak.py [--minutes 30] [--every 15] [--json FILE]

The real screen runs in a pseudo-terminal on the demo server, with eight made-up GPUs and every collector that can run
here; every few seconds a pane is focused, zoomed, scrubbed or left. Memory, descriptors and threads of llmtop and of
its helpers, and processor time, are noted. The recorder fills for its window first; what counts is the time after
that. Exit code 1 where memory grew by more than 2 % and 2 MB from its first to its last quarter (medians), or where the
last quarter saw more descriptors, threads or children than there ever were before: these come and go with the probes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, DemoServer, TimedTerminal, fake_gpus, machine, table
from llmtop.session import DEFAULT_WINDOW_S

KEYS = ("1", "2", "3", "4", "5", "z", "z", "6", "left", "left", "escape", "8", "escape", "d", "escape", "e", "e")
PRESS_S = 3.0
FULL_S = 1.5 * DEFAULT_WINDOW_S
"""Columns are cut only when they hold some minutes more than the recorder's window."""
MEMORY_GROWTH, MEMORY_BYTES = 0.02, 2e6


@dataclass(frozen=True, slots=True)
class Look:
    """llmtop and its helpers at a moment: s since the start, bytes, counts, CPU seconds so far."""

    at_s: float
    rss: int
    helpers_rss: int
    descriptors: int
    helpers_descriptors: int
    threads: int
    children: int
    cpu_s: float

    @classmethod
    def of(cls, process: psutil.Process, start_s: float) -> Look:
        """Look now."""
        children = process.children(recursive=True)
        spent = process.cpu_times()
        return cls(
            time.monotonic() - start_s,
            process.memory_info().rss,
            sum(child.memory_info().rss for child in children),
            process.num_fds(),
            sum(child.num_fds() for child in children),
            process.num_threads(),
            len(children),
            spent.user + spent.system,
        )


def soak(seconds: float, every_s: float) -> list[Look]:
    """Use llmtop for a while; looks at it, oldest first."""
    looks: list[Look] = []
    with fake_gpus(8) as env, DemoServer("--load") as server:
        argv = [*LLMTOP, "--attach", str(server.pid)]
        with TimedTerminal(argv, env) as terminal:
            terminal.wait_for_output(b"Roofline")
            process, start_s, keys = psutil.Process(terminal.pid), time.monotonic(), itertools.cycle(KEYS)
            while (elapsed := time.monotonic() - start_s) < seconds:
                terminal.check_running()
                terminal.press(next(keys))
                del terminal.pieces[:-50]  # what was drawn is not what is measured
                if elapsed >= len(looks) * every_s:
                    looks.append(_look(process, start_s))
                time.sleep(PRESS_S)
    return looks


def _look(process: psutil.Process, start_s: float) -> Look:
    """A look that no child which just ends can spoil: py-spy and the like are short-lived."""
    while True:
        try:
            return Look.of(process, start_s)
        except psutil.NoSuchProcess:
            if not process.is_running():
                raise


def compare(looks: Sequence[Look]) -> tuple[list[tuple[str, ...]], bool]:
    """The looks after the recorder is full, before and in their last quarter; whether nothing grew."""
    settled = [look for look in looks if look.at_s > FULL_S]
    if len(settled) < 8:
        sys.exit(f"too short: {FULL_S:g} s pass before anything counts")
    quarter = len(settled) // 4
    rows, is_steady = [], True
    for field in fields(Look)[1:-1]:
        values = [getattr(look, field.name) for look in settled]
        is_memory = field.name.endswith("rss")
        if is_memory:
            early, late = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
            is_steady &= late - early <= max(early * MEMORY_GROWTH, MEMORY_BYTES)
        else:
            early, late = max(values[:-quarter]), max(values[-quarter:])
            is_steady &= late <= early
        rows.append((field.name, *(f"{value / 1e6:.1f} MB" if is_memory else f"{value:g}" for value in (early, late))))
    first, last = settled[0], settled[-1]
    rows.append(("cpu", "", f"{(last.cpu_s - first.cpu_s) / (last.at_s - first.at_s):.1%} of a core"))
    return rows, is_steady


def main() -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between looks")
    parser.add_argument("--json", type=Path, help="write all looks there")
    options = parser.parse_args()
    print(machine())
    looks = soak(options.minutes * 60, options.every)
    if options.json:
        options.json.write_text(json.dumps([asdict(look) for look in looks]))
    rows, is_steady = compare(looks)
    print(table(("what", "after the recorder is full", f"at {options.minutes:g} min"), rows))
    print("steady" if is_steady else "IT GROWS")
    return 0 if is_steady else 1


if __name__ == "__main__":
    raise SystemExit(main())
