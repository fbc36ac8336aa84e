"""Sums of library calls since the start, by function and by thread, as they are told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from ... import wire
from ...helper.functions import LAUNCHING
from .library_maps import LibraryMaps
from .process_libraries import LaunchingThread, ProcessLibraries


class LibrarySums:
    """Adds up what the kernel has counted of these processes.

    Args:
        maps: Where it is counted.
        processes: By PID; the owner adds and removes them.
    """

    def __init__(self, maps: LibraryMaps, processes: Mapping[int, ProcessLibraries]) -> None:
        self._maps = maps
        self._processes = processes
        self._threads: dict[int, LaunchingThread] = {}
        self._sent: dict[tuple[int, str], tuple[int, int]] = {}
        self.absorbed_ns = 0
        """When that was done last."""

    def absorb(self) -> None:
        """Add what was counted since the last time to the sums, of what has probes all the time."""
        self.absorbed_ns = time.monotonic_ns()
        for tgid, name, counts in self._maps.functions():
            process = self._processes.get(tgid)
            function = process.functions.get(name) if process else None
            if process is None or function is None or function.raw == counts:
                continue
            if function.kind in process.sampling.steady:
                function.grow(new - old for new, old in zip(counts, function.raw))
            function.raw = counts
        for tid, calls in self._maps.threads():
            process = self._processes.get(calls.tgid)
            if process is None:
                continue
            thread = self._threads.setdefault(tid, LaunchingThread(calls.tgid))
            if process.sampling.steady >= LAUNCHING:
                thread.launches += calls.launches - thread.raw
            thread.raw = calls.launches

    def threads_of(self, pid: int) -> dict[int, LaunchingThread]:
        """Those of a process that have called a library."""
        return {tid: thread for tid, thread in self._threads.items() if thread.tgid == pid}

    def changed(self) -> Iterator[wire.FunctionTotal]:
        """The functions whose sums are others than when they were told last."""
        for pid, process in self._processes.items():
            for name, one in process.functions.items():
                count, ns, *slots = map(round, one.sums)
                if self._sent.get((pid, name), (0, 0)) != (count, ns):
                    self._sent[pid, name] = (count, ns)
                    yield wire.FunctionTotal(pid, name, count, ns, {slot: n for slot, n in enumerate(slots) if n})

    def changed_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[wire.LibraryThread]:
        """Likewise the threads, up to now; those that have ended are forgotten."""
        dead = {tid for tid, _ in ended}
        changed = []
        for tid, calls in self._maps.threads():
            thread = self._threads.get(tid)
            if thread is None:
                continue  # it has made its first call since the sums were read
            # A call that ended between two looks of ours was counted a little longer than it took.
            sent = (round(thread.launches), max(calls.in_sync_ns(now), thread.sent[1]))
            if sent != thread.sent:
                thread.sent = sent
                changed.append(wire.LibraryThread(thread.tgid, tid, *sent))
            if tid in dead:
                del self._threads[tid]
                self._maps.forget_thread(tid)
        return changed

    def changed_collecting(self) -> Iterator[wire.CollectingThread]:
        """The threads that have collected garbage since they were told last."""
        for tid, calls in self._maps.threads():
            thread = self._threads.get(tid)
            if thread is not None and calls.collecting_ns != thread.sent_collecting:
                thread.sent_collecting = calls.collecting_ns
                yield wire.CollectingThread(thread.tgid, tid, calls.collecting_ns, calls.collections)

    def forget(self, pid: int) -> None:
        """A process has ended: another of its id begins at nothing."""
        self._sent = {key: sent for key, sent in self._sent.items() if key[0] != pid}
