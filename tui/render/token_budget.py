"""Where a step's time goes: a bar of its parts beside its floor, a line for each, and what changes would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.pages.token_budget import BudgetPart
from llmtop.tui.render.lines import line, pad, prose, stacked_bar
from llmtop.units import number, percent, quantity

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.pages.token_budget import BudgetTerm, TokenBudget
    from llmtop.model import Unknown
    from llmtop.tui.render.look import Look

_ROLES = {
    BudgetPart.WEIGHTS: "memory",
    BudgetPart.KV_CACHE: "series3",
    BudgetPart.COMPUTE: "compute",
    BudgetPart.PROMPTS: "series2",
    BudgetPart.LATE_CPU: "warn",
    BudgetPart.REST: "dim",
}
_NAME, _TIME, _SHARE, _SURE = 9, 9, 7, 10
_MOST_GAINS = 3


def draw_token_budget(view: TokenBudget, width: int, height: int, look: Look) -> list[Strip]:
    """At most `height` lines: the bar first, then its parts, gains and notes as far as there is room."""
    head = f"step {quantity(view.step_s, 's')}  batch {number(view.batch)}  mean of {view.window_s:.0f} s"
    floor = f"  floor {quantity(view.floor_s, 's')}"
    shares = [(max(0.0, term.seconds) / _whole(view), _ROLES[term.part]) for term in view.terms]
    strips = [
        line([(head, "title"), (floor, "accent")], width, look),
        line(stacked_bar(shares, width, look), width, look),
        *(_term(term, view, width, look) for term in view.terms),
    ]
    for gain in view.gains[:_MOST_GAINS]:
        share = percent(gain.seconds / view.step_s * 100)
        saved = f"{look.glyphs.arrow} at most {quantity(gain.seconds, 's')} ({share}) less"
        parts = [(saved, "accent"), (f" with {gain.change}", "text"), (f": {gain.how}", "dim")]
        strips.append(line(parts, width, look))
    for note in view.notes:
        strips += prose(note, width, look, "dim")
    return strips[:height]


def why_no_token_budget(why: Unknown, width: int, look: Look) -> list[Strip]:
    """One or two lines for a step of which nothing can be said."""
    return prose(f"where a step's time goes is not known: {why}", width, look, "dim")


def _whole(view: TokenBudget) -> float:
    """The length of the bar: longer than the step where parts overlap."""
    return max(view.step_s, sum(max(0.0, term.seconds) for term in view.terms))


def _term(term: BudgetTerm, view: TokenBudget, width: int, look: Look) -> Strip:
    doing = ", ".join(f"{words} {quantity(seconds, 's')}" for words, seconds in term.details[:2])
    return line(
        [
            (pad(term.part, _NAME, look), _ROLES[term.part]),
            (pad(quantity(term.seconds, "s"), _TIME, look, right=True), "text"),
            (pad(percent(term.seconds / view.step_s * 100), _SHARE, look, right=True), "text"),
            (f"  {pad(term.quality, _SURE, look)}", "dim"),
            (doing or term.source, "dim"),
        ],
        width,
        look,
    )
