"""What tools have printed about CPUs, for `llmtop report --by`: counts of events, and scheduling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.analysis.tables import csv_of_rows
from llmtop.analysis.threads.event_counts import (
    TITLE,
    CountRow,
    EventCounts,
    counts_table,
    event_counts,
    said_of_counts,
)
from llmtop.analysis.threads.scheduling import TITLE as SCHEDULING
from llmtop.analysis.threads.scheduling import (
    SchedulingRow,
    said_of_scheduling,
    scheduling_rows,
    scheduling_table,
)
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from llmtop.cli.documents import Json
    from llmtop.model import Fact, Trace

    Record = dict[str, Fact | None]


def printed_by(trace: Trace, wanted: WantedTable) -> PartTable[Any]:
    """The table of what is asked for, one of `PRINTED`."""
    return PRINTED[wanted.by](trace, wanted)


def _counts(trace: Trace, wanted: WantedTable) -> PartTable[EventCounts]:
    return PartTable(
        TITLE,
        trace.origin.path,
        counts := event_counts(trace),
        rows_of=counts_table,
        document_of=lambda counts: _document(wanted, map(_count_record, counts.rows)),
        csv_of=lambda counts: csv_of_rows(map(_count_record, counts.rows)),
        said=lambda: [str(counts)] if isinstance(counts, Unknown) else said_of_counts(counts),
    )


def _count_record(row: CountRow) -> Record:
    one = row.counted
    return {
        "track": one.track,
        "of": row.of,
        "event": one.event,
        "count": one.count,
        "unit": one.unit,
        "meaning": row.meaning,
        "counted_share": one.counted_share,
        "spread": one.spread,
    }


def _scheduling(trace: Trace, wanted: WantedTable) -> PartTable[tuple[SchedulingRow, ...]]:
    rows = scheduling_rows(trace)
    return PartTable(
        SCHEDULING,
        trace.origin.path,
        rows,
        rows_of=scheduling_table,
        document_of=lambda rows: _document(wanted, map(_scheduling_record, rows)),
        csv_of=lambda rows: csv_of_rows(map(_scheduling_record, rows)),
        said=lambda: [str(rows)] if isinstance(rows, Unknown) else said_of_scheduling(rows),
    )


def _scheduling_record(row: SchedulingRow) -> Record:
    told = row.told
    return {
        "track": told.track,
        "thread": row.name,
        "threads": told.threads,
        "ran_ns": told.ran_ns,
        "queued_ns": row.queued_ns,
        "queued_share": row.share,
        "switches": told.switches,
        "delay_mean_ns": told.delay_mean_ns,
        "delay_max_ns": told.delay_max_ns,
        "delay_max_at_ns": told.delay_max_at_ns,
        "migrations": told.migrations,
    }


def _document(wanted: WantedTable, records: Iterable[Record]) -> Json:
    rows = [{key: None if value is None else fact(value) for key, value in one.items()} for one in records]
    return {"by": wanted.by, "rows": rows}


PRINTED: Mapping[str, Callable[[Trace, WantedTable], PartTable[Any]]] = {"counts": _counts, "scheduling": _scheduling}
