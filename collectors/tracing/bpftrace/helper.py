"""The process that runs bpftrace and adds up what it says.

Usage: llmtop starts it; it ends with its standard input. It speaks as bcc's helper does
(collectors/tracing/helper/protocol.py).

What bpftrace looks at is fixed when it starts. Whenever something else is to be looked at (another library, less
because it costs too much), it is ended and started anew, and the sums go on.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

from llmtop import procfs
from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.bpftrace import runner
from llmtop.collectors.tracing.bpftrace.budget import LADDER, NS_PER_HIT
from llmtop.collectors.tracing.bpftrace.counts import LibraryCalls, SystemCallCounts
from llmtop.collectors.tracing.bpftrace.libraries import Libraries
from llmtop.collectors.tracing.bpftrace.output import HELPER_ERROR, Looks, Printout, Record, count_of
from llmtop.collectors.tracing.bpftrace.runner import Bpftrace
from llmtop.collectors.tracing.bpftrace.script import RunPlan, script
from llmtop.collectors.tracing.bpftrace.sleeps import Sleeps
from llmtop.collectors.tracing.bpftrace.symbols import AddressNames
from llmtop.collectors.tracing.helper import protocol, system
from llmtop.collectors.tracing.helper.governor import HERTZ, LIGHT, EventLoad, Governor, observe
from llmtop.collectors.tracing.helper.protocol import Link
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.wire import Why

ATTACH_S = 60.0
"""How long bpftrace may take to compile and attach; on a busy machine it has taken many seconds."""
_HEARTBEAT_S = 1.0
"""How often it says something, whether there is news or not."""
_LOOK_EVERY = 5
"""Looks between two looks for libraries and processes that bpftrace does not know of."""
_MOST_ENTRIES, _LEAST_KEYS, _MOST_KEYS = 1 << 21, 4096, 32768
"""Maps of bpftrace have room from the start, for each CPU."""
_NEARLY_FULL = 0.9
"""Of the room in bpftrace's maps, from which on it is started anew."""
_LEAST_RUN_S = 60.0
"""But not sooner after its last start."""
_NAMES = "functions in stacks"
_NO_NAMES = Why(
    "bpftrace before 0.19 can name the functions of one process of a program only: their libraries are shown",
    "sudo apt install python3-bpfcc, or bpftrace 0.19 or newer",
)
_NEVER = {
    "rounds of GPU work": Why(
        "bpftrace hands out sums, and no entry for each wait for the GPU, of which steps are made",
        "sudo apt install python3-bpfcc: bcc keeps one",
    )
}
_PARTS = ("library calls", "samples", "stacks", "scheduler", "syscalls")
"""What is given up, one after the other, when bpftrace refuses the program: the least needed first."""


class BpftraceHelper:
    """Runs bpftrace, again and again if need be."""

    knows_calls = True

    def __init__(self, options: argparse.Namespace, path: str, link: Link) -> None:
        self._path = path
        self._link = link
        self._pids = {pid: system.start_time(pid) for pid in options.pids if system.start_time(pid)}
        self._interval_s: float = options.interval
        cpus = os.cpu_count() or 1
        self._keys = max(_LEAST_KEYS, min(_MOST_KEYS, _MOST_ENTRIES // cpus))
        self._governor = Governor(
            options.budget,
            stacks=options.stacks,
            cpus=cpus,
            ladder=LADDER[-len(LIGHT) :] if options.light else LADDER,
            ns_per_hit=NS_PER_HIT,
        )
        self._wants_libraries = not options.light
        self._libraries = Libraries(options.budget * 1e9, NS_PER_HIT, is_careful=options.budget < 1)
        self._symbols = AddressNames()
        found = runner.version(path)
        self._names_all, self._loses_first = runner.names_by_process(found), runner.loses_first(found)
        self._calls = SystemCallCounts(are_counted=self._loses_first)
        self._library_calls = LibraryCalls(are_counted=self._loses_first)
        self._sleeps = Sleeps(self._symbols)
        self.missing: dict[str, Why] = {}
        """What cannot be had here, by part, beside what bpftrace never gives."""
        self._observed: wire.Observed = {"calls": 0, "timed": 0, "scheduler": 0}
        self._samples = self._lost = 0
        self._last_hits: dict[str, int] = {}
        self._last_switches = _context_switches()
        self._last_ns: int
        """When the last look was; of a new run, when its probes were attached."""
        self._looks_taken = 0
        self._look_for_libraries()
        self._plan = self._next_plan()
        self._started_s = time.monotonic()
        self._run: Bpftrace | None = None
        self._looks = Looks()
        self._first_looks: list[Printout] = []

    def _look_for_libraries(self) -> None:
        if self._wants_libraries:
            self._libraries.look(self._pids)

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes looked at."""
        return tuple(self._pids)

    def start(self) -> None:
        """Have bpftrace attach what it can.

        Raises:
            UnavailableError: It refuses everything.
        """
        while not self._attach():
            words = self._run.last_words() if self._run else ""
            left = [part for part in _PARTS if part not in self.missing and self._is_planned(part)]
            if not left:
                raise UnavailableError(f"bpftrace cannot attach its probes: {words}", runner.INSTALL)
            self.missing[left[0]] = Why(f"bpftrace refuses: {words}", "")
            self._plan = self._next_plan()

    def run(self) -> None:
        """Report until told to stop."""
        while True:
            assert self._run is not None
            self._tell_first_looks()
            self._link.wait([self._run.fileno()])
            for look in self._looks_of(self._run.records()):
                self._link.say(self._report(look))
            if self._run.is_at_end:
                sys.exit(self._run.how_it_ended())
            if self._next_plan() != self._plan or self._is_worn():
                self._start_anew()

    def _tell_first_looks(self) -> None:
        """Of a new run: after its first look it is known who has slept all the time, and so since before."""
        attached_ns = self._last_ns
        looks, self._first_looks = self._first_looks, []
        for look in looks:
            self._link.say(self._report(look))
        if looks:
            self._sleeps.seed(self._pids, attached_ns)

    def close(self) -> None:
        """End bpftrace and wait: afterwards no probe of it is attached."""
        if self._run:
            self._run.end()

    def _attach(self) -> bool:
        """Start bpftrace; whether its probes came to be attached.

        It says so before it begins to attach them (until 0.23), but tells nothing until it has done so: the first look
        is the proof.
        """
        self._run = Bpftrace(self._path, script(self._plan), self._keys, named=self._plan.named)
        self._looks = Looks()
        started = self._started_s = time.monotonic()
        heartbeat = started + _HEARTBEAT_S
        while not self._run.is_at_end and time.monotonic() - started < ATTACH_S:
            self._link.wait([self._run.fileno()], _HEARTBEAT_S)
            records = self._run.records()
            self._first_looks += self._looks_of(records)
            if self._first_looks:
                self._last_ns = self._first_looks[0].t_ns - self._plan.first_ms * 1_000_000
                return True
            if time.monotonic() > heartbeat:
                heartbeat += _HEARTBEAT_S
                self._link.say({"kind": "attaching"})
        self._run.end()
        return False

    def _start_anew(self) -> None:
        """End bpftrace, report what it has counted to the last, and start it with today's plan."""
        assert self._run is not None
        for look in self._looks_of(self._run.end()):
            self._link.say(self._report(look))
        for part in (self._calls, self._library_calls):
            part.begin_again()
        self._sleeps.begin_again(time.monotonic_ns())
        self._plan = self._next_plan()
        self.start()

    def _next_plan(self) -> RunPlan:
        """What is to be looked at, as far as it can be had and paid for."""
        effort = self._governor.effort
        if not self._names_all and _NAMES not in self.missing and self._share_programs():
            self.missing[_NAMES] = _NO_NAMES
        can = {part: part not in self.missing for part in _PARTS}
        return RunPlan(
            pids=tuple(sorted(self._pids)),
            calls=effort.calls if can["syscalls"] else "off",
            scheduler=effort.scheduler and can["scheduler"],
            stack_every=effort.stack_every if can["stacks"] else 0,
            samples=bool(effort.stack_every) and can["samples"],
            functions=self._libraries.functions() if can["library calls"] else (),
            interval_ms=max(1, round(self._interval_s * 1000)),
            named=_NAMES not in self.missing,
            loses_first=self._loses_first,
        )

    def _share_programs(self) -> bool:
        programs = [procfs.read_link(f"/proc/{pid}/exe") for pid in self._pids]
        return len(set(programs)) < len(programs)

    def _is_planned(self, part: str) -> bool:
        plan = self._plan
        return {
            "library calls": bool(plan.functions),
            "samples": plan.samples,
            "stacks": plan.stacks,
            "scheduler": plan.scheduler,
            "syscalls": plan.calls != "off",
        }[part]

    def _looks_of(self, records: list[Record]) -> Iterator[Printout]:
        for record in records:
            self._lost += count_of(record, "events") if record.kind == "lost_events" else 0
            self._lost += record.kind == HELPER_ERROR and count_of(record, "retcode") == -errno.E2BIG
            look = self._looks.take(record)
            if look:
                yield look

    def _report(self, look: Printout) -> wire.Sample:
        self._looks_taken += 1
        if self._looks_taken % _LOOK_EVERY == 0:
            self._look_for_libraries()
        self._lost += self._fullness() >= 1
        elapsed_ns = max(1, look.t_ns - self._last_ns)
        self._last_ns = look.t_ns
        observe(self._observed, elapsed_ns, self._plan.calls, scheduler=self._plan.scheduler)
        born, gone = self._changes(look)
        ended = [wire.EndedThread(pid, tid) for (tid,), pid in look.table("ended", 1).items()]
        renewed = [pid for (pid,) in look.table("renewed", 1)]
        report: wire.Sample = {"kind": "sample", "t": look.t_ns, "elapsed": elapsed_ns}
        report |= {"observed": self._observed.copy(), "born": born, "gone": gone, "renewed": renewed, "ended": ended}
        report |= self._calls.read(look)
        report |= self._library_calls.read(look)
        report |= self._sleeps.read(look)
        report["stacks"] = self._sleeps.stack_shares(look) if look.has_stacks and self._plan.stacks else []
        report["running"] = self._running(look)
        report |= self._govern(elapsed_ns / 1e9)
        report |= self._libraries.coverage(self._plan.functions, elapsed_ns, self._pids)
        report |= {"lost": self._lost, "missing": self.missing | _NEVER, "unprobed": dict(self._libraries.notes)}
        report["probed"] = len(self._plan.functions)
        report["child"] = self._run.pid if self._run else 0
        tids = {tid for _, tid in ended}
        self._calls.forget(tids, gone)
        self._library_calls.forget(tids, gone)
        self._sleeps.forget(tids, gone)
        return report

    def _changes(self, look: Printout) -> tuple[list[int], list[int]]:
        """Children that the program has put on the list, and processes that have ended."""
        gone = [pid for pid, started in self._pids.items() if system.start_time(pid) != started]
        for pid in gone:
            del self._pids[pid]
        # What is printed and then cleared may lose an entry in between: the counts name processes too.
        named = {
            key[0] for name, fields in (("born", 1), ("time", 2), ("slept", 3)) for key in look.table(name, fields)
        }
        born = [pid for pid in named if pid not in self._pids and system.is_process(pid)]
        self._pids |= {pid: system.start_time(pid) for pid in born}
        self._plan = replace(self._plan, pids=tuple(sorted(self._pids)))  # it has seen to that itself
        return born, gone

    def _running(self, look: Printout) -> list[wire.RunStack]:
        """A sample stands for the time between two."""
        period_ns = 1_000_000_000 // HERTZ
        merged: dict[tuple[int, int, tuple[str, ...]], int] = {}
        for (pid, tid), user, kernel, count in look.stacks("samples", 2):
            key = (pid, tid, self._symbols.frames(pid, user, kernel))
            merged[key] = merged.get(key, 0) + count
        self._samples += sum(merged.values())
        if merged:
            self._symbols.tick()
        return [wire.RunStack(*place, count * period_ns) for place, count in merged.items()]

    def _govern(self, elapsed_s: float) -> wire.Sample:
        """Weigh what the last interval cost."""
        hits = self._hits()
        load = EventLoad.between(self._last_hits, hits, elapsed_s)
        self._last_hits = hits
        switches = _context_switches()
        foreign = max(0.0, (switches - self._last_switches) / elapsed_s - load.switches)
        self._last_switches = switches
        load = replace(load, foreign_switches=foreign)
        self._governor.judge(load, elapsed_s)
        self._libraries.weigh(self._library_calls.counts(), elapsed_s, time.monotonic())
        return {"hits": hits, "shed": str(self._governor.effort) if self._governor.shed else ""}

    def _hits(self) -> dict[str, int]:
        return {
            "call": self._calls.seen,
            "foreign_call": self._calls.foreign,
            "switch": self._sleeps.switches,
            "sample": self._samples,
            "library": sum(self._library_calls.counts().values()),
        }

    def _fullness(self) -> float:
        """Of the kernel's map that has the least room left; what finds none is not counted, without a word."""
        return max(self._calls.entries(), self._sleeps.entries()) / self._keys

    def _is_worn(self) -> bool:
        """Whether so much has gathered of what has ended that a new start is worth its gap."""
        return self._fullness() > _NEARLY_FULL and time.monotonic() - self._started_s > _LEAST_RUN_S


def _context_switches() -> int:
    """Of the whole machine since it was started: the line "ctxt" of /proc/stat."""
    for line in (procfs.read_text("/proc/stat") or "").splitlines():
        if line.startswith("ctxt "):
            return int(line.split()[1])
    return 0


def main() -> int:
    """Run until told to stop, or until llmtop is gone."""
    return protocol.run(protocol.parser("llmtop-bpftrace").parse_args(), _look)


def _look(options: argparse.Namespace, link: Link) -> None:
    path = runner.find()
    if path is None:
        raise UnavailableError("bpftrace is not installed", runner.INSTALL)
    if system.pid_namespace() is not None:
        raise UnavailableError(
            "bpftrace is told the machine's own PIDs, and this is a PID namespace of its own",
            "sudo apt install python3-bpfcc, or run llmtop on the host",
        )
    with ExitStack() as stack:

        def start() -> BpftraceHelper:
            helper = stack.enter_context(closing(BpftraceHelper(options, path, link)))
            helper.start()
            return helper

        protocol.attach(link, start).run()


if __name__ == "__main__":
    sys.exit(main())
