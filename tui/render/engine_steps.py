"""An engine's steps: what they take, a strip of the newest, what the tail is made of, and the slow ones with causes."""

from __future__ import annotations

from itertools import groupby
from statistics import median_high
from typing import TYPE_CHECKING

from llmtop.tui.render.lines import line, pad, prose, spark, width_of, without_asides, wrap, wrap_parts
from llmtop.units import duration, number, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.strip import Strip

    from llmtop.analysis.server.step_causes import SlowStep
    from llmtop.analysis.server.steps_view import StepsView
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look

_TALLEST = 3.0
"""Times the median step that is as high as the strip: longer ones are no higher."""
_AGO, _TIME, _TIMES = 8, 9, 7
_GAP = 2
_BEFORE = _AGO + _TIME + _TIMES + _GAP
"""Cells before the causes of a slow step."""


def engine_steps_lines(view: StepsView, width: int, look: Look) -> list[Strip]:
    """All lines: what to know of the numbers stands before the slow steps, of which there may be hundreds."""
    head = [*_head(view, width, look), _strip(view, width, look), *_scale(view, width, look)]
    tail = prose(view.tail.sentence, width, look) if view.tail is not None else []
    notes = [strip for note in view.notes for strip in prose(note, width, look, "dim")]
    count = f"slow steps, {len(view.slow)} of {len(view.newest)}, the newest first"
    title = [(count, "title"), ("; x: times the median" if view.slow else "", "dim")]
    return [*head, *tail, *notes, *_wrapped(title, width, look), *_slow(view, width, look)]


def _slow(view: StepsView, width: int, look: Look) -> list[Strip]:
    if not view.slow:
        return [line([("no step stands out", "dim")], width, look)]
    told = [(one, ", ".join(_causes(one))) for one in reversed(view.slow)]
    measured = median_high(width_of(without_asides(one.evidence)) for one, _ in told)
    column = min(max(width_of(causes) for _, causes in told), width - _BEFORE - _GAP - measured)
    return [strip for one, causes in told for strip in _rows(view, one, causes, column, width, look)]


def _head(view: StepsView, width: int, look: Look) -> list[Strip]:
    told = (
        *(f"p50 {duration(view.p50_ns)}", f"p99 {duration(view.p99_ns)}", f"{number(view.per_s)} /s"),
        *(f"waits for the GPU {percent(100 * view.gpu_share)}", f"CPU {percent(100 * (1 - view.gpu_share))}"),
    )
    more = [(f"  and {view.others} more threads that make steps", "dim")] if view.others else []
    parts = [(view.loop.name, "title"), *((f"  {one}", "value") for one in told), *more]
    return _wrapped(parts, width, look)


def _wrapped(parts: Sequence[Part], width: int, look: Look) -> list[Strip]:
    return [line(row, width, look) for row in wrap_parts(parts, width)]


def _strip(view: StepsView, width: int, look: Look) -> Strip:
    """A cell for each of the newest steps, the newest at the right; those that stand out in another colour."""
    steps = view.newest[-width:]
    heights = spark([one.time_ns for one in steps], len(steps), look, high=_TALLEST * view.p50_ns)
    slow = {one.step.end_ns for one in view.slow}
    cells = zip(heights, ("bad" if one.end_ns in slow else "series1" for one in steps), strict=True)
    runs = ((role, "".join(text for text, _ in run)) for role, run in groupby(cells, key=lambda cell: cell[1]))
    return line([(" " * (width - len(steps)), "text"), *((text, role) for role, text in runs)], width, look)


def _scale(view: StepsView, width: int, look: Look) -> list[Strip]:
    steps = view.newest[-width:]
    over = quantity((steps[-1].end_ns - steps[0].start_ns) / 1e9, "s")
    text = f"the newest {len(steps)} steps, {over}; as high as the strip: {duration(_TALLEST * view.p50_ns)} or more"
    return prose(text, width, look, "dim")


def _rows(view: StepsView, one: SlowStep, causes: str, column: int, width: int, look: Look) -> Iterator[Strip]:
    """A step, and what was measured in it: beside its causes, where both fit into their columns, or else below them."""
    ago, room = quantity(max(0, view.end_ns - one.step.end_ns) / 1e9, "s"), width - _BEFORE
    head = [
        (pad(f"-{ago}", _AGO, look, right=True), "dim"),
        (pad(duration(one.step.time_ns), _TIME, look, right=True), "value"),
        (pad(f"x{one.step.time_ns / max(1.0, view.p50_ns):.1f}", _TIMES, look, right=True) + " " * _GAP, "text"),
    ]
    measured = _shortened(one.evidence, room - column - _GAP)
    if width_of(causes) <= column and width_of(measured) <= room - column - _GAP:
        yield line([*head, (pad(causes, column + _GAP, look), "warn"), (measured, "dim")], width, look)
        return
    below = [(text, "dim") for text in wrap(_shortened(one.evidence, room), room, look)]
    for i, part in enumerate([*((text, "warn") for text in wrap(causes, room, look)), *below]):
        yield line([*(head if i == 0 else [(" " * _BEFORE, "text")]), part], width, look)


def _shortened(evidence: str, room: int) -> str:
    return evidence if width_of(evidence) <= room else without_asides(evidence)


def _causes(one: SlowStep) -> Iterator[str]:
    """The largest of its causes with its share of the excess, and a second one that is worth naming."""
    for cause, ns in list(one.blame.items())[:2]:
        share = ns / one.excess_ns
        if cause is one.cause or share >= 0.2:
            yield f"{cause} {percent(100 * share)}"
