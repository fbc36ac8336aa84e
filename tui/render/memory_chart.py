"""A kernel's traffic through the memory system: a chart where there is room for it, else a table of the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.memory_chart import MEMORIES, WAYS, MemoryUnit
from llmtop.model import Unknown
from llmtop.tui.render.canvas import Canvas
from llmtop.tui.render.lines import Part, line, pad, prose
from llmtop.units import binary_bytes, percent, si

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.memory_chart import MemoryChart, MemoryFlow
    from llmtop.tui.render.look import Look

_BOX, _ARROW, _KERNEL = 14, 13, 10
_LEAST_WIDTH = _KERNEL + 4 * (_BOX + _ARROW)
"""Columns of the chart: the kernel, and four times an arrow and a unit."""
_LANE = 3
"""Rows of a way or a memory: what is written, what is read, and none."""
_NAME, _COUNT, _BYTES, _PERCENT = 8, 8, 10, 7


def draw_memory_chart(chart: MemoryChart, width: int, height: int, look: Look) -> list[Strip]:
    """The chart, or the table, and below it what is to be known of it."""
    said = list(_said(chart, width, look))
    ways = [unit for unit in WAYS if chart.link(unit) is not None]
    has_room = width >= _LEAST_WIDTH and height >= _LANE * len(ways) + 1 + len(said)
    return [*(_chart(chart, ways, width, look) if has_room else _table(chart, ways, width, look)), *said]


def _said(chart: MemoryChart, width: int, look: Look) -> Iterator[Strip]:
    for note in chart.notes:
        yield from prose(note, width, look, "dim")
    if chart.missing is not None:
        yield from prose(f"{look.glyphs.unknown} {chart.missing.reason}", width, look, "dim")
        yield from prose(f"$ {chart.missing.remedy}" if chart.missing.remedy else "", width, look, "accent")


def _count(flow: MemoryFlow, look: Look) -> str:
    if isinstance(flow.requests, Unknown):
        return look.glyphs.unknown
    return "" if flow.requests is None else si(flow.requests)


def _bytes(flow: MemoryFlow, look: Look) -> str:
    if isinstance(flow.bytes, Unknown):
        return look.glyphs.unknown
    return "" if flow.bytes is None else binary_bytes(flow.bytes)


def _role(flow: MemoryFlow) -> str:
    return "dim" if flow.is_idle or not flow.is_known else "value"


def _of_block(chart: MemoryChart, unit: MemoryUnit, look: Look) -> list[str]:
    """What a unit kept, and how busy it was, in words."""
    block = chart.block(unit)
    told = (("hits", block.hits), ("busy", block.busy))
    return [f"{what} {_percent(value, look)}" for what, value in told if value is not None]


def _percent(value: float | Unknown | None, look: Look) -> str:
    return look.glyphs.unknown if isinstance(value, Unknown) else "" if value is None else percent(value)


# -- the chart ----------------------------------------------------------------------------------------------------


def _chart(chart: MemoryChart, ways: Sequence[MemoryUnit], width: int, look: Look) -> list[Strip]:
    """From left to right: the kernel, its ways, L1, L2, and the memories."""
    rows = _LANE * len(ways)
    canvas = Canvas(width, rows + 1, look)
    asked, l1, l2, memories = (_KERNEL + i * (_BOX + _ARROW) + _ARROW for i in range(4))
    canvas.text(asked - _ARROW, 0, pad("asked for", _ARROW, look), "header")
    canvas.text(l1 - _ARROW, 0, pad("bytes", _ARROW, look), "header")
    _box(canvas, 0, (1, rows), [str(MemoryUnit.KERNEL)], _KERNEL, look)
    _box(canvas, l1, (1, rows), [str(MemoryUnit.L1), *_of_block(chart, MemoryUnit.L1, look)], _BOX, look)
    _box(canvas, l2, (1, rows), [str(MemoryUnit.L2), *_of_block(chart, MemoryUnit.L2, look)], _BOX, look)
    for i, unit in enumerate(ways):
        _draw_way(canvas, chart, unit, (asked, l1), 1 + _LANE * i, look)
    _arrows(canvas, l2 - _ARROW, rows // 2, chart, MemoryUnit.L2, look)
    for i, unit in enumerate(MEMORIES):
        row = 1 + i * max(_LANE, (rows - _LANE) // (len(MEMORIES) - 1))
        _box(canvas, memories, (row, row + 1), [str(unit), *_of_block(chart, unit, look)], _BOX, look)
        _arrows(canvas, memories - _ARROW, row, chart, unit, look)
    return canvas.strips()


def _draw_way(
    canvas: Canvas, chart: MemoryChart, unit: MemoryUnit, cols: tuple[int, int], row: int, look: Look
) -> None:
    """A way with what it was asked for on its left, and what that takes from L1 on its right."""
    asked, l1 = cols
    link = chart.link(unit)
    if link is None:
        return
    of = [] if link.read.of == "requests" else [link.read.of]
    _box(canvas, asked, (row, row + 1), [str(unit), *(_of_block(chart, unit, look) or of)], _BOX, look)
    for down, flow in enumerate((link.written, link.read)):
        _arrow(canvas, asked - _ARROW, row + down, _count(flow, look), flow, look, is_out=not down)
        _arrow(canvas, l1 - _ARROW, row + down, _bytes(flow, look), flow, look, is_out=not down)


def _arrows(canvas: Canvas, col: int, row: int, chart: MemoryChart, far: MemoryUnit, look: Look) -> None:
    """What is written to a unit behind L1, and below it what is read from there."""
    link = chart.link(far)
    for down, flow in enumerate(() if link is None else (link.written, link.read)):
        _arrow(canvas, col, row + down, _bytes(flow, look), flow, look, is_out=not down)


def _arrow(canvas: Canvas, col: int, row: int, text: str, flow: MemoryFlow, look: Look, *, is_out: bool) -> None:
    """An amount on its way: out of the kernel, or to it; nothing where nothing is counted."""
    if text:
        shaft = f" {text} ".center(_ARROW - 3, look.glyphs.horizontal)
        canvas.text(col + 1, row, f"{shaft}→" if is_out else f"←{shaft}", _role(flow))


def _box(canvas: Canvas, col: int, rows: tuple[int, int], texts: Sequence[str], width: int, look: Look) -> None:
    """A unit between two bars, its lines in the middle of its rows."""
    first, last = rows
    for row in range(first, last + 1):
        canvas.text(col, row, look.glyphs.vertical, "dim")
        canvas.text(col + width - 1, row, look.glyphs.vertical, "dim")
    top = first + max(0, (last - first + 1 - len(texts)) // 2)
    for i, text in enumerate(texts):
        canvas.text(col + 1, top + i, pad(text, width - 2, look), "text" if i else "title")


# -- the table ----------------------------------------------------------------------------------------------------


def _table(chart: MemoryChart, ways: Sequence[MemoryUnit], width: int, look: Look) -> list[Strip]:
    """A line for each unit, with what is read from it and what is written to it."""
    amounts = f"{'read':>{_COUNT}}{'':{_BYTES}}{'written':>{_COUNT}}{'':{_BYTES}}"
    head = f"{'':{_NAME}}{amounts}{'hits':>{_PERCENT}}{'busy':>{_PERCENT}}"
    rows = [line([(head, "header")], width, look)]
    rows += [_row(chart, unit, unit, width, look) for unit in ways]
    rows.append(_row(chart, MemoryUnit.L1, None, width, look))
    rows += [_row(chart, unit, unit, width, look) for unit in (MemoryUnit.L2, *MEMORIES)]
    return rows


def _row(chart: MemoryChart, unit: MemoryUnit, far: MemoryUnit | None, width: int, look: Look) -> Strip:
    link = None if far is None else chart.link(far)
    parts: list[Part] = [(pad(unit, _NAME, look), "title" if unit in (MemoryUnit.L1, MemoryUnit.L2) else "text")]
    for flow in () if link is None else (link.read, link.written):
        text = f"{_count(flow, look):>{_COUNT}}{_bytes(flow, look):>{_BYTES}}"
        parts.append((text, _role(flow)))
    if link is None:
        parts.append((" " * 2 * (_COUNT + _BYTES), "text"))
    block = chart.block(unit)
    if link is not None and link.read.of != "requests":
        told = f"{link.read.of:>{2 * _PERCENT}}"
    else:
        told = "".join(f"{_percent(value, look):>{_PERCENT}}" for value in (block.hits, block.busy))
    return line([*parts, (told, "text")], width, look)
