"""What the programs on library functions count in the kernel: by function, by thread, and calls that are under way."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ...helper import system
from ...helper.functions import NUMBERS
from .programs import SLOTS, Module

SYNCS = 3
"""The place of synchronising calls in what is counted of a thread: launches, steps, launches in these, and they."""
_NAMES = {number: name for name, number in NUMBERS.items()}
_THREAD = "12Q6I176s"
"""struct library_thread of programs/common.h; what is known of its round is told when that ends."""


class LibraryThreadCalls(NamedTuple):
    """struct library_thread of programs/common.h."""

    launches: int
    sync_ns: int
    sync_since: int
    sync_stack: int
    launch_stack: int
    syncs: int
    steps: int
    step_launches: int
    launches_before: int
    collecting_ns: int
    collections: int
    query_stack: int
    sync_function: int
    launch_function: int
    tgid: int
    attachment: int
    step_attachment: int
    query_function: int
    of_round: bytes

    def in_sync_ns(self, now: int) -> int:
        """For how long it has been in calls that wait, the one that it is in up to now."""
        return self.sync_ns + (max(0, now - self.sync_since) if self.sync_since else 0)


class Counted(NamedTuple):
    """What a process had done at a moment: its CPU time, waits for the GPU, sums by function, launches by thread."""

    at_ns: int
    cpu_ns: int
    sync_ns: int
    functions: Mapping[str, tuple[int, ...]]
    threads: Mapping[int, tuple[int, ...]]


def growth(before: Mapping[Any, tuple[int, ...]], after: Mapping[Any, tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
    """What sums have grown by; they begin with 0.

    >>> growth({"a": (1, 5)}, {"a": (3, 5), "b": (1, 2)})
    {'a': (2, 0), 'b': (1, 2)}
    """
    return {
        key: tuple(new - old for new, old in zip(sums, before[key])) if key in before else sums
        for key, sums in after.items()
    }


class LibraryMaps:
    """The maps of a program that is loaded."""

    def __init__(self, module: Module) -> None:
        self._functions = module.table("functions", "II", f"QQ{SLOTS}Q")
        self._threads = module.table("library_threads", "I", _THREAD)
        self._entered = module.table("entered", "Q", "Q")
        self._attachments = module.table("attachments", "I", "I")
        self._lost = module.table("lost", "I", "Q")

    def functions(self) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Process, function, and its sums: calls, ns, and calls by slot of their latency."""
        return ((tgid, _NAMES[number], sums) for (tgid, number), sums in self._functions.entries())

    def threads(self) -> Iterator[tuple[int, LibraryThreadCalls]]:
        """The threads that have called a library."""
        return ((tid, LibraryThreadCalls(*value)) for (tid,), value in self._threads.entries())

    def counted(self, pid: int, names: Collection[str]) -> Counted:
        """What a process has done so far, and what the probes on these functions have counted of that."""
        now, own = time.monotonic_ns(), {tid: calls for tid, calls in self.threads() if calls.tgid == pid}
        return Counted(
            now,
            system.cpu_ns(pid),
            sum(calls.in_sync_ns(now) for calls in own.values()),
            {name: sums for tgid, name, sums in self.functions() if tgid == pid and name in names},
            {tid: (calls.launches, calls.steps, calls.step_launches, calls.syncs) for tid, calls in own.items()},
        )

    def set_round(self, *, is_open: bool) -> None:
        """Steps count that begin and end in one round that is open: an odd one.

        Launches that were under way in the round before are over.
        """
        (times,) = self._attachments.get(0) or (0,)
        self._attachments.put((0,), ((times + 1 + ((times + 1) % 2 != is_open)) & 0xFFFFFFFF,))

    def end_calls(self, names: Collection[str]) -> None:
        """Calls of these functions that are under way: nobody will tell when they end."""
        numbers = {NUMBERS[name] for name in names}
        for key in [key for (key,), _ in self._entered.entries() if key & 0xFF in numbers]:
            self._entered.remove(key)

    def end_waits(self, pid: int) -> None:
        """Waits of a process that are under way, likewise."""
        for tid, calls in list(self.threads()):
            if calls.sync_since and calls.tgid == pid:
                self._threads.put((tid,), calls._replace(sync_since=0, sync_stack=0))

    def end_queries(self, pid: int) -> None:
        """Queries of a process that are under way, likewise."""
        for tid, calls in list(self.threads()):
            if calls.query_stack and calls.tgid == pid:
                self._threads.put((tid,), calls._replace(query_stack=0))

    def forget_thread(self, tid: int) -> None:
        """It has ended."""
        self._threads.remove(tid)

    def lost(self) -> int:
        """Calls that found no room in the maps."""
        return self._lost.count()
