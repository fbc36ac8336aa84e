"""The ledger of sleeps: what threads slept in each place, told as it grows, and shared out over the stacks there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from ..wire import SleepStack, SleepTotal

Place: TypeAlias = "tuple[int, int, int]"
"""Where a thread sleeps: (tid, system call, state)."""
Frames: TypeAlias = "tuple[str, ...]"
STATES = {"S": 1, "D": 2, "T": 4, "t": 8}
"""State letters of /proc as sched_switch reports those who sleep."""
MOST_WAKERS = 3
"""That are told per thread and look: a thread that dozens wake is woken by a few mostly."""


class SleepLedger:
    """What was told of each place, and what of that no stack has been told for yet.

    Stacks are sampled, times are exact: what a thread slept in one place is shared out over the stacks seen there.
    Where none was seen yet, it is owed until one is.
    """

    def __init__(self) -> None:
        self._told: dict[Place, int] = {}
        """The longest time told of each place: what is told never shrinks."""
        self._owed: dict[Place, int] = {}
        self._descriptors: dict[Place, int] = {}
        self.owners: dict[int, int] = {}
        """Processes by thread."""

    def note(self, place: Place, pid: int, descriptor: int) -> None:
        """Whose thread it is, and which file it sleeps on: of several in one call, the last one stands for all."""
        self.owners[place[0]] = pid
        self._descriptors[place] = descriptor

    def grown(self, slept: Mapping[Place, int]) -> list[SleepTotal]:
        """Of all that was slept so far, up to now, the places that have grown."""
        told = []
        for place, ns in slept.items():
            grown = ns - self._told.get(place, 0)
            if grown > 0:
                self._told[place] = ns
                self._owed[place] = self._owed.get(place, 0) + grown
                told.append(SleepTotal(self.owners[place[0]], *place, self._descriptors.get(place, 0), ns))
        return told

    def shared_out(self, seen: Mapping[Place, Mapping[Frames, int]]) -> list[SleepStack]:
        """What is owed, by the stacks that were seen and their weights."""
        told = []
        for place, weights in seen.items():
            owed, total = self._owed.pop(place, 0), sum(weights.values())
            pid = self.owners.get(place[0])
            if owed and total and pid is not None:
                descriptor = self._descriptors.get(place, 0)
                told += [
                    SleepStack(pid, *place, descriptor, frames, owed * ns // total) for frames, ns in weights.items()
                ]
        return told

    def owe_nothing(self) -> None:
        """What was slept until now is put down to no stack."""
        self._owed.clear()

    def forget(self, tids: Collection[int]) -> set[Place]:
        """Drop threads that have ended; the places that were theirs."""
        places = {place for place in (*self._told, *self._descriptors) if place[0] in tids} if tids else set()
        for place in places:
            for book in (self._told, self._owed, self._descriptors):
                book.pop(place, None)
        for tid in tids:
            self.owners.pop(tid, None)
        return places


def weigh(seen: dict[Place, dict[Frames, int]], place: Place, frames: Frames, ns: int) -> None:
    """Note a stack that was seen, with its weight."""
    stacks = seen.setdefault(place, {})
    stacks[frames] = stacks.get(frames, 0) + ns
