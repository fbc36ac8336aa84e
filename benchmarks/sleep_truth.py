"""Is what threads sleep in told right, at low and at high rates of switches, all the time and in slices of it?

Usage: sudo .venv/bin/python benchmarks/sleep_truth.py [SECONDS [FASTER ...]]

Programs that sleep in a known way (tests/workloads) run beside each other, as slow as they are by themselves and so
many times faster, before all others on the machine. The probes' helper looks at them once without a budget and once
with 1 % of a core. Truth is each thread's own account by the kernel's clocks: what it was neither on a CPU nor queued
for one. Printed is what was told of each cause by the time that was looked at. Needs root and gcc.
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmtop.collectors.tracing.causes import cause_of_sleep
from llmtop.collectors.tracing.probes.collector import PROGRAM
from llmtop.collectors.tracing.process import HelperProcess
from tests.workloads.programs import Account, Workload, build_workload

MODES = ("nanosleep", "futex", "pipe", "network", "epoll", "mixed")
CAUSES = {"nanosleep": "nanosleep", "futex": "futex", "pipe": "pipe", "network": "socket", "epoll": "epoll"}
"""Of the thread "worker" of each program, all of whose sleep has one cause."""
SETTLE_S = 6.0
BUDGETS = {"all the time": "100", "1 % of a core": "0.01"}


@dataclass
class Told:
    """What the helper has said: ns by (tid, cause), for how long it had looked, hits, and its own CPU time."""

    slept: dict[tuple[int, str], int]
    looked_ns: int
    at_ns: int
    hits: Mapping[str, int]
    helper_s: float


class Looking:
    """A helper, and what it has told."""

    def __init__(self, pids: list[int], budget: str) -> None:
        self._helper = HelperProcess([*map(str, pids), "--interval", "0.2", "--budget", budget], program=PROGRAM)
        self._places: dict[tuple[int, int, int], int] = {}
        self._slept: dict[tuple[int, str], int] = {}
        self.shed = ""

    def until(self, seconds: float) -> Told:
        """Go on for so long, to the next report."""
        end = time.monotonic() + seconds
        for report in self._reports():
            for pid, tid, call, state, descriptor, ns in report.get("waits", ()):
                grown = ns - self._places.get((tid, call, state), 0)
                self._places[tid, call, state] = ns
                key = (tid, cause_of_sleep(pid, call, state, descriptor).value)
                self._slept[key] = self._slept.get(key, 0) + grown
            self.shed = report["shed"]
            if time.monotonic() >= end:
                break
        looked = report["observed"]["scheduler"]
        return Told(dict(self._slept), looked, report["t"], report["hits"], _cpu_s(self._pid))

    def _reports(self) -> Iterator[dict[str, Any]]:
        while not self._helper.is_at_end:
            select.select([self._helper], [], [], 1.0)
            for report in self._helper.reports():
                if report["kind"] == "ready":
                    self._pid = report["pid"]
                if report["kind"] == "sample":
                    yield report
        raise SystemExit(self._helper.last_words())

    def close(self) -> None:
        """Take the probes away."""
        self._helper.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def truth(mode: str, before: Account, after: Account) -> dict[str, float]:
    """By cause, the share of the time that the worker slept."""
    did = after.shares(before)["worker"]
    blocked = max(0.0, 1.0 - did.on_cpu - did.queued)
    if mode != "mixed":
        return {CAUSES[mode]: blocked}
    return {"nanosleep": did.waited, "futex": blocked - did.waited}


def compare(programs: Mapping[str, Workload], how: str, seconds: float) -> None:
    """Print what was told of each program beside what it did."""
    looking = Looking([one.pid for one in programs.values()], BUDGETS[how])
    try:
        looking.until(SETTLE_S)
        before, start = {name: one.ask() for name, one in programs.items()}, looking.until(0.0)
        end = looking.until(seconds)
        after = {name: one.ask() for name, one in programs.items()}
    finally:
        looking.close()
    looked, passed = end.looked_ns - start.looked_ns, end.at_ns - start.at_ns
    switches = end.hits["switch"] - start.hits["switch"]
    print(
        f"\n{how}: looked {looked / passed:.0%} of the time, {switches / max(1, looked) * 1e9:,.0f} switches/s, "
        f"helper {(end.helper_s - start.helper_s) / passed * 1e11:.2f} % of a core; {looking.shed or 'nothing shed'}"
    )
    for mode in programs:
        tid = after[mode].threads["worker"]["tid"]
        for cause, share in truth(mode, before[mode], after[mode]).items():
            told = end.slept.get((tid, cause), 0) - start.slept.get((tid, cause), 0)
            print(f"  {mode:<10} {cause:<10} true {share:7.2%}  told {told / max(1, looked):7.2%}")


def main() -> None:
    """Compare at each rate."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))  # of all below: others on the machine come and go
    factors = sys.argv[2:] or ["1", "20", "100"]
    with tempfile.TemporaryDirectory() as folder:
        binary = build_workload(Path(folder))
        for faster in factors:
            print(f"\n== {faster} times as fast")
            with ExitStack() as stack:
                programs = {mode: stack.enter_context(Workload(binary, mode, "0", faster)) for mode in MODES}
                for program in programs.values():
                    program.start()
                for how in BUDGETS:
                    compare(programs, how, seconds)


if __name__ == "__main__":
    main()
