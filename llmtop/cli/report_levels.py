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
from llmtop.cli.documents import fact
from llmtop.cli.launches_table import launches_table

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.cli.part_table import PartTable, WantedTable
    from llmtop.model import Trace, Unknown

Levels: TypeAlias = "dict[int, RooflineLevels | Unknown]"


def levels_by(trace: Trace, wanted: WantedTable) -> PartTable[Levels]:
    """The work of each kernel over the bytes of each level, against the ceilings there."""
    found = levels_by_launch(trace, wanted.kernel)
    return launches_table(
        "Roofline by level",
        trace,
        wanted,
        found,
        table=all_levels_table,
        parts=("levels", _document),
        said=lambda: said_of_levels(trace, found),
    )


def _document(page: RooflineLevels) -> Json:
    return [_level(row) for row in page.rows]


def _level(row: LevelRow) -> Json:
    return {key: value if value is None else fact(value) for key, value in level_cells(row).items()}
