"""Lanes: several series over one time axis, with marks below."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from llmtop.analysis.pages.lanes import HOLD, lanes_at
from llmtop.analysis.series.grid import usual_distance
from llmtop.model import NS_PER_S, Unknown
from llmtop.tui.render.axis import Axis, axis_line, with_cursor
from llmtop.tui.render.lines import Part, line, pad, spark
from llmtop.units import quantity, two_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.analysis.views import Lane, Lanes
    from llmtop.tui.render.look import Look

MOST_ROWS = 4
"""A lane gets no higher than this beside other panes."""
_TITLE = 13
_VALUE = 11
_SCALE = 8
_ROOM_FOR_SCALE = 60
"""On a narrower screen the graph needs the cells."""
_NEAR = 2.0
"""A limit is on the scale up to so many times the largest value: further away nothing of the values would show."""
_ROLES = ("memory", "compute", "series2", "series1", "series3", "series5", "series6")


def lanes_axis(view: Lanes, width: int) -> Axis:
    """Where time stands in a drawing of this width."""
    left = _left(width)
    return Axis.over(view.start_ns, view.end_ns, left, max(1, width - left))


def _left(width: int) -> int:
    return _TITLE + _VALUE + 1 + (_SCALE if width >= _ROOM_FOR_SCALE else 0)


def draw_lanes(
    view: Lanes,
    width: int,
    height: int,
    look: Look,
    *,
    cursor_ns: int | None = None,
    newest_ns: int = 0,
    most_rows: int = MOST_ROWS,
    first: str = "",
) -> list[Strip]:
    """Each lane with its title, a value and the top of its scale at the left; the axis with its marks is the last line.

    The value is the newest, or the one at the cursor. `first` is the title of the lane that stays before all others
    where there is no room for all, and stands out: the one that the finding below rests on.
    """
    room = max(1, height - 1)
    groups = _reasons(view.lanes)
    lanes = _most_telling([lane for lane in view.lanes if lane.why_not is None], max(1, room - len(groups)), first)
    rows = min(most_rows, max(1, room - len(groups)) // len(lanes)) if lanes else 1
    axis = lanes_axis(view, width)
    read = {} if cursor_ns is None else _read(view, cursor_ns)
    strips: list[Strip] = []
    for lane in lanes:
        role = _ROLES[view.lanes.index(lane) % len(_ROLES)]  # a lane keeps its colour when others are left out
        newest = lane.samples[-1][1] if lane.samples else None
        value: Part = (
            _value(read.get(lane.title, newest), lane.unit, look),
            "value" if cursor_ns is None else "selected",
        )
        drawn = _lane(lane, value, role, axis, rows, width, look, is_first=lane.title == first)
        strips += [with_cursor(strip, axis, cursor_ns, look) for strip in drawn]
    strips = strips[:room]
    dashes = _dashes(view, lanes, cursor_ns)
    reasons = [*groups.items(), *dashes.items()]
    strips += [_reason(why, titles, width, look) for why, titles in reasons][: room - len(strips)]
    if height > 1:
        strips.append(axis_line(axis, view.marks, width, look, cursor_ns=cursor_ns, newest_ns=newest_ns))
    return strips[:height]


def _most_telling(lanes: Sequence[Lane], room: int, first: str) -> Sequence[Lane]:
    """With little room, lanes of the GPU, the server and the engine in turn, in the order they had."""
    if len(lanes) <= room:
        return lanes
    kept = sorted(lanes, key=lambda lane: (lane.title != first, lane.rank))
    return [lane for lane in lanes if lane in kept[:room]]


def resample(
    samples: Sequence[tuple[int, float | None]], start_ns: int, end_ns: int, columns: int
) -> list[float | None]:
    """One value for each column of the axis: the largest of its samples, else the last one for as long as it stands.

    None is a gap: before the first sample, where the source had no value, and where samples stayed away.
    """
    step = (end_ns - start_ns) / columns
    hold_ns = max(step, HOLD * (usual_distance(t for t, _ in samples) or NS_PER_S))
    values: list[float | None] = [None] * columns
    taken = [False] * columns
    for t, value in samples:
        column = int((t - start_ns) // step)
        if 0 <= column < columns:
            old = values[column]
            values[column] = value if old is None or (value is not None and value > old) else old
            taken[column] = True
    return _held(samples, values, taken, start_ns, step, hold_ns)


def _held(
    samples: Sequence[tuple[int, float | None]],
    values: list[float | None],
    taken: list[bool],
    start_ns: int,
    step: float,
    hold_ns: float,
) -> list[float | None]:
    """Let each sample stand until the next one."""
    i = -1
    for column, is_taken in enumerate(taken):
        edge = start_ns + (column + 1) * step
        while i + 1 < len(samples) and samples[i + 1][0] < edge:
            i += 1
        if not is_taken and i >= 0 and edge - samples[i][0] <= hold_ns + step:
            values[column] = samples[i][1]
    return values


def _lane(
    lane: Lane, value: Part, role: str, axis: Axis, rows: int, width: int, look: Look, *, is_first: bool
) -> list[Strip]:
    title: Part = (pad(lane.title, _TITLE, look), "title" if is_first else "dim")
    head: Part = (pad(value[0], _VALUE, look, right=True) + " ", value[1])
    values = resample(lane.samples, axis.start_ns, axis.end_ns, axis.columns)
    top = _top(lane, values)
    graph = tall_spark(values, axis.columns, rows, look, lane.low, top)
    room = axis.left - _TITLE - _VALUE - 1
    shown = [one.value for one in lane.limits if one.value <= top]
    scales = _scales(lane, top, shown, rows, look)
    lines = {_row_of(one, lane.low, top, rows) for one in shown if rows > 1}
    mark_from = shown[-1] if shown and rows == 1 else math.inf
    heads: list[list[Part]] = [[title, head]] + [[(" " * (_TITLE + _VALUE + 1), "text")]] * (rows - 1)
    drawn = (_row(text, values, lane, role, look, mark_from, is_line=i in lines) for i, text in enumerate(graph))
    return [
        line([*parts, (pad(scale, room, look), "dim"), *row], width, look)
        for parts, scale, row in zip(heads, scales, drawn, strict=True)
    ]


def _top(lane: Lane, values: Sequence[float | None]) -> float:
    """Of the scale."""
    if lane.high is not None:
        return lane.high
    top = max((one for one in values if one is not None), default=lane.low)
    return max([top, *(one.value for one in lane.limits if one.value <= _NEAR * top)])


def _row_of(value: float, low: float, top: float, rows: int) -> int:
    """In which row a value lies, from the upper one on."""
    return min(rows - 1, int((top - value) / (top - low) * rows)) if top > low else rows - 1


def _scales(lane: Lane, top: float, limits: Sequence[float], rows: int, look: Look) -> list[str]:
    """What stands before each row of a graph: the top of the scale, and limits beside their rows."""
    scales = [f"/{_short(top, lane.unit)}"] + [""] * (rows - 1)
    for limit in limits:
        sign = look.glyphs.up if rows == 1 else look.glyphs.limit
        scales[_row_of(limit, lane.low, top, rows)] = f"{sign}{_short(limit, lane.unit)}"
    return scales


def _row(
    text: str,
    values: Sequence[float | None],
    lane: Lane,
    role: str,
    look: Look,
    mark_from: float,
    *,
    is_line: bool,
) -> list[Part]:
    """A row of a graph: what passes a limit has other colours; a line where one is, or marks without room for it."""
    if not lane.limits:
        return [(text, role)]
    cells: list[Part] = []
    for cell, value in zip(text, values, strict=True):
        if cell == " " or value is None:
            cells.append((look.glyphs.limit if is_line else cell, "dim"))
        else:
            passed = sum(value > one.value for one in lane.limits)
            own = role if not passed else "bad" if passed == len(lane.limits) else "warn"
            cells.append((look.glyphs.up if value > mark_from else cell, own))
    return [("".join(cell for cell, _ in run), own) for own, run in groupby(cells, key=lambda cell: cell[1])]


def _reasons(lanes: Sequence[Lane]) -> dict[Unknown, list[str]]:
    """Why lanes are empty, each reason once with the lanes that it empties."""
    groups: dict[Unknown, list[str]] = {}
    for lane in lanes:
        if lane.why_not is not None:
            groups.setdefault(lane.why_not, []).append(lane.title)
    return groups


def _dashes(view: Lanes, lanes: Sequence[Lane], cursor_ns: int | None) -> dict[Unknown, list[str]]:
    """Why lanes that are drawn have no value now, or at the cursor: told where there is room for it."""
    titles = {lane.title for lane in lanes if cursor_ns is not None or (lane.samples and lane.samples[-1][1] is None)}
    groups: dict[Unknown, list[str]] = {}
    for one in lanes_at(view, view.end_ns if cursor_ns is None else cursor_ns):
        if one.title in titles and isinstance(one.value, Unknown):
            groups.setdefault(one.value, []).append(one.title)
    return groups


def _reason(why: Unknown, titles: Sequence[str], width: int, look: Look) -> Strip:
    names = ", ".join(titles)
    head = pad(names, _TITLE, look) if len(titles) == 1 else f"{names}  "
    return line([(f"{head}{look.glyphs.unknown} {why}", "dim")], width, look)


def _short(top: float, unit: str) -> str:
    """The top of a scale, in the unit that the value beside it has."""
    if unit == "s":
        return two_digits(top, unit).replace(" ", "")
    text = f"{top * 100:.0f}" if unit == "ratio" else f"{top:.0f}" if top < 1000 else quantity(top, "1")
    return text.replace(" ", "")


def _value(value: float | None, unit: str, look: Look) -> str:
    if value is None:
        return look.glyphs.unknown
    return f"{value:.0f}" if unit == "requests" else quantity(value, unit)


def _read(view: Lanes, t_ns: int) -> dict[str, float | None]:
    """What each lane showed at a moment."""
    return {one.title: None if isinstance(one.value, Unknown) else one.value for one in lanes_at(view, t_ns)}


def tall_spark(
    values: Sequence[float | None], width: int, rows: int, look: Look, low: float = 0.0, high: float | None = None
) -> list[str]:
    """`spark` over several rows, upper one first: each row draws its own part of the scale."""
    known = [value for value in values if value is not None]
    top = high if high is not None else max(known, default=low)
    if rows <= 1 or top <= low:
        return [" " * width] * (rows - 1) + [spark(values, width, look, low, high)]
    part = (top - low) / rows
    drawn = []
    for row in range(rows):
        floor = top - part * (row + 1)
        # Above the lowest row nothing is drawn where the value does not reach.
        seen = values if row == rows - 1 else [None if v is None or v <= floor else v for v in values]
        drawn.append(spark(seen, width, look, floor, floor + part))
    return drawn
