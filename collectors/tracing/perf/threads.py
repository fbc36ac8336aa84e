"""The threads that perf looks at, and what /proc says of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from llmtop import procfs
from llmtop.collectors.thread_causes import cause_of_syscall, cause_of_wchan
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.perf.sched import Seed
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S
from llmtop.vocabulary import ThreadCause

MOST_PAGES_A_THREAD = 512
"""Of the buffers of one thread."""
OLD_S = 2.0
"""The age from which on a thread is not likely to end while perf opens its events."""


@frozen
class ThreadTable:
    """The server's processes and threads as they are now: process by thread."""

    threads: Mapping[int, int]

    @property
    def processes(self) -> tuple[int, ...]:
        """Its processes."""
        return tuple(sorted(set(self.threads.values())))

    @classmethod
    def of(cls, roots: Sequence[int]) -> ThreadTable:
        """The processes asked for that are alive, and all that descend from them."""
        alive = [pid for pid in roots if system.start_time(pid)]
        pids = dict.fromkeys((*alive, *procfs.family().descendants(*alive)))
        return cls({tid: pid for pid in pids for tid in system.threads(pid)})

    def options(self, buffers: int, threads: Sequence[int]) -> list[str]:
        """What tells perf whom to look at, with buffers that are small enough for so many."""
        per_thread = max(1, min(MOST_PAGES_A_THREAD, buffers // max(1, len(threads))))
        pages = ["-m", str(1 << (per_thread.bit_length() - 1))]
        if len(threads) == len(self.threads):
            return [*pages, "-p", ",".join(map(str, self.processes))]
        return [*pages, "-t", ",".join(map(str, threads))]


class ServerThreads:
    """The server's processes and threads, found anew in each round, and how busy they are.

    Args:
        roots: Processes: they and all that descend from them.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self.family = ThreadTable({})
        self._ran: Mapping[int, tuple[int, int]] = {}
        self._ran_ns = 0
        self._busy: Mapping[int, int] = {}

    def renew(self) -> tuple[dict[int, int], set[int]]:
        """Find its processes and threads; the threads that have ended since (process by thread), and the processes."""
        before, self.family = self.family, ThreadTable.of(self._roots)
        ended = {tid: pid for tid, pid in before.threads.items() if tid not in self.family.threads}
        return ended, set(before.processes) - set(self.family.processes)

    def measure(self) -> float | None:
        """How often a second its threads came to a CPU since the last time; None the first time.

        The kernel counts that for everybody.
        """
        now, ran = time.monotonic_ns(), schedstats(self.family)
        rate = max(0, times_run(self._ran, ran)) * NS_PER_S / max(1, now - self._ran_ns) if self._ran else None
        self._busy = {tid: spent - self._ran.get(tid, (0, 0))[0] for tid, (spent, _) in ran.items()}
        self._ran, self._ran_ns = ran, now
        return rate

    def busiest(self, most: int, *, only_old: bool = False) -> list[int]:
        """So many of its threads, those that ran the most since the last but one measurement."""
        threads = old(self.family) if only_old else self.family.threads
        return sorted(threads, key=lambda tid: -self._busy.get(tid, 0))[:most]


def schedstats(family: ThreadTable) -> dict[int, tuple[int, int]]:
    """(ns on a CPU, how often it came to one) by thread: /proc/PID/task/TID/schedstat."""
    found = {}
    for tid, pid in family.threads.items():
        fields = (procfs.read_bytes(f"/proc/{pid}/task/{tid}/schedstat") or b"").split()
        if len(fields) == 3:
            found[tid] = (int(fields[0]), int(fields[2]))
    return found


def times_run(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> int:
    """How often threads came to a CPU between two looks."""
    return sum(times - before[tid][1] for tid, (_, times) in after.items() if tid in before)


def old(family: ThreadTable) -> list[int]:
    """The threads that have lived for a while, which are not likely to end while perf opens their events."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = []
    for tid, pid in family.threads.items():
        stat = procfs.stat(tid, Path(f"/proc/{pid}/task"))
        if stat is not None and now_s - stat.start_ticks / procfs.TICKS_PER_S >= OLD_S:
            found.append(tid)
    return found


def seeds(family: ThreadTable) -> dict[int, Seed]:
    """What each thread does now: those that sleep on and on give no event."""
    return {tid: Seed(system.thread_state(pid, tid), _cause(pid, tid)) for tid, pid in family.threads.items()}


def _cause(pid: int, tid: int) -> ThreadCause | None:
    """What a thread sleeps in, by its kernel function or its system call."""
    cause = cause_of_wchan((procfs.read_text(f"/proc/{pid}/task/{tid}/wchan") or "").strip())
    if cause is not None:
        return cause
    line = procfs.read_text(f"/proc/{pid}/task/{tid}/syscall") or ""
    return cause_of_syscall(line, lambda number: procfs.file_behind(pid, number))


def id_ranges(ids: Iterable[int], most: int) -> list[tuple[int, int]]:
    """Ranges that hold all ids, at most so many: those nearest to each other are put together first.

    >>> id_ranges([7, 1, 2, 3, 900], most=2)
    [(1, 7), (900, 900)]
    """
    ordered = sorted(ids)
    gaps = sorted(range(1, len(ordered)), key=lambda at: ordered[at - 1] - ordered[at])
    cuts = sorted(at for at in gaps[: most - 1] if ordered[at] - ordered[at - 1] > 1)
    edges = [0, *cuts, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in pairwise(edges)]


def within(field: str, ranges: Iterable[tuple[int, int]]) -> str:
    """A filter as the kernel reads it (Documentation/trace/events.rst).

    >>> within("pid", [(1, 3), (9, 9)])
    '(pid>=1&&pid<=3)||(pid==9)'
    """
    return "||".join(
        f"({field}=={low})" if low == high else f"({field}>={low}&&{field}<={high})" for low, high in ranges
    )


def owner(pid: int) -> int | None:
    """Whose process it is; None when it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
