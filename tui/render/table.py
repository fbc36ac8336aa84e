"""Rows of a table: which columns fit, how a cell reads, what a row looks like."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from textual.strip import Strip

from llmtop.analysis.tables import leave_out
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, cut_middle, line, pad, width_of
from llmtop.tui.render.look import Look
from llmtop.units import quantity

LEAST_FLEXIBLE, MOST_FLEXIBLE = 16, 48
"""Cells that columns of no fixed width get before any other column is left out: a third of the width, within these;
less where all texts are shorter."""

GAP = 2
"""Cells between two columns."""


@frozen
class Placed:
    """A column that is shown: its index among all columns, and its width in cells."""

    index: int
    column: Column
    width: int


@frozen
class Sort:
    """What the rows are sorted by."""

    column: str
    descending: bool

    @classmethod
    def by(cls, column: Column) -> Sort:
        """Numbers from the largest."""
        return cls(column.key, descending=column.is_number)

    @property
    def reversed(self) -> Sort:
        """The other way round."""
        return Sort(self.column, not self.descending)

    def beside(self, columns: Sequence[Column], step: int) -> Sort:
        """By the column on the left or right of these, of which the last is beside the first."""
        keys = [column.key for column in columns]
        at = keys.index(self.column) + step if self.column in keys else 0
        return Sort.by(columns[at % len(columns)])


def place_columns(columns: Sequence[Column], width: int, widest: Sequence[int] = ()) -> tuple[Placed, ...]:
    """The columns that fit into `width` cells; those of the highest `shrink` go first, the rightmost before others.

    Where those that always stay do not fit, texts share the room that numbers leave: a number that is cut is another.

    Args:
        columns: All of them.
        width: Cells there are.
        widest: By column, what its texts take at most, where that is known.
    """
    shown = list(range(len(columns)))
    room = max(LEAST_FLEXIBLE, min(MOST_FLEXIBLE, width // 3))
    wanted = [min(room, max(longest, LEAST_FLEXIBLE)) for longest in widest] or [room] * len(columns)
    least = [column.width or flexible for column, flexible in zip(columns, wanted, strict=True)]
    while len(shown) > 1 and sum(least[i] + GAP for i in shown) - GAP > width:
        droppable = [i for i in shown if columns[i].shrink > 0]
        if not droppable:
            break
        shown = leave_out(columns, shown, droppable)
    flexible = [i for i in shown if columns[i].width == 0]
    texts = [i for i in shown if i in flexible or not columns[i].is_number]
    numbers = sum(columns[i].width for i in shown if i not in texts)
    left = width - numbers - GAP * (len(shown) - 1)
    if sum(least[i] for i in texts) > left:
        shares = _shares({i: least[i] for i in texts}, left)
        return tuple(Placed(i, columns[i], shares.get(i, columns[i].width)) for i in shown)
    fixed = sum(columns[i].width for i in shown) + GAP * (len(shown) - 1)
    each, rest = divmod(max(0, width - fixed), len(flexible)) if flexible else (0, 0)
    widths = {i: max(1, each + (rest if i == flexible[0] else 0)) for i in flexible}
    return tuple(Placed(i, columns[i], widths.get(i, columns[i].width)) for i in shown)


def _shares(wanted: Mapping[int, int], room: int) -> dict[int, int]:
    """What each gets of the room: all that it wants, or as much as the others that do not get that; at least a cell."""
    shares: dict[int, int] = {}
    for others, i in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[i] = max(1, min(wanted[i], room // (len(wanted) - others)))
        room -= shares[i]
    return shares


def cell_text(cell: Cell, column: Column, look: Look) -> str:
    """A cell as people read it: numbers in their column's unit, a dash for what is not known."""
    if cell is None:
        return ""
    if isinstance(cell, Unknown) or (isinstance(cell, float) and math.isnan(cell)):
        return look.glyphs.unknown
    if isinstance(cell, str) or not column.unit:
        return str(cell)
    if isinstance(cell, int) and column.unit == "1":
        return str(cell)
    text = quantity(cell, column.unit)
    return f"+{text}" if column.is_signed and cell > 0 else text


def header(placed: Sequence[Placed], sort: Sort | None, width: int, look: Look) -> Strip:
    """The titles, with an arrow at the column that the rows are sorted by."""
    parts: list[Part] = []
    for one in placed:
        arrow, role = "", "header"
        if sort is not None and sort.column == one.column.key:
            arrow, role = (look.glyphs.down if sort.descending else look.glyphs.up), "title"
        title = cut_middle(one.column.title, one.width - width_of(arrow), look) + arrow
        parts += [(pad(title, one.width, look, right=one.column.is_number), role), (" " * GAP, "text")]
    return line(parts[:-1], width, look)


def row(placed: Sequence[Placed], cells: Sequence[Cell], width: int, look: Look, *, is_cursor: bool = False) -> Strip:
    """One row of exactly `width` cells; the cursor's row is of one style throughout."""
    parts: list[Part] = []
    for one in placed:
        cell = cells[one.index]
        text = _fitted(cell_text(cell, one.column, look), one, look)
        parts += [(text, "cursor" if is_cursor else _role(cell, one.column)), (" " * GAP, "text")]
    if is_cursor:
        parts = [(text, "cursor") for text, _ in parts[:-1]]
        used = sum(width_of(text) for text, _ in parts)
        parts.append((" " * max(0, width - used), "cursor"))
        return line(parts, width, look)
    return line(parts[:-1], width, look)


_PROSE = 12
"""A text with a space for each so many characters is prose, which is cut at its end; a name loses its middle."""


def _fitted(text: str, one: Placed, look: Look) -> str:
    if width_of(text[: 4 * one.width]) > one.width and text.count(" ") * _PROSE < len(text):
        text = cut_middle(text, one.width, look)
    return pad(text, one.width, look, right=one.column.is_number)


def _role(cell: Cell, column: Column) -> str:
    if isinstance(cell, Unknown):
        return "dim"
    return "value" if column.is_number else "text"


def unknowns(cells: Sequence[Cell], columns: Sequence[Column], look: Look) -> str:
    """Why cells of a row are not known, each reason once with the columns that it stands for."""
    titles_by_why: dict[Unknown, list[str]] = {}
    for cell, column in zip(cells, columns, strict=True):
        if isinstance(cell, Unknown):
            titles_by_why.setdefault(cell, []).append(column.title)
    texts = (f"{', '.join(titles)}: {why}" for why, titles in titles_by_why.items())
    return f" {look.glyphs.separator} ".join(texts)
