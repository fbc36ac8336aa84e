"""Several GPUs, one line each: numbers and their history, what slows the clock, and who departs from its peers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.pages.gpus import Gauge, GpuRow
from llmtop.analysis.tables import places_by
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import Severity, TrackId, Unknown
from llmtop.tui.render.lines import Part, line, pad, prose, spark
from llmtop.tui.render.table import Sort

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_LABEL = 5
_WORDS = 13
"""Cells that what holds the clock down gets before there are graphs: "▲ power cap"."""
_LEAST_SPARK, _MOST_SPARK = 6, 30
_GIB = 1 << 30


@frozen
class Selection:
    """What the user chose in a table of GPUs, by track id.

    Attributes:
        selected: The row under the cursor; None where the table has no focus.
        pinned: Stands at the top, whatever the order.
    """

    selected: TrackId | None = None
    pinned: TrackId | None = None
    sort: Sort | None = None


@frozen
class GpuColumn:
    """One number of each GPU: `high` is the top of its graph, None the largest value there is."""

    key: str
    title: str
    width: int
    gauge: Callable[[GpuRow], Gauge | None]
    role: str = "text"
    scale: float = 1.0
    high: Callable[[GpuRow], float | None] = lambda _: 100.0


def _by_title(title: str) -> Callable[[GpuRow], Gauge | None]:
    return lambda row: next((gauge for gauge in row.activity if gauge.title == title), None)


def _memory_top(row: GpuRow) -> float | None:
    return float(row.memory_total) if isinstance(row.memory_total, int | float) else None


COLUMNS = (
    GpuColumn("busy", "busy%", 7, _by_title("GPU busy"), "series1"),
    GpuColumn("dram", "DRAM%", 7, _by_title("DRAM"), "memory"),
    GpuColumn("sm", "SM%", 5, _by_title("SM"), "series2"),
    GpuColumn("tensor", "tens%", 7, _by_title("tensor"), "compute"),
    GpuColumn("memory", "mem GiB", 9, lambda row: row.memory, "series4", _GIB, _memory_top),
    GpuColumn(
        "power",
        "W",
        5,
        lambda row: row.power,
        "series3",
        high=lambda row: None if isinstance(row.power_limit, Unknown) else row.power_limit,
    ),
    GpuColumn("clock", "MHz", 6, lambda row: row.sm_clock, "series5", high=lambda _: None),
    GpuColumn("temperature", "°C", 4, lambda row: row.temperature, "series6"),
)
"""Left to right; of a narrow table too, titles stand two cells apart."""
SORTED_BY = (Column("gpu", "GPU"), *(Column(one.key, one.title, "1") for one in COLUMNS))
"""What the GPUs can be sorted by: their numbers, the first of all, and what is known of them."""
BY_GPU = Sort.by(SORTED_BY[0])
_KEPT = (
    *("busy", "dram", "power", "sm", "tensor"),
    *("BUSY", "clock", "DRAM", "memory", "temperature"),
    *("SM", "POWER", "TENSOR", "CLOCK"),
)
"""What gets room first: values in lower case, their graphs in upper case."""


def listed(rows: Sequence[GpuRow], selection: Selection) -> tuple[GpuRow, ...]:
    """The GPUs in the order that any table would have, but the pinned one first."""
    sort = selection.sort or BY_GPU
    column = next((one for one in COLUMNS if one.key == sort.column), None)
    cells = [i if column is None else _value(column, row) for i, row in enumerate(rows)]
    shown = [rows[i] for i in places_by(cells, descending=sort.descending)]
    return tuple(sorted(shown, key=lambda row: row.track != selection.pinned))


def draw_table(rows: Sequence[GpuRow], width: int, height: int, look: Look, selection: Selection) -> list[Strip]:
    """The header where there is room for it, a line for each GPU and MIG instance, then what is wrong with some."""
    lines = [one for row in listed(rows, selection) for one in (row, *row.instances)]
    placed = _placed(lines, width)
    head = [line(_titles(placed, selection.sort, look), width, look)] if height > 2 else []
    shown, hidden = _visible(lines, height - len(head), selection.selected)
    strips = [*head, *(_line(row, placed, width, look, selection) for row in shown)]
    if hidden:
        return [*strips, line([(f"{hidden} more: arrows move, z zooms", "dim")], width, look)][:height]
    reasons = dict.fromkeys(str(row.why_no_activity) for row in lines if row.why_no_activity and not row.lost)
    strips += [strip for row in rows for text, role in _faults(row) for strip in prose(text, width, look, role)]
    return strips + [strip for reason in reasons for strip in prose(reason, width, look, "dim")]


def _faults(row: GpuRow) -> list[tuple[str, str]]:
    """What is wrong with one GPU, as (sentence, role)."""
    found = [(f"{fact.title}: {fact.text}", fact.severity) for fact in row.health if fact.severity is not Severity.INFO]
    found += [(f"straggler: {row.straggler}", Severity.WARNING)] if row.straggler else []
    return [(f"GPU {row.label} {text}", "bad" if severity is Severity.ERROR else "warn") for text, severity in found]


def _visible(rows: Sequence[GpuRow], height: int, selected: TrackId | None) -> tuple[Sequence[GpuRow], int]:
    """The rows around the selected one, and how many more there are."""
    if len(rows) <= height:
        return rows, 0
    room = max(1, height - 1)
    at = next((i for i, row in enumerate(rows) if row.track == selected), 0)
    start = max(0, min(at - room // 2, len(rows) - room))
    return rows[start : start + room], len(rows) - room


def _placed(rows: Sequence[GpuRow], width: int) -> dict[str, int]:
    """The columns that fit by key, with the width of their graph (0: none).

    What no row can have, as activity without GPM, leaves its room to others.
    """
    widths = {column.key: column.width for column in COLUMNS if any(column.gauge(row) for row in rows)}
    room = width - _LABEL - _WORDS
    sparks: dict[str, int] = {}
    for key in (one for one in _KEPT if one.lower() in widths):
        size = widths[key] if key.islower() else _LEAST_SPARK + 1
        if size > room:
            break
        room -= size
        sparks[key.lower()] = 0 if key.islower() else _LEAST_SPARK
    graphs = [key for key, size in sparks.items() if size]
    more = min(_MOST_SPARK - _LEAST_SPARK, max(0, room - _WORDS) // len(graphs)) if graphs else 0
    return {key: size + more if size else 0 for key, size in sparks.items()}


def _titles(placed: dict[str, int], sort: Sort | None, look: Look) -> list[Part]:
    is_by_gpu = sort is not None and sort.column == "gpu"
    parts: list[Part] = [(pad(f"GPU{_arrow(sort, look) if is_by_gpu else ''}", _LABEL, look), "header")]
    for column in COLUMNS:
        if column.key in placed:
            is_sorted = sort is not None and sort.column == column.key
            title = column.title + (_arrow(sort, look) if is_sorted else "")
            graph = placed[column.key]
            parts.append((pad(title, column.width, look, right=True), "title" if is_sorted else "header"))
            parts.append((" " * (graph + 1 if graph else 0), "header"))
    return parts


def _arrow(sort: Sort | None, look: Look) -> str:
    return look.glyphs.down if sort is not None and sort.descending else look.glyphs.up


def _line(row: GpuRow, placed: dict[str, int], width: int, look: Look, selection: Selection) -> Strip:
    pin = "*" if row.track == selection.pinned else " "
    parts: list[Part] = [(pad(f"{pin}{row.label}", _LABEL, look), "title")]
    if row.lost is not None:
        parts.append((f"{look.glyphs.bad} {row.lost.reason}", "bad"))
    else:
        for column in COLUMNS:
            if column.key in placed:
                parts += _cell(column, row, placed[column.key], look)
        parts.append(_words(row, look))
    if row.track == selection.selected:
        text = "".join(text for text, _ in parts)
        parts = [(pad(text, width, look), "cursor")]
    return line(parts, width, look)


def _cell(column: GpuColumn, row: GpuRow, graph: int, look: Look) -> list[Part]:
    value = _value(column, row)
    shown = look.glyphs.unknown if value is None else f"{value / column.scale:.0f}"
    parts: list[Part] = [(shown.rjust(column.width), "dim" if value is None else "value")]
    if graph:
        gauge = column.gauge(row)
        history = gauge.history[-graph:] if gauge is not None else ()
        parts.append((f" {spark(history, graph, look, high=column.high(row))}", column.role))
    return parts


def _value(column: GpuColumn, row: GpuRow) -> float | None:
    gauge = column.gauge(row)
    return None if gauge is None or isinstance(gauge.value, Unknown) else gauge.value


def _words(row: GpuRow, look: Look) -> Part:
    """What is to be said of this GPU: that it departs from its peers, or what holds its clock down."""
    limits = () if isinstance(row.limits, Unknown) else row.limits
    if row.straggler:
        return f"  {look.glyphs.warn} straggler", "warn"
    if "/" in row.label:
        return f"  {row.name}", "dim"
    if limits in ((), ("idle",)):
        return "  idle" if limits else "", "dim"
    return f"  {look.glyphs.warn} {', '.join(limits)}", "warn"
