"""A report's kernels beside those of a baseline: columns for the kernel table, and what differs in one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.table import ColumnField
from llmtop.analysis.pages.diff.comparable import are_comparable
from llmtop.analysis.pages.diff.kernels import KernelChange, kernel_changes
from llmtop.analysis.pages.diff.match import Likeness
from llmtop.analysis.pages.diff.page import NO_TIME, NOT_COMPARABLE, facts_said, says
from llmtop.analysis.pages.diff.side import Side, by_calls
from llmtop.analysis.pages.diff.verdict import signed
from llmtop.analysis.pages.diff.why import why
from llmtop.analysis.pages.launch import LaunchBeside
from llmtop.analysis.views import Cell, Column
from llmtop.model import Unknown
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import Kernels, Row
    from llmtop.model import Trace

_NOT_THERE = Unknown("the baseline does not have it, or not all of these launches")


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Both reports, and what became of the kernel of each launch of the second one.

    Attributes:
        changes: By launch.
    """

    before: Side
    after: Side
    changes: Sequence[KernelChange | None]

    def baseline_ns(self, row: Row) -> float:
        """What the baseline takes for a call of these launches, in the mean; NaN where it does not tell of all."""
        known = (self.changes[i] for i in row.launches)
        times = [math.nan if one is None or one.before is None else one.before.mean_ns for one in known]
        return math.fsum(times) / len(times) if times and not any(map(math.isnan, times)) else math.nan


@lru_cache(maxsize=4)
def beside(trace: Trace, baseline: Trace) -> Beside:
    """Calls of a report beside those of a baseline, whether they have steps or not."""
    before, after = by_calls(baseline), by_calls(trace)
    changes: list[KernelChange | None] = [None] * len(after.kernels.table)
    for one in kernel_changes(before, after):
        for launch in one.after.row.launches if one.after is not None else ():
            changes[launch] = one
    return Beside(before, after, changes)


def baseline_columns(trace: Trace, baseline: Trace) -> tuple[ColumnField, ...]:
    """Columns for a report's kernel table: what a call takes in the baseline, and by how much it takes longer here."""
    both = beside(trace, baseline)

    def before(_: Kernels, row: Row) -> Cell:
        ns = both.baseline_ns(row)
        return _NOT_THERE if math.isnan(ns) else ns

    def change(_: Kernels, row: Row) -> Cell:
        ns = both.baseline_ns(row)
        if math.isnan(row.mean_ns):
            return NO_TIME
        return _NOT_THERE if math.isnan(ns) or not ns else 100 * (row.mean_ns / ns - 1)

    def word(_: Kernels, row: Row) -> Cell:
        changes = (both.changes[i] for i in row.launches)
        known = {None if one is None else says(both.before, both.after, one) for one in changes}
        return next(iter(known)) if len(known) == 1 else "mixed"

    wide = 7 if are_comparable(both.before, both.after) else len(NOT_COMPARABLE)
    return (
        ColumnField(Column("change", "a call", "%", 8, 1, "longer than in the baseline", is_signed=True), change),
        ColumnField(Column("baseline", "baseline", "ns", 8, 4, "mean of these calls there"), before),
        ColumnField(Column("says", "to base", width=wide, shrink=5, help="whether it is beyond the noise"), word),
    )


def launch_beside(trace: Trace, launch: int, baseline: Trace) -> LaunchBeside:
    """What differs in the kernel of a launch, over all its calls. Decodes one launch of each report."""
    both = beside(trace, baseline)
    change = both.changes[launch]
    if change is None or change.before is None or change.after is None:
        return LaunchBeside(None, "the baseline does not have this kernel")
    told = "" if change.likeness is Likeness.SAME else f"; told by: {change.likeness}"
    facts = facts_said(why(both.before, both.after, change))
    return LaunchBeside(change.before.launch, f"{_time(change)}{f'; {facts}' if facts else ''}{told}")


def _time(change: KernelChange) -> str:
    assert change.before is not None
    if math.isnan(change.call_ns):
        return "a call has no time in one of them"
    share = 100 * abs(change.call_ns) / change.before.mean_ns if change.before.mean_ns else 0.0
    noise = "beyond the noise" if change.is_changed else "within the noise"
    longer = "longer" if change.call_ns > 0 else "shorter"
    return (
        f"a call takes {duration(change.before.mean_ns)} there and is {percent(share)} {longer} here "
        f"({signed(change.call_ns)}, {noise} of ±{duration(change.noise.ns)})"
    )
