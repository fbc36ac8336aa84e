"""GPUs: bars and graphs for one, a line each for several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, bar, blank, line, pad, prose, spark, width_of
from llmtop.units import binary_bytes, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.gpu_view import Gauge, GpuProcess, GpuRow
    from llmtop.tui.render.look import Look

_GB = 1 << 30
_LEAST_GRAPH = 4
_LINK = 23
"""Cells that the rate of one link takes."""
_ROLES = {"SM": "series2", "DRAM": "memory", "tensor": "compute", "GPU busy": "series2"}


def draw_gpus(rows: Sequence[GpuRow], width: int, height: int, look: Look) -> list[Strip]:
    """One GPU in full, or several with a line each and then what is wrong with them."""
    strips = _one(rows[0], width, height, look) if len(rows) == 1 else _several(rows, width, height, look)
    return strips[:height]


# -- one -------------------------------------------------------------------------------------------------------


def _one(row: GpuRow, width: int, height: int, look: Look) -> list[Strip]:
    if height <= len(row.activity):
        return _tight(row, width, look)
    strips = [_activity(gauge, width, look) for gauge in row.activity]
    strips.append(line(_state(row, look), width, look))
    if row.why_no_activity is not None:
        strips += prose(str(row.why_no_activity), width, look, "dim")
    across = max(1, width // _LINK)
    for start in range(0, len(row.links), across):
        strips.append(line(_links(row.links[start : start + across], look), width, look))
    return strips + _processes(row.processes, width, height - len(strips), look)


def _tight(row: GpuRow, width: int, look: Look) -> list[Strip]:
    """Two gauges a line, without graphs."""
    half = (width - 1) // 2
    cells = [_activity(gauge, half, look) for gauge in row.activity]
    pairs = [Strip.join([one, blank(width - 2 * half, look)]) for one in cells]
    strips = [
        Strip.join(pairs[i : i + 2]).adjust_cell_length(width, look.style("text")) for i in range(0, len(pairs), 2)
    ]
    strips.append(line(_state(row, look), width, look))
    return strips if row.why_no_activity is None else strips + prose(str(row.why_no_activity), width, look, "dim")


def _activity(gauge: Gauge, width: int, look: Look) -> Strip:
    role = _ROLES.get(gauge.title, "series1")
    name: Part = (pad(gauge.title, 7 if len(gauge.title) <= 6 else 9, look), "dim")
    if isinstance(gauge.value, Unknown):
        return line([name, (f"{look.glyphs.unknown} {gauge.value}", "dim")], width, look)
    value: Part = (quantity(gauge.value, gauge.unit).rjust(6) + " ", "value")
    room = width - width_of(name[0]) - width_of(value[0])
    bar_width = max(0, min(20, room // 2) if room >= 2 * _LEAST_GRAPH else room)
    graph_width = room - bar_width - 1
    parts = [name, value, (bar(gauge.value / 100, bar_width, look), role)]
    if graph_width >= _LEAST_GRAPH:
        parts += [(" ", "text"), (spark(gauge.history[-graph_width:], graph_width, look, high=100.0), role)]
    return line(parts, width, look)


def _state(row: GpuRow, look: Look) -> list[Part]:
    """Memory, power, clock, temperature, and what holds the clock down."""
    parts: list[Part] = [*_memory(row, look), ("  ", "text"), *_power(row, look), ("  ", "text")]
    parts.append((_text(row.sm_clock, "MHz", look), "text"))
    if not isinstance(row.temperature, Unknown):
        parts.append((f"  {row.temperature:.0f} °C", "text"))
    return [*parts, *_limits(row, look)]


def _limits(row: GpuRow, look: Look) -> list[Part]:
    """What holds the clock down; an idle GPU slows it by itself."""
    if isinstance(row.limits, Unknown) or not row.limits:
        return []
    if row.limits == ("idle",):
        return [("  idle", "dim")]
    return [(f"  {look.glyphs.warn} {', '.join(row.limits)}", "warn")]


def _memory(row: GpuRow, look: Look) -> list[Part]:
    used = look.glyphs.unknown if isinstance(row.memory_used, Unknown) else f"{row.memory_used / _GB:.1f}"
    total = row.memory_total
    of = f"/{total / _GB:.0f}" if isinstance(total, int | float) else ""
    return [("mem ", "dim"), (f"{used}{of} GiB", "value")]


def _power(row: GpuRow, look: Look) -> list[Part]:
    of = "" if isinstance(row.power_limit, Unknown) else f"/{row.power_limit:.0f}"
    used = look.glyphs.unknown if isinstance(row.power, Unknown) else f"{row.power:.0f}"
    return [(f"{used}{of} W", "text")]


def _links(links: Sequence[Gauge], look: Look) -> list[Part]:
    parts: list[Part] = []
    for gauge in links:
        shown = _text(gauge.value, gauge.unit, look)
        parts += [(f"{gauge.title} ", "dim"), (shown.ljust(_LINK - len(gauge.title) - 1), "text")]
    return parts


def _processes(processes: Sequence[GpuProcess], width: int, room: int, look: Look, prefix: str = "") -> list[Strip]:
    return [
        line(
            [
                (prefix, "title"),
                (f"{one.pid:>8} ", "dim"),
                (pad(_size(one.memory, look), 10, look), "text"),
                _name(one),
            ],
            width,
            look,
        )
        for one in processes[: max(0, room)]
    ]


def _name(process: GpuProcess) -> Part:
    return process.name, "text"


# -- several ---------------------------------------------------------------------------------------------------

_COLUMNS = (("mem GiB", 8), ("power W", 9), ("MHz", 6), ("°C", 4))
"""Title and width of what follows the gauges; each is left out where the width ends before it."""


def _several(rows: Sequence[GpuRow], width: int, height: int, look: Look) -> list[Strip]:
    head = height > len(rows)
    bars = _bar_width(rows, width)
    strips = [line(_titles(rows[0], bars, look), width, look)] if head else []
    strips += [line(_short(row, bars, look), width, look) for row in rows]
    if len(strips) > height:
        hidden = len(strips) - height + 1
        strips = [*strips[: height - 1], line([(f"{hidden} more GPUs: zoom with z", "dim")], width, look)]
    reasons = {str(row.why_no_activity) for row in rows if row.why_no_activity is not None}
    strips += [strip for reason in sorted(reasons) for strip in prose(reason, width, look, "dim")]
    for row in rows:
        strips += _processes(row.processes, width, height - len(strips), look, f"{row.index:<3}")
    return strips


def _bar_width(rows: Sequence[GpuRow], width: int) -> int:
    gauges = len(rows[0].activity)
    fixed = 3 + 8 * gauges + sum(size for _, size in _COLUMNS) + 26
    bars = min(14, (width - fixed) // gauges)
    return bars if bars >= 4 else 0


def _titles(row: GpuRow, bars: int, look: Look) -> list[Part]:
    gap = bars + 1 if bars else 0
    gauges = "".join(pad(pad(gauge.title, 7, look, right=True), 8 + gap, look) for gauge in row.activity)
    rest = "".join(title.rjust(size) for title, size in _COLUMNS)
    return [(f"   {gauges}{rest}", "header")]


def _short(row: GpuRow, bars: int, look: Look) -> list[Part]:
    parts: list[Part] = [(f"{row.index:<3}", "title")]
    for gauge in row.activity:
        if isinstance(gauge.value, Unknown):
            parts.append((pad(look.glyphs.unknown.rjust(7), 8 + (bars + 1 if bars else 0), look), "dim"))
            continue
        parts.append((f"{gauge.value:5.0f} % ", "value"))
        if bars:
            parts.append((bar(gauge.value / 100, bars, look) + " ", _ROLES.get(gauge.title, "series1")))
    numbers = (row.memory_used, row.power, row.sm_clock, row.temperature)
    scales = (_GB, 1, 1, 1)
    for (_, size), number, scale in zip(_COLUMNS, numbers, scales, strict=True):
        shown = look.glyphs.unknown if isinstance(number, Unknown) else f"{number / scale:.0f}"
        parts.append((shown.rjust(size), "text"))
    return [*parts, *_limits(row, look)]


def _text(value: float | Unknown, unit: str, look: Look) -> str:
    return look.glyphs.unknown if isinstance(value, Unknown) else quantity(value, unit)


def _size(value: float | Unknown, look: Look) -> str:
    return look.glyphs.unknown if isinstance(value, Unknown) else binary_bytes(value)
