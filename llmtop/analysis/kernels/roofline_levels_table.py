"""Kernels under the ceilings of every memory level, as tables: of one kernel, and of all of them for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.roofline_levels import SOURCE, LevelRow, RooflineLevels, roofline_levels
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.views import Column
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.views import Cell
    from llmtop.model import Trace

_NAME = Column("name", "kernel", width=0, help="the launch that stands for its calls")
_COLUMNS = (
    Column("level", "level", width=5),
    Column("precision", "work in", width=11, shrink=1, help="what the floating-point work is in"),
    Column("intensity", "FLOP/B", "1", 8, help="work over the bytes of the level"),
    Column("flops_per_s", "reached", "FLOP/s", 13, 4),
    Column("ceiling", "ceiling", "FLOP/s", 13, 3, "the compute peak, or what the level feeds at its peak"),
    Column("roof_share", "of it", "ratio", 7, 0, "reached, of the ceiling"),
    Column("bytes_per_s", "moved", "bytes/s", 10, 2, "of L1 and L2 what they hand out, of DRAM both ways"),
    Column("peak", "peak", "bytes/s", 10, 5, "of the level"),
    Column("traffic_share", "of peak", "ratio", 7, 1, "moved, of the level's peak"),
)


def level_cells(row: LevelRow) -> dict[str, Cell]:
    """The columns of one level by their keys."""
    work, traffic = row.work, row.traffic
    of_work = (row.intensity, None if work is None else work.achieved, row.ceiling, row.roof_share)
    moved = (traffic,) * 3 if isinstance(traffic, Unknown) else (traffic.achieved, traffic.peak, traffic.fraction)
    keys = (column.key for column in _COLUMNS)
    return dict(zip(keys, (row.level, row.precision, *of_work, *moved), strict=True))


def levels_table(page: RooflineLevels) -> RowTable:
    """The levels of one kernel."""
    return numbered(_COLUMNS, [tuple(level_cells(row).values()) for row in page.rows])


def levels_by_launch(trace: Trace, name: str = "") -> dict[int, RooflineLevels | Unknown] | Unknown:
    """Of the kernels with this in their name, the one with the most time first; why there are none."""
    why = not_counted(trace)
    return why or {i: roofline_levels(trace, i) for i in kernels_of(trace).standing(name)}


def all_levels_table(trace: Trace, found: Mapping[int, RooflineLevels | Unknown]) -> RowTable:
    """The levels of each kernel; one row for a kernel of which nothing is known."""
    names = kernels_of(trace).short_name
    return numbered((_NAME, *_COLUMNS), [(names(i), *cells) for i, page in found.items() for cells in _cells(page)])


def _cells(page: RooflineLevels | Unknown) -> Iterator[tuple[Cell, ...]]:
    if isinstance(page, Unknown):
        yield (page,) * len(_COLUMNS)
        return
    yield from (tuple(level_cells(row).values()) for row in page.rows)


def said_of_levels(trace: Trace, found: Mapping[int, RooflineLevels | Unknown] | Unknown) -> list[str]:
    """What they come to, why some are not known, and where all of it comes from."""
    if isinstance(found, Unknown):
        return [str(found)]
    names = kernels_of(trace).short_name
    said = [f"{names(i)}: {text}" for i, page in found.items() for text in _said(page)]
    return [*said, SOURCE]


def _said(page: RooflineLevels | Unknown) -> list[str]:
    if isinstance(page, Unknown):
        return [str(page)]
    return [*page.said, *([str(page.missing)] if page.missing is not None else [])]
