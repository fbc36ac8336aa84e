"""An engine's steps as the server counts them: means by look, how far these lie apart, and what prompts do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.render.lines import line, prose, spark, wrap_parts
from llmtop.units import count, percent, quantity, two_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.strip import Strip

    from llmtop.analysis.server.counted_steps import CountedSteps, LookGroup
    from llmtop.tui.render.look import Look

_TALLEST = 3.0
"""Times the mean step that is as high as the strip."""


def counted_steps_lines(view: CountedSteps, why_not_single: Unknown, width: int, look: Look) -> list[Strip]:
    """All lines; those of why single steps are not known come last."""
    return [
        *_head(view, width, look),
        *_strip(view, width, look),
        *(strip for text in _spread(view) for strip in prose(text, width, look)),
        *(strip for text in _tokens(view) for strip in prose(text, width, look)),
        *(strip for note in view.notes for strip in prose(note, width, look, "dim")),
        *prose(f"what single steps took, and why some are slow, is not known: {why_not_single}", width, look, "warn"),
    ]


def _head(view: CountedSteps, width: int, look: Look) -> list[Strip]:
    told = (f"mean {_ms(view.mean_ns)} a step", f"{two_digits(view.per_s, '/s')}", f"{count(view.steps)} steps")
    parts = [("counted by the server", "title"), *((f"  {one}", "value") for one in told)]
    return [line(row, width, look) for row in wrap_parts(parts, width)]


def _strip(view: CountedSteps, width: int, look: Look) -> list[Strip]:
    looks = view.looks[-width:]
    heights = spark([one.mean_ns for one in looks], width, look, high=_TALLEST * view.mean_ns)
    over = quantity((looks[-1].end_ns - looks[0].start_ns) / 1e9, "s")
    tallest = _ms(_TALLEST * view.mean_ns)
    scale = f"a cell a look, the newest {len(looks)}, {over}; as high as the strip: {tallest} or more"
    return [line([(heights, "series1")], width, look), *prose(scale, width, look, "dim")]


def _spread(view: CountedSteps) -> Iterator[str]:
    said = f"means of {len(view.looks)} looks: {_ms(view.fastest_ns)} to {_ms(view.slowest_ns)}"
    low, high = view.middle or (0.0, 0.0)
    yield f"{said}, half of them {_ms(low)} to {_ms(high)}" if view.middle else said


def _tokens(view: CountedSteps) -> Iterator[str]:
    """What steps compute, and what those take in which prompts were computed."""
    told = ((view.prompt_tokens, "prompt tokens"), (view.output_tokens, "output tokens"))
    known = [f"{count(one)} {words}" for one, words in told if not isinstance(one, Unknown)]
    share = "" if view.prompt_share is None else f", {percent(100 * view.prompt_share)} of them of prompts"
    if known:
        yield f"{' and '.join(known)} a step{share}"
    yield from (f"{words} a step are not known: {one}" for one, words in told if isinstance(one, Unknown))
    groups = ((view.without_prompts, "without"), (view.with_prompts, "with"))
    if all(group for group, _ in groups):
        yield "; ".join(f"looks {words} prompts: {_group(group)}" for group, words in groups if group)


def _group(group: LookGroup) -> str:
    return f"{_ms(group.mean_ns)} a step, of {group.looks}"


def _ms(ns: float) -> str:
    return two_digits(ns / 1e9, "s")
