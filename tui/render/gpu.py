"""GPUs: bars and graphs for one, a line each for several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, bar, line, pad, prose, spark, width_of
from llmtop.units import binary_bytes, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.analysis.gpu_view import Gauge, GpuProcess, GpuRow
    from llmtop.tui.render.look import Look

_GB = 1 << 30
_ROLES = {"SM": "series2", "DRAM": "memory", "tensor": "compute", "GPU busy": "series2"}


def draw_gpus(rows: Sequence[GpuRow], width: int, height: int, look: Look) -> list[Strip]:
    """One GPU in full, or several with a line each and then what is wrong with them."""
    strips = _one(rows[0], width, height, look) if len(rows) == 1 else _several(rows, width, height, look)
    return strips[:height]


# -- one -------------------------------------------------------------------------------------------------------


def _one(row: GpuRow, width: int, height: int, look: Look) -> list[Strip]:
    strips = [_activity(gauge, width, look) for gauge in row.activity]
    strips.append(line(_state(row, look), width, look))
    if row.why_no_activity is not None:
        strips += prose(str(row.why_no_activity), width, look, "dim")
    if row.links:
        strips.append(line(_links(row.links), width, look))
    return strips + _processes(row.processes, width, height - len(strips), look)


def _activity(gauge: Gauge, width: int, look: Look) -> Strip:
    role = _ROLES.get(gauge.title, "series1")
    name: Part = (pad(gauge.title, 7 if len(gauge.title) <= 6 else 9, look), "dim")
    if isinstance(gauge.value, Unknown):
        return line([name, (f"{look.glyphs.unknown} {gauge.value}", "dim")], width, look)
    value: Part = (quantity(gauge.value, gauge.unit).rjust(6) + " ", "value")
    room = width - width_of(name[0]) - width_of(value[0])
    bar_width = max(0, min(20, room // 2))
    graph_width = room - bar_width - 1
    parts = [name, value, (bar(gauge.value / 100, bar_width, look), role)]
    if graph_width >= 4:
        parts += [(" ", "text"), (spark(gauge.history[-graph_width:], graph_width, look, high=100.0), role)]
    return line(parts, width, look)


def _state(row: GpuRow, look: Look) -> list[Part]:
    """Memory, power, clock, temperature, and what holds the clock down."""
    parts: list[Part] = [*_memory(row), ("  ", "text"), *_power(row), ("  ", "text")]
    parts.append((_text(row.sm_clock, "MHz"), "text"))
    parts.append((f"  {_text(row.temperature, '°C')}".replace(" °C", "°C"), "text"))
    if isinstance(row.limits, tuple) and row.limits:
        parts.append((f"  {look.glyphs.warn} {', '.join(row.limits)}", "warn"))
    return parts


def _memory(row: GpuRow) -> list[Part]:
    used = "–" if isinstance(row.memory_used, Unknown) else f"{row.memory_used / _GB:.1f}"
    total = row.memory_total
    of = f"/{total / _GB:.0f}" if isinstance(total, int | float) else ""
    return [("mem ", "dim"), (f"{used}{of} GiB", "value")]


def _power(row: GpuRow) -> list[Part]:
    of = "" if isinstance(row.power_limit, Unknown) else f"/{row.power_limit:.0f}"
    used = "–" if isinstance(row.power, Unknown) else f"{row.power:.0f}"
    return [(f"{used}{of} W", "text")]


def _links(links: Sequence[Gauge]) -> list[Part]:
    parts: list[Part] = []
    for gauge in links:
        parts += [(f"{gauge.title} ", "dim"), (f"{_text(gauge.value, gauge.unit)}  ", "text")]
    return parts


def _processes(processes: Sequence[GpuProcess], width: int, room: int, look: Look) -> list[Strip]:
    return [
        line([(f"{one.pid:>8} ", "dim"), (pad(_size(one.memory), 10, look), "text"), (one.name, "text")], width, look)
        for one in processes[: max(0, room)]
    ]


# -- several ---------------------------------------------------------------------------------------------------


def _several(rows: Sequence[GpuRow], width: int, height: int, look: Look) -> list[Strip]:
    strips = [line(_short(row, width, look), width, look) for row in rows]
    if len(strips) > height:
        hidden = len(strips) - height + 1
        strips = [*strips[: height - 1], line([(f"{hidden} more GPUs: zoom with z", "dim")], width, look)]
    reasons = {str(row.why_no_activity) for row in rows if row.why_no_activity is not None}
    return strips + [strip for reason in sorted(reasons) for strip in prose(reason, width, look, "dim")]


def _short(row: GpuRow, width: int, look: Look) -> list[Part]:
    parts: list[Part] = [(f"{row.index:<2} ", "title")]
    bars = max(0, min(12, (width - 58) // len(row.activity)))
    for gauge in row.activity:
        role = _ROLES.get(gauge.title, "series1")
        known = not isinstance(gauge.value, Unknown)
        shown = f"{gauge.value:3.0f}% " if not isinstance(gauge.value, Unknown) else f"{look.glyphs.unknown:>3}  "
        parts += [(f"{gauge.title} ", "dim"), (shown, "value" if known else "dim")]
        if bars >= 4 and not isinstance(gauge.value, Unknown):
            parts.append((bar(gauge.value / 100, bars, look) + " ", role))
    return [*parts, *_state(row, look)]


def _text(value: float | Unknown, unit: str) -> str:
    return "–" if isinstance(value, Unknown) else quantity(value, unit)


def _size(value: float | Unknown) -> str:
    return "–" if isinstance(value, Unknown) else binary_bytes(value)
