"""The roofline of one launch at every memory level: the plot, and a table of what it is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.kernels.roofline_levels_table import levels_table
from llmtop.tui.render.lines import prose
from llmtop.tui.render.roofline import draw_roofline
from llmtop.tui.render.table import header, place_columns, row

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.roofline_levels import RooflineLevels
    from llmtop.tui.render.look import Look

_LEAST_PLOT = 9
"""Rows below which a plot shows nothing that the table does not."""


def draw_roofline_levels(page: RooflineLevels, width: int, height: int, look: Look) -> list[Strip]:
    """The plot where there is room for it, the table, what it comes to, and what is missing."""
    below = [*_table(page, width, look), *(strip for text in page.said for strip in prose(text, width, look))]
    if page.missing is not None:
        below += prose(f"{look.glyphs.unknown} {page.missing.reason}", width, look, "dim")
        below += prose(f"$ {page.missing.remedy}" if page.missing.remedy else "", width, look, "accent")
    room = height - len(below)
    plot = draw_roofline(page.plot, width, room, look) if page.plot.points and room >= _LEAST_PLOT else []
    return [*plot, *below]


def _table(page: RooflineLevels, width: int, look: Look) -> list[Strip]:
    table = levels_table(page)
    placed = place_columns(table.columns, width, table.widest)
    rows = (row(placed, cells, width, look) for cells in table.rows)
    return [header(placed, None, width, look), *rows]
