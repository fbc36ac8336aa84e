"""Accesses to memory that perf mem has sampled: by what answered them, and one by one."""

from __future__ import annotations

import re
from math import fsum
from typing import TYPE_CHECKING, Final

from llmtop.analysis.tables import RowTable, numbered_where_told
from llmtop.analysis.views import Column
from llmtop.model import MemoryAccesses, Trace, Unknown
from llmtop.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.views import Cell

TITLE: Final = "Accesses"
NO_ACCESSES: Final = Unknown(
    "this file has no sampled accesses to memory", "sudo perf mem record -a -- sleep 5; perf mem report --stdio"
)
_COLUMNS = (
    Column("name", "code", width=0),
    Column("share", "of all", "ratio", width=7, help="of the weight of all accesses of the event"),
    Column("samples", "samples", "count", width=8, shrink=5),
    Column("weight", "cycles", "count", width=7, shrink=3, help="that one of them took"),
    Column("level", "answered by", width=24, shrink=1),
    Column("data", "data", width=24, shrink=2, help="the variable, or where it lies"),
    Column("tlb", "TLB", width=14, shrink=6),
    Column("snoop", "snoop", width=8, shrink=7, help="what other caches had of it"),
    Column("object", "in", width=16, shrink=4, help="the file of the code"),
    Column("event", "event", width=24, shrink=8),
)
_REMOTE: Final = re.compile(r"(?i)\bremote\b")
_MEMORY: Final = re.compile(r"(?i)\bRAM\b")


def accesses_of(trace: Trace) -> tuple[MemoryAccesses, ...] | Unknown:
    """All of them, in the order of the report; why there are none."""
    return trace.accesses or NO_ACCESSES


def accesses_table(rows: Sequence[MemoryAccesses]) -> RowTable:
    """As a table without columns that are empty; rows are keyed by their number."""
    return numbered_where_told(_COLUMNS, [_cells(row) for row in rows])


def level_shares(rows: Sequence[MemoryAccesses]) -> dict[str, dict[str, float]]:
    """Of each event how much of its weight each level answered, 0 to 1, the most first."""
    parts: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        parts.setdefault(row.event, {}).setdefault(row.level, []).append(row.share)
    summed = {event: {level: fsum(shares) for level, shares in levels.items()} for event, levels in parts.items()}
    return {event: dict(sorted(levels.items(), key=lambda one: -one[1])) for event, levels in summed.items()}


def is_memory(level: str) -> bool:
    """Whether memory answered, and no cache.

    >>> [is_memory(level) for level in ("L1 or L1 hit", "Local RAM or RAM hit", "Remote RAM (1 hop) or RAM hit")]
    [False, True, True]
    """
    return _MEMORY.search(level) is not None


def is_remote(level: str) -> bool:
    """Whether that was on another NUMA node.

    >>> is_remote("Local RAM or RAM hit"), is_remote("Remote RAM (1 hop) or RAM hit"), is_remote("RAM, Remote hit")
    (False, True, True)
    """
    return _REMOTE.search(level) is not None


def said_of_accesses(rows: Sequence[MemoryAccesses]) -> list[str]:
    """Who answers, in a sentence for each event."""
    said = []
    for event, levels in level_shares(rows).items():
        shares = ", ".join(f"{level} {percent(100 * share)}" for level, share in levels.items())
        said.append(f"{event or 'accesses'}, of their weight: {shares}")
    return said


def _cells(row: MemoryAccesses) -> tuple[Cell, ...]:
    numbers = (row.share, row.samples, row.weight)
    return row.symbol or row.object, *numbers, row.level, row.data_symbol, row.tlb, row.snoop, row.object, row.event
