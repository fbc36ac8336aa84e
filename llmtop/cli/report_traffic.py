"""What kernels move through the memory system, for `llmtop report --by traffic`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.memory_chart import MemoryChart
from llmtop.analysis.kernels.traffic_table import TrafficRow, charts, said_of_traffic, traffic_rows, traffic_table
from llmtop.cli.documents import fact
from llmtop.cli.launches_table import launches_table

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.cli.part_table import PartTable, WantedTable
    from llmtop.model import Trace, Unknown

Charts: TypeAlias = "dict[int, MemoryChart | Unknown]"


def traffic_by(trace: Trace, wanted: WantedTable) -> PartTable[Charts]:
    """The units of the memory system, with what each kernel reads from them and writes to them."""
    found = charts(trace, wanted.kernel)
    return launches_table(
        "Memory chart",
        trace,
        wanted,
        found,
        table=traffic_table,
        parts=("units", _document),
        said=lambda: said_of_traffic(found),
    )


def _document(chart: MemoryChart) -> Json:
    return [_unit(row) for row in traffic_rows(chart)]


_KEYS = {"read": "read_bytes", "written": "written_bytes", "hits": "hits_percent", "busy": "busy_percent"}


def _unit(row: TrafficRow) -> Json:
    told = {one.name: getattr(row, one.name) for one in fields(row)}
    return {_KEYS.get(name, name): value if value is None else fact(value) for name, value in told.items()}
