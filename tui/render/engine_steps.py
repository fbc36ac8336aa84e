"""An engine's steps: what they take, a strip of the newest, what the tail is made of, and the slow ones with causes."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from llmtop.tui.render.lines import blank, line, pad, prose, spark, width_of, without_asides
from llmtop.units import duration, number, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.strip import Strip

    from llmtop.analysis.server.step_causes import SlowStep
    from llmtop.analysis.server.steps_view import StepsView
    from llmtop.tui.render.look import Look

_TALLEST = 3.0
"""Times the median step that is as high as the strip: longer ones are no higher."""
_AGO, _TIME, _TIMES = 8, 9, 7


def draw_engine_steps(view: StepsView, width: int, height: int, look: Look) -> list[Strip]:
    """At most `height` lines; the notes and the newest slow steps share what the first lines leave."""
    head = [_head(view, width, look), _strip(view, width, look), _scale(view, width, look)]
    tail = prose(view.tail.sentence, width, look) if view.tail is not None else []
    notes = [strip for note in view.notes for strip in prose(note, width, look, "dim")]
    room = height - len(head) - len(tail) - len(notes) - 2
    if not view.slow:
        slow = [line([("no step stands out", "dim")], width, look)]
    else:
        shown = [(one, ", ".join(_causes(one))) for one in view.slow[::-1][: max(1, room)]]
        widest = max(len(causes) for _, causes in shown)
        slow = [_row(view, one, pad(causes, widest, look), width, look) for one, causes in shown]
    count = f"slow steps, {len(view.slow)} of {len(view.newest)}, the newest first"
    title = line([(count, "title"), ("; x: times the median" if view.slow else "", "dim")], width, look)
    gap = [blank(width, look)] if notes else []
    return [*head, *tail, title, *slow, *gap, *notes][:height]


def _head(view: StepsView, width: int, look: Look) -> Strip:
    shares = f"GPU {percent(100 * view.gpu_share)}  CPU {percent(100 * (1 - view.gpu_share))}"
    told = f"p50 {duration(view.p50_ns)}  p99 {duration(view.p99_ns)}  {number(view.per_s)} /s  {shares}"
    more = f"  and {view.others} more threads that make steps" if view.others else ""
    return line([(f"{view.loop.name}  ", "title"), (told, "value"), (more, "dim")], width, look)


def _strip(view: StepsView, width: int, look: Look) -> Strip:
    """A cell for each of the newest steps, the newest at the right; those that stand out in another colour."""
    steps = view.newest[-width:]
    heights = spark([one.time_ns for one in steps], len(steps), look, high=_TALLEST * view.p50_ns)
    slow = {one.step.end_ns for one in view.slow}
    cells = zip(heights, ("bad" if one.end_ns in slow else "series1" for one in steps), strict=True)
    runs = ((role, "".join(text for text, _ in run)) for role, run in groupby(cells, key=lambda cell: cell[1]))
    return line([(" " * (width - len(steps)), "text"), *((text, role) for role, text in runs)], width, look)


def _scale(view: StepsView, width: int, look: Look) -> Strip:
    steps = view.newest[-width:]
    over = quantity((steps[-1].end_ns - steps[0].start_ns) / 1e9, "s")
    text = f"the newest {len(steps)} steps, {over}; as high as the strip: {duration(_TALLEST * view.p50_ns)} or more"
    return line([(text, "dim")], width, look)


def _row(view: StepsView, one: SlowStep, causes: str, width: int, look: Look) -> Strip:
    ago = quantity(max(0, view.end_ns - one.step.end_ns) / 1e9, "s")
    room = width - _AGO - _TIME - _TIMES - width_of(causes) - 4
    evidence = one.evidence if width_of(one.evidence) <= room else without_asides(one.evidence)
    return line(
        [
            (pad(f"-{ago}", _AGO, look, right=True), "dim"),
            (pad(duration(one.step.time_ns), _TIME, look, right=True), "value"),
            (pad(f"x{one.step.time_ns / max(1.0, view.p50_ns):.1f}", _TIMES, look, right=True), "text"),
            (f"  {causes}  ", "warn"),
            (evidence, "dim"),
        ],
        width,
        look,
    )


def _causes(one: SlowStep) -> Iterator[str]:
    """The largest of its causes with its share of the excess, and a second one that is worth naming."""
    for cause, ns in list(one.blame.items())[:2]:
        share = ns / one.excess_ns
        if cause is one.cause or share >= 0.2:
            yield f"{cause} {percent(100 * share)}"
