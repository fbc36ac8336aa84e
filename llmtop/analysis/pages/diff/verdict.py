"""The comparison in sentences: whether it can be made, what became better or worse, and what that is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.beside import function_changes
from llmtop.analysis.pages.diff.comparable import Caveat, caveats
from llmtop.analysis.pages.diff.headline import ChangePart, Headline, Unit, headline
from llmtop.analysis.pages.diff.kernels import kernel_changes, noise_of_calls
from llmtop.analysis.pages.diff.noise import ERRORS, FEWEST, ONE_CALL, ONE_CALL_NS, RUNS
from llmtop.frozen import frozen
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.side import Side

_NO_TIMES = "not comparable in time"
_NAMED = 3
"""Parts of the change that the verdict names."""
_NOTABLE = 0.1
"""Of what changed: the share from which on a part is named in the verdict."""
_TIMES = 2.0
"""From here on "2.3 times" says more than per cent."""


class Outcome(StrEnum):
    """What became of the second report, of what is compared."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    NOISE = "within the noise"
    UNKNOWN = "unknown"


@frozen
class DiffVerdict:
    """What stands above all else.

    Attributes:
        said: One sentence.
        cannot: Why times mean nothing beside each other, and what is compared all the same; empty where they do.
        cautions: What else they do not have in common.
    """

    outcome: Outcome
    said: str
    cannot: str
    cautions: tuple[Caveat, ...]


def diff_verdict(before: Side, after: Side, names: tuple[str, str] = ("A", "B")) -> DiffVerdict:
    """What to say of the second report beside the first."""
    found = headline(before, after)
    known = caveats(before, after)
    grave = [one for one in known if one.is_grave]
    is_open = any(one.leaves_nothing for one in grave)
    cannot = f"{_NO_TIMES}: {'; '.join(one.text for one in grave)}. {_still(found, is_open=is_open)}" if grave else ""
    cautions = tuple(one for one in known if not one.is_grave)
    if is_open:
        return DiffVerdict(Outcome.UNKNOWN, _no_verdict(names), cannot, cautions)
    if found is None:
        return DiffVerdict(*_of_stacks(before, after, names[1]), cannot, cautions)
    if grave:
        return DiffVerdict(Outcome.UNKNOWN, f"{_no_verdict(names)}: {_in_both(found, names)}", cannot, cautions)
    return DiffVerdict(_outcome(found), _said(before, after, found, names), cannot, cautions)


def _no_verdict(names: tuple[str, str]) -> str:
    return f"no verdict on whether {names[1]} is faster than {names[0]}"


def _of_stacks(before: Side, after: Side, name: str) -> tuple[Outcome, str]:
    """Of reports without a time in both, what their stacks say: shares of samples, which are neither good nor bad."""
    if not (before.trace.stacks and after.trace.stacks):
        return Outcome.UNKNOWN, "no time to compare: nothing that both reports have has one in both"
    moved = [f"{100 * (one.after - one.before):+.1f} points {one.name}" for one in function_changes(before, after)]
    if not moved:
        return Outcome.SAME, "no difference: each function has the same share of the stacks in both"
    return Outcome.UNKNOWN, f"in {name} the shares of functions are {', '.join(moved[:_NAMED])}"


def _still(found: Headline | None, *, is_open: bool) -> str:
    """What is compared all the same."""
    if found is None or is_open:
        return "Compared are the rules that came or went, and how the reports were made"
    return "What follows is compared all the same: take shares, bounds and calls from it, and no times"


def _outcome(found: Headline) -> Outcome:
    if not found.change_ns and not any(part.ns for part in (*found.parts, *found.beside)):
        return Outcome.SAME
    if not found.is_beyond_noise:
        return Outcome.NOISE
    return Outcome.FASTER if found.change_ns < 0 else Outcome.SLOWER


def _said(before: Side, after: Side, found: Headline, names: tuple[str, str]) -> str:
    outcome = _outcome(found)
    if outcome is Outcome.SAME:
        return f"no difference: {_of(found)} {_take(found)} {duration(found.before_ns)} in both"
    if outcome is Outcome.NOISE:
        return (
            f"no difference beyond the noise: {_in_both(found, names)} ({signed(found.change_ns)}, "
            f"noise ±{duration(found.noise.ns)})"
            f"{_alike(before, after)}{_beside(found)}"
        )
    parts = _parts(found.parts, found.change_ns)
    return f"{names[1]} {compared(found)}: {_ends(found)}{parts}{_beside(found)}{_of_both(before, after, found)}"


def _alike(before: Side, after: Side) -> str:
    """Of kernels that changed by more than their own noise, where most did and all in one direction."""
    both = [one for one in kernel_changes(before, after) if one.is_in_both and not math.isnan(one.call_ns)]
    changed = [one for one in both if one.is_changed]
    if len(both) < 2 or 2 * len(changed) <= len(both) or len({one.call_ns > 0 for one in changed}) != 1:
        return ""
    word = "slower" if changed[0].call_ns > 0 else "faster"
    return f"; but {len(changed)} of {len(both)} kernels are each {word} by more than their own noise"


def _of_both(before: Side, after: Side, found: Headline) -> str:
    """Where kernels are new or gone, what the others do."""
    changes = kernel_changes(before, after)
    if found.unit is not Unit.KERNELS or all(one.is_in_both for one in changes):
        return ""
    ns, noise = math.fsum(one.by_time_ns for one in changes), noise_of_calls(changes)
    return f"; the kernels that both have differ by {signed(ns)}{', within the noise' if noise.hides(ns) else ''}"


def _in_both(found: Headline, names: tuple[str, str]) -> str:
    """What was measured, side by side."""
    mine, theirs = duration(found.before_ns), duration(found.after_ns)
    return f"{_of(found)} {_take(found)} {mine} in {names[0]}, {theirs} in {names[1]}"


def _of(found: Headline) -> str:
    return f"a {found.what}" if found.unit is Unit.STEP else found.what


def _take(found: Headline) -> str:
    return "takes" if found.unit is Unit.STEP else "take"


def _ends(found: Headline) -> str:
    return f"{duration(found.before_ns)} → {duration(found.after_ns)} ({signed(found.change_ns)})"


def compared(found: Headline) -> str:
    """How fast the second is beside the first: "is 18 % faster per step", "takes 2.3 times as long at the same calls".

    Per cent are of the first one's time.
    """
    per = {Unit.STEP: f"per {found.what}", Unit.KERNELS: "over all kernels", Unit.CALLS: "at the same calls"}[
        found.unit
    ]
    if found.before_ns <= 0 or found.after_ns <= 0:
        return f"differs {per}"
    if found.before_ns >= _TIMES * found.after_ns:
        return f"is {found.before_ns / found.after_ns:.1f} times as fast {per}"
    if found.after_ns >= _TIMES * found.before_ns:
        return f"takes {found.after_ns / found.before_ns:.1f} times as long {per}"
    return f"is {percent(100 * abs(found.share))} {'faster' if found.change_ns < 0 else 'slower'} {per}"


def signed(ns: float) -> str:
    """A difference of times.

    >>> signed(1500.0), signed(-20.0), signed(0.0)
    ('+1.50 µs', '-20.0 ns', '±0 ns')
    """
    return f"{'+' if ns > 0 else '' if ns else '±'}{duration(ns)}"


def _parts(parts: Sequence[ChangePart], change_ns: float) -> str:
    """The largest parts; of what they leave, nothing is said here."""
    named = [one for one in parts if abs(one.ns) >= _NOTABLE * abs(change_ns)][:_NAMED]
    return f"; {', '.join(f'{signed(one.ns)} {one.title}' for one in named)}" if named else ""


def _beside(found: Headline) -> str:
    """Of captures that are of more or less work, what that comes to."""
    if not found.beside:
        return ""
    more = math.fsum(one.ns for one in found.beside)
    return f". Not counted: {signed(more)} of kernels called more or less often, as captures differ in length"


def noise_said(before: Side, after: Side) -> str:
    """Where the noise is from."""
    found = headline(before, after)
    if found is None or _outcome(found) is Outcome.SAME:
        return ""
    if not found.noise.is_known:
        remedy = "capture more steps" if found.unit is Unit.STEP else "profile several launches of each kernel"
        return (
            f"noise ±{duration(found.noise.ns)}, not measured: {_single(before, after)}; {percent(100 * ONE_CALL)} and "
            f"{duration(ONE_CALL_NS)} each are taken for it. To have it measured, {remedy}"
        )
    spread = "steps" if found.unit is Unit.STEP else "calls"
    return (
        f"noise ±{duration(found.noise.ns)}: {ERRORS:.0f} standard errors of the {spread}' means, and "
        f"{percent(100 * RUNS)} for what whole runs differ by"
    )


def _single(before: Side, after: Side) -> str:
    if before.steps is not None:
        return "there are too few steps to tell how they spread"
    changes = [one for one in kernel_changes(before, after) if one.is_in_both]
    few = [one for one in changes if not one.noise.is_known]
    calls = {len(side.row.launches) for one in few for side in (one.before, one.after) if side is not None}
    if len(few) == len(changes) and calls == {1}:
        return "one call of each kernel tells nothing of it"
    which = "each kernel has" if len(few) == len(changes) else f"{len(few)} of {len(changes)} kernels have"
    return f"{which} fewer than {FEWEST} calls in both"


def silent_kernels(before: Side, after: Side) -> Iterator[str]:
    """Kernels without a time in one of them, which no sum has."""
    names = [one.name for one in kernel_changes(before, after) if one.is_in_both and math.isnan(one.call_ns)]
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"without a time in one report, and so in no sum: {', '.join(names[:_NAMED])}{more}"
