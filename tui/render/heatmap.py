"""A latency over time as a heatmap: time to the right, duration upwards, the denser the more often."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from llmtop.tui.render.axis import Axis, axis_line, with_cursor
from llmtop.tui.render.lines import Part, blank, line, pad
from llmtop.units import duration, si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.analysis.views import HeatColumn, Heatmap
    from llmtop.tui.render.look import Look

LEFT = 10
"""Cells of the durations at the left."""
_RAMPS = ("·░▒▓█", ".:+%#")
"""In Unicode and in ASCII; the density tells what the colour does."""
_ROLES = ("dim", "accent", "series5", "series2", "series3")
_NOT_LOOKED = "╱/"
_MOST_LINES_EACH = 2


def heatmap_axis(view: Heatmap) -> Axis:
    """Where time stands."""
    return Axis(LEFT, len(view.columns), view.start_ns, view.step_ns)


def draw_heatmap(
    view: Heatmap, width: int, height: int, look: Look, *, cursor_ns: int | None = None, newest_ns: int = 0
) -> list[Strip]:
    """The cells with what was at the cursor above them (or else newest), the axis and what the cells mean below."""
    axis = heatmap_axis(view)
    extra = height >= 6
    room = max(1, height - (3 if extra else 1))
    rows = _rows(view, room)
    scale = _Scale([rate for row in rows for rate in row[1] if rate])
    strips = [_said(view, axis, cursor_ns, width, look)] if extra else []
    each = max(1, min(_MOST_LINES_EACH, room // len(rows))) if rows else 1
    for label, rates in rows:
        drawn = (_row(label if i == 0 else "", rates, view, scale, width, look) for i in range(each))
        strips += [with_cursor(strip, axis, cursor_ns, look) for strip in drawn]
    if not rows:
        strips += _nothing(view, width, room, look)
    strips.append(axis_line(axis, (), width, look, cursor_ns=cursor_ns, newest_ns=newest_ns))
    if extra:
        strips.append(_legend(scale, width, look))
    return strips[:height]


class _Scale:
    """Rates by level, in equal steps of their logarithm: a rare slow call must show beside a million fast ones."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.levels = len(_ROLES)
        self.low, high = min(rates, default=1.0), max(rates, default=1.0)
        self._step = math.log(high / self.low) / self.levels or 1.0

    def level(self, rate: float) -> int:
        """0 for the lowest."""
        return min(self.levels - 1, int(math.log(rate / self.low) / self._step + 1e-9)) if rate > self.low else 0

    def least(self, level: int) -> float:
        """The rate from which a level is drawn."""
        return self.low * math.exp(self._step * level)

    @property
    def is_flat(self) -> bool:
        """Whether all rates are the same."""
        return self._step == 1.0 and self.level(self.low * 1.01) == 0


_Row = tuple[str, list[float | None]]
"""A label and a rate for each column; None where nobody looked."""


def _rows(view: Heatmap, most: int) -> list[_Row]:
    """The rows in which something was seen, longest durations first; neighbours together where there is little room."""
    seen = [i for i in range(len(view.uppers)) if any(one is not None and one.rates[i] for one in view.columns)]
    if not seen:
        return []
    first, last = seen[0], seen[-1] + 1
    group = -(-(last - first) // most)
    starts = range(first, last, group)
    return [
        (_label(view.uppers, min(start + group, last) - 1), _merged(view.columns, start, min(start + group, last)))
        for start in reversed(starts)
    ]


def _merged(columns: Sequence[HeatColumn | None], start: int, stop: int) -> list[float | None]:
    return [None if one is None else sum(one.rates[start:stop]) for one in columns]


def _label(uppers: Sequence[float], i: int) -> str:
    if math.isinf(uppers[i]):
        return f"> {duration(uppers[i - 1])}" if i else "any"
    return duration(uppers[i])


def _row(label: str, rates: Sequence[float | None], view: Heatmap, scale: _Scale, width: int, look: Look) -> Strip:
    ramp = _RAMPS[look.glyphs.ascii]
    not_looked = _NOT_LOOKED[look.glyphs.ascii]
    cells: list[Part] = []
    for i, rate in enumerate(rates):
        if rate is None:
            is_coming = view.start_ns + (i + 1) * view.step_ns > view.seen_ns > view.start_ns + i * view.step_ns
            is_later = view.start_ns + i * view.step_ns >= view.seen_ns
            cells.append((" " if is_coming or is_later else not_looked, "dim"))
        elif rate:
            level = scale.level(rate)
            cells.append((ramp[level], _ROLES[level]))
        else:
            cells.append((" ", "text"))
    runs = ((role, "".join(text for text, _ in run)) for role, run in groupby(cells, key=lambda cell: cell[1]))
    head: Part = (pad(label, LEFT - 1, look, right=True) + " ", "dim")
    return line([head, *((text, role) for role, text in runs)], width, look)


def _said(view: Heatmap, axis: Axis, cursor_ns: int | None, width: int, look: Look) -> Strip:
    """The column at the cursor in numbers; without a cursor the newest that was looked at."""
    at = axis.column_of(cursor_ns) if cursor_ns is not None else None
    newest = next((i for i in reversed(range(len(view.columns))) if view.columns[i] is not None), None)
    column = view.columns[at] if at is not None else view.columns[newest] if newest is not None else None
    when = "at the cursor" if at is not None else "newest"
    head: Part = (f"{view.title}  ", "title")
    if column is None:
        return line([head, (f"{when}: not looked at then", "dim")], width, look)
    parts: list[Part] = [head, (f"{when} ", "dim"), (f"{si(sum(column.rates))} /s", "value")]
    for name, value in (("p50", column.p50), ("p99", column.p99)):
        if value is not None:
            parts += [(f"  {name} ", "dim"), (value.text(view.unit), "value")]
    return line(parts, width, look)


def _nothing(view: Heatmap, width: int, room: int, look: Look) -> list[Strip]:
    """No event at all: which columns were looked at still shows."""
    return [_row("none", [None if one is None else 0.0 for one in view.columns], view, _Scale(()), width, look)] + [
        blank(width, look)
    ] * (room - 1)


def _legend(scale: _Scale, width: int, look: Look) -> Strip:
    ramp = _RAMPS[look.glyphs.ascii]
    parts: list[Part] = [("per second: ", "dim")]
    levels = range(1) if scale.is_flat else range(scale.levels)
    for level in levels:
        parts += [(ramp[level], _ROLES[level]), (f" {si(scale.least(level))}  ", "dim")]
    parts += [("blank none  ", "dim"), (f"{_NOT_LOOKED[look.glyphs.ascii]} not looked", "dim")]
    return line(parts, width, look)
