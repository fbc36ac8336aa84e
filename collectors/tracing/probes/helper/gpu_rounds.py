"""Rounds of the GPU's work: a thread launches, and somebody waits for the GPU. The kernel keeps one entry for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Optional

from ... import wire
from ...helper.functions import COLLECT, COLLECTOR, GRAPH, LAUNCH, LAUNCHING, OTHER, QUERY, WAIT
from . import btf
from .process_libraries import ProcessLibraries
from .programs import Module

_NOT_KNOWN = 2**64 - 1


class _Entry(NamedTuple):
    """struct gpu_round of programs/library.c: ns, but for the last three."""

    start: int
    wait: int
    queued: int
    locked: int
    for_input: int
    asleep: int
    allocation: int
    copy: int
    collection: int
    faults: int
    launches: int
    graphs: int


class GpuRounds:
    """Tells the kernel what it needs to know of processes, and takes the rounds that have ended.

    Args:
        processes: By PID; the owner adds and removes them.
    """

    def __init__(self, module: Module, processes: Mapping[int, ProcessLibraries]) -> None:
        self._rounds = module.table("gpu_rounds", "QII", "10Q2I")
        self._uncounted = module.table("uncounted", "I", "I")
        self._processes = processes
        self._told: set[int] = set()
        """Processes of which the kernel knows that their launches are not counted all the time."""
        places = module.table("places", "I", "I")
        places.put((0,), (place_of_faults() or 0,))
        places.put((1,), (btf.offset_of("task_struct", "nivcsw") or 0,))

    def _tell_uncounted(self) -> None:
        """Have each wait end a round where launches cannot tell which does."""
        wanted = {pid for pid, one in self._processes.items() if one.functions and not one.sampling.steady >= LAUNCHING}
        for pid in wanted - self._told:
            self._uncounted.put((pid,), (1,))
        for pid in self._told - wanted:
            self._uncounted.remove(pid)
        self._told = wanted

    def take(self, followed_since: int | None) -> list[wire.GpuRound]:
        """Those that have ended since the last time, in order.

        Args:
            followed_since: Since when threads are followed on and off the CPU without a break; None: they are not.
        """
        self._tell_uncounted()
        found = (
            self._round(tgid, tid, end, _Entry(*entry), followed_since)
            for (end, tid, tgid), entry in self._rounds.entries(take=True)
        )
        return sorted((one for one in found if one is not None), key=lambda one: one.end)

    def _round(
        self, pid: int, tid: int, end: int, entry: _Entry, followed_since: int | None
    ) -> Optional[wire.GpuRound]:
        """None of one in which not all waits were seen; what was not looked at all the time is not known."""
        process = self._processes.get(pid)
        if process is None or not process.saw(WAIT, entry.start) or process.came_to_see(QUERY, entry.start):
            return None
        graphs = entry.graphs if process.saw(GRAPH, entry.start) else None
        launches = entry.launches if graphs is not None and process.saw(LAUNCH, entry.start) else None
        calls = (entry.allocation, entry.copy) if process.saw(OTHER, entry.start) else (None, None)
        is_followed = followed_since is not None and entry.start >= followed_since
        off_cpu: Iterable[int | None] = entry[2:6] if is_followed else (None,) * 4
        faults = None if entry.faults == _NOT_KNOWN else entry.faults
        times = (end, end - entry.start, entry.wait)
        is_seen = process.saw(COLLECT, entry.start) and COLLECTOR not in process.refused
        collection = entry.collection if is_seen else None
        return wire.GpuRound._make((pid, tid, *times, launches, graphs, faults, *off_cpu, *calls, collection))


@lru_cache
def place_of_faults() -> int | None:
    """Where a task has its counts of minor and major page faults, side by side; None where the kernel does not tell."""
    minor, major = (btf.offset_of("task_struct", name) for name in ("min_flt", "maj_flt"))
    return minor if minor is not None and major == minor + 8 else None
