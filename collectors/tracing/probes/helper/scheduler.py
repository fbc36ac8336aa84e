"""Threads off the CPU: what they sleep in, how long they queue, who wakes them, and from where they went to sleep."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ... import wire
from ...helper import system
from ...helper.kernel import attach_raw_tracepoint, attach_tracepoint, close_all
from ...helper.sleeps import MOST_WAKERS, Frames, Place, SleepLedger, weigh
from ...helper.symbols import Symbols
from ...helper.syscall_numbers import call_numbers
from ...helper.system import UnavailableError
from . import btf
from .programs import RAW_TRACEPOINT, SLOTS, TRACEPOINT, Module, ProgramText
from .sleepers import Sleepers
from .stack_table import STACK, StackTable

SOURCE = ProgramText("scheduler", "raw", ("-DTASK_REGISTERS=1", "-DRAW=1"))
"""On raw tracepoints: the cheapest, and gone at once, where a plain one takes the kernel a tenth of a second."""
BY_FIELDS = ProgramText("scheduler", "fields", ("-DTASK_REGISTERS=1", "-DRAW=0"))
"""For kernels before 6.0, or of which it is not known where a task has its id."""
WITHOUT_CALLS = ProgramText("scheduler", "no-calls", ("-DTASK_REGISTERS=0", "-DRAW=0"))
"""For kernels that do not tell a probe the system call that a thread sleeps in: before 5.15, or without the kernel's
type information."""

_TRACEPOINTS = ("sched_wakeup", "sched_waking", "sched_switch")
"""The dearest comes last and goes first: the kernel takes its time to take each away."""
_FUNCTIONS = {"sched_wakeup": "on_wakeup", "sched_waking": "on_waking", "sched_switch": "on_switch"}
_TELLS_CALLS = (5, 15)
"""The release of Linux from which on a program finds the registers of a thread that sleeps."""
_TELLS_STATE = (6, 0)
"""From here on sched_switch hands (preempt, prev, next, prev_state) to raw tracepoints."""
_RUNS = 0xFFFFFFFF
_KINDS_OF_CALLS = {
    **dict.fromkeys(("futex", "futex_wait", "futex_waitv"), 1),
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"), 2),
    **dict.fromkeys(("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4"), 2),
}
"""What a sleep in a call is of a round of the GPU's work: LOCKED or FOR_INPUT of programs/common.h."""
_SWEEP_EVERY = 30
"""How often, in looks, threads that are gone are looked for."""
MANY_THREADS = 300
"""Beyond this many, threads that sleep on and on are told of every fifth time only: nothing has happened to them."""
_SLEEPERS_EVERY = 5
"""How often, in looks, of many threads those are told that sleep on and on."""


class _ThreadStruct(NamedTuple):
    """struct thread of programs/scheduler.c without its histogram."""

    since: int
    runnable: int
    on_ns: int
    queue_ns: int
    asleep_ns: int
    tgid: int
    state: int
    call: int
    descriptor: int
    waker: int
    voluntary: int
    involuntary: int
    user_stack: int
    kernel_stack: int
    epoch: int

    @property
    def sleeps(self) -> bool:
        return self.state not in (_RUNS, 0) and self.since > 0


_LAYOUT = "5Q7I2iI28I"
_FIELDS = 15


class SchedulerProbes:
    """The probes on switches and wake-ups."""

    def __init__(self, module: Module, symbols: Symbols, source: ProgramText) -> None:
        self.knows_calls = source is not WITHOUT_CALLS
        """Whether it can tell the system call that a thread sleeps in."""
        self.can_slice = source is SOURCE
        """Whether its probes come and go at once."""
        kind = RAW_TRACEPOINT if self.can_slice else TRACEPOINT
        self.programs = {one: module.load(_FUNCTIONS[one], kind) for one in _TRACEPOINTS}
        """Descriptors, by tracepoint."""
        self._held: list[int] = []
        self._threads = module.table("threads", "I", _LAYOUT)
        self._waits = module.table("waits", "IHH", "QQII")
        self._wakes = module.table("wakes", "II", "Q")
        self._stack_times = module.table("stack_times", "IHHiiII", "Q")
        self._stacks = StackTable(module.table("stacks", "I", STACK), symbols)
        self._settings = module.table("settings", "I", "I")
        self._set(2, place_of_id() or 0)
        kinds = module.table("call_kinds", "I", "I")
        for name in _KINDS_OF_CALLS.keys() & call_numbers().keys():
            kinds.put((call_numbers()[name],), (_KINDS_OF_CALLS[name] + 1,))
        self._marks = module.table("marks", "I", "Q")
        self._lost = module.table("lost", "I", "Q")
        self._epoch = 1
        self._every = 0
        self._stacks_since = 0
        self._last_ns = 0
        self._ledger = SleepLedger()
        self._cut: dict[Place, int] = {}
        """What sleeps had lasted that went on when the probes were taken off."""
        self._sleepers_now = Sleepers()
        self._ended_slots: dict[int, list[int]] = {}
        self._sent_slots: dict[int, list[int]] = {}
        self._sent_wakes: dict[tuple[int, int], int] = {}
        self._kernel_stacks: dict[int, tuple[int, tuple[str, ...]]] = {}
        """Of threads that sleep since before the probes: since when, and where in the kernel."""
        self._reads = 0
        self.is_on = False

    def set_on(self, on: bool) -> None:
        """Attach or detach."""
        if on == self.is_on:
            return
        now = time.monotonic_ns()
        close_all(self._held)
        if on:  # a program that still ran when they were taken off the last time may have left something
            self._threads.entries(take=True)
        for tracepoint in _TRACEPOINTS if on else ():
            try:
                self._held.append(self._attached(tracepoint))
            except (OSError, ValueError) as error:
                raise UnavailableError(f"the tracepoint {tracepoint} cannot be used: {error}") from error
        if not on:
            self._cut_off(now)
        self.is_on = on

    def _attached(self, tracepoint: str) -> int:
        if self.can_slice:
            return attach_raw_tracepoint(tracepoint, self.programs[tracepoint])
        return attach_tracepoint(f"sched:{tracepoint}", self.programs[tracepoint])

    def _cut_off(self, now: int) -> None:
        """Forget where threads are: what they do from now on is not seen. What they have slept until now counts."""
        for (tid,), value in self._threads.entries(take=True):
            thread = _ThreadStruct(*value[:_FIELDS])
            self._ledger.owners[tid] = thread.tgid
            if any(value[_FIELDS:]):
                _add(self._ended_slots, thread.tgid, value[_FIELDS:])
            if thread.sleeps:
                place = (tid, thread.call, thread.state)
                self._cut[place] = self._cut.get(place, 0) + max(0, (thread.runnable or now) - thread.since)
                self._ledger.note(place, thread.tgid, thread.descriptor)

    def set_stacks(self, every: int, now: int) -> None:
        """Take the stack of one sleep in `every`; 0 for none."""
        if every and not self._every:
            self._stacks_since = now
            self._ledger.owe_nothing()
        self._every = every
        self._set(0, every)
        self._set(1, self._epoch)

    def seed(self, tgid: int, now: int) -> None:
        """Tell the kernel of threads that slept before it looked: else a thread that never wakes is never seen.

        What it has learned itself meanwhile is left as it is. Sleep is counted from now: what came before was
        not measured.
        """
        for tid, state, call, descriptor in self._sleepers_now.of(tgid):
            value = (now, 0, 0, 0, 0, tgid, state, call, descriptor, 0, 0, 0, -1, -1, 0, *[0] * SLOTS)
            self._marks.put((tid % self._marks.map.capacity,), (1,))
            self._threads.put((tid,), value, only_new=True)

    def read(self, now: int, ended: Iterable[tuple[int, int]], gone: Iterable[int]) -> wire.Sample:
        """What changed: sums since the start."""
        threads: dict[int, _ThreadStruct] = {}
        slots: dict[int, list[int]] = {tgid: list(counts) for tgid, counts in self._ended_slots.items()}
        dead = {tid for tid, _ in ended} | self._strays()
        for (tid,), value in self._threads.entries():
            thread = threads[tid] = _ThreadStruct(*value[:_FIELDS])
            self._ledger.owners[tid] = thread.tgid
            _add(slots, thread.tgid, value[_FIELDS:])
            if tid in dead:
                _add(self._ended_slots, thread.tgid, value[_FIELDS:])
        sleepers = self._sleepers(threads)
        waits = self._told(now, sleepers)
        told: wire.Sample = {"waits": waits, "queue": self._changed_slots(slots), "wakes": self._changed_wakes()}
        told["stacks"] = self._stack_shares(now, sleepers) if self._every else []
        self._forget(dead, set(gone))
        self._last_ns = now
        return told

    def _strays(self) -> set[int]:
        """Threads that slept once more between their end and their last switch, and so came back to the map."""
        self._reads += 1
        if self._reads % _SWEEP_EVERY:
            return set()
        owners = {tid: value[5] for (tid,), value in self._threads.entries()}
        alive = {tid for tgid in set(owners.values()) for tid in system.threads(tgid)}
        return set(owners) - alive

    def lost(self) -> int:
        """Events that found no room in the maps."""
        return self._lost.count()

    def _sleepers(self, threads: dict[int, _ThreadStruct]) -> dict[int, _ThreadStruct]:
        """The threads that sleep now and are worth telling of."""
        brief = len(threads) > MANY_THREADS and self._reads % _SLEEPERS_EVERY != 0
        return {
            tid: thread
            for tid, thread in threads.items()
            if thread.sleeps and not (brief and thread.since < self._last_ns)
        }

    def _told(self, now: int, sleepers: dict[int, _ThreadStruct]) -> list[wire.SleepTotal]:
        """Closed sleeps, and those that go on, up to now."""
        slept = Counter(self._cut)
        for (tid, call, state), (ns, _, tgid, descriptor) in self._waits.entries():
            slept[tid, call, state] += ns
            self._ledger.note((tid, call, state), tgid, descriptor)
        for tid, thread in sleepers.items():
            place = (tid, thread.call, thread.state)
            slept[place] += max(0, (thread.runnable or now) - thread.since)
            self._ledger.note(place, thread.tgid, thread.descriptor)
        return self._ledger.grown(slept)

    def _changed_slots(self, slots: dict[int, list[int]]) -> list[wire.QueueTotal]:
        changed = [(tgid, counts) for tgid, counts in slots.items() if self._sent_slots.get(tgid) != counts]
        self._sent_slots.update(changed)
        return [
            wire.QueueTotal(tgid, {slot: count for slot, count in enumerate(counts) if count})
            for tgid, counts in changed
        ]

    def _changed_wakes(self) -> list[wire.WakeTotal]:
        """Of the wakers that woke a thread most since the last look."""
        grown: dict[int, list[tuple[int, int]]] = {}
        for (tid, waker), (count,) in self._wakes.entries(take=True):  # a thread may have thousands of them by and by
            if tid in self._ledger.owners:
                grown.setdefault(tid, []).append((count, waker))
        told = []
        for tid, wakers in grown.items():
            for more, waker in sorted(wakers, reverse=True)[:MOST_WAKERS]:
                count = self._sent_wakes[tid, waker] = self._sent_wakes.get((tid, waker), 0) + more
                told.append(wire.WakeTotal(self._ledger.owners[tid], tid, waker, count))
        return told

    def _stack_shares(self, now: int, sleepers: dict[int, _ThreadStruct]) -> list[wire.SleepStack]:
        """Of what was slept since the last look."""
        seen: dict[Place, dict[Frames, int]] = {}
        for (tid, call, state, user, kernel, tgid, epoch), (ns,) in self._stack_times.entries(take=True):
            if epoch == self._epoch:
                weigh(seen, (tid, call, state), self._stacks.frames(tgid, user, kernel), ns)
        for tid, thread in sleepers.items():
            self._weigh_sleeper(seen, now, tid, thread)
        if self._stacks.is_full:
            self._clear_stacks()
        return self._ledger.shared_out(seen)

    def _weigh_sleeper(self, seen: dict[Place, dict[Frames, int]], now: int, tid: int, thread: _ThreadStruct) -> None:
        ns = max(1, now - max(thread.since, self._last_ns))
        place = (tid, thread.call, thread.state)
        if thread.epoch == self._epoch:
            weigh(seen, place, self._stacks.frames(thread.tgid, thread.user_stack, thread.kernel_stack), ns)
        elif not thread.voluntary or thread.since <= self._stacks_since:
            # It has slept since before the probes, or before stacks were asked for: only the kernel's side can be had.
            since, frames = self._kernel_stacks.get(tid, (0, ()))
            if since != thread.since:
                frames = tuple(system.kernel_stack(thread.tgid, tid))
                self._kernel_stacks[tid] = (thread.since, frames)
            weigh(seen, place, frames, ns)

    def _clear_stacks(self) -> None:
        """Stop taking stacks, void the ids that sleepers hold, empty the map, go on."""
        self._set(0, 0)
        self._epoch += 1
        self._stacks.clear()
        self._set(1, self._epoch)
        self._set(0, self._every)

    def _set(self, place: int, value: int) -> None:
        self._settings.put((place,), (value,))

    def forget_names(self, tgid: int) -> None:
        """A process became another program."""
        self._stacks.forget(tgid)

    def _forget(self, dead: set[int], gone: set[int]) -> None:
        """Drop ended threads, here and in the kernel, or its maps would fill."""
        if not dead and not gone:
            return
        for place in self._ledger.forget(dead):
            self._cut.pop(place, None)
            self._waits.remove(*place)
        for pair in [pair for pair in self._sent_wakes if pair[0] in dead]:
            del self._sent_wakes[pair]
        for tid in dead:
            self._kernel_stacks.pop(tid, None)
            self._threads.remove(tid)
        for tgid in gone:
            self._ended_slots.pop(tgid, None)
            self._sent_slots.pop(tgid, None)
            self._sleepers_now.forget(tgid)
            self._stacks.forget(tgid)


def source() -> ProgramText:
    """The program that this kernel can be expected to load."""
    release = system.kernel_release()
    if release < _TELLS_CALLS or not Path("/sys/kernel/btf/vmlinux").exists():
        return WITHOUT_CALLS
    return SOURCE if release >= _TELLS_STATE and place_of_id() else BY_FIELDS


@lru_cache
def place_of_id() -> int | None:
    """Where a task has its id; None where the kernel does not tell."""
    return btf.offset_of("task_struct", "pid")


def _add(slots: dict[int, list[int]], tgid: int, counts: Iterable[int]) -> None:
    known = slots.get(tgid)
    slots[tgid] = [a + b for a, b in zip(known, counts)] if known else list(counts)
