"""Where a step's time goes: a bar of its parts beside its floor, a line for each, and what changes would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.pages.budget_terms import BudgetPart
from llmtop.tui.render.lines import line, pad, prose, stacked_bar, width_of
from llmtop.units import number, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.strip import Strip

    from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetTerm
    from llmtop.analysis.pages.token_budget import TokenBudget
    from llmtop.model import Unknown
    from llmtop.tui.render.look import Look

_ROLES = {
    BudgetPart.WEIGHTS: "memory",
    BudgetPart.KV_CACHE: "series3",
    BudgetPart.COMPUTE: "compute",
    BudgetPart.PROMPTS: "series2",
    BudgetPart.COMMUNICATION: "series4",
    BudgetPart.LATE_CPU: "warn",
    BudgetPart.REST: "dim",
}
_NAME, _TIME, _SHARE, _SURE = 13, 9, 7, 12
_INDENT = 2


def draw_token_budget(view: TokenBudget, width: int, height: int, look: Look) -> list[Strip]:
    """At most `height` lines: the bar, its parts, each with what would help, and notes.

    Without room for all arithmetic each change has one line, and those that save least are left out.
    """
    head = f"step {quantity(view.step_s, 's')}  batch {number(view.batch)}  mean of {view.window_s:.0f} s"
    floor = f"  floor {quantity(view.floor_s, 's')}"
    shares = [(max(0.0, term.seconds) / _whole(view), _ROLES[term.part]) for term in view.terms]
    bar = [
        line([(head, "title"), (floor, "accent")], width, look),
        line(stacked_bar(shares, width, look), width, look),
    ]
    notes = [strip for note in view.notes for strip in prose(note, width, look, "dim")]
    full = [*bar, *_terms(view, view.gains, width, look, is_full=True), *notes]
    if len(full) <= height:
        return full
    gains = view.gains[: max(0, height - len(bar) - len(view.terms))]
    return [*bar, *_terms(view, gains, width, look, is_full=False), *notes][:height]


def _terms(view: TokenBudget, gains: Sequence[BudgetGain], width: int, look: Look, *, is_full: bool) -> Iterator[Strip]:
    for term in view.terms:
        yield _term(term, view, width, look)
        for gain in gains:
            if gain.part is term.part:
                yield from _gain(gain, view.step_s, width, look, is_full=is_full)


def _gain(gain: BudgetGain, step_s: float, width: int, look: Look, *, is_full: bool) -> list[Strip]:
    """One line, or as many as the arithmetic takes."""
    share = percent(gain.high / step_s * 100)
    saved = f"{' ' * _INDENT}{look.glyphs.arrow} {gain.text} ({share}) less"
    changed = f" with {gain.change}"
    source = f" ({gain.source})" if gain.source else ""
    if not is_full or width_of(saved + changed + gain.how + source) + _INDENT <= width:
        return [line([(saved, "accent"), (changed, "text"), (f": {gain.how}{source}", "dim")], width, look)]
    how = [strip.text.rstrip() for strip in prose(gain.how + source, width - 2 * _INDENT, look)]
    first = line([(saved, "accent"), (changed, "text")], width, look)
    return [first, *(line([(" " * 2 * _INDENT + row, "dim")], width, look) for row in how)]


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
