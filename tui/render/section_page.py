"""A page of named values: by parts, each with a bar of what it is a share of, or with its values over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.render.lines import bar, cut_middle, line, pad, prose, spark, width_of
from llmtop.units import percent

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.section_page import PagePart, PageRow, SectionPage
    from llmtop.tui.render.look import Look

_NAME, _SHARE, _BAR = 34, 7, 10
_MUCH = 0.1
"""Of a part: what to do about less is not said. Reports say it of all."""
_INDENT = "   "


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
    is_plain = not any(row.says or row.samples or row.share is not None for row in part.rows)
    most = width - value - 3 if is_plain else min(_NAME, width // 3)
    name = min(most, max((width_of(row.name) for row in part.rows), default=0))
    yield from prose(part.title, width, look, "title")
    for row in part.rows:
        yield from _row(row, name, value, width, look)
    for text in part.says:
        yield from prose(text, width, look)
    yield line([("", "text")], width, look)


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


def _value(row: PageRow, look: Look) -> str:
    return look.glyphs.unknown if isinstance(row.text, Unknown) else row.text


def _drawn(row: PageRow, room: int, look: Look) -> list[tuple[str, str]]:
    """A bar, or the samples over the room that what is said of them leaves."""
    if row.samples:
        cells = max(1, room - width_of(row.says) - 5)
        return [("  ", "text"), (spark(_stretched(row.samples, cells), cells, look), "accent")]
    if row.share is None:
        return []
    return [(f"{percent(100 * row.share):>{_SHARE}} ", "value"), (bar(row.share, _BAR, look), "accent")]


def _stretched(samples: Sequence[float | None], cells: int) -> list[float | None]:
    """Few samples over all cells, each as many as the others or one more."""
    if len(samples) >= cells:
        return list(samples)
    return [samples[i * len(samples) // cells] for i in range(cells)]
