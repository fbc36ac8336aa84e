"""The process that runs perf for short times and adds up what it says.

Usage: llmtop starts it; it ends with its standard input. It speaks as the probes' helper does
(collectors/tracing/helper/protocol.py), with {"kind": "looking"} and {"kind": "looked"} around each look.

It is a process of its own because reading perf's text takes time that the screen must not lose, and because it has a
single thread: only so can each perf be told safely to end with it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.helper import protocol, system
from llmtop.collectors.tracing.helper.protocol import Link
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.perf import sched as perf_sched
from llmtop.collectors.tracing.perf.budget import LARGEST_SHARE, RoundPlan, ThreadLoad, plan
from llmtop.collectors.tracing.perf.events import PerfEvents
from llmtop.collectors.tracing.perf.recording import looked
from llmtop.collectors.tracing.perf.run import PerfProgram
from llmtop.collectors.tracing.perf.sched import SliceSums, Stacks
from llmtop.collectors.tracing.perf.threads import ServerThreads
from llmtop.collectors.tracing.perf.totals import Books
from llmtop.collectors.tracing.wire import Why
from llmtop.model import NS_PER_S, Unknown
from llmtop.vocabulary import ON_CPU

_REST_ROUNDS = 8
"""Rounds without system calls, after which these are tried again."""
_FIRST_PAUSE_S = 1.0
"""Between the first look and the second, so that something is seen soon."""
_BY_PROBES = "use eBPF probes (llmtop doctor says what they need here)"
_NO_LATENCIES = Why("perf adds call times up and keeps no distribution", _BY_PROBES)
_NO_GIL = Why("perf does not tell how a wait ended", _BY_PROBES)
_NO_ERRORS = Why("this perf counts no errors of system calls", "a newer perf does: sudo apt upgrade")
_NO_LIBRARIES = Why("perf does not look at CUDA calls", _BY_PROBES)


class PerfHelper:
    """Rounds of looks, each as long as the budget allows.

    Args:
        options: Those of every helper.
        program: The perf to run.
        link: To llmtop.
    """

    def __init__(self, options: argparse.Namespace, program: PerfProgram, link: Link) -> None:
        self._link = link
        self._wants_stacks: bool = options.stacks
        self._interval_s: float = options.interval
        self._budget: float = options.budget
        self._server = ServerThreads(options.pids)
        self._events = PerfEvents(program, self._server, link.wait)
        self._books = Books()
        self._load = ThreadLoad()
        self._calls_rested = 0
        self._plan = self._next_plan()

    def _next_plan(self) -> RoundPlan:
        return plan(self._load, budget=self._budget, interval_s=self._interval_s, stacks=self._wants_stacks)

    @property
    def unavailable(self) -> Unknown | None:
        """Why there will never be anything; None while there may be."""
        return self._events.unavailable

    def look_once(self, seconds: float) -> Iterator[wire.Sample]:
        """Look at everything for so long, whatever it costs: for tests and measurements."""
        self._renew()
        self._measure_load()
        self._plan = RoundPlan(seconds, self._wants_stacks, seconds, seconds)
        yield self._look_at_threads({})
        yield self._look_at_calls()

    def round(self) -> Iterator[wire.Sample]:
        """Look at everything once; a report after each look."""
        changes = self._renew()
        if not self._server.family.threads:
            now = time.monotonic_ns()
            yield self._report(now, now, changes)
            return
        self._measure_load()
        self._plan = self._next_plan()
        yield self._look_at_threads(changes)
        if not self._events.parts["syscalls"].given_up and self._calls_are_due():
            yield self._look_at_calls()

    def _renew(self) -> wire.Sample:
        ended, gone = self._server.renew()
        self._books.forget(set(ended), gone)
        return {"gone": sorted(gone), "ended": [wire.EndedThread(pid, tid) for tid, pid in ended.items()]}

    def _measure_load(self) -> None:
        switches = self._server.measure()
        if switches is not None:
            self._load = replace(self._load, switches=switches)

    @property
    def _look_s(self) -> float:
        """How long to look at threads: where the scheduler cannot be looked at, at what runs alone."""
        is_seen = bool(self._plan.scheduler_s) and not self._events.parts["scheduler"].given_up
        return self._plan.scheduler_s if is_seen else self._plan.running_s

    def _look_at_threads(self, changes: wire.Sample) -> wire.Sample:
        """Switches of the whole machine, filtered, and beside them the stacks of the server's threads."""
        family, sleeps = self._server.family, self._plan.stacks
        takes_stacks = self._wants_stacks and bool(self._look_s)
        names = ("scheduler",) * bool(self._plan.scheduler_s) + ("samples",) * takes_stacks
        with looked(self._events, family, self._link, names, self._look_s, sleeps=sleeps) as look:
            sums, stacks = look.sums(), look.stacks()
        self._books.lost += look.lost
        report = changes.copy()
        if sums is not None:
            report |= self._books.add_slice(sums, family.threads, look.end - look.start)
            if sleeps:
                stacks = perf_sched.shared_out(_with_sleepers(stacks, sums, family.threads), sums.blocked)
        report |= _told_stacks(stacks, family.threads)
        return self._report(look.start, look.end, report)

    def _calls_are_due(self) -> bool:
        """Where calls cost too much to be looked at, it is tried again now and then."""
        if self._plan.calls_s:
            return True
        self._calls_rested += 1
        if self._calls_rested >= _REST_ROUNDS:
            self._calls_rested = 0
            self._load = replace(self._load, calls=None)
        return False

    def _look_at_calls(self) -> wire.Sample:
        """Entries and returns are recorded and added up afterwards: while it looks, perf trace is woken by each."""
        family = self._server.family
        with looked(self._events, family, self._link, ("syscalls",), self._plan.calls_s) as look:
            tables = look.calls()
        self._books.lost += look.lost
        if tables is None:
            return self._report(look.start, look.end, {})
        length_ns = look.end - look.start
        count = sum(row.calls for table in tables for row in table.rows)
        self._load = replace(self._load, calls=count * NS_PER_S / length_ns)
        return self._report(look.start, look.end, self._books.add_calls(tables, family.threads, length_ns))

    def _report(self, start: int, end: int, told: wire.Sample) -> wire.Sample:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        report: wire.Sample = {
            "kind": "sample",
            "t": end,
            "elapsed": max(1, end - start),
            "observed": self._books.observed.copy(),
            "hits": dict(self._books.hits),
            "lost": self._books.lost,
            "missing": self._missing(),
            "shed": self._shed(),
            "children_ns": round((spent.ru_utime + spent.ru_stime) * 1e9),
        }
        report |= told
        return report

    def _missing(self) -> dict[str, Why]:
        found = self._events.missing()
        found["syscall.latency"] = _NO_LATENCIES
        found["library calls"] = _NO_LIBRARIES
        found["process.gil_waits"] = _NO_GIL
        if self._books.lacks_errors:
            found["syscall.errors"] = _NO_ERRORS
        found["perf.sampled"] = Why(
            f"perf looks {self._look_s:.2g} s of every {self._interval_s:.2g} s",
            _BY_PROBES,
        )
        return found

    def _shed(self) -> str:
        """What is not looked at, or less, because it would cost too much."""
        most = LARGEST_SHARE * self._interval_s
        parts = []
        if self._wants_stacks and not self._plan.stacks:
            parts.append("no stacks of sleeps")
        for name, seconds in (("scheduler", self._plan.scheduler_s), ("system calls", self._plan.calls_s)):
            unknown = self._load.switches if name == "scheduler" else self._load.calls
            if unknown is not None and seconds < most:
                parts.append(f"{name} {seconds:.2g} s of every {self._interval_s:.2g} s" if seconds else f"{name} off")
        return ", ".join(parts)


def _told_stacks(stacks: Stacks, owners: Mapping[int, int]) -> wire.Sample:
    running = [
        wire.RunStack(owners[tid], tid, names, ns) for (tid, state, names), ns in stacks.items() if state == ON_CPU
    ]
    asleep = [
        wire.CauseStack(owners[tid], tid, cause, names, ns)
        for (tid, cause, names), ns in stacks.items()
        if cause != ON_CPU
    ]
    return {"running": running, "asleep": asleep}


def _with_sleepers(stacks: Stacks, sums: SliceSums, owners: Mapping[int, int]) -> Stacks:
    """With the kernel's side of those that slept all the time: perf sees a stack only when one goes to sleep."""
    seen = {(tid, state) for tid, state, _ in stacks}
    extra: Stacks = {}
    for (tid, cause), ns in sums.blocked.items():
        if (tid, cause.value) not in seen:
            names = tuple(system.kernel_stack(owners[tid], tid))
            if names:
                extra[tid, cause.value, names] = ns
    return {**stacks, **extra}


def main() -> int:
    """Run until told to stop, or until llmtop is gone."""
    parser = protocol.parser("llmtop-perf")
    parser.add_argument("--once", type=float, default=0.0, metavar="SECONDS", help="look once for so long, and end")
    return protocol.run(parser.parse_args(), _look)


def _look(options: argparse.Namespace, link: Link) -> None:
    program = perf_run.find()
    if isinstance(program, Unknown):
        raise UnavailableError(program.reason, program.remedy)
    with suppress(UnavailableError):  # perf says itself what it cannot do without
        system.see_tracepoints()
    helper = PerfHelper(options, program, link)
    if options.once:
        for report in helper.look_once(options.once):
            link.say(report)
        return
    is_ready = False
    for _ in link.ticks(0.0, _FIRST_PAUSE_S, options.interval):
        for report in helper.round():
            if (why := helper.unavailable) is not None:
                raise UnavailableError(why.reason, why.remedy)
            if not is_ready:
                link.say({"kind": "ready", "pid": os.getpid(), "perf": program.path})
                is_ready = True
            link.say(report)


if __name__ == "__main__":
    sys.exit(main())
