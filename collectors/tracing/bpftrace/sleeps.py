"""Threads off the CPU: what they sleep in, how long they queue, who wakes them, and from where they went to sleep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.bpftrace.output import Frames, Key, Printout, Slots
from llmtop.collectors.tracing.bpftrace.script import FILE_SHIFT, STATE_SHIFT
from llmtop.collectors.tracing.bpftrace.sums import MapSums
from llmtop.collectors.tracing.bpftrace.symbols import AddressNames
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.sleeps import MOST_WAKERS, STATES, Place, SleepLedger, weigh
from llmtop.collectors.tracing.wire import NO_CALL

MANY_SEEDS = 100
"""Threads that slept already when bpftrace began: beyond so many they are looked at less often."""
_SEEDS_EVERY = 5
"""Of so many looks one."""


@dataclass
class Sleeper:
    """A thread that sleeps now. `since_ns` is from when its sleep has not been added to a sum yet."""

    pid: int
    place: Place
    descriptor: int
    since_ns: int
    stack_is_known: bool = False


class Sleeps:
    """Sums by thread, system call and state; sleeps that go on are counted up to now.

    A thread that slept already when bpftrace came has no event until it wakes: it is looked up in /proc again and
    again, and its sleep is counted as long as nothing about it changes.
    """

    def __init__(self, symbols: AddressNames) -> None:
        self._symbols = symbols
        self._slept: MapSums[int] = MapSums()
        self._queue: MapSums[Slots] = MapSums()
        self._wakes: MapSums[int] = MapSums()
        self._ledger = SleepLedger()
        self._seeds: dict[int, Sleeper] = {}
        self._seeded: dict[Place, int] = {}
        """Sleep found in /proc."""
        self._looks = 0
        self._threads = 0
        """How many threads the kernel's maps hold; those that ended stay there."""
        self.sleepers: dict[int, Sleeper] = {}

    def seed(self, pids: Iterable[int], t_ns: int) -> None:
        """Find the threads that sleep already."""
        self._seeds = {}
        for pid in pids:
            for tid in system.threads(pid):
                sleeper = _in_proc(pid, tid, t_ns)
                if sleeper and tid not in self.sleepers:
                    self._seeds[tid] = sleeper

    def read(self, look: Printout) -> wire.Sample:
        """What changed, as sums since the start."""
        self._looks += 1
        slept = look.table("slept", 3)
        awake = {tid for _, tid, _ in self._slept.take(slept)}
        for key in slept:
            self._ledger.note(_place(key), key[0], key[2] >> FILE_SHIFT)
        self.sleepers = _sleepers(look)
        self._threads = len(look.tuples("off", 1))
        self._check_seeds(look.t_ns, awake)
        queues = self._queue.take(look.histograms("queue", 1))
        return {
            "waits": self._waits(look.t_ns),
            "queue": [wire.QueueTotal(pid, self._queue.get((pid,)) or {}) for (pid,) in queues],
            "wakes": self._changed_wakes(look),
        }

    @property
    def switches(self) -> int:
        """How often the threads came back on a CPU, since the start."""
        return sum(sum(slots.values()) for _, slots in self._queue.items())

    def stack_shares(self, look: Printout) -> list[wire.SleepStack]:
        """Of what was slept since the last stacks."""
        seen: dict[Place, dict[Frames, int]] = {}
        for (pid, tid, place), user, kernel, ns in look.stacks("sleep_stacks", 3):
            self._ledger.owners[tid] = pid
            weigh(seen, _place((pid, tid, place)), self._symbols.frames(pid, user, kernel), ns)
        user_of, kernel_of = look.frames("user"), look.frames("kernel")
        for tid, sleeper in (self._seeds | self.sleepers).items():
            if sleeper.stack_is_known and tid in user_of:
                frames = self._symbols.frames(sleeper.pid, user_of[tid], kernel_of.get(tid, ()))
            elif sleeper.place not in seen:
                frames = tuple(system.kernel_stack(sleeper.pid, tid))
            else:
                continue
            weigh(seen, sleeper.place, frames, max(1, look.t_ns - sleeper.since_ns))
        return self._ledger.shared_out(seen)

    def begin_again(self, t_ns: int) -> None:
        """The next run counts from 0, and knows nothing of those that sleep now."""
        for sleeper in self.sleepers.values():
            slept_ns = max(0, t_ns - sleeper.since_ns)
            self._seeded[sleeper.place] = self._seeded.get(sleeper.place, 0) + slept_ns
        for sums in (self._slept, self._wakes):
            sums.begin_again()
        self._queue.begin_again()
        self.sleepers, self._seeds = {}, {}

    def forget(self, tids: Collection[int], pids: Collection[int]) -> None:
        """Drop what ended."""
        if not tids and not pids:
            return
        for sums in (self._slept, self._wakes):
            sums.forget(tids, 1)
            sums.forget(pids, 0)
        self._queue.forget(pids, 0)
        gone = set(tids) | {tid for tid, pid in self._ledger.owners.items() if pid in pids}
        for place in self._ledger.forget(gone):
            self._seeded.pop(place, None)
        for tid in gone:
            self._seeds.pop(tid, None)
            self.sleepers.pop(tid, None)

    def entries(self) -> int:
        """How full the fullest of the kernel's maps is."""
        return max(self._slept.entries(), self._wakes.entries(), self._threads)

    def _check_seeds(self, t_ns: int, awake: set[int]) -> None:
        due = len(self._seeds) <= MANY_SEEDS or self._looks % _SEEDS_EVERY == 0
        for tid, seed in list(self._seeds.items()):
            if tid in awake or tid in self.sleepers:
                del self._seeds[tid]
            elif due:
                now = _in_proc(seed.pid, tid, t_ns)
                if now is None or now.place != seed.place:
                    del self._seeds[tid]
                    continue
                self._seeded[seed.place] = self._seeded.get(seed.place, 0) + max(0, t_ns - seed.since_ns)
                seed.since_ns = t_ns
                self._ledger.note(seed.place, seed.pid, seed.descriptor)

    def _waits(self, now: int) -> list[wire.SleepTotal]:
        """Closed sleeps, and those that go on, up to now."""
        slept = Counter(self._seeded)
        for key, ns in self._slept.items():
            slept[_place(key)] += ns
        for sleeper in self.sleepers.values():
            slept[sleeper.place] += max(0, now - sleeper.since_ns)
            self._ledger.note(sleeper.place, sleeper.pid, sleeper.descriptor)
        return self._ledger.grown(slept)

    def _changed_wakes(self, look: Printout) -> list[wire.WakeTotal]:
        """Of the wakers that woke a thread most."""
        by_thread: dict[int, list[tuple[int, Key]]] = {}
        for key in self._wakes.take(look.table("wakes", 3)):
            by_thread.setdefault(key[1], []).append((self._wakes.get(key) or 0, key))
        return [
            wire.WakeTotal(pid, tid, waker, count)
            for wakers in by_thread.values()
            for count, (pid, tid, waker) in sorted(wakers, reverse=True)[:MOST_WAKERS]
        ]


def _place(key: Key) -> Place:
    """From (pid, tid, what the program packed into one number)."""
    return key[1], key[2] & NO_CALL, (key[2] >> STATE_SHIFT) & 0xFFFF


def _sleepers(look: Printout) -> dict[int, Sleeper]:
    woken = look.table("woken", 1)
    found = {}
    for (tid,), off in look.tuples("off", 1).items():
        if len(off) != 4 or not off[0] or (woken.get((tid,)) or 0) >= off[0]:
            continue
        since, pid, packed, is_taken = off
        place = _place((pid, tid, packed))
        if place[2]:  # else it was preempted, and queues
            found[tid] = Sleeper(pid, place, packed >> FILE_SHIFT, since, bool(is_taken))
    return found


def _in_proc(pid: int, tid: int, t_ns: int) -> Sleeper | None:
    state = STATES.get(system.thread_state(pid, tid))
    if state is None:
        return None
    call, descriptor = system.sleeping_in(pid, tid) or (NO_CALL, 0)
    return Sleeper(pid, (tid, call, state), descriptor, t_ns)
