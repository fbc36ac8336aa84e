"""The lines of a bordered widget: what it has drawn between two edges, which are the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from textual.strip import Strip

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.segment import Segment
    from textual.geometry import Region, Size
    from textual.widget import Widget


@frozen
class Edges:
    """What Textual puts to the left and to the right of each line of a widget's content.

    Textual makes it anew for each line, by the style sheet: five times the cost of the line itself. They hold until the
    style sheet is applied anew, and for one size.

    Attributes:
        size: The widget's, border included.
        rows: Which of its lines are content.
        width: Cells of these between the edges.
    """

    size: Size
    rows: range
    width: int
    left: tuple[Segment, ...]
    right: tuple[Segment, ...]

    @classmethod
    def of(cls, widget: Widget, crop: Region, lines: Sequence[Strip]) -> Self | None:
        """From lines of a widget as Textual has them; None where they are more than content between two edges."""
        size, gutter = widget.outer_size, widget.gutter
        rows = range(gutter.top, size.height - gutter.bottom)
        y = max(crop.y, rows.start)
        if crop.x or crop.width != size.width or y not in rows or y >= crop.bottom:
            return None
        segments, (content,) = list(lines[y - crop.y]), _contents(widget, range(y - rows.start, y - rows.start + 1))
        first, last = min(gutter.left, 1), len(segments) - min(gutter.right, 1)
        if segments[first:last] != list(content):
            return None
        return cls(size, rows, content.cell_length, tuple(segments[:first]), tuple(segments[last:]))

    def around(self, widget: Widget, crop: Region) -> list[Strip] | None:
        """Lines of a widget; None where they are not whole lines of content of the size that these edges are of."""
        x, y, width, height = crop
        rows = self.rows
        if x or width != self.size.width or y < rows.start or y + height > rows.stop or widget.outer_size != self.size:
            return None
        contents = _contents(widget, range(y - rows.start, y - rows.start + height))
        if any(content.cell_length != self.width for content in contents):
            return None
        return [Strip([*self.left, *content, *self.right], width) for content in contents]


def _contents(widget: Widget, rows: range) -> list[Strip]:
    """Lines of content as they are sent: in the colours that the terminal has."""
    strips = [widget.render_line(row) for row in rows]
    for filter in widget.get_line_filters():
        strips = [strip.apply_filter(filter, widget.background_colors[1]) for strip in strips]
    return strips
