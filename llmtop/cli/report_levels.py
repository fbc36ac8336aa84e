"""Kernels under the ceilings of every memory level, for `llmtop report --by roofline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.roofline_levels import LevelRow, RooflineLevels
from llmtop.analysis.kernels.roofline_levels_table import (
    all_levels_table,
    level_cells,
    levels_by_launch,
    said_of_levels,
)
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import csv_of
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

Levels: TypeAlias = "dict[int, RooflineLevels | Unknown]"


def levels_by(trace: Trace, wanted: WantedTable) -> PartTable[Levels]:
    """The work of each kernel over the bytes of each level, against the ceilings there."""
    found = levels_by_launch(trace, wanted.kernel)
    names = kernels_of(trace).short_name
    return PartTable(
        "Roofline by level",
        trace.origin.path,
        found,
        rows_of=lambda known: all_levels_table(trace, known),
        document_of=lambda known: {
            "by": wanted.by,
            "rows": [{"kernel": names(i), "launch": i, "levels": _document(page)} for i, page in known.items()],
        },
        csv_of=lambda known: csv_of(all_levels_table(trace, known)),
        said=lambda: said_of_levels(trace, found),
    )


def _document(page: RooflineLevels | Unknown) -> Json:
    if isinstance(page, Unknown):
        return fact(page)
    return [_level(row) for row in page.rows]


def _level(row: LevelRow) -> Json:
    return {key: value if value is None else fact(value) for key, value in level_cells(row).items()}
