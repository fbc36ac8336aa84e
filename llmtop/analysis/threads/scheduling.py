"""Which threads ran, and which waited for a CPU: of what perf has recorded of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop import ids
from llmtop.analysis.tables import RowTable, numbered_where_told
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Trace, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.views import Cell
    from llmtop.model import ThreadScheduling

TITLE: Final = "Scheduling"
NO_SCHEDULING: Final = Unknown(
    "this file does not tell when threads waited for a CPU", "sudo perf sched record -- sleep 5; perf sched latency -p"
)
_COLUMNS = (
    Column("name", "thread", width=0),
    Column("tid", "TID", width=8, shrink=3),
    Column("ran", "ran", "ns", width=8, help="on a CPU"),
    Column("queued", "queued", "ns", width=8, help="ready to run, and on no CPU"),
    Column(
        "share", "of both", "ratio", width=8, shrink=2, help="how much of the time it wanted a CPU it waited for one"
    ),
    Column("switches", "switches", "count", width=9, shrink=4, help="how often it came onto a CPU"),
    Column("mean", "mean delay", "ns", width=11, shrink=1),
    Column("most", "longest", "ns", width=8),
    Column("at", "began at", width=17, shrink=5, help="when the longest delay began, on perf's clock"),
    Column("moved", "moves", "count", width=6, shrink=6, help="how often it changed its CPU"),
)


@frozen
class SchedulingRow:
    """A thread, or threads of one name that perf puts together.

    Attributes:
        tid: None of several.
        queued_ns: How long it was ready to run and on no CPU; Unknown where no delays are told.
        share: The part of that in all the time in which it wanted a CPU, 0 to 1.
    """

    told: ThreadScheduling
    name: str
    tid: int | None
    queued_ns: float | Unknown
    share: float | Unknown


def scheduling_rows(trace: Trace) -> tuple[SchedulingRow, ...] | Unknown:
    """All threads, the one first that was queued longest; why there are none."""
    if not trace.scheduling:
        return NO_SCHEDULING
    rows = [_row(trace, one) for one in trace.scheduling]
    return tuple(sorted(rows, key=lambda row: -row.queued_ns if not isinstance(row.queued_ns, Unknown) else 0.0))


def scheduling_table(rows: Sequence[SchedulingRow]) -> RowTable:
    """As a table without columns that are empty; rows are keyed by their number."""
    return numbered_where_told(_COLUMNS, [_cells(row) for row in rows])


def began_at(told: ThreadScheduling) -> str:
    """When the longest delay began, as perf writes times; empty where nothing tells."""
    return "" if told.delay_max_at_ns is None else f"{told.delay_max_at_ns / NS_PER_S:.6f} s"


def said_of_scheduling(rows: Sequence[SchedulingRow]) -> list[str]:
    """What perf puts together."""
    if not any(row.told.threads > 1 for row in rows):
        return []
    return ["threads of one name are one row, with how many they are: perf sched latency -p tells each"]


def _row(trace: Trace, told: ThreadScheduling) -> SchedulingRow:
    track = trace.tracks[told.track]
    name = f"{track.name} ({told.threads} threads)" if told.threads > 1 else track.name
    tid = ids.tid(told.track) if track.kind is TrackKind.THREAD else None
    if isinstance(told.delay_mean_ns, Unknown):
        return SchedulingRow(told, name, tid, told.delay_mean_ns, told.delay_mean_ns)
    queued = told.delay_mean_ns * told.switches
    wanted = queued + told.ran_ns
    return SchedulingRow(told, name, tid, queued, queued / wanted if wanted else Unknown("it did not want a CPU"))


def _cells(row: SchedulingRow) -> tuple[Cell, ...]:
    told = row.told
    ends = (told.switches, told.delay_mean_ns, told.delay_max_ns, began_at(told), told.migrations)
    return row.name, row.tid if row.tid is None else str(row.tid), told.ran_ns, row.queued_ns, row.share, *ends
