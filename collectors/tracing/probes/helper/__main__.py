"""Runs the probes and reports.

Usage: llmtop starts it; it ends with its standard input. What it says is told in protocol.py.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ... import wire
from ...helper import protocol
from ...helper.budget import ReportTimes
from ...helper.governor import LADDER, LIGHT, EventLoad, Governor, in_slices, observe
from ...helper.protocol import Link
from ...helper.symbols import Symbols
from ...helper.syscall_numbers import call_name
from ...helper.system import UnavailableError
from ...wire import Why
from . import calls, lifecycle, samples, scheduler
from .calls import SystemCallProbes
from .following import SchedulerSlices
from .library import Library
from .lifecycle import Changes, Lifecycle
from .programs import Module, Programs, ProgramText
from .samples import Samples
from .scheduler import SchedulerProbes

TICK_S = 0.2
"""How often what the probes cost is looked at: what has come to cost too much goes within this time."""
FIRST_TICKS_S = (0.05, 0.05, 0.1)
"""Sooner at first: nothing is known yet of what they will cost."""
_FIRST_REPORT_S = 0.3
"""To the first report, so that something is seen soon."""
_ENOUGH_STACKS = 50
"""To say what one costs."""
_OF_LIBRARIES = 0.4
"""Of the budget: the share of probes on library functions, beside what all others leave of theirs. vLLM waits four
times a step and launches two graphs: at 300 steps a second these take 0.28 % of a core on an H100's machine, and tell
its steps and the prompts in them."""
_OUTSIDE = "run llmtop on the host, or in a container with --pid=host --privileged"
Part = TypeVar("Part")
_SAMPLED = "scheduler.sampled"
_ROUNDS = "rounds of GPU work"
_CLOSER = "let them cost more: --overhead-budget 3"


class ProbesHelper:
    """All probes together."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._programs = Programs()
        self._symbols = Symbols()
        self._stacks = options.stacks
        library_budget = options.budget * _OF_LIBRARIES
        self._library_ns = library_budget * 1e9
        """What probes on libraries may cost a second, whatever else is looked at."""
        self.missing: dict[str, Why] = {}
        """What cannot be had here, by part."""
        self._lifecycle = Lifecycle(self._programs.module(lifecycle.SOURCE))
        found = self._scheduler_of(scheduler.source())
        ladder = LIGHT if options.light else LADDER
        self._governor = Governor(
            options.budget if options.light else options.budget - library_budget,
            stacks=self._stacks,
            cpus=os.cpu_count() or 1,
            ladder=in_slices(ladder) if found and found.can_slice else ladder,
            is_careful=options.budget < 1,
        )
        self._scheduler = SchedulerSlices(found, self._lifecycle, self._governor) if found else None
        self._calls = self._part("syscalls", calls.SOURCE, SystemCallProbes)
        self._samples = (
            self._part("samples", samples.SOURCE, lambda module: Samples(module, self._symbols))
            if self._stacks
            else None
        )
        self._library = Library(self._programs, self._library_ns, partial(self._lifecycle.hits_of, "library"))
        self._wants_library = not options.light
        self._last_ns = self._governed_ns = self._observed_ns = time.monotonic_ns()
        self._last_hits = self._lifecycle.hits()
        self._walked = (0, 0)
        """Stacks walked when their cost was last looked at, and the time that had taken, in ns."""
        self._observed: wire.Observed = {"calls": 0, "timed": 0, "scheduler": 0}
        """For how long, in ns, each part has looked: counters are sums over that time and no other."""

    def _scheduler_of(self, source: ProgramText) -> SchedulerProbes | None:
        """By the best program that the kernel takes; a part that cannot be had costs only itself."""
        try:
            return SchedulerProbes(self._programs.module(source), self._symbols, source)
        except UnavailableError as error:
            if source is scheduler.WITHOUT_CALLS:
                self.missing["scheduler"] = Why(error.reason, error.remedy)
                return None
        return self._scheduler_of(scheduler.BY_FIELDS if source is scheduler.SOURCE else scheduler.WITHOUT_CALLS)

    def _part(self, name: str, source: ProgramText, make: Callable[[Module], Part]) -> Part | None:
        """A part that cannot be had costs only itself."""
        try:
            return make(self._programs.module(source))
        except UnavailableError as error:
            self.missing[name] = Why(error.reason, error.remedy)
            return None

    def start(self, pids: list[int]) -> None:
        """Begin to look."""
        for pid in pids:
            self._lifecycle.add(pid)
        if self._lifecycle.unseen and not self._lifecycle.processes:
            raise UnavailableError("the server runs in a PID namespace inside llmtop's", _OUTSIDE)
        self._last_ns = self._governed_ns = self._observed_ns = time.monotonic_ns()
        self._apply()

    def tick(self) -> None:
        """Several times a second: hold the cost to the budget, and look for libraries."""
        self._govern()
        self._follow()
        if self._wants_library:
            self._library.allow(self._library_ns + self._governor.spare_ns)
            self._library.tick(self._lifecycle.processes)

    def look(self) -> wire.Sample:
        """One report."""
        now = time.monotonic_ns()
        elapsed_ns = max(1, now - self._last_ns)
        self._observe(now)
        changes = self._lifecycle.changes()
        self._take_in(changes, now)
        report: wire.Sample = {"kind": "sample", "t": now, "elapsed": elapsed_ns, "observed": self._observed.copy()}
        report |= {"born": changes.born, "gone": changes.gone, "renewed": changes.renewed}
        report["ended"] = [wire.EndedThread(tgid, tid) for tid, tgid in changes.ended_threads]
        if self._calls:
            report |= self._calls.read(changes.ended_threads, changes.gone)
            report["names"] = {entry.call: call_name(entry.call) for entry in report["calls"]}
        if self._scheduler and self._scheduler.is_following:
            report |= self._scheduler.scheduler.read(now, changes.ended_threads, changes.gone)
        report["running"] = self._samples.read() if self._samples and self._samples.is_on else []
        report["functions"] = self._library.read(now, (*changes.gone, *changes.renewed))
        report["collecting"] = self._library.read_collecting()
        report["in_libraries"] = self._library.read_threads(now, changes.ended_threads)
        report["gpu_rounds"] = self._library.read_rounds(self._scheduler.followed_since if self._scheduler else None)
        report |= self._library.coverage()
        report["hits"] = self._last_hits
        report["shed"] = str(self._governor.effort) if self._governor.shed else ""
        following = self._scheduler.scheduler if self._scheduler else None
        report["lost"] = sum(part.lost() for part in (self._calls, following, self._samples, self._library) if part)
        report["missing"] = self.missing
        for pid in self._lifecycle.unseen:
            self.missing[f"process:{pid}"] = Why("it runs in a PID namespace inside llmtop's", _OUTSIDE)
        if self._library.why_not is not None:
            self.missing["library calls"] = Why(self._library.why_not.reason, self._library.why_not.remedy)
        self.missing.pop(_ROUNDS, None)
        if why := self._library.why_no_rounds():
            self.missing[_ROUNDS] = Why(why, _CLOSER)
        report["unprobed"] = self._library.notes
        report["probed"] = self._library.probed
        report["settling"] = self._wants_library and self._library.is_settling(self._lifecycle.processes)
        self._last_ns = now
        return report

    def _observe(self, now: int) -> None:
        """Take the time until now into account: before the effort changes."""
        mode = self._calls.mode if self._calls else "off"
        elapsed_ns, self._observed_ns = now - self._observed_ns, now
        observe(self._observed, elapsed_ns, mode)
        if self._scheduler:
            self._observed["scheduler"] = self._scheduler.observed_ns(now)

    def _take_in(self, changes: Changes, now: int) -> None:
        self._symbols.tick()
        for pid in (*changes.gone, *changes.renewed):
            self._symbols.forget(pid)
            if self._scheduler:
                self._scheduler.scheduler.forget_names(pid)
        if self._samples:
            self._samples.forget_names((*changes.gone, *changes.renewed))

    def _govern(self) -> None:
        """Weigh what the probes have cost since the last time; the effort from now on."""
        now = time.monotonic_ns()
        elapsed_s = max(1e-3, (now - self._governed_ns) / 1e9)
        hits = self._lifecycle.hits()
        load = EventLoad.between(self._last_hits, hits, elapsed_s)
        self._learn_stacks(hits["stack"])
        self._last_hits, self._governed_ns = hits, now
        if self._scheduler:
            load = self._scheduler.load(load, elapsed_s)
        if self._governor.judge(load, elapsed_s):
            self._observe(now)
            self._apply()

    def _follow(self) -> None:
        """Look in slices, where threads are not followed all the time."""
        self.missing.pop(_SAMPLED, None)
        if self._scheduler and not self._allowed("scheduler", partial(self._scheduler.tick, self.processes)):
            self._scheduler = None
        if self._scheduler and (why := self._scheduler.why_sampled()):
            self.missing[_SAMPLED] = Why(why, protocol.LOOK_LONGER)

    def _learn_stacks(self, stacks: int) -> None:
        """What a stack costs depends on how deep it is: tens of frames of Python are dearer than a few of C."""
        stack_ns = self._lifecycle.stack_ns()
        walked, spent_ns = stacks - self._walked[0], stack_ns - self._walked[1]
        if walked >= _ENOUGH_STACKS:
            self._governor.learn("stack", spent_ns / walked)
            self._walked = (stacks, stack_ns)

    def _apply(self) -> None:
        """Look as closely as the governor says; a part that the kernel does not let us attach costs only itself."""
        effort = self._governor.effort
        if self._scheduler:
            follow = partial(self._scheduler.set_effort, effort, self.processes)
            self._scheduler = self._scheduler if self._allowed("scheduler", follow) else None
        if self._calls and not self._allowed("syscalls", partial(self._calls.set_mode, effort.calls)):
            self._calls = None
        if self._samples and not self._allowed("samples", partial(self._samples.set_on, effort.stack_every > 0)):
            self._samples = None

    def _allowed(self, part: str, attach: Callable[[], None]) -> bool:
        try:
            attach()
        except UnavailableError as error:
            self.missing[part] = Why(error.reason, error.remedy)
            return False
        return True

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes looked at."""
        return tuple(self._lifecycle.processes)

    @property
    def knows_calls(self) -> bool:
        """Whether sleeps are told by system call."""
        return bool(self._scheduler and self._scheduler.scheduler.knows_calls)


def _look(options: argparse.Namespace, link: Link) -> None:
    def start() -> ProbesHelper:
        helper = ProbesHelper(options)
        helper.start(options.pids)
        return helper

    helper = protocol.attach(link, start)
    times = ReportTimes(min(_FIRST_REPORT_S, options.interval), options.interval, time.process_time_ns, time.monotonic)
    for _ in link.ticks(*FIRST_TICKS_S, min(TICK_S, options.interval)):
        helper.tick()
        if times.is_due():
            link.say(helper.look())
            times.reported()


if __name__ == "__main__":
    # The kernel takes the probes off when their files close: there is nothing else to do.
    os._exit(protocol.run(protocol.parser("llmtop-probes").parse_args(), _look))
