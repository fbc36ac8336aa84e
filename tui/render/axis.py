"""A time axis in cells: which moment a cell is, where the cursor and the marks stand, and the line of labels below."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S
from llmtop.tui.render.lines import Part, line, pad, spelled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llmtop.analysis.views import LaneMark
    from llmtop.tui.render.look import Look

_SEVERITY_ROLES = {"error": "bad", "warning": "warn"}


@frozen
class Axis:
    """Cells [left, left + columns) of a line; cell i is [start_ns + i * step_ns, start_ns + (i + 1) * step_ns).

    Both ends are whole steps, so that a frame differs from the last one by whole cells or not at all, and a moment
    keeps its cell.
    """

    left: int
    columns: int
    start_ns: int
    step_ns: int

    @classmethod
    def over(cls, start_ns: int, end_ns: int, left: int, columns: int) -> Axis:
        """An axis for the window [start, end], moved to whole steps."""
        step = max(1, (end_ns - start_ns) // columns)
        end = -(-end_ns // step) * step
        return cls(left, columns, end - step * columns, step)

    @property
    def end_ns(self) -> int:
        """The right edge."""
        return self.start_ns + self.columns * self.step_ns

    def column_of(self, t_ns: int) -> int | None:
        """The column that a moment falls in; None where it is outside."""
        column = (t_ns - self.start_ns) // self.step_ns
        return column if 0 <= column < self.columns else None

    def time_of(self, column: int) -> int:
        """The last moment of a column, so that whatever is drawn in it had been read by then."""
        return self.start_ns + (column + 1) * self.step_ns - 1


def with_cursor(strip: Strip, axis: Axis, cursor_ns: int | None, look: Look) -> Strip:
    """The line with the cursor's cell marked: a bar where it is empty, else what stands there in reverse."""
    column = axis.column_of(cursor_ns) if cursor_ns is not None else None
    if column is None or axis.left + column >= strip.cell_length:
        return strip
    at = axis.left + column
    cell = strip.crop(at, at + 1)
    text = cell.text if cell.text.strip() else look.glyphs.vertical
    marked = Strip([Segment(text, look.style("cursor"))], 1)
    return Strip.join([strip.crop(0, at), marked, strip.crop(at + 1)])


def axis_line(
    axis: Axis, marks: Sequence[LaneMark], width: int, look: Look, *, cursor_ns: int | None = None, newest_ns: int = 0
) -> Strip:
    """The ends of the axis, a mark where something happened, and at the left one mark in words.

    That is the newest mark, or the one that is nearest to the cursor, with its distance. `newest_ns` is now: an axis
    that ends before it says how long ago.
    """
    inside = [mark for mark in marks if axis.column_of(mark.t_ns) is not None]
    roles = {axis.column_of(mark.t_ns): _mark_role(mark) for mark in inside}
    cells = list(_labels(axis, {column: role for column, role in roles.items() if column is not None}, newest_ns))
    for column in roles:
        if column is not None:
            cells[column] = look.glyphs.up
    runs = groupby(range(axis.columns), key=lambda i: roles.get(i, "dim"))
    parts = [(spelled("".join(cells[i] for i in run), look), role) for role, run in runs]
    return with_cursor(line([_said(inside, axis, cursor_ns, look), *parts], width, look), axis, cursor_ns, look)


def nearest_mark(marks: Sequence[LaneMark], t_ns: int) -> LaneMark | None:
    """The mark that is least far from a moment."""
    return min(marks, key=lambda mark: abs(mark.t_ns - t_ns), default=None)


def _said(inside: Sequence[LaneMark], axis: Axis, cursor_ns: int | None, look: Look) -> Part:
    """A mark in words, in the cells left of the axis."""
    if not inside or axis.left < 1:
        return " " * axis.left, "dim"
    mark, text = inside[-1], inside[-1].text
    if cursor_ns is not None:
        mark = nearest_mark(inside, cursor_ns) or mark
        text = f"{(mark.t_ns - cursor_ns) / NS_PER_S:+.0f} s {mark.text}"
    return pad(text, axis.left - 1, look) + " ", _mark_role(mark)


def _labels(axis: Axis, taken: Mapping[int, str], newest_ns: int) -> str:
    """Where the axis starts and ends; a label that a mark would cut is left out."""
    behind_s = max(0, newest_ns - axis.end_ns) / NS_PER_S if newest_ns else 0.0
    span_s = axis.step_ns * axis.columns / NS_PER_S
    left = f"-{_seconds(span_s + behind_s)}"
    right = "now" if not behind_s else f"-{_seconds(behind_s)}"
    if any(i in taken for i in range(len(left))):
        left = ""
    if any(axis.columns - 1 - i in taken for i in range(len(right))):
        right = ""
    return (left + " " * max(0, axis.columns - len(left) - len(right)) + right)[: axis.columns]


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def _mark_role(mark: LaneMark) -> str:
    return _SEVERITY_ROLES.get(mark.severity, "accent")
