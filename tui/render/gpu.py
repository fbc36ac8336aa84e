"""The GPUs of a machine: one in full, or a table of several with the selected one in full where there is room."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.model import Quantity, Severity, Unknown
from llmtop.tui.render.gpu_table import Selection, draw_table
from llmtop.tui.render.lines import Part, bar, blank, columns, line, pad, prose, spark, width_of, wrap
from llmtop.units import binary_bytes, percent, quantity

if TYPE_CHECKING:
    from llmtop.analysis.gpus.health import HealthFact
    from llmtop.analysis.pages.gpus import Gauge, GpuProcess, GpuRow, GpusView
    from llmtop.analysis.roofline.efficiency import EfficiencyView
    from llmtop.tui.render.look import Look

_GIB = 1 << 30
_LEAST_GRAPH = 4
_GAP = 2
"""Between names and what is known of them, and between numbers on one line."""
_STATE = ("power", "limits", "clock", "memory", "temperature", "NVML's clock")
"""What of a GPU's state gets room first: what a throttled one is found by."""
_LINK = 23
"""Cells that the rate of one link takes."""
_FACT = 46
"""Cells that a fact about a GPU takes, with its title."""
_FEW = 3
"""Processes that are worth more than facts that are as they should be."""
_ROLES = {"SM": "series2", "DRAM": "memory", "tensor": "compute", "GPU busy": "series1"}
_SEVERITY_ROLES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "text"}
_DETAIL_ROWS = 6
"""The selected GPU of a table is shown in full from so many free rows on."""


def draw_gpus(
    view: GpusView, width: int, height: int, look: Look, selection: Selection | None = None, *, is_zoomed: bool = False
) -> list[Strip]:
    """One GPU in full, or several with a line each and then what is to know of them.

    Args:
        view: What to draw.
        width: Cells of each line.
        height: The most lines.
        look: Colours and characters.
        selection: What is selected, pinned and sorted by, where there are several.
        is_zoomed: The processes have a table of their own, and what is estimated is told with its sources.
    """
    rows = view.rows
    if len(rows) == 1 and not rows[0].instances:
        return _one(rows[0], view.efficiency, width, height, look, is_zoomed=is_zoomed)[:height]
    selection = selection or Selection()
    strips = draw_table(rows, width, height, look, selection)
    room = height - len(strips)
    if is_zoomed and room >= _DETAIL_ROWS:
        row = next((row for row in rows if row.track == selection.selected), rows[0])
        title = [(f"GPU {row.label}", "title"), (f"  {row.name}", "dim")]
        rest = _one(row, view.efficiency, width, room - 2, look, is_zoomed=True)
        return [*strips, blank(width, look), line(title, width, look), *rest][:height]
    strips += _efficiency(view.efficiency, width, look)
    for row in () if is_zoomed else rows:
        strips += _processes(row.processes, width, height - len(strips), look, f"{row.label:<4}")
    return strips[:height]


# -- one -------------------------------------------------------------------------------------------------------


def _one(
    row: GpuRow, efficiency: EfficiencyView | None, width: int, height: int, look: Look, *, is_zoomed: bool
) -> list[Strip]:
    if row.lost is not None:
        return prose(f"GPU {row.label} {look.glyphs.bad} {row.lost}", width, look, "bad")
    made = _sourced(efficiency, width, look) if is_zoomed else _efficiency(efficiency, width, look)
    why = prose(str(row.why_no_activity), width, look, "dim") if row.why_no_activity is not None else []
    processes = 0 if is_zoomed else min(1, len(row.processes))
    telling = len(why) + len(made) + len(_facts(_faults(row), width, look)) + processes
    gauges = (*row.activity, *(row.units if is_zoomed else ()))
    strips = [*_gauges(gauges, width, height - 1 - telling, look), _state(row, width, look)]
    if len(strips) > height:
        strips = [*strips[: max(1, height - 1)], strips[-1]]
    strips += why
    return strips + _rest(row, made, width, height - len(strips), look, has_processes=not is_zoomed)


def _gauges(gauges: Sequence[Gauge], width: int, height: int, look: Look) -> list[Strip]:
    """One a line, or two where the lines are too few: graphs of the whole width tell less than what they would hide."""
    if len(gauges) <= max(1, height):
        return _column(gauges, width, look)
    half = (width - 1) // 2
    gap = blank(width - 2 * half, look)
    left, right = _column(gauges[::2], half, look), _column(gauges[1::2], half, look)
    pairs = itertools.zip_longest(left, right, fillvalue=blank(half, look))
    return [Strip.join([one, gap, other]).adjust_cell_length(width, look.style("text")) for one, other in pairs]


def _column(gauges: Sequence[Gauge], width: int, look: Look) -> list[Strip]:
    """Below each other, so that one bar compares with the next."""
    longest = max((width_of(gauge.title) for gauge in gauges), default=0)
    return [_activity(gauge, longest + 1, width, look) for gauge in gauges]


def _faults(row: GpuRow) -> list[HealthFact]:
    return [fact for fact in row.health if fact.severity is not Severity.INFO]


def _rest(
    row: GpuRow, efficiency: list[Strip], width: int, height: int, look: Look, *, has_processes: bool
) -> list[Strip]:
    """What is left of the height, to the most telling first; on the screen the processes stand last."""
    faults = _faults(row)
    processes = row.processes if has_processes else ()
    room = height
    parts: dict[str, list[Strip]] = {}
    lines: tuple[tuple[str, Callable[[], list[Strip]]], ...] = (
        ("efficiency", lambda: efficiency),
        ("faults", lambda: _facts(faults, width, look)),
        ("processes", lambda: _processes(processes[:1], width, 1, look)),
        ("links", lambda: _link_lines(row.links, width, look)),
        ("processes", lambda: _processes(processes[:_FEW], width, _FEW, look)),
        ("facts", lambda: _facts([fact for fact in row.health if fact not in faults], width, look)),
        ("processes", lambda: _processes(processes, width, height, look)),
    )
    for name, make in lines:
        if room <= 0:  # mostly so after the first ones, and health alone takes as long as all that is shown
            break
        had = len(parts.get(name, ()))
        parts[name] = make()[: had + room]
        room -= len(parts[name]) - had
    return [strip for name in ("efficiency", "faults", "links", "facts", "processes") for strip in parts.get(name, ())]


def _activity(gauge: Gauge, name_width: int, width: int, look: Look) -> Strip:
    role = _ROLES.get(gauge.title, "series1")
    name: Part = (pad(gauge.title, name_width, look), "dim")
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


def _state(row: GpuRow, width: int, look: Look) -> Strip:
    """Memory, power, clock, temperature, and what holds the clock down: that and the power are cut, never left out."""
    celsius = row.temperature.value
    cells: dict[str, list[Part]] = {
        "memory": _memory(row, look),
        "power": _power(row, look),
        "clock": [(_clock(row, look), "text")],
        "NVML's clock": _clock_of_nvml(row),
        "temperature": [] if isinstance(celsius, Unknown) else [(f"{celsius:.0f} °C", "text")],
        "limits": _limits(row, look),
    }
    room = width + _GAP
    kept = set()
    for name in _STATE:
        size = sum(width_of(text) for text, _ in cells[name]) + _GAP
        if cells[name] and (size <= room or name in ("power", "limits")):
            kept.add(name)
            room -= size
    shown = [cell for name, cell in cells.items() if name in kept]
    return line([part for cell in shown for part in ((" " * _GAP, "text"), *cell)][1:], width, look)


def _clock(row: GpuRow, look: Look) -> str:
    """The true one where it is known."""
    return _text(row.sm_clock.value if isinstance(row.true_clock, Unknown) else row.true_clock, "MHz", look)


def _clock_of_nvml(row: GpuRow) -> list[Part]:
    """Said too where it is visibly another than the true one."""
    said = row.sm_clock.value
    if isinstance(said, Unknown) or isinstance(row.true_clock, Unknown) or round(said) == round(row.true_clock):
        return []
    return [(f"(NVML {said:.0f})", "text")]


def _limits(row: GpuRow, look: Look) -> list[Part]:
    """What holds the clock down; an idle GPU slows it by itself."""
    if isinstance(row.limits, Unknown) or not row.limits:
        return []
    if row.limits == ("idle",):
        return [("idle", "dim")]
    return [(f"{look.glyphs.warn} {', '.join(row.limits)}", "warn")]


def _memory(row: GpuRow, look: Look) -> list[Part]:
    used = look.glyphs.unknown if isinstance(row.memory.value, Unknown) else f"{row.memory.value / _GIB:.1f}"
    total = row.memory_total
    of = f"/{total / _GIB:.0f}" if isinstance(total, int | float) else ""
    return [("mem ", "dim"), (f"{used}{of} GiB", "value")]


def _power(row: GpuRow, look: Look) -> list[Part]:
    of = "" if isinstance(row.power_limit, Unknown) else f"/{row.power_limit:.0f}"
    used = look.glyphs.unknown if isinstance(row.power.value, Unknown) else f"{row.power.value:.0f}"
    return [(f"{used}{of} W", "text")]


def _link_lines(links: Sequence[Gauge], width: int, look: Look) -> list[Strip]:
    across = max(1, width // _LINK)
    return [line(_links(links[start : start + across], look), width, look) for start in range(0, len(links), across)]


def _links(links: Sequence[Gauge], look: Look) -> list[Part]:
    parts: list[Part] = []
    for gauge in links:
        shown = _text(gauge.value, gauge.unit, look)
        parts += [(f"{gauge.title} ", "dim"), (shown.ljust(_LINK - len(gauge.title) - 1), "text")]
    return parts


def _facts(facts: Sequence[HealthFact], width: int, look: Look) -> list[Strip]:
    """Side by side where there is room; below each other what is longer than a line is wrapped."""
    across = max(1, width // _FACT)
    room = width - max((width_of(fact.title) for fact in facts), default=0) - _GAP
    pairs = [
        (fact.title if i == 0 else "", [(text, _SEVERITY_ROLES[fact.severity])])
        for fact in facts
        for i, text in enumerate(wrap(fact.text, room, look) if across == 1 else [fact.text])
    ]
    return columns(pairs, width, look, across=across)


def _processes(processes: Sequence[GpuProcess], width: int, room: int, look: Look, prefix: str = "") -> list[Strip]:
    return [line(_process(one, prefix, look), width, look) for one in processes[: max(0, room)]]


def _process(one: GpuProcess, prefix: str, look: Look) -> list[Part]:
    size = look.glyphs.unknown if isinstance(one.memory, Unknown) else binary_bytes(one.memory)
    share = "" if isinstance(one.sm, Unknown) else f"{percent(one.sm)} SM "
    parts: list[Part] = [(prefix, "title"), (f"{one.pid:>8} ", "dim"), (pad(size, 10, look), "text")]
    parts += [(share.rjust(9), "text")] if share else []
    parts.append((one.title, "text"))
    return parts if one.why_unseen is None else [*parts, (f"  {one.why_unseen.reason}", "dim")]


# -- efficiency ------------------------------------------------------------------------------------------------


def _results(view: EfficiencyView) -> tuple[tuple[str, Quantity | Unknown], ...]:
    return (("phase", view.phase), ("energy", view.joules_per_token), ("MFU", view.mfu), ("MBU", view.mbu))


def _efficiency(view: EfficiencyView | None, width: int, look: Look) -> list[Strip]:
    """One line: what is known, or else why nothing is."""
    if view is None:
        return []
    known = [(name, result) for name, result in _results(view) if isinstance(result, Quantity)]
    if not known:
        why = next(result for _, result in _results(view) if isinstance(result, Unknown))
        names = ", ".join(name for name, _ in _results(view))
        return [line([(f"{look.glyphs.unknown} {names}: {why.reason}", "dim")], width, look)]
    parts: list[Part] = []
    for name, result in known:
        is_named = name in ("MFU", "MBU")  # a phase and a unit name themselves
        parts += [(f"{name} " if is_named else "", "dim"), (f"{_amount(result)}  ", "value")]
    estimated = "estimates, " if any(name in ("MFU", "MBU") for name, _ in known) else "mean of "
    parts.append((f"({estimated}{view.window_s:.0f} s)", "dim"))
    return [line(parts, width, look)]


def _sourced(view: EfficiencyView | None, width: int, look: Look) -> list[Strip]:
    """A line or more each, with what it was computed from or why it is not known."""
    if view is None:
        return []
    named = (*_results(view), ("compute", view.flops_share), ("DRAM", view.dram_share))
    longest = max(width_of(name) for name, _ in named)
    pairs: list[tuple[str, Sequence[Part]]] = []
    for name, result in named:
        told, source = _told(name, result, look)
        taken = width_of(told[0])
        first, *more = wrap(source, width - longest - _GAP - taken, look) or [""]
        pairs.append((name, [told, (first, "dim")]))
        pairs += [("", [(" " * taken + one, "dim")]) for one in more]
    notes = [strip for note in view.notes for strip in prose(note, width, look, "dim")]
    return [*columns(pairs, width, look), *notes]


def _told(name: str, result: Quantity | Unknown, look: Look) -> tuple[Part, str]:
    """How much it is, and what it was computed from; or that it is not known, and why."""
    if isinstance(result, Unknown):
        return (f"{look.glyphs.unknown} ", "dim"), str(result)
    of = " of peak" if name in ("compute", "DRAM") else ""
    return (f"{_amount(result)}{of}  ", "value"), result.source


def _amount(result: Quantity) -> str:
    return str(result.value) if isinstance(result.value, str) else quantity(result.value, result.unit)


def _text(value: float | Unknown, unit: str, look: Look) -> str:
    return look.glyphs.unknown if isinstance(value, Unknown) else quantity(value, unit)
