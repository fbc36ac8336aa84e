"""Histograms side by side, as many as fit across."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.tui.render.lines import Part, blank, cut, fill, line, pad, prose, width_of

if TYPE_CHECKING:
    from llmtop.analysis.kernels.duration_histograms import Histogram
    from llmtop.tui.render.look import Look

_CELL = 38
"""The least width of one: ten bins of three cells, and room between."""
_BARS = 4
ROWS = _BARS + 3
"""Lines of one: its title, the bars, the scale, and an empty one."""


def draw_histograms(
    histograms: Sequence[Histogram], width: int, height: int, look: Look, *, top: int = 0
) -> list[Strip]:
    """Whole rows of histograms from `top` on; below the last, what was not collected."""
    drawn = [one for one in histograms if one.counts]
    cell, text = width // across_of(width), look.style("text")
    groups = list(_grouped(drawn, across_of(width)))
    shown = groups[top : top + max(1, height // ROWS)]
    strips: list[Strip] = []
    for group in shown:
        columns = [list(_one(histogram, cell, look)) for histogram in group]
        strips += [Strip.join(strip).adjust_cell_length(width, text) for strip in zip(*columns, strict=True)]
    lacking = [one.title for one in histograms if one.why_not is not None]
    if lacking and top + len(shown) == len(groups):
        strips += prose(f"not collected: {', '.join(lacking)}", width, look, "dim")
    return fill(strips, width, height, look)


def across_of(width: int) -> int:
    """How many stand side by side."""
    return max(1, width // _CELL)


def _one(histogram: Histogram, width: int, look: Look) -> Iterator[Strip]:
    most = max(histogram.counts)
    bins = len(histogram.counts)
    step = max(1, (width - 4) // bins)
    unknown = f", {histogram.unknown} not known" if histogram.unknown else ""
    title = line([(histogram.title, "title"), (f"  at most {most}{unknown}", "dim")], width - 2, look)
    yield title.adjust_cell_length(width, look.style("text"))
    levels = look.glyphs.spark
    for row in range(_BARS):
        floor = (_BARS - 1 - row) * len(levels)
        parts: list[Part] = []
        for count in histogram.counts:
            # More than none always shows.
            height = max(1, round(count / most * _BARS * len(levels))) if count else 0
            level = min(len(levels), max(0, height - floor))
            mark = levels[level - 1] if level else " "
            parts.append((pad(mark * max(1, step - 1), step, look), "series1"))
        yield line([("  ", "text"), *parts], width, look)
    yield line([("  ", "text"), (_scale(histogram, step, width - 2, look), "dim")], width, look)
    yield blank(width, look)


def _scale(histogram: Histogram, step: int, width: int, look: Look) -> str:
    """The edges of the bins, as many as have room, each where its bin begins."""
    text = ""
    for i, label in enumerate(histogram.labels):
        at = i * step
        if at >= width_of(text) + (1 if text else 0) and at + width_of(label) <= width:
            text = text.ljust(at) + label
    return cut(text, width, look)


def _grouped(histograms: Sequence[Histogram], across: int) -> Iterator[Sequence[Histogram]]:
    for start in range(0, len(histograms), across):
        yield histograms[start : start + across]
