"""All that is said of two reports, as sections of sentences and tables: what every format prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, Spread, breakdown
from llmtop.analysis.pages.diff.beside import (
    api_changes,
    findings_change,
    function_changes,
    idle_changes,
    memory_changes,
    setup_changes,
)
from llmtop.analysis.pages.diff.comparable import are_comparable, is_whole
from llmtop.analysis.pages.diff.headline import ChangePart, headline, what_is_left
from llmtop.analysis.pages.diff.kernels import KernelChange, kernel_changes
from llmtop.analysis.pages.diff.lines import line_changes, line_table
from llmtop.analysis.pages.diff.match import Likeness
from llmtop.analysis.pages.diff.noise import FEWEST
from llmtop.analysis.pages.diff.side import Side, sides
from llmtop.analysis.pages.diff.verdict import DiffVerdict, diff_verdict, noise_said, signed, silent_kernels
from llmtop.analysis.pages.diff.why import COUNT, FactChange, why
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import listed
from llmtop.units import quantity, si

if TYPE_CHECKING:
    from llmtop.analysis.kernels.breakdown.step_groups import StepGroup
    from llmtop.analysis.pages.diff.ladder import Rung
    from llmtop.model import Finding, Trace, Value

EXPLAINED = 10
"""Kernels whose counters are told side by side."""
_REASONS = 8
"""That are told of one kernel."""
_SMALL = 0.02
"""Of all that changed: parts below it are summed up."""
_CALLS = 15
"""Rows of CUDA calls."""
_FUNCTIONS = 20
"""Rows of functions of stacks."""
_SETUP = 20
"""Lines of what was set otherwise."""
_LONGEST_FACT = 100
"""Characters of a setting."""
_IDLE_POINTS = 0.005
"""Of the capture, from which on the change of a cause's share is told."""
_MOST_TIMES = 100.0
"""Above it "so many times" says nothing but that there was hardly any."""
_FEWEST_ROWS = 5
"""Rows of kernels that are there however little they changed."""


@frozen
class DiffSection:
    """A part of the page; what it has nothing of is left out."""

    title: str
    said: tuple[str, ...] = ()
    table: RowTable | None = None


SectionMaker: TypeAlias = "Callable[[Side, Side], DiffSection | None]"


@frozen
class DiffView:
    """A report beside its baseline, as a screen shows it.

    Attributes:
        names: Of the baseline, and of the report: A and B in all that is said.
    """

    names: tuple[str, str]
    verdict: DiffVerdict
    sections: tuple[DiffSection, ...]


def diff_view(trace: Trace, name: str, baseline: Trace, baseline_name: str) -> DiffView:
    """All that differs."""
    both = sides(baseline, trace)
    return DiffView((baseline_name, name), diff_verdict(*both), tuple(diff_sections(*both)))


def diff_sections(before: Side, after: Side) -> Iterator[DiffSection]:
    """The sections that have something to say, made as they are asked for."""
    return _that_say_something(before, after, _SECTIONS)


def parts_section(before: Side, after: Side) -> Iterator[DiffSection]:
    """What adds up to the difference, alone: no column of it is called B, so that any of several reports may be it."""
    return _that_say_something(before, after, (_parts,))


def _that_say_something(before: Side, after: Side, makers: Sequence[SectionMaker]) -> Iterator[DiffSection]:
    for make in makers:
        section = make(before, after)
        if section is not None and (section.said or (section.table is not None and len(section.table))):
            yield section


# -- the parts of the difference --------------------------------------------------------------------------------------

_CHANGE = Column("change", "change", "ns", 9, 0, "what it adds to the time of B, or takes from it", is_signed=True)


def _parts(before: Side, after: Side) -> DiffSection | None:
    """What adds up to the difference."""
    found = headline(before, after)
    if found is None:
        return None
    rows = [*_rows(found.parts), (found.change_ns, "together")] if found.parts else []
    more = [(one.ns, one.title) for one in found.beside]
    columns = (_CHANGE, Column("name", "what"))
    left = what_is_left(before, after) if found.parts else ""
    said = [said for said in (left, noise_said(before, after), *silent_kernels(before, after)) if said]
    said += [f"not counted above: {signed(ns)} {title}" for ns, title in more]
    return DiffSection(f"What the difference is made of ({found.what})", tuple(said), _table(columns, rows))


def _rows(parts: Sequence[ChangePart]) -> list[tuple[float, str]]:
    whole = math.fsum(abs(one.ns) for one in parts)
    large = [one for one in parts if abs(one.ns) >= _SMALL * whole]
    small = parts[len(large) :]
    rest = [(math.fsum(one.ns for one in small), f"{len(small)} smaller parts")] if len(small) > 1 else []
    return [*((one.ns, one.title) for one in large), *(rest or ((one.ns, one.title) for one in small))]


def _table(columns: tuple[Column, ...], rows: Sequence[Sequence[Cell]]) -> RowTable:
    return RowTable(columns, tuple(rows), tuple(range(len(rows))))


# -- kernels ----------------------------------------------------------------------------------------------------------

_KERNELS = (
    Column("name", "kernel", help="short name; old → new where it has another one"),
    Column("before", "A", "ns", 9, 1, "mean of the calls in A", pair="time"),
    Column("after", "B", "ns", 9, 1, "mean of the calls in B", pair="time"),
    Column("share", "a call", "%", 8, 2, "by how much a call of B takes longer, of A's", is_signed=True),
    Column("noise", "noise", "%", 7, 4, "what that may be without meaning anything"),
    Column("says", "is", "", 8, 2, "whether it is beyond the noise"),
    Column("calls", "calls A", "1", 7, 5, "in A; of a step where steps are compared", pair="calls"),
    Column("calls_after", "calls B", "1", 7, 5, "in B", pair="calls"),
    Column("change", "in all", "ns", 9, 1, "what all calls take longer", is_signed=True),
    Column("likeness", "told by", "", 20, 6, "by what it is taken for the same kernel"),
)


def _kernel(mine: Side, theirs: Side, one: KernelChange) -> tuple[Cell, ...]:
    before, after = one.before, one.after
    known = not math.isnan(one.call_ns) and before is not None and before.mean_ns > 0
    return (
        one.name,
        _NOT_THERE if before is None else _mean(before.mean_ns),
        _NOT_THERE if after is None else _mean(after.mean_ns),
        100 * one.call_ns / before.mean_ns if known and before is not None else None,
        100 * one.noise.ns / before.mean_ns if known and before is not None else None,
        says(mine, theirs, one),
        0 if before is None else _count(before.calls),
        0 if after is None else _count(after.calls),
        one.total_ns if one.is_timed else NO_TIME,
        "" if one.likeness in (Likeness.SAME, None) else str(one.likeness),
    )


_NOT_THERE = Unknown("it is not in this report")
NO_TIME = Unknown("its duration was not collected", "add --section SpeedOfLight")


def _mean(ns: float) -> Cell:
    return NO_TIME if math.isnan(ns) else ns


def _count(calls: float) -> Cell:
    return int(calls) if calls == int(calls) else calls


NOT_COMPARABLE = "not comparable"


def says(before: Side, after: Side, one: KernelChange) -> str:
    """What a row of the table comes to, in a word; `NOT_COMPARABLE` where times, or what is not there, say nothing."""
    word = _became(one)
    if word in _OF_TIMES and not are_comparable(before, after):
        return NOT_COMPARABLE
    is_lost = (one.before is None and not is_whole(before)) or (one.after is None and not is_whole(after))
    return NOT_COMPARABLE if is_lost else word


_OF_TIMES = ("slower", "faster", "same")


def _became(one: KernelChange) -> str:
    if one.before is None:
        return "new"
    if one.after is None:
        return "gone"
    if one.before.has_failed or one.after.has_failed:
        return "failed in B" if one.after.has_failed else "failed in A"
    if math.isnan(one.call_ns):
        return "no time"
    return ("slower" if one.call_ns > 0 else "faster") if one.is_changed else "same"


def _kernels(before: Side, after: Side) -> DiffSection:
    changes = kernel_changes(before, after)
    whole = math.fsum(abs(one.total_ns) for one in changes)
    shown = [one for i, one in enumerate(changes) if i < _FEWEST_ROWS or _is_shown(one, whole)]
    rest = len(changes) - len(shown)
    more = math.fsum(one.total_ns for one in changes) - math.fsum(one.total_ns for one in shown)
    said = (f"and {rest} more, which are the same but for {signed(more)} in all",)
    of = "mean step" if before.steps is not None else "report"
    rows = _table(_KERNELS, [_kernel(before, after, one) for one in shown])
    return DiffSection(f"Kernels (calls and time of the {of})", said if rest else (), rows)


def _is_shown(one: KernelChange, whole_ns: float) -> bool:
    """Whether a kernel is worth a line among many."""
    return _became(one) != "same" or abs(one.total_ns) >= _SMALL * whole_ns


def _why(before: Side, after: Side) -> DiffSection | None:
    """What counters say of the kernels that changed most."""
    if before.kernels.table.details is None or after.kernels.table.details is None:
        return None
    both = [one for one in kernel_changes(before, after) if one.is_in_both]
    changed = [one for one in both if one.is_changed or math.isnan(one.call_ns)][:EXPLAINED]
    said = [
        f"{one.name}: {facts_said(why(before, after, one)) or 'no counter that both have differs'}" for one in changed
    ]
    return DiffSection("Why, by the counters (A → B)", tuple(said))


def facts_said(facts: Sequence[FactChange]) -> str:
    """Several facts in a sentence."""
    return "; ".join(fact_said(one) for one in facts[:_REASONS])


def fact_said(one: FactChange) -> str:
    """A fact of both: "occupancy 48 % → 92 %"; what is hardly there beside the other is said to be that."""
    is_told = one.unit not in ("%", "ratio") and 1 / _MOST_TIMES < one.ratio < _MOST_TIMES
    times = f" (×{one.ratio:.2g})" if is_told else ""
    values = " → ".join(
        HARDLY_ANY if _is_hardly_any(mine, other) else _value(mine, one.unit)
        for mine, other in ((one.before, one.after), (one.after, one.before))
    )
    return f"{one.what} {values}{times}"


HARDLY_ANY = "hardly any"
_HARDLY_ANY = 1e-4
"""Of the other value: one below it is noise, or what is left over of a mean. Ours."""


def _is_hardly_any(mine: Value, other: Value) -> bool:
    if isinstance(mine, str) or isinstance(other, str):
        return False
    return 0 < abs(mine) < _HARDLY_ANY * abs(other)


def _value(value: Cell, unit: str) -> str:
    if isinstance(value, str) or value is None or isinstance(value, Unknown):
        return str(value)
    if unit == COUNT:
        return si(value)
    return str(value) if isinstance(value, int) and unit == "1" else quantity(value, unit)


# -- ladders ----------------------------------------------------------------------------------------------------------

_RUNGS = (
    Column("name", "name", help="A is the baseline"),
    Column("time", "time", "ns", 9, 1, "of a step, of all kernels, or of a call"),
    Column("flops", "FLOP/s", "FLOP/s", 12, 3, "of the precision that does most of its work"),
    Column("flop", "FLOP a call", "FLOP", 11, 5, "of all precisions: versions of one kernel have about the same"),
    Column("change", "to baseline", "%", 11, 2, "how much longer it takes", is_signed=True),
    Column("speed", "times as fast", "1", 13, 1, "as the baseline"),
    Column("best", "of the best", "ratio", 11, 1, "its speed over that of the fastest"),
    Column("bound", "bound", "", 8, 4, "what limits it"),
    Column("noise", "noise", "", 9, 2, "whether the difference from the baseline is beyond the noise"),
)


_NAMED = 4
"""Kernels that are named as doing other work."""


def ladder_section(rungs: Sequence[Rung]) -> DiffSection:
    """Several beside the baseline and beside the best; columns that say nothing of any are left out."""
    rows = [_rung(one) for one in rungs]
    kept = [i for i in range(len(_RUNGS)) if any(_tells(row[i]) for row in rows)]
    table = _table(tuple(_RUNGS[i] for i in kept), [[row[i] for i in kept] for row in rows])
    taken = (f"noise: 5 % and 1 µs where both have fewer than {FEWEST} calls",)
    is_taken = any(not one.noise.is_known for one in rungs)
    return DiffSection("Ladder", (*_of_work(rungs), *(taken if is_taken else ())), table)


def _of_work(rungs: Sequence[Rung]) -> Iterator[str]:
    """Which kernels do other work than the baseline, and of which nobody knows."""
    others = [
        f"{one.name} ({si(one.flop, 'FLOP')})"
        for one in rungs
        if one.other_work is not None and isinstance(one.flop, float)
    ]
    if others:
        more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
        named = listed([*others[:_NAMED], *more])
        yield f"not compared with the baseline, as they do other work, by FLOP a call: {named}"
    if any(isinstance(one.flop, Unknown) for one in rungs):
        yield "where FLOP a call is not known, times say which is faster only of kernels that do the same work"


def _tells(cell: Cell) -> bool:
    return cell not in (None, "") and not isinstance(cell, Unknown)


def _rung(one: Rung) -> tuple[Cell, ...]:
    if math.isnan(one.speed):
        time, apart = (one.why_not or NO_TIME, None) if one.other_work is None else (_mean(one.ns), one.other_work)
        return one.name, time, one.flops_per_s, one.flop, apart, apart, apart, one.bound, ""
    within = "" if one.is_beyond_noise or one.ns == one.baseline_ns else "in noise"
    change = 100 * (one.ns / one.baseline_ns - 1)
    return one.name, one.ns, one.flops_per_s, one.flop, change, one.speed, one.of_best, one.bound, within


# -- all else ---------------------------------------------------------------------------------------------------------


_STEPS = (
    Column("name", "steps", help="by what they do, where that is told"),
    Column("a", "A", "1", pair="steps"),
    Column("b", "B", "1", pair="steps"),
    Column("median_a", "median A", "ns", pair="median"),
    Column("median_b", "median B", "ns", pair="median"),
    Column("change", "change", "%", is_signed=True),
    Column("slow_a", "slow A", "1", shrink=2, help="outliers", pair="slow"),
    Column("slow_b", "slow B", "1", shrink=2, help="outliers", pair="slow"),
)


def _steps(before: Side, after: Side) -> DiffSection | None:
    """Medians of the steps of each kind, and how many are outliers."""
    mine, theirs = breakdown(before.trace, By.STEP), breakdown(after.trace, By.STEP)
    if before.steps is None or after.steps is None or isinstance(mine, Unknown) or isinstance(theirs, Unknown):
        return None
    others = {one.group: one for one in theirs.spreads}
    rows = [_step_row(mine, one, theirs, others[one.group]) for one in mine.spreads if one.group in others]
    said = dict.fromkeys(f"found {one.found}" for one in (before.steps, after.steps))
    left = "steps that are outliers are left out of what is compared above"
    has_slow = before.steps.slow or after.steps.slow
    return DiffSection("Steps", (*said, left) if has_slow else tuple(said), _table(_STEPS, rows))


def _step_row(mine: Breakdown, one: Spread, theirs: Breakdown, other: Spread) -> tuple[Cell, ...]:
    longer = 100 * (other.median_ns / one.median_ns - 1) if one.median_ns else None
    slow = _slow(mine, one.group), _slow(theirs, one.group)
    return one.group.title or "all", len(one.steps), len(other.steps), one.median_ns, other.median_ns, longer, *slow


def _slow(steps: Breakdown, group: StepGroup) -> int:
    return sum(part.is_slow for part in steps.parts if part.group == group)


def _idle(before: Side, after: Side) -> DiffSection | None:
    """Of captures without steps, what part of them GPUs had nothing to do."""
    if before.steps is not None:
        return None
    changes = [one for one in idle_changes(before, after) if abs(one.after - one.before) >= _IDLE_POINTS]
    columns = (Column("name", "a GPU had nothing to do"), Column("a", "A", "ratio"), Column("b", "B", "ratio"))
    rows = [(one.title, one.before, one.after) for one in changes]
    return DiffSection("Idle time, of each capture", (), _table(columns, rows))


def _findings(before: Side, after: Side) -> DiffSection:
    found = findings_change(before, after)
    said = [*(f"gone: {_finding(one)}" for one in found.went), *(f"new: {_finding(one)}" for one in found.came)]
    said += [f"{one.word}: {one.rule}: {one.before} → {one.after} kernels" for one in found.resized]
    said += [f"not judged in {one.report} ({one.why}): {_finding(one.finding)}" for one in found.unjudged]
    return DiffSection("Findings that came or went", tuple(said))


def _finding(one: Finding) -> str:
    return f"{one.rule}: {one.headline()}"


def _calls(before: Side, after: Side) -> DiffSection | None:
    changes = api_changes(before, after)
    if isinstance(changes, Unknown):
        return None
    notable = [one for one in changes if one.is_notable]
    columns = (
        Column("name", "call"), Column("a", "A", "1", pair="calls"), Column("b", "B", "1", pair="calls"),
        Column("time_a", "time A", "ns", pair="time"), Column("time_b", "time B", "ns", pair="time"),
    )  # fmt: skip
    rows = [(one.name, _short(one.before), _short(one.after), one.before_ns, one.after_ns) for one in notable]
    of = "a step, over all of the capture" if before.steps is not None else "the capture"
    more = (f"and {len(rows) - _CALLS} more",) if len(rows) > _CALLS else ()
    return DiffSection(f"CUDA calls that are made more or less often ({of})", more, _table(columns, rows[:_CALLS]))


def _short(calls: float) -> Cell:
    return _count(round(calls, 2))


def _memory(before: Side, after: Side) -> DiffSection:
    changes = memory_changes(before, after)
    return DiffSection("Memory", tuple(fact_said(one) for one in changes))


def _functions(before: Side, after: Side) -> DiffSection | None:
    changes = function_changes(before, after)
    columns = (
        Column("change", "points", "%", is_signed=True), Column("a", "A", "ratio"), Column("b", "B", "ratio"),
        Column("name", "function"),
    )  # fmt: skip
    rows = [(100 * (one.after - one.before), one.before, one.after, one.name) for one in changes]
    more = (f"and {len(rows) - _FUNCTIONS} more",) if len(rows) > _FUNCTIONS else ()
    return DiffSection("Stacks: own share of functions", more, _table(columns, rows[:_FUNCTIONS]))


def _setup(before: Side, after: Side) -> DiffSection:
    facts = setup_changes(before, after)
    said = [f"{one.what}: {' → '.join(map(_cut, _apart(str(one.before), str(one.after))))}" for one in facts[:_SETUP]]
    more = [f"and {len(facts) - _SETUP} more"] if len(facts) > _SETUP else []
    return DiffSection("What the reports say of how they were made (A → B)", (*said, *more))


def _apart(text: str, other: str) -> tuple[str, str]:
    """Two texts without the words that both begin and end with.

    >>> _apart("ncu --set full ./a -n 5", "ncu --set full --nvtx ./a -n 5")
    ('… ./a -n 5', '… --nvtx ./a -n 5')
    >>> _apart("ncu -o one ./a", "ncu -o two ./a"), _apart("12.1", "12.4")
    (('… one …', '… two …'), ('12.1', '12.4'))
    """
    both = text.split(), other.split()
    first = next((i for i, pair in enumerate(zip(*both, strict=False)) if pair[0] != pair[1]), min(map(len, both)))
    turned = both[0][first:][::-1], both[1][first:][::-1]
    last = next((i for i, pair in enumerate(zip(*turned, strict=False)) if pair[0] != pair[1]), min(map(len, turned)))
    if not all(turned) or last == min(map(len, turned)):
        last = 0
    parts = (" ".join(words[first : len(words) - last]) for words in both)
    mine, theirs = (f"{'… ' if first else ''}{part}{' …' if last else ''}" for part in parts)
    return mine, theirs


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_FACT else f"{text[:_LONGEST_FACT]}…"


def _lines(before: Side, after: Side) -> DiffSection | None:
    """Where in their code kernels wait longer or shorter, of reports that were sampled by instruction."""
    changes = line_changes(before, after)
    return DiffSection("Lines of the source", (_OF_LINES,), line_table(changes)) if changes else None


_OF_LINES = "a line's share of its kernel's waiting, by the time of a call; same lines are told by their text first"
_SECTIONS: tuple[SectionMaker, ...] = (
    _parts, _kernels, _why, _lines, _steps, _idle, _findings, _calls, _memory, _functions, _setup,
)  # fmt: skip
