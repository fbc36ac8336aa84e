"""The occupancy of kernels beside each other, and what would help: for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.occupancy_what_if import SOURCE, OccupancyWhatIf, occupancy_what_if
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import RowTable, fitted
from llmtop.analysis.views import Column
from llmtop.model import Unknown
from llmtop.text import listed

if TYPE_CHECKING:
    from llmtop.analysis.views import Cell
    from llmtop.model import Trace

_TOLD = 8
"""Kernels of which it is said what would help: those with the most time."""
_COLUMNS = (
    Column("name", "kernel", width=0, help="the launch that stands for its calls"),
    Column("possible", "possible", "%", 9, 0, "of the warps that an SM holds: the theoretical occupancy"),
    Column("achieved", "achieved", "%", 9, 1, "of these, in the mean of the time in which the SM had any"),
    Column("blocks", "blocks", "1", 7, 2, "that an SM holds at once"),
    Column("limiter", "limited by", "", 24, 3, "what of an SM suffices for no more blocks"),
    Column("threads", "threads", "1", 8, 6, "of a block"),
    Column("registers", "registers", "1", 10, 5, "of a thread"),
    Column("shared", "shared", "bytes", 10, 7, "memory of a block, static and dynamic"),
    Column("helps", "what helps", "", 60, 8, "the smallest changes with which more warps fit"),
)


def occupancy_pages(trace: Trace, name: str = "") -> dict[int, OccupancyWhatIf | Unknown] | Unknown:
    """By launch, of the kernels with this in their name, the one with the most time first; why there are none."""
    why = not_counted(trace)
    return why or {i: occupancy_what_if(trace, i) for i in kernels_of(trace).standing(name)}


def occupancy_table(trace: Trace, pages: Mapping[int, OccupancyWhatIf | Unknown]) -> RowTable:
    """A row for each of them."""
    kernels = kernels_of(trace)
    rows = tuple((kernels.short_name(i), *_cells(page)) for i, page in pages.items())
    columns, widest = fitted(_COLUMNS, rows)
    return RowTable(columns, rows, tuple(pages), widest)


def _cells(page: OccupancyWhatIf | Unknown) -> tuple[Cell, ...]:
    if isinstance(page, Unknown):
        return (page,) * (len(_COLUMNS) - 1)
    fit, block = page.fit(page.launched), page.launched
    limiters = "" if fit.share >= 1 else listed([str(one) for one in fit.limiters])
    helps = "; ".join(map(str, page.changes)) or page.why_no_change
    return 100 * fit.share, page.achieved, fit.blocks, limiters, block.threads, block.registers, block.shared, helps


def said_of_occupancy(trace: Trace, name: str = "") -> list[str]:
    """What would help the kernels with the most time, why others are not known, and where all of it comes from."""
    pages = occupancy_pages(trace, name)
    if isinstance(pages, Unknown):
        return [str(pages)]
    names = kernels_of(trace).short_name
    known = {i: page for i, page in pages.items() if not isinstance(page, Unknown)}
    helped = [f"{names(i)}: {change}" for i, page in known.items() for change in page.changes]
    more = [f"{len(helped) - _TOLD} more changes (--format csv lists all)"] if len(helped) > _TOLD else []
    unknown = [f"{names(i)}: {page}" for i, page in pages.items() if isinstance(page, Unknown)]
    achieved = {i: page.achieved for i, page in known.items()}
    unknown += [f"{names(i)}: achieved: {why}" for i, why in achieved.items() if isinstance(why, Unknown)]
    return [*helped[:_TOLD], *more, *unknown, f"possible and what helps: {SOURCE}"]
