"""What a slice of the scheduler's events says of each thread: how long it slept and on what, and how long it queued."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from llmtop.collectors.thread_causes import cause_of_wchan
from llmtop.collectors.tracing.perf import perf_text
from llmtop.collectors.tracing.perf.perf_text import PerfSample, StackFrame
from llmtop.collectors.tracing.wire import LAST_SLOT, LOWEST_LOG2
from llmtop.frozen import frozen
from llmtop.vocabulary import ON_CPU, ThreadCause

SWITCH, WAKEUP, NEW = "sched:sched_switch", "sched:sched_wakeup", "sched:sched_wakeup_new"
_PASSING_ON = re.compile(r"_*(schedule|io_schedule|rt_mutex_schedule|preempt_schedule)")
"""Kernel functions through which every sleeper goes: what it sleeps in is what called them."""
_INTERRUPT = re.compile(
    r"(asm_)?(sysvec_|common_interrupt|exc_nmi)|(__)?hrtimer_|handle_softirqs|__do_softirq|el[01]_irq"
)
_STOPPED = "Tt"
_ENDED = "XZ"
_RUNNABLE = "R"


@frozen
class Seed:
    """What /proc said of a thread just before the slice: its state letter, and what it sleeps in."""

    state: str
    cause: ThreadCause | None = None


@dataclass(slots=True)
class _SliceThread:
    """`since` is when it left the CPU (or the slice began), `runnable` since when it could run; None for not yet."""

    runs: bool | None = None
    since: int = 0
    cause: ThreadCause = ThreadCause.OTHER
    runnable: int | None = None


@dataclass(slots=True)
class SliceSums:
    """What happened in a slice.

    Attributes:
        blocked: ns by thread and cause, until the thread was woken.
        queued: Waits in the run queue by thread and slot of latency.
        wakes: By thread and waker; 0 for a timer or an interrupt.
        events: How many events of these threads there were.
        switches: How often they left a CPU.
        arrivals: How often they came to one.
    """

    blocked: dict[tuple[int, ThreadCause], int] = field(default_factory=lambda: defaultdict(int))
    queued: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    wakes: Counter[tuple[int, int]] = field(default_factory=Counter)
    events: int = 0
    switches: int = 0
    arrivals: int = 0


class Slice:
    """Keeps account of some threads between two moments.

    Args:
        start_ns: When the slice begins; what came before is not counted.
        end_ns: When it ends.
        seeds: The threads to look at, with what was known of each.
    """

    def __init__(self, start_ns: int, end_ns: int, seeds: Mapping[int, Seed]) -> None:
        self._start_ns, self._end_ns = start_ns, end_ns
        self._threads = {tid: _seeded(seed, start_ns) for tid, seed in seeds.items()}
        self.sums = SliceSums()

    def take(self, sample: PerfSample) -> None:
        """Take in one event; others than the scheduler's, and those outside of the slice, are passed over."""
        if not self._start_ns <= sample.time_ns <= self._end_ns:
            return
        if sample.event == SWITCH and (found := perf_text.switch(sample.payload)) is not None:
            if found.prev_tid in self._threads:
                self._leave(found.prev_tid, sample, found.state)
            if found.next_tid in self._threads:
                self._come(found.next_tid, sample.time_ns)
        elif sample.event in (WAKEUP, NEW) and (tid := perf_text.woken(sample.payload)) in self._threads:
            self._wake(tid, sample)

    def close(self) -> SliceSums:
        """The account, with what went on at the end."""
        for tid, thread in self._threads.items():
            if thread.runs is False:
                until = self._end_ns if thread.runnable is None else thread.runnable
                self._add_sleep(tid, thread, until)
        return self.sums

    def _leave(self, tid: int, sample: PerfSample, state: str) -> None:
        self.sums.events += 1
        self.sums.switches += 1
        letter = state[:1]
        if letter in _ENDED:
            del self._threads[tid]
            return
        now = sample.time_ns
        runnable = now if letter == _RUNNABLE else None
        self._threads[tid] = _SliceThread(False, now, cause_of(sample.frames, letter), runnable)

    def _wake(self, tid: int, sample: PerfSample) -> None:
        thread = self._threads[tid]
        self.sums.events += 1
        self.sums.wakes[tid, waker_of(sample)] += 1
        if thread.runs is False and thread.runnable is None:
            thread.runnable = sample.time_ns

    def _come(self, tid: int, now: int) -> None:
        thread = self._threads[tid]
        self.sums.arrivals += 1
        if thread.runs:
            return
        if thread.runs is False:
            runnable = now if thread.runnable is None else thread.runnable  # its wake-up was lost
            self._add_sleep(tid, thread, runnable)
            if thread.runnable is not None:
                self.sums.queued[tid][slot_of(now - runnable)] += 1
        self._threads[tid] = _SliceThread(True, now)

    def _add_sleep(self, tid: int, thread: _SliceThread, until: int) -> None:
        if until > thread.since:
            self.sums.blocked[tid, thread.cause] += until - thread.since


def _seeded(seed: Seed, start_ns: int) -> _SliceThread:
    """A thread that was on a CPU or queued is not known to be either until it is seen to leave or to come."""
    if seed.state == _RUNNABLE or not seed.state:
        return _SliceThread()
    return _SliceThread(False, start_ns, seed.cause or _by_state(seed.state))


def cause_of(frames: Sequence[StackFrame], state: str) -> ThreadCause:
    """What a thread sleeps in, by the kernel's functions that it went to sleep from, innermost first.

    >>> frames = [StackFrame(1 << 63, name, "") for name in ("__schedule", "schedule", "futex_wait_queue", "do_futex")]
    >>> cause_of(frames, "S").value, cause_of([], "D").value, cause_of([], "S").value
    ('futex', 'uninterruptible', 'unseen')
    """
    if state in _STOPPED:
        return ThreadCause.STOPPED
    waits_for_disk = False
    for frame in frames:
        if not frame.is_kernel:
            break
        if _PASSING_ON.match(frame.symbol):
            waits_for_disk |= frame.symbol.startswith("io_schedule")
        elif (cause := cause_of_wchan(frame.symbol)) is not None:
            return cause
    if waits_for_disk:
        return ThreadCause.DISK
    return _by_state(state) if frames or state == "D" else ThreadCause.UNSEEN


def _by_state(state: str) -> ThreadCause:
    if state in _STOPPED:
        return ThreadCause.STOPPED
    return ThreadCause.UNINTERRUPTIBLE if state == "D" else ThreadCause.OTHER


def waker_of(sample: PerfSample) -> int:
    """Who woke: the thread that ran, unless an interrupt only borrowed it."""
    if sample.tid <= 0 or any(_INTERRUPT.match(frame.symbol) for frame in sample.frames):
        return 0
    return sample.tid


def slot_of(ns: int) -> int:
    """The slot of a latency: below 2^8 ns, 2^9 ns ... and all above.

    >>> slot_of(0), slot_of(255), slot_of(256), slot_of(1 << 60)
    (0, 0, 1, 27)
    """
    return min(LAST_SLOT, max(0, max(0, ns).bit_length() - LOWEST_LOG2))


Stacks: TypeAlias = dict[tuple[int, str, tuple[str, ...]], int]
"""ns by thread, state ("on-cpu" or a ThreadCause's value) and frames, root first."""


def stacks_of(events: Iterable[PerfSample], start_ns: int, end_ns: int, tids: frozenset[int], period_ns: int) -> Stacks:
    """Where threads ran and slept in a slice, with perf's record of each thread's own switches.

    Sleeps here end when the thread is back on a CPU: its time in the run queue is in them, until `shared_out`.
    """
    weights: Stacks = defaultdict(int)
    asleep: dict[int, tuple[int, str, tuple[str, ...]]] = {}

    def wake(tid: int, now: int) -> None:
        if tid in asleep:
            since, state, names = asleep.pop(tid)
            weights[tid, state, names] += now - since

    for sample in events:
        if sample.tid not in tids or not start_ns <= sample.time_ns <= end_ns:
            continue
        if sample.event == perf_text.SWITCH_IN:
            wake(sample.tid, sample.time_ns)
        elif sample.event == SWITCH:
            found = perf_text.switch(sample.payload)
            if found and found.state[:1] not in _ENDED + _RUNNABLE:
                state = cause_of(sample.frames, found.state[:1]).value
                asleep[sample.tid] = (sample.time_ns, state, names_of(sample.frames))
        elif sample.event.startswith("cpu-clock") and sample.frames:
            weights[sample.tid, ON_CPU, names_of(sample.frames)] += sample.period if sample.period > 0 else period_ns
    for tid in list(asleep):
        wake(tid, end_ns)
    return weights


def names_of(frames: Sequence[StackFrame]) -> tuple[str, ...]:
    """Root first, as llmtop's stacks have it."""
    return tuple(frame.name for frame in reversed(frames))


def shared_out(stacks: Stacks, blocked: Mapping[tuple[int, ThreadCause], int]) -> Stacks:
    """Stacks of sleeps with the exact times of sleep that the scheduler's events gave.

    What a thread slept on one cause is shared out over the stacks seen there, which the two looks may have seen a
    little differently; where only one of them saw any, that one's time stands.
    """
    seen: dict[tuple[int, str], int] = defaultdict(int)
    for (tid, state, _), ns in stacks.items():
        seen[tid, state] += ns
    exact = {(tid, cause.value): ns for (tid, cause), ns in blocked.items()}
    return {
        (tid, state, frames): ns * exact.get((tid, state), seen[tid, state]) // max(1, seen[tid, state])
        for (tid, state, frames), ns in stacks.items()
    }
