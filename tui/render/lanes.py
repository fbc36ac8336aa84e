"""Lanes: several series over one time axis, with marks below."""

from __future__ import annotations

import statistics
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from llmtop.model import NS_PER_S, Unknown
from llmtop.tui.render.lines import Part, line, pad, spark
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from textual.strip import Strip

    from llmtop.analysis.views import Lane, LaneMark, Lanes
    from llmtop.tui.render.look import Look

_TITLE = 13
_VALUE = 11
_HOLD = 2.5
"""A sample stands for this many of the usual distances between samples; after that there is a gap."""
_ROLES = ("memory", "compute", "series2", "series1", "series3", "series5", "series6")
_FIRST = ("DRAM", "tokens", "engine CPU", "tensor", "waiting", "engine run-q", "SM")
"""What stays when there is no room for all."""
_SEVERITY_ROLES = {"error": "bad", "warning": "warn"}


def draw_lanes(view: Lanes, width: int, height: int, look: Look) -> list[Strip]:
    """Each lane with its title and newest value at the left; the axis with its marks is the last line."""
    room = max(1, height - 1)
    groups = _reasons(view.lanes)
    lanes = _most_telling([lane for lane in view.lanes if lane.why_not is None], max(1, room - len(groups)))
    rows = min(4, max(1, room - len(groups)) // len(lanes)) if lanes else 1
    plot = max(1, width - _TITLE - _VALUE - 1)
    start_ns, end_ns = aligned(view.start_ns, view.end_ns, plot)
    strips: list[Strip] = []
    for lane in lanes:
        role = _ROLES[view.lanes.index(lane) % len(_ROLES)]  # a lane keeps its colour when others are left out
        strips += _lane(lane, role, start_ns, end_ns, plot, rows, width, look)
    strips = strips[:room]
    strips += [_reason(why, titles, width, look) for why, titles in groups.items()][: room - len(strips)]
    if height > 1:
        strips.append(_axis(view.marks, start_ns, end_ns, plot, width, look))
    return strips[:height]


def _most_telling(lanes: Sequence[Lane], room: int) -> Sequence[Lane]:
    """With little room, lanes of the GPU, the server and the engine in turn, in the order they had."""
    if len(lanes) <= room:
        return lanes
    kept = sorted(lanes, key=lambda lane: next((i for i, name in enumerate(_FIRST) if lane.title.startswith(name)), 99))
    return [lane for lane in lanes if lane in kept[:room]]


def aligned(start_ns: int, end_ns: int, columns: int) -> tuple[int, int]:
    """The window moved to whole columns, so that a frame differs from the last one by whole cells or not at all."""
    step = max(1, (end_ns - start_ns) // columns)
    end = -(-end_ns // step) * step
    return end - step * columns, end


def resample(
    samples: Sequence[tuple[int, float | None]], start_ns: int, end_ns: int, columns: int
) -> list[float | None]:
    """One value for each column of the axis: the largest of its samples, else the last one for as long as it stands.

    None is a gap: before the first sample, where the source had no value, and where samples stayed away.
    """
    step = (end_ns - start_ns) / columns
    hold_ns = max(step, _HOLD * _usual_distance(samples))
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


def _usual_distance(samples: Sequence[tuple[int, float | None]]) -> float:
    if len(samples) < 2:
        return float(NS_PER_S)
    times = [t for t, _ in samples]
    return statistics.median(b - a for a, b in pairwise(times))


def _lane(
    lane: Lane, role: str, start_ns: int, end_ns: int, plot: int, rows: int, width: int, look: Look
) -> list[Strip]:
    title: Part = (pad(lane.title, _TITLE, look), "dim")
    values = resample(lane.samples, start_ns, end_ns, plot)
    newest = lane.samples[-1][1] if lane.samples else None
    value: Part = (pad(_newest(newest, lane.unit, look), _VALUE, look, right=True) + " ", "value")
    graph = tall_spark(values, plot, rows, look, lane.low, lane.high)
    below: Part = (" " * (_TITLE + _VALUE + 1), "text")
    heads = [[title, value]] + [[below]] * (rows - 1)
    return [line([*head, (row, role)], width, look) for head, row in zip(heads, graph, strict=True)]


def _reasons(lanes: Sequence[Lane]) -> dict[Unknown, list[str]]:
    """Why lanes are empty, each reason once with the lanes that it empties."""
    groups: dict[Unknown, list[str]] = {}
    for lane in lanes:
        if lane.why_not is not None:
            groups.setdefault(lane.why_not, []).append(lane.title)
    return groups


def _reason(why: Unknown, titles: Sequence[str], width: int, look: Look) -> Strip:
    names = ", ".join(titles)
    head = pad(names, _TITLE, look) if len(titles) == 1 else f"{names}  "
    return line([(f"{head}{look.glyphs.unknown} {why}", "dim")], width, look)


def _newest(value: float | None, unit: str, look: Look) -> str:
    if value is None:
        return look.glyphs.unknown
    return f"{value:.0f}" if unit == "requests" else quantity(value, unit)


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


def _axis(marks: Sequence[LaneMark], start_ns: int, end_ns: int, plot: int, width: int, look: Look) -> Strip:
    """The ends of the time axis, a mark where something happened, and the newest mark in words at the left."""
    inside = [mark for mark in marks if start_ns <= mark.t_ns <= end_ns]
    roles = {_column(mark, start_ns, end_ns, plot): _mark_role(mark) for mark in inside}
    cells = list(_axis_labels((end_ns - start_ns) / NS_PER_S, plot, roles))
    for column in roles:
        cells[column] = look.glyphs.up
    newest: Part = (inside[-1].text, _mark_role(inside[-1])) if inside else ("", "dim")
    head: Part = (pad(newest[0], _TITLE + _VALUE, look) + " ", newest[1])
    runs = groupby(range(plot), key=lambda i: roles.get(i, "dim"))
    return line([head, *(("".join(cells[i] for i in run), role) for role, run in runs)], width, look)


def _axis_labels(span_s: float, plot: int, taken: Container[int]) -> str:
    """Where the axis starts and ends; a label that a mark would cut is left out."""
    left, right = f"-{span_s:.0f} s", "now"
    if any(i in taken for i in range(len(left))):
        left = ""
    if any(plot - 1 - i in taken for i in range(len(right))):
        right = ""
    return (left + " " * max(0, plot - len(left) - len(right)) + right)[:plot]


def _column(mark: LaneMark, start_ns: int, end_ns: int, plot: int) -> int:
    return min(plot - 1, (mark.t_ns - start_ns) * plot // (end_ns - start_ns))


def _mark_role(mark: LaneMark) -> str:
    return _SEVERITY_ROLES.get(mark.severity, "accent")
