"""What kernels move between the units of the memory system, as a table: for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.memory_chart import SOURCE, MemoryChart, MemoryUnit, memory_chart
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import RowTable, fitted
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace

_COLUMNS = (
    Column("name", "kernel", width=0, help="the launch that stands for its calls"),
    Column("unit", "unit", width=8, help="what is read from and written to"),
    Column("reads", "reads", "1", 10, 2, "how often it was asked"),
    Column("read", "read", "bytes", 10, 0),
    Column("writes", "writes", "1", 10, 3, "how often it was asked"),
    Column("written", "written", "bytes", 10, 0),
    Column("hits", "hits", "%", 7, 1, "of the sectors asked for that it had; of ways to L1 of those that were read"),
    Column("busy", "busy", "%", 7, 1, "of what it can do at most"),
    Column("of", "asked in", "", 12, 4, "what reads and writes are"),
)


@frozen
class TrafficRow:
    """A unit of one launch: (how often it was asked, bytes) of reading and of writing; None of what nothing counts."""

    unit: MemoryUnit
    reads: float | Unknown | None
    read: float | Unknown | None
    writes: float | Unknown | None
    written: float | Unknown | None
    hits: float | Unknown | None
    busy: float | Unknown | None
    of: str


def traffic_rows(chart: MemoryChart) -> Iterator[TrafficRow]:
    """The units behind the kernel, in the order in which it reaches them."""
    for unit in MemoryUnit:
        link, block = chart.link(unit), chart.block(unit)
        if link is not None:
            read, written = link.read, link.written
            amounts = read.requests, read.bytes, written.requests, written.bytes
            yield TrafficRow(unit, *amounts, block.hits, block.busy, "" if read.requests is None else read.of)
        elif unit is MemoryUnit.L1:
            yield TrafficRow(unit, None, None, None, None, block.hits, block.busy, "")


def charts(trace: Trace, name: str = "") -> dict[int, MemoryChart | Unknown] | Unknown:
    """By launch, of the kernels with this in their name, the one with the most time first; why there are none."""
    why = not_counted(trace)
    return why or {i: memory_chart(trace, i) for i in kernels_of(trace).standing(name)}


def traffic_table(trace: Trace, found: Mapping[int, MemoryChart | Unknown]) -> RowTable:
    """A row for each unit of each kernel; one row for a kernel of which nothing is known."""
    names = kernels_of(trace).short_name
    rows = tuple((names(i), *cells) for i, chart in found.items() for cells in _cells(chart))
    columns, widest = fitted(_COLUMNS, rows)
    return RowTable(columns, rows, tuple(range(len(rows))), widest)


def _cells(chart: MemoryChart | Unknown) -> Iterator[tuple[Cell, ...]]:
    if isinstance(chart, Unknown):
        yield (chart,) * (len(_COLUMNS) - 1)
        return
    for row in traffic_rows(chart):
        yield str(row.unit), row.reads, row.read, row.writes, row.written, row.hits, row.busy, row.of


def said_of_traffic(found: Mapping[int, MemoryChart | Unknown] | Unknown) -> list[str]:
    """What is missing and why, and where all of it comes from."""
    if isinstance(found, Unknown):
        return [str(found)]
    missing = [chart if isinstance(chart, Unknown) else chart.missing for chart in found.values()]
    notes = [note for chart in found.values() if isinstance(chart, MemoryChart) for note in chart.notes]
    lacking = [why for why in missing if why is not None]
    of = f"of {len(lacking)} of {len(found)} kernels not all is known; of the first: "
    return [*dict.fromkeys(notes), *([f"{of}{lacking[0]}"] if lacking else []), SOURCE]
