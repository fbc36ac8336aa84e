"""A page of named values: by parts, each with a bar of what it is a share of, or with its values over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.section_page import value_text
from llmtop.model import Unknown
from llmtop.tui.render.canvas import DOTS_X, DOTS_Y, Canvas
from llmtop.tui.render.lines import bar, cut_middle, line, pad, prose, spark, width_of
from llmtop.units import percent

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.section_page import PagePart, PagePlot, PageRow, SectionPage
    from llmtop.tui.render.look import Look

Points: TypeAlias = Sequence[tuple[float, float]]
"""(x, y) by x."""
_NAME, _SHARE, _BAR = 34, 7, 10
_LEAST_DRAWN = 12
"""Cells of a series or a bar, with what stands around it, for which a name is cut before it is left out."""
_MUCH = 0.1
"""Of a part: what to do about less is not said. Reports say it of all."""
_INDENT = "   "
_PLOT = 7
"""Rows of a line's plot, with its axis."""
_AROUND = 3
"""Cells around a name and a value."""


def section_page_lines(page: SectionPage, width: int, look: Look) -> list[Strip]:
    """All of it: the parts below each other, why values in them are not known, and what is missing last."""
    strips = [strip for part in page.parts for strip in _part(part, width, look)]
    strips += [strip for why in page.unknown for strip in prose(f"{look.glyphs.unknown} {why}", width, look, "dim")]
    if page.missing is not None:
        strips += prose(f"{look.glyphs.unknown} {page.missing.reason}", width, look, "dim")
        strips += prose(f"$ {page.missing.remedy}" if page.missing.remedy else "", width, look, "accent")
    return strips


def _part(part: PagePart, width: int, look: Look) -> Iterator[Strip]:
    value = max((width_of(_value(row, look)) for row in part.rows), default=0)
    drawn = max((_least(row) for row in part.rows), default=0)
    most = max(min(_NAME, width // 3), width - value - drawn - _AROUND)
    name = min(most, max((width_of(row.name) for row in part.rows), default=0))
    yield from prose(part.title, width, look, "title")
    for row in part.rows:
        yield from _row(row, name, value, width, look)
        if row.points and part.plot is not None:
            yield from _plot(row.points, part.plot, width, look)
    for text in part.says:
        yield from prose(text, width, look)
    for text in part.asides:
        yield from prose(text, width, look, "dim")
    yield line([("", "text")], width, look)


def _least(row: PageRow) -> int:
    """Cells that stand beside a value even where a name is long; what it means goes below it."""
    if row.samples:
        return _LEAST_DRAWN + width_of(row.says)
    if row.bar is not None:
        return _LEAST_DRAWN
    return 0 if row.share is None else _SHARE + 1 + _BAR


def _row(row: PageRow, name: int, value: int, width: int, look: Look) -> Iterator[Strip]:
    head = f" {pad(cut_middle(row.name, name, look), name, look)}  {pad(_value(row, look), value, look, right=True)}"
    parts = [(head, "text"), *_drawn(row, width - width_of(head), look)]
    used = sum(width_of(text) for text, _ in parts)
    fits = bool(row.says) and width_of(row.says) + 2 <= width - used
    yield line([*parts, (f"  {row.says}" if fits else "", "dim")], width, look)
    is_much = row.share is not None and row.share >= _MUCH
    below = [] if fits else [row.says]
    below += [f"{look.glyphs.arrow} {row.advice}"] if row.advice and is_much else []
    for strip in (strip for text in below for strip in prose(text, width - len(_INDENT) - 1, look)):
        yield line([(_INDENT, "text"), (strip.text, "dim")], width, look)


def _plot(points: Points, plot: PagePlot, width: int, look: Look) -> Sequence[Strip]:
    """A line over the width there is: its axes, and a mark where the kernel stands."""
    top = max(plot.most or 0.0, *(y for _, y in points))
    ticks = width_of(value_text(top, "")) + 2
    canvas = Canvas(width, _PLOT, look)
    canvas.text(1, 0, value_text(top, ""), "dim")
    canvas.text(1, _PLOT - 2, "0", "dim")
    for row in range(_PLOT - 1):
        canvas.text(ticks, row, look.glyphs.vertical, "dim")
    canvas.text(ticks, _PLOT - 1, _x_axis(points, plot, width - ticks - 1, look), "dim")
    dots = _dots(points, top, DOTS_X * (ticks + 1), DOTS_X * width - 1)
    for (x0, y0), (x1, y1) in pairwise([dots[0], *dots]):
        canvas.line(x0, y0, x1, y1, "series1")
    if (mark := plot.mark) is not None and points[0][0] <= mark <= points[-1][0]:
        x, y = dots[min(range(len(points)), key=lambda i: abs(points[i][0] - mark))]
        canvas.text(x // DOTS_X, y // DOTS_Y, look.glyphs.now, "point")
    return canvas.strips()


def _dots(points: Points, top: float, left: int, right: int) -> list[tuple[int, int]]:
    """Where points stand, in dots: from the left one to the right one, and from `top` down to 0."""
    first, bottom = points[0][0], DOTS_Y * (_PLOT - 1) - 1
    wide = (right - left) / ((points[-1][0] - first) or 1)
    return [(left + round(wide * (x - first)), round(bottom * (1 - y / (top or 1)))) for x, y in points]


def _x_axis(points: Points, plot: PagePlot, columns: int, look: Look) -> str:
    """The line below a plot: where it begins and ends, and what it is of."""
    start, end = value_text(points[0][0], ""), value_text(points[-1][0], "")
    label = f" {cut_middle(plot.x_label, max(0, columns - len(start) - len(end) - 2), look)} "
    line = look.glyphs.horizontal * max(0, columns - len(start) - len(end) - width_of(label))
    return f"{look.glyphs.corner}{start}{line[: len(line) // 2]}{label}{line[len(line) // 2 :]}{end}"


def _value(row: PageRow, look: Look) -> str:
    return look.glyphs.unknown if isinstance(row.text, Unknown) else row.text


def _drawn(row: PageRow, room: int, look: Look) -> list[tuple[str, str]]:
    """A bar, or the samples over the room that what is said of them leaves."""
    if row.samples:
        cells = max(1, room - width_of(row.says) - 5)
        return [("  ", "text"), (spark(_stretched(row.samples, cells), cells, look), "accent")]
    if row.bar is not None:
        return [("  ", "text"), (bar(row.bar, max(0, room - 3), look), "accent")]
    if row.share is None:
        return []
    return [(f"{percent(100 * row.share):>{_SHARE}} ", "value"), (bar(row.share, _BAR, look), "accent")]


def _stretched(samples: Sequence[float | None], cells: int) -> list[float | None]:
    """Few samples over all cells, each as many as the others or one more."""
    if len(samples) >= cells:
        return list(samples)
    return [samples[i * len(samples) // cells] for i in range(cells)]
