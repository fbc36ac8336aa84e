"""What requests get, and how far a larger batch goes: a line for each, with what is not known and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, blank, fact_lines, line, pad
from llmtop.units import two_digits

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.pages.batch_advice import BatchAdvice
    from llmtop.analysis.server.requests import RequestsView
    from llmtop.tui.render.look import Look

_NAME = 12
_MOST_RANGES = 6


def draw_requests(view: RequestsView, advice: BatchAdvice | Unknown, width: int, look: Look) -> list[Strip]:
    """The most important ones first."""
    strips = [blank(width, look)]
    for name, said in (
        ("first token", view.first_token),
        ("goodput", view.goodput),
        ("KV cache", view.runway),
        ("preemption", view.preemption),
    ):
        strips += fact_lines(name, said if isinstance(said, Unknown) else said.text, _NAME, width, look)
    return [*strips, *_batches(advice, width, look)]


def _batches(advice: BatchAdvice | Unknown, width: int, look: Look) -> list[Strip]:
    if isinstance(advice, Unknown):
        return fact_lines("batch", advice, _NAME, width, look)
    parts: list[Part] = [(pad("ITL at batch", _NAME + 2, look), "dim")]
    for i, seen in enumerate(advice.ranges[-_MOST_RANGES:]):
        parts += [(f"{', ' if i else ''}{seen.text}: ", "dim"), (two_digits(seen.itl_s, "s"), "value")]
    strips = [line(parts, width, look)]
    if not isinstance(advice.line, Unknown):
        strips += fact_lines("", advice.line.text, _NAME, width, look)
    knee = advice.knee if isinstance(advice.knee, Unknown) else advice.text
    return [*strips, *fact_lines("batch", knee, _NAME, width, look)]
