"""Follows threads on and off the CPU for as much of the time as the budget has, and learns what that costs here."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...helper.governor import Effort, EventLoad, Governor
from .lifecycle import Lifecycle
from .run_time import RunTime
from .scheduler import SchedulerProbes
from .slices import Slices

OF_SLICES = 0.8
"""Of the budget: their share, where nothing else is left to be given up."""
MEASURE_S = 30.0
"""How often the kernel is asked to time the programs until the next look, where they are on all the time."""
_ENOUGH = 100
"""Switches, to say what one costs."""
SHORT_S = 0.1
"""So short a slice is waited for; others end at a later tick."""


@dataclass(frozen=True)
class _Slice:
    start_ns: int
    until_s: float
    switches: tuple[int, int]
    """When it began: of the processes looked at, and of others."""
    helper_ns: int


class SchedulerSlices:
    """The scheduler's probes at work.

    Args:
        governor: Is told what a switch costs.
    """

    def __init__(self, scheduler: SchedulerProbes, lifecycle: Lifecycle, governor: Governor) -> None:
        self.scheduler = scheduler
        self._lifecycle = lifecycle
        self._governor = governor
        self._run_time = RunTime(scheduler.programs.values())
        self._measure_at_s = 0.0
        self._stack_ns: int
        self._looked_ns = 0
        self._since_ns = 0
        """When the probes were last attached."""
        self._slices: Slices | None = None
        self._slice: _Slice | None = None
        """The one that is open."""
        self._load = EventLoad()
        """Of the last slice."""

    @property
    def is_following(self) -> bool:
        """Whether it has anything to tell."""
        return self.scheduler.is_on or self._slices is not None

    @property
    def followed_since(self) -> int | None:
        """Since when threads are followed without a break, and their sleeps told by call; None where they are not."""
        is_whole = self.scheduler.is_on and self.scheduler.knows_calls and self._slices is None
        return self._since_ns if is_whole else None

    def observed_ns(self, now: int) -> int:
        """For how long it has looked so far."""
        return self._looked_ns + (now - self._since_ns) * self.scheduler.is_on

    def set_effort(self, effort: Effort, pids: Iterable[int]) -> None:
        """Look as closely as this.

        Raises:
            UnavailableError: The kernel does not let us; so below.
        """
        if effort.sliced and self._slices is None:
            self._attach(on=False)
            self._slices = Slices(OF_SLICES * self._governor.budget_ns, time.monotonic())
            self._load = EventLoad()
        elif not effort.sliced:
            self._slices = self._slice = None
            self._attach(on=effort.scheduler)
            self._seed(pids)
        self.scheduler.set_stacks(effort.stack_every, time.monotonic_ns())

    def tick(self, pids: Iterable[int]) -> None:
        """Several times a second: look for a while, where a slice is due."""
        if self._slices is None:
            return
        if self._slice is None and self._slices.is_due(time.monotonic()):
            self._slice = self._opened(self._slices.length_s, pids)
            if self._slices.length_s <= SHORT_S:
                time.sleep(max(0.0, self._slice.until_s - time.monotonic()))
        if self._slice and time.monotonic() >= self._slice.until_s:
            self._close(self._slices, self._slice)
            self._slice = None

    def load(self, counted: EventLoad, elapsed_s: float) -> EventLoad:
        """The same with the switches that slices stand for; what a switch costs is learned."""
        if self._slices:
            return replace(counted, switches=self._load.switches, foreign_switches=self._load.foreign_switches)
        if self.scheduler.is_on:
            self._measure(counted, elapsed_s)
        return counted

    def why_sampled(self) -> str:
        """What is said of slices; empty where all the time is looked at."""
        if self._slices is None:
            return ""
        share, rate = self._slices.share(time.monotonic()), self._load.switches
        at = f": at {rate:,.0f} switches a second it would cost more than the budget" if rate else ""
        return f"threads are followed {share:.0%} of the time, in slices{at}"

    def _attach(self, *, on: bool) -> None:
        """Have the probes on or off; they are timed from the beginning, so that the next look knows what they cost."""
        now = time.monotonic_ns()
        if on == self.scheduler.is_on:
            return
        if on:
            self._begin_to_measure()
        else:
            self._run_time.stop()
            self._looked_ns = self.observed_ns(now)
        self.scheduler.set_on(on)
        self._since_ns = time.monotonic_ns()

    def _seed(self, pids: Iterable[int]) -> None:
        """Who slept when the probes were attached."""
        for pid in pids if self.scheduler.is_on else ():
            self.scheduler.seed(pid, self._since_ns)

    def _measure(self, load: EventLoad, elapsed_s: float) -> None:
        """Have the programs timed from one look to the next, now and then."""
        ns, now_s, stack_ns = self._run_time.stop(), time.monotonic(), self._lifecycle.stack_ns()
        if ns is not None and load.switches * elapsed_s >= _ENOUGH:
            self._governor.learn_switches(load, max(0, ns - (stack_ns - self._stack_ns)) / elapsed_s)
            self._measure_at_s = now_s + MEASURE_S
        if now_s >= self._measure_at_s:
            self._begin_to_measure()

    def _begin_to_measure(self) -> None:
        self._stack_ns = self._lifecycle.stack_ns()
        self._run_time.start()

    def _opened(self, length_s: float, pids: Iterable[int]) -> _Slice:
        helper_ns, switches = time.thread_time_ns(), self._switches()
        self._attach(on=True)
        self._seed(pids)
        spent_ns = time.thread_time_ns() - helper_ns
        return _Slice(self._since_ns, self._since_ns / 1e9 + length_s, switches, spent_ns)

    def _close(self, slices: Slices, one: _Slice) -> None:
        helper_ns, ns = time.thread_time_ns(), self._run_time.stop()
        end_ns = time.monotonic_ns()
        self._attach(on=False)
        looked_s = (end_ns - one.start_ns) / 1e9
        own, foreign = (after - before for after, before in zip(self._switches(), one.switches))
        self._load = EventLoad(switches=own / looked_s, foreign_switches=foreign / looked_s)
        if ns is not None and own >= _ENOUGH:
            self._governor.learn_switches(self._load, ns / looked_s)
        cost_ns = self._governor.cost_of_switches(self._load) * looked_s
        slices.close(end_ns / 1e9, looked_s, cost_ns, one.helper_ns + time.thread_time_ns() - helper_ns)

    def _switches(self) -> tuple[int, int]:
        return self._lifecycle.hits_of("switch"), self._lifecycle.hits_of("foreign_switch")
