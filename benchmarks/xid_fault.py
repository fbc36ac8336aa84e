"""How soon llmtop shows an XID: a kernel faults in another process, and the live session's marks are watched.

    python benchmarks/xid_fault.py [--interval 1] [--runs 3]

The kernel stores to a misaligned address; it is PTX text that the driver itself compiles, so that nothing but the
driver is needed. Only the faulting process's own context is lost: nothing else on the GPU notices. Exit code 1 when a
mark for XID 13 did not come within two seconds of the launch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import ROOT, table
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import Mark, MarkKind, Origin
from llmtop.session import Session

LIMIT_S = 2.0
PATIENCE_S = 10.0
WANTED = "XID 13"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One fault: seconds from the launch to the mark's appearance, and its text, or what went wrong."""

    after_s: float | None
    text: str
    said: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the mark came in time."""
        return self.after_s is not None and self.after_s < LIMIT_S


def catch(fault: Callable[[], tuple[int, str]], interval_s: float) -> Outcome:
    """Start a session, make a fault, and wait for its mark.

    Args:
        fault: Makes the fault; gives the time of the launch (monotonic ns) and what the process said.
        interval_s: Between polls, as `llmtop --interval`.
    """
    session = Session([NvmlCollector()], Origin("live"), interval_s=interval_s)
    is_going, is_seen = threading.Event(), threading.Event()
    seen: list[tuple[int, Mark]] = []

    def look() -> None:
        trace = session.trace()
        if gpu_tracks(trace):
            is_going.set()
        mark = next((mark for mark in trace.marks if mark.kind is MarkKind.XID and WANTED in mark.text), None)
        if mark is not None and not seen:
            seen.append((time.monotonic_ns(), mark))
            is_seen.set()

    session.on_news = look
    session.start()
    try:
        if not is_going.wait(PATIENCE_S):
            reasons = "; ".join(str(missing.why) for missing in session.trace().missing)
            return Outcome(None, f"llmtop sees no GPU: {reasons}")
        launched_ns, said = fault()
        if not is_seen.wait(PATIENCE_S):
            return Outcome(None, f"no mark within {PATIENCE_S:.0f} s", said)
    finally:
        session.stop()
    seen_ns, mark = seen[0]
    return Outcome((seen_ns - launched_ns) / 1e9, mark.text, said)


def fault_on_gpu() -> tuple[int, str]:
    """Run the faulting kernel in a process of its own."""
    command = [sys.executable, str(ROOT / "benchmarks/cuda_driver.py"), "fault"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first, _, rest = done.stdout.partition("\n")
    if done.returncode or not first.isdecimal():
        sys.exit(f"the faulting kernel could not be run: {(done.stdout or done.stderr).strip()}")
    return int(first), rest.strip()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between llmtop's polls (default 1)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    outcomes = [catch(fault_on_gpu, options.interval) for _ in range(options.runs)]
    rows = [
        (str(i + 1), None if one.after_s is None else f"{one.after_s:.2f} s", one.text, one.said)
        for i, one in enumerate(outcomes)
    ]
    print(table(("run", "launch to mark", "llmtop's mark", "the process saw"), rows))
    is_good = all(one.is_good for one in outcomes)
    print(f"polls every {options.interval:g} s; limit {LIMIT_S:g} s: {'met' if is_good else 'missed'}")
    return int(not is_good)


if __name__ == "__main__":
    raise SystemExit(main())
