"""The server's threads as rows: equal ones that hardly run are one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import counter_rate, told_why_absent
from llmtop.analysis.tables import RowTable
from llmtop.analysis.threads.garbage import GarbageCollection, garbage_collection
from llmtop.analysis.threads.shares import WINDOW_NS, Shares, ThreadRow, ThreadsView, causes_text
from llmtop.analysis.views import Cell, Column
from llmtop.facts import ThreadFact
from llmtop.model import Metric, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Key = tuple[int, int | str]
"""A thread by PID and TID; threads that are folded by PID and name."""
_LAZY = 0.05
"""A thread that runs and queues for less is folded with its like: a crowd must not hide the one that works."""
_NOT_SEEN = Unknown("no probe counts this", "see what is missing: d")
_NOT_READ = Unknown("not read yet")
_SEVERAL = Unknown("several threads", "Enter: each of them")


def threads_table(trace: Trace, view: ThreadsView) -> RowTable:
    """One row a thread, and one for all of a process that have one name and hardly run; for the zoomed pane."""
    columns = (
        Column("name", "thread", width=18),
        Column("role", "role", width=14, shrink=4),
        Column("pid", "pid", "1", width=8, shrink=7),
        Column("tid", "tid", "1", width=8, shrink=1),
        Column("cpu", "CPU", "1", width=4, shrink=2, help="the processor that it ran on last"),
        Column(
            "on_cpu",
            "on-CPU",
            "ratio",
            width=7,
            help="share of the window on a CPU (schedstat); of folded ones the sum",
        ),
        Column("run_queue", "run-q", "ratio", width=7, help="share of the window ready, waiting for a CPU (schedstat)"),
        Column("blocked", "blocked", "ratio", width=8, help="the rest of the window; of folded ones the mean"),
        Column("voluntary", "vol/s", "1", width=6, shrink=5, help="voluntary switches a second: it went to sleep"),
        Column("involuntary", "inv/s", "1", width=6, shrink=3, help="involuntary ones: another thread took the CPU"),
        Column("polling", "polling", "ratio", width=8, shrink=8, help="on-CPU time that only passes the time (probes)"),
        Column("sync", "in sync", "ratio", width=8, shrink=9, help="within CUDA and NCCL calls that wait (probes)"),
        Column("gc", "GC", "ratio", width=6, shrink=10, help="in Python's garbage collector (probes)"),
        Column("gc_per_s", "GC/s", "1", width=6, shrink=11, help="garbage collections a second (probes)"),
        Column("cpus", "may use", width=8, shrink=6, help="the processors that it may run on (affinity)"),
        Column("causes", "blocked on", width=0, help=view.causes),
    )
    groups = list(_folded(view.rows))
    return RowTable(columns, tuple(tuple(_cells(trace, rows)) for _, rows in groups), tuple(key for key, _ in groups))


def threads_of(view: ThreadsView, key: Key) -> tuple[tuple[int, int], ...]:
    """The threads, by PID and TID, that a row stands for."""
    found = (rows for known, rows in _folded(view.rows) if known == key)
    return tuple((row.pid, row.tid) for row in next(found, ()))


def _folded(rows: Sequence[ThreadRow]) -> Iterator[tuple[Key, list[ThreadRow]]]:
    """In the order of the rows; a crowd stands where its first one does."""
    crowds: defaultdict[Key, list[ThreadRow]] = defaultdict(list)
    for row in rows:
        if _is_lazy(row):
            crowds[row.pid, row.name].append(row)
    for row in rows:
        crowd = crowds.get((row.pid, row.name), []) if _is_lazy(row) else []
        if len(crowd) < 2:
            yield (row.pid, row.tid), [row]
        elif crowd[0] is row:
            yield (row.pid, row.name), crowd


def _is_lazy(row: ThreadRow) -> bool:
    if row.pid == row.tid:
        return False
    return not isinstance(row.shares, Shares) or row.shares.on_cpu + row.shares.run_queue < _LAZY


def _cells(trace: Trace, rows: Sequence[ThreadRow]) -> Iterator[Cell]:
    first, is_one = rows[0], len(rows) == 1
    yield first.name if is_one else f"{first.name} ×{len(rows)}"
    yield first.role
    yield first.pid
    yield first.tid if is_one else _SEVERAL
    facts = trace.tracks[first.track].facts if first.track in trace.tracks else {}
    cpu = facts.get(ThreadFact.CPU, _NOT_READ)
    yield cpu if is_one else _SEVERAL
    yield from _shares_cells([row.shares for row in rows])
    for metric in (v.THREAD_VOLUNTARY, v.THREAD_INVOLUNTARY):
        yield _rate(trace, rows, metric)
    shares = first.shares
    if isinstance(shares, Unknown):
        yield from (shares, shares, shares, shares, facts.get(ThreadFact.CPUS, _NOT_READ), shares)
        return
    for share, metric in ((shares.polling, v.THREAD_SPINS), (shares.in_cuda_sync, v.THREAD_CUDA_SYNC)):
        yield told_why_absent(trace, first.track, metric) or _NOT_SEEN if share is None else share
    yield from _garbage(trace, rows)
    yield facts.get(ThreadFact.CPUS, _NOT_READ)
    yield causes_text(_together(rows, shares))


def _together(rows: Sequence[ThreadRow], first: Shares) -> Shares:
    """What threads were blocked on, on the mean: those of one name may wait for different things."""
    known = [row.shares for row in rows if isinstance(row.shares, Shares)]
    if len(known) < 2:
        return first
    sums: defaultdict[str, float] = defaultdict(float)
    for shares in known:
        for cause, share in shares.blocked:
            sums[cause] += share / len(known)
    return replace(first, blocked=tuple(sorted(sums.items(), key=lambda item: (-item[1], item[0]))))


def _garbage(trace: Trace, rows: Sequence[ThreadRow]) -> Iterator[Cell]:
    """Of threads of one process, for all of which it is known or for none."""
    told = [garbage_collection(trace, row.track) for row in rows]
    known = [one for one in told if isinstance(one, GarbageCollection)]
    if not known:
        yield from (one for one in told[:1] * 2 if isinstance(one, Unknown))
        return
    yield sum(one.share for one in known)
    yield round(sum(one.per_s for one in known), 1)


def _shares_cells(shares: Sequence[Shares | Unknown]) -> Iterator[Cell]:
    known = [one for one in shares if isinstance(one, Shares)]
    if not known:
        yield from [one for one in shares if isinstance(one, Unknown)][:1] * 3
        return
    yield sum(one.on_cpu for one in known)
    yield sum(one.run_queue for one in known)
    yield sum(one.blocked_total for one in known) / len(known)


def _rate(trace: Trace, rows: Sequence[ThreadRow], metric: Metric) -> float | Unknown:
    rates = [counter_rate(trace, row.track, metric, WINDOW_NS) for row in rows]
    known = [rate for rate in rates if not isinstance(rate, Unknown)]
    return round(sum(known), 1) if known else rates[0]
