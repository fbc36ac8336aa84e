"""The process that runs perf for short times and adds up what it says.

Usage: llmtop starts it; it ends with its standard input. It speaks as bcc's helper does
(collectors/ebpf/helper/protocol.py), with {"kind": "looking"} and {"kind": "looked"} around each look.

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
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any

from llmtop.collectors.ebpf.helper import protocol, system
from llmtop.collectors.ebpf.helper.protocol import Link
from llmtop.collectors.ebpf.helper.system import UnavailableError
from llmtop.collectors.perf import run as perf_run
from llmtop.collectors.perf import sched as perf_sched
from llmtop.collectors.perf import threads as perf_threads
from llmtop.collectors.perf.books import Books
from llmtop.collectors.perf.budget import LARGEST_SHARE, Load, Plan, plan
from llmtop.collectors.perf.run import PerfError, Program, Recording
from llmtop.collectors.perf.sched import ON_CPU, Slice, Stacks, Sums
from llmtop.collectors.perf.threads import Family
from llmtop.model import NS_PER_S, Unknown

HERTZ = 199
"""Of on-CPU stacks within a look: in all as many as 20 a second all the time. A prime, so as to go with no timer."""
MOST_THREADS = 1000
"""That perf opens events for; of more, the busiest."""
MOST_PAGES = 4096
"""Of perf's buffers over all threads, 4 KiB each; an ordinary user has an eighth of that for each CPU by default."""
MOST_RANGES = 24
"""Of thread ids in the kernel's filter: each costs every switch of the machine some ns, and its text has a page."""
LEAST_SWITCHES = 20
"""So many switches of the server without a single event are no chance."""
USER_PAGES_A_CPU = 64
"""What an ordinary user's buffers may have: half of perf_event_mlock_kb's default of 516 KiB a CPU."""
_REST_ROUNDS = 8
_FIRST_PAUSE_S = 1.0
_MOST_PASSING = 3
_NO_LATENCIES = ("perf adds call times up and keeps no distribution", "sudo apt install python3-bpfcc: bcc keeps one")
_NO_GIL = ("perf does not tell how a wait ended", "sudo apt install python3-bpfcc: bcc counts waits for the GIL")
_NO_ERRORS = ("this perf counts no errors of system calls", "a newer perf does: sudo apt upgrade")
_NO_LIBRARIES = ("perf is not used on libraries", "sudo apt install python3-bpfcc: bcc looks at CUDA calls")
_OUTSIDE = "run llmtop on the host, or its container with --pid=host"
_BY_USER = ("perf shows an ordinary user no kernel functions", "sudo llmtop ...")


class Part:
    """Something that is looked at: as long as it can be, and not when it costs too much."""

    def __init__(self) -> None:
        self.given_up = False
        self.why: Unknown | None = None
        """Why there is nothing."""
        self._failures = 0

    def worked(self) -> None:
        """It was looked at."""
        self.why = None
        self._failures = 0

    def failed(self, error: PerfError) -> None:
        """It could not be: what may pass by itself is told when it does not."""
        self._failures += 1
        self.given_up = error.lasting
        if error.lasting or self._failures >= _MOST_PASSING:
            self.why = error.why


class Helper:
    """Rounds of looks.

    Args:
        options: As `_options` has them.
        program: The perf to run.
        link: To llmtop.
    """

    def __init__(self, options: argparse.Namespace, program: Program, link: Link) -> None:
        self._link = link
        self._wants_stacks: bool = options.stacks
        self._roots: list[int] = options.pids
        self._interval_s: float = options.interval
        self._budget: float = options.budget
        self._perf = program
        self._books = Books()
        self._parts = {"scheduler": Part(), "samples": Part(), "syscalls": Part()}
        self._is_users_only = False
        self._only_old = False
        """Whether short-lived threads are left out: perf gives up when one ends while it begins."""
        self._family = Family({})
        self._load = Load()
        self._calls_rested = 0
        self._plan = self._next_plan()
        self._ran: dict[int, tuple[int, int]] = {}
        self._ran_ns = 0
        self._note_namespace()

    def _next_plan(self) -> Plan:
        return plan(self._load, budget=self._budget, interval_s=self._interval_s, stacks=self._wants_stacks)

    def _note_namespace(self) -> None:
        """Events name threads by the machine's own ids, which from within a PID namespace mean others."""
        try:
            if system.pid_namespace() is None:
                return
            why = Unknown("inside a PID namespace perf's events name threads by the machine's ids", _OUTSIDE)
        except UnavailableError as error:
            why = Unknown(error.reason, error.remedy)
        self._parts["scheduler"].failed(PerfError(why, lasting=True))

    @property
    def unavailable(self) -> Unknown | None:
        """Why there will never be anything; None while there may be."""
        if not all(part.given_up for part in self._parts.values()):
            return None
        return self._parts["samples"].why

    def look_once(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Look at everything for so long, whatever it costs: for tests and measurements."""
        self._renew_family()
        self._measure_load()
        self._plan = Plan(seconds, self._wants_stacks, seconds, seconds)
        yield self._look_at_threads({})
        yield self._look_at_calls()

    def round(self) -> Iterator[dict[str, Any]]:
        """Look at everything once; a report after each look."""
        changes = self._renew_family()
        if not self._family.threads:
            now = time.monotonic_ns()
            yield self._report(now, now, changes)
            return
        self._measure_load()
        self._plan = self._next_plan()
        yield self._look_at_threads(changes)
        if not self._parts["syscalls"].given_up and self._calls_are_due():
            yield self._look_at_calls()

    def _renew_family(self) -> dict[str, Any]:
        """Find the server's processes and threads; which have ended since."""
        before, self._family = self._family, Family.of(self._roots)
        gone = set(before.processes) - set(self._family.processes)
        ended = {tid: pid for tid, pid in before.threads.items() if tid not in self._family.threads}
        self._books.forget(set(ended), gone)
        return {"gone": sorted(gone), "ended": [[pid, tid] for tid, pid in ended.items()]}

    def _measure_load(self) -> None:
        """How often the threads came to a CPU since the last round: the kernel counts it for everybody."""
        now, ran = time.monotonic_ns(), perf_threads.schedstats(self._family)
        if self._ran:
            switches = sum(times - self._ran[tid][1] for tid, (_, times) in ran.items() if tid in self._ran)
            self._load = replace(self._load, switches=max(0, switches) * 1e9 / max(1, now - self._ran_ns))
        self._busy = {tid: spent - self._ran.get(tid, (0, 0))[0] for tid, (spent, _) in ran.items()}
        self._ran, self._ran_ns = ran, now

    @property
    def _look_s(self) -> float:
        """How long to look at threads: where the scheduler cannot be looked at, at what runs alone."""
        is_seen = bool(self._plan.scheduler_s) and not self._parts["scheduler"].given_up
        return self._plan.scheduler_s if is_seen else self._plan.running_s

    def _busiest(self) -> list[int]:
        """The threads to open events for: all, or as many as perf can take."""
        most = MOST_THREADS
        if self._is_users_only:
            most = min(most, USER_PAGES_A_CPU * (os.cpu_count() or 1) // 2)
        threads = perf_threads.old(self._family) if self._only_old else self._family.threads
        return sorted(threads, key=lambda tid: -self._busy.get(tid, 0))[:most]

    def _look_at_threads(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Switches of the whole machine, filtered, and beside them the stacks of the server's threads."""
        with ExitStack() as opened:
            takes_stacks = self._wants_stacks and bool(self._look_s)
            wanted = ("scheduler",) * bool(self._plan.scheduler_s) + ("samples",) * takes_stacks
            recordings = {name: one for name in wanted if (one := self._open(name, opened)) is not None}
            seeds, before = perf_threads.seeds(self._family), perf_threads.schedstats(self._family)
            recordings = {name: one for name, one in recordings.items() if self._tell(name, one, "enable")}
            start = time.monotonic_ns()
            self._link.say({"kind": "looking"})
            if recordings:
                self._link.wait([], self._look_s)
            end = time.monotonic_ns()
            self._link.say({"kind": "looked"})
            for recording in recordings.values():
                recording.stop()
            switches = perf_threads.times_run(before, perf_threads.schedstats(self._family))
            sums, weights = None, Stacks()
            if "scheduler" in recordings:
                sums = self._account(recordings["scheduler"], Slice(start, end, seeds), switches)
            if "samples" in recordings:
                weights = self._weights(recordings["samples"], start, end)
        report = dict(changes)
        if sums is not None:
            report |= self._books.add_slice(sums, self._family.threads, end - start)
        return self._report(start, end, report | self._told_stacks(weights, sums))

    def _open(self, name: str, opened: ExitStack) -> Recording | None:
        """Have perf open its events, and wait until it has; None where it cannot."""
        part = self._parts[name]
        if part.given_up:
            return None
        options = {
            "scheduler": self._scheduler_options,
            "samples": self._samples_options,
            "syscalls": self._calls_options,
        }[name]()
        recording = opened.enter_context(closing(Recording(self._perf.path, options)))
        if self._tell(name, recording, "disable"):
            return recording
        if name == "samples" and part.given_up and not self._is_users_only and os.geteuid() != 0:
            self._is_users_only = True
            part.given_up = False
            return self._open(name, opened)
        if name != "scheduler" and not part.given_up and not self._only_old:
            self._only_old = True
            return self._open(name, opened)
        return None

    def _tell(self, name: str, recording: Recording, command: str) -> bool:
        try:
            recording.tell(command, self._link.wait)
        except PerfError as error:
            self._parts[name].failed(self._better_reason(error))
            return False
        return True

    def _better_reason(self, error: PerfError) -> PerfError:
        """What perf cannot know: whose processes these are."""
        owners = {perf_threads.owner(pid) for pid in self._family.processes} - {None}
        if os.geteuid() == 0 or owners <= {os.geteuid()}:
            return error
        why = Unknown("the server is another user's", "sudo llmtop ..., or run llmtop as that user")
        return PerfError(why, lasting=error.lasting)

    def _scheduler_options(self) -> list[str]:
        ranges = perf_threads.id_ranges(self._family.threads, MOST_RANGES)
        stack = "call-graph=fp,max-stack=16"
        switches = f"{perf_threads.within('prev_pid', ranges)}||{perf_threads.within('next_pid', ranges)}"
        events = [f"-esched:sched_switch/{stack}/", "--filter", switches]
        for wakeup in ("sched:sched_wakeup", "sched:sched_wakeup_new"):
            events += [f"-e{wakeup}/{stack}/", "--filter", perf_threads.within("pid", ranges)]
        return ["-a", "-m", "256", "--kernel-callchains", *self._perf.without_maps, *events]

    def _samples_options(self) -> list[str]:
        whom = self._family.options(self._pages(), self._busiest())
        common = ["-T", "--per-thread", "-g", *whom]
        if self._is_users_only:
            return [*common, "-e", f"cpu-clock/freq={HERTZ}/u"]
        sleeps = ["--switch-events", "-e", "sched:sched_switch"] if self._plan.stacks else []
        return [*common, "-e", f"cpu-clock/freq={HERTZ}/", *sleeps]

    def _calls_options(self) -> list[str]:
        whom = self._family.options(self._pages(), self._busiest())
        return [
            "-T",
            "--per-thread",
            *self._perf.without_maps,
            *whom,
            "-e",
            "raw_syscalls:sys_enter",
            "-e",
            "raw_syscalls:sys_exit",
        ]

    def _pages(self) -> int:
        return USER_PAGES_A_CPU * (os.cpu_count() or 1) if self._is_users_only else MOST_PAGES

    def _account(self, recording: Recording, account: Slice, switches: int) -> Sums | None:
        part = self._parts["scheduler"]
        try:
            for sample in recording.samples(self._link.wait):
                account.take(sample)
        except PerfError as error:
            part.failed(error)
            return None
        self._books.lost += recording.lost
        sums = account.close()
        if not sums.events and switches >= LEAST_SWITCHES:
            part.failed(_filtered(switches))
            return None
        part.worked()
        return sums

    def _weights(self, recording: Recording, start: int, end: int) -> Stacks:
        part = self._parts["samples"]
        tids = frozenset(self._family.threads)
        try:
            events = recording.samples(self._link.wait)
            weights = perf_sched.stacks_of(events, start, end, tids, NS_PER_S // HERTZ)
        except PerfError as error:
            part.failed(error)
            return {}
        self._books.lost += recording.lost
        part.worked()
        return weights

    def _told_stacks(self, weights: Stacks, sums: Sums | None) -> dict[str, Any]:
        if sums is not None and self._plan.stacks:
            weights = perf_sched.shared_out(self._with_sleepers(weights, sums), sums.blocked)
        owners = self._family.threads
        running = [[owners[tid], tid, names, ns] for (tid, state, names), ns in weights.items() if state == ON_CPU]
        asleep = [[owners[tid], tid, *rest, ns] for (tid, *rest), ns in weights.items() if rest[0] != ON_CPU]
        return {"running": running, "asleep": asleep}

    def _with_sleepers(self, weights: Stacks, sums: Sums) -> Stacks:
        """With the kernel's side of those that slept all the time: perf sees a stack only when one goes to sleep."""
        seen = {(tid, state) for tid, state, _ in weights}
        extra: Stacks = {}
        for (tid, cause), ns in sums.blocked.items():
            if (tid, cause.value) not in seen:
                names = tuple(system.kernel_stack(self._family.threads[tid], tid))
                if names:
                    extra[tid, cause.value, names] = ns
        return {**weights, **extra}

    def _calls_are_due(self) -> bool:
        """Where calls cost too much to be looked at, it is tried again now and then."""
        if self._plan.calls_s:
            return True
        self._calls_rested += 1
        if self._calls_rested >= _REST_ROUNDS:
            self._calls_rested = 0
            self._load = replace(self._load, calls=None)
        return False

    def _look_at_calls(self) -> dict[str, Any]:
        """Entries and returns are recorded and added up afterwards: while it looks, perf trace is woken by each."""
        with ExitStack() as opened:
            recording = self._open("syscalls", opened)
            if recording is None or not self._tell("syscalls", recording, "enable"):
                now = time.monotonic_ns()
                return self._report(now, now, {})
            before, start = perf_threads.schedstats(self._family), time.monotonic_ns()
            self._link.say({"kind": "looking", "calls": True})
            self._link.wait([], self._plan.calls_s)
            end = time.monotonic_ns()
            recording.stop()
            switches = perf_threads.times_run(before, perf_threads.schedstats(self._family))
            return self._report(start, end, self._add_up_calls(recording, end - start, switches))

    def _add_up_calls(self, recording: Recording, length_ns: int, switches: int) -> dict[str, Any]:
        part = self._parts["syscalls"]
        try:
            tables = recording.calls(self._link.wait)
            if not tables and switches >= LEAST_SWITCHES:
                raise _filtered(switches)
        except PerfError as error:
            part.failed(error)
            return {}
        part.worked()
        self._books.lost += recording.lost
        count = sum(row.calls for table in tables for row in table.rows)
        self._load = replace(self._load, calls=count * NS_PER_S / length_ns)
        return self._books.add_calls(tables, self._family.threads, length_ns)

    def _report(self, start: int, end: int, told: Mapping[str, Any]) -> dict[str, Any]:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "kind": "sample",
            "t": end,
            "elapsed": max(1, end - start),
            "observed": dict(self._books.observed),
            "hits": dict(self._books.hits),
            "lost": self._books.lost,
            "missing": self._missing(),
            "shed": self._shed(),
            "children_ns": round((spent.ru_utime + spent.ru_stime) * 1e9),
            **told,
        }

    def _missing(self) -> dict[str, tuple[str, str]]:
        found = {name: (part.why.reason, part.why.remedy) for name, part in self._parts.items() if part.why}
        found["syscall.latency"] = _NO_LATENCIES
        found["library calls"] = _NO_LIBRARIES
        found["process.gil_waits"] = _NO_GIL
        if self._books.lacks_errors:
            found["syscall.errors"] = _NO_ERRORS
        if self._is_users_only:
            found["stacks of the kernel"] = _BY_USER
        left_out = len(self._family.threads) - len(self._busiest())
        if left_out > 0:
            which = f"of less than {perf_threads.OLD_S:g} s" if self._only_old else "that did least"
            found["perf.threads"] = (f"the stacks and calls of {left_out} threads {which} are left out", "")
        looked = self._look_s
        found["perf.sampled"] = (
            f"perf looks {looked:.2g} s of every {self._interval_s:.2g} s",
            "bcc looks all the time: llmtop doctor",
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


def _filtered(switches: int) -> PerfError:
    """A program of another tracer that returns 0 on an event takes it away from perf, without a word."""
    others = ", ".join(f"{name} (pid {pid})" for pid, name, _ in system.other_tracers()) if os.geteuid() == 0 else ""
    reason = f"perf got no events though the server's threads switched {switches} times: another tracer filters them"
    return PerfError(Unknown(reason, f"end {others or 'it'}: its programs should return 1"), lasting=False)


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
    helper = Helper(options, program, link)
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
