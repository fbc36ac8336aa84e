"""A ruler of absolute time above a timeline, from seconds to nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import NS_PER_S
from llmtop.tui.render.lines import line, pad, spelled, width_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.strip import Strip

    from llmtop.analysis.timeline.window import ShownTime
    from llmtop.tui.render.look import Look

_LEAST_CELLS = 11
"""Between two ticks, for what stands at one."""
_UNITS = ((NS_PER_S, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def tick_step(length_ns: int, columns: int) -> int:
    """The distance of ticks: 1, 2 or 5 times a power of ten.

    >>> tick_step(345_000_000, 60), tick_step(100, 60)
    (100000000, 20)
    """
    least = max(1, length_ns * _LEAST_CELLS // max(1, columns))
    power = int(10 ** (len(str(least)) - 1))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def base_of(start_ns: int, length_ns: int) -> int:
    """What the labels of ticks count from: a round moment before all of them, so that they stay short; 0 if near.

    >>> base_of(1_234_567_890, 28_000), base_of(20_000_000, 345_000_000)
    (1234500000, 0)
    """
    unit = int(10 ** len(str(max(1, length_ns - 1))))
    return start_ns // unit * unit


def moment(ns: int) -> str:
    """A moment in seconds, with all its digits.

    >>> moment(1_234_500_000), moment(-20_000_000), moment(2_000_000_000)
    ('1.2345 s', '-0.02 s', '2 s')
    """
    sign, size = "-" if ns < 0 else "", abs(ns)
    return f"{sign}{size // NS_PER_S}.{size % NS_PER_S:09d}".rstrip("0").rstrip(".") + " s"


def ruler_line(
    window: ShownTime, origin_ns: int, left: int, columns: int, look: Look, marked: Mapping[int, tuple[str, str]]
) -> Strip:
    """Ticks with their times since `origin_ns`, right of `left` cells; `marked` puts characters over cells."""
    start = window.start_ns - origin_ns
    step, base = tick_step(window.length_ns, columns), base_of(start, window.length_ns)
    cells = [" "] * columns
    first = -(-start // step) * step
    for t_ns in range(first, start + window.length_ns, step):
        at = window.column_of(origin_ns + t_ns, columns)
        text = spelled(f"{look.glyphs.edge}{_label(t_ns - base, step, is_from_base=base != 0)}", look)
        if at + width_of(text) <= columns:
            cells[at : at + len(text)] = text
    head = pad(f"{moment(base)} +" if base else "time", left - 1, look, right=bool(base)) + " "
    parts = [(head, "header" if base else "dim")]
    for i, cell in enumerate(cells):
        text, role = marked.get(i, (cell, "header"))
        if parts[-1][1] == role and len(parts) > 1:
            parts[-1] = parts[-1][0] + text, role
        else:
            parts.append((text, role))
    return line(parts, left + columns, look)


def _label(ns: int, step: int, *, is_from_base: bool) -> str:
    scale, unit = next((scale, unit) for scale, unit in _UNITS if step >= scale)
    return f"{'+' if is_from_base else ''}{ns // scale:,} {unit}" if ns else f"{'+' if is_from_base else ''}0"
