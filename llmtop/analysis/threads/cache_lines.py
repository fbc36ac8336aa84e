"""Cache lines that CPUs fight for: which, what code does there, and whether it is one variable or several.

A load that finds a modified copy of its line in another core's cache has to wait for it (HITM). Where what is read
lies at another offset than what is written, the two only share the line: false sharing, which padding ends.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import CacheLine, LineAccess, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.views import Cell

TITLE: Final = "Cache lines"
NO_LINES: Final = Unknown(
    "this file does not tell which cache lines CPUs fight for",
    "sudo perf c2c record -a -- sleep 5; perf c2c report --stdio",
)
_NOT_TOLD = Unknown("the text does not tell what is at the offsets of the line", "perf c2c report --stdio tells it")
_NO_STORES = Unknown("no store to the line was sampled", "record longer, or with -F at a higher rate")
_NO_SUM = Unknown("the text does not tell how many loads were sampled", "perf c2c report --stdio tells it first")
LOADS: Final = "Load Operations"
"""What perf calls the sum of all loads that it has sampled."""
NOTABLE: Final = 0.05
"""Share of what happens on a line, from which on some code counts as taking part in it."""
_COLUMNS = (
    Column("name", "read by", width=0),
    Column("writer", "written by", width=24, shrink=3),
    Column("sharing", "shared", width=14, help="several variables (false sharing), or one"),
    Column("address", "line", width=18, shrink=4),
    Column("hitm", "HITM", "count", width=8, help="loads that met a modified copy in another core's cache"),
    Column("share", "of all", "ratio", width=7, shrink=1),
    Column("remote", "other socket", "ratio", width=12, shrink=2, help="of the HITM, those from another socket"),
    Column("loads", "loads", "count", width=9, shrink=5),
    Column("stores", "stores", "count", width=9, shrink=5),
    Column("cpus", "CPUs", "count", width=5, shrink=6, help="the most that one of the places ran on"),
    Column("node", "node", width=5, shrink=7, help="the NUMA node of its memory"),
)


class Sharing(StrEnum):
    """What CPUs share that use a line."""

    FALSE = "falsely"
    """Several variables: who reads waits for who writes another one."""
    TRUE = "one variable"


@frozen
class SharedLine:
    """A line with who reads and who writes most of it.

    Attributes:
        reader, writer: The accesses with the most HITM, with the most stores; None where nothing tells.
        waiting_share: Its HITM, of all loads that were sampled; Unknown where their sum is not there.
    """

    line: CacheLine
    sharing: Sharing | Unknown
    reader: LineAccess | None
    writer: LineAccess | None
    waiting_share: float | Unknown


def line_rows(trace: Trace) -> tuple[SharedLine, ...] | Unknown:
    """All lines, in the order of the report; why there are none."""
    if not trace.cache_lines:
        return NO_LINES
    loads = trace.origin.facts.get(LOADS)
    return tuple(_row(line, loads if isinstance(loads, int) else 0) for line in trace.cache_lines)


def lines_table(rows: Sequence[SharedLine]) -> RowTable:
    """As a table; rows are keyed by their number."""
    return numbered(_COLUMNS, [_cells(row) for row in rows])


def waits(access: LineAccess) -> float:
    """Its part of the loads of its line that had to wait, of the sort of which it has most."""
    return max(access.remote_share, access.local_share, access.peer_share)


def code_of(access: LineAccess | None) -> str:
    """The function, or the file that it is in."""
    return "" if access is None else access.symbol or access.object


def _row(line: CacheLine, loads: int) -> SharedLine:
    readers = [access for access in line.accesses if waits(access) >= NOTABLE]
    writers = [access for access in line.accesses if access.stores_share >= NOTABLE]
    share: float | Unknown = line.hitm / loads if loads else _NO_SUM
    reader, writer = max(readers, key=waits, default=None), max(writers, key=lambda one: one.stores_share, default=None)
    if not line.accesses:
        return SharedLine(line, _NOT_TOLD, reader, writer, share)
    if not writers or not readers:
        return SharedLine(line, _NO_STORES, reader, writer, share)
    written = {access.offset for access in writers}
    apart = [access for access in readers if access.offset not in written]
    sharing = Sharing.FALSE if apart else Sharing.TRUE
    return SharedLine(line, sharing, max(apart, key=waits, default=reader), writer, share)


def _cells(row: SharedLine) -> tuple[Cell, ...]:
    line = row.line
    both = line.hitm_local + line.hitm_remote
    remote = line.hitm_remote / both if both else None
    cpus = max((access.cpus for access in line.accesses), default=None)
    sharing = row.sharing if isinstance(row.sharing, Unknown) else row.sharing.value
    head = (code_of(row.reader), code_of(row.writer), sharing, line.address, line.hitm, line.share, remote)
    return *head, line.loads, line.stores, cpus, line.node
