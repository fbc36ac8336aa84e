"""What tools have printed about CPUs, for `llmtop report --by`: counts of events, scheduling, cache lines, accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.analysis.tables import csv_of_rows
from llmtop.analysis.threads.cache_lines import TITLE as CACHE_LINES
from llmtop.analysis.threads.cache_lines import SharedLine, code_of, line_rows, lines_table
from llmtop.analysis.threads.event_counts import (
    TITLE,
    CountRow,
    EventCounts,
    counts_table,
    event_counts,
    said_of_counts,
)
from llmtop.analysis.threads.memory_accesses import TITLE as ACCESSES
from llmtop.analysis.threads.memory_accesses import accesses_of, accesses_table, level_shares, said_of_accesses
from llmtop.analysis.threads.scheduling import TITLE as SCHEDULING
from llmtop.analysis.threads.scheduling import (
    SchedulingRow,
    said_of_scheduling,
    scheduling_rows,
    scheduling_table,
)
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import MemoryAccesses, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from llmtop.cli.documents import Json
    from llmtop.model import Fact, Trace

    Record = dict[str, Fact | None]


_ACCESS = (
    *("event", "share", "samples", "weight", "level", "symbol", "object", "data_symbol", "data_object"),
    *("snoop", "tlb", "locked"),
)


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


def _lines(trace: Trace, wanted: WantedTable) -> PartTable[tuple[SharedLine, ...]]:
    rows = line_rows(trace)
    return PartTable(
        CACHE_LINES,
        trace.origin.path,
        rows,
        rows_of=lines_table,
        document_of=lambda rows: {"by": wanted.by, "rows": [_line_document(row) for row in rows]},
        csv_of=lambda rows: csv_of_rows(map(_line_record, rows)),
        said=lambda: [str(rows)] if isinstance(rows, Unknown) else [],
    )


def _line_record(row: SharedLine) -> Record:
    line = row.line
    return {
        "address": line.address,
        "reader": code_of(row.reader),
        "writer": code_of(row.writer),
        "sharing": row.sharing if isinstance(row.sharing, Unknown) else row.sharing.value,
        "hitm_local": line.hitm_local,
        "hitm_remote": line.hitm_remote,
        "peer": line.peer,
        "share": line.share,
        "share_of_loads": row.waiting_share,
        "loads": line.loads,
        "stores": line.stores,
        "dram_local": line.dram_local,
        "dram_remote": line.dram_remote,
        "node": line.node,
    }


def _line_document(row: SharedLine) -> Json:
    accesses = [
        {
            "offset": one.offset,
            "symbol": one.symbol,
            "object": one.object,
            "place": one.place,
            "nodes": one.node,
            "remote_share": one.remote_share,
            "local_share": one.local_share,
            "peer_share": one.peer_share,
            "stores_share": one.stores_share,
            "cpus": one.cpus,
            "pid": one.pid,
            "tid": one.tid,
        }
        for one in row.line.accesses
    ]
    record = _line_record(row).items()
    return {**{key: None if value is None else fact(value) for key, value in record}, "accesses": accesses}


def _accesses(trace: Trace, wanted: WantedTable) -> PartTable[tuple[MemoryAccesses, ...]]:
    rows = accesses_of(trace)
    return PartTable(
        ACCESSES,
        trace.origin.path,
        rows,
        rows_of=accesses_table,
        document_of=lambda rows: _document(wanted, map(_access_record, rows), levels=_levels(rows)),
        csv_of=lambda rows: csv_of_rows(map(_access_record, rows)),
        said=lambda: [str(rows)] if isinstance(rows, Unknown) else said_of_accesses(rows),
    )


def _levels(rows: Sequence[MemoryAccesses]) -> list[Json]:
    return [{"event": event, "shares": {**shares}} for event, shares in level_shares(rows).items()]


def _access_record(row: MemoryAccesses) -> Record:
    return {name: getattr(row, name) for name in _ACCESS}


def _document(wanted: WantedTable, records: Iterable[Record], **more: Json) -> Json:
    rows = [{key: None if value is None else fact(value) for key, value in one.items()} for one in records]
    return {"by": wanted.by, "rows": rows, **more}


PRINTED: Mapping[str, Callable[[Trace, WantedTable], PartTable[Any]]] = {
    "counts": _counts,
    "scheduling": _scheduling,
    "cache-lines": _lines,
    "accesses": _accesses,
}
