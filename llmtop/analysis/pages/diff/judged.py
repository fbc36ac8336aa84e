"""What a report would have told had it collected no more than another one: which findings that one could have made."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.kernels import kernel_changes
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, SpanKind, Unknown
from llmtop.text import listed

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.model import Instances, KernelDetails, KernelTable, RuleResult, SectionTable, Trace, Value

_NAMED = 4
"""What was not collected is named up to so many."""
_TITLES: Mapping[str, str] = {
    SpanKind.LAUNCH: "CUDA launches",
    SpanKind.CALL: "CUDA calls",
    SpanKind.NVTX: "NVTX ranges",
}


@frozen
class _Reduced:
    """Details of one report without what another one does not have of the same kernels.

    Attributes:
        others: The launch of the other one that stands for the same kernel, by launch; a kernel that the other one does
            not have, or that never ran there, keeps all.
    """

    mine: KernelDetails
    theirs: KernelDetails
    others: Mapping[int, int]

    def metrics(self, i: int) -> Mapping[str, Value]:
        own = self.mine.metrics(i)
        if i not in self.others:
            return own
        known = self.theirs.metrics(self.others[i])
        return {name: value for name, value in own.items() if name in known}

    def unit(self, metric: str) -> str:
        return self.mine.unit(metric)

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        if i in self.others and isinstance(other := self.theirs.instances(self.others[i], metric), Unknown):
            return other
        return self.mine.instances(i, metric)

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        return self.mine.rules(i) if i not in self.others or self.theirs.rules(self.others[i]) else ()

    def ranges(self, i: int) -> tuple[str, ...]:
        return self.mine.ranges(i)

    def sections(self, i: int) -> tuple[str, ...]:
        return self.mine.sections(i)

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        return self.mine.tables(i)


def as_collected_by(mine: Side, theirs: Side) -> Trace:
    """The trace of a report as it were with the counters, times and kinds of spans that another one has alone."""
    trace, other = mine.trace, theirs.trace
    kinds = _kinds_lacking(trace, other)
    spans = {kind: trace.spans[kind] for kind in trace.spans if kind not in kinds} if kinds else trace.spans
    return replace(trace, spans=spans, kernels=_kernels(mine, theirs))


def _kinds_lacking(trace: Trace, other: Trace) -> tuple[str, ...]:
    """Kinds of spans that only the first has: what GPUs did not do is no lack."""
    return tuple(kind for kind in trace.spans if kind not in other.spans and kind not in GPU_WORK)


def _kernels(mine: Side, theirs: Side) -> KernelTable | None:
    table, other = mine.trace.kernels, theirs.trace.kernels
    if table is None or other is None:
        return table
    others = {
        i: one.after.launch
        for one in kernel_changes(mine, theirs)
        if one.before is not None and one.after is not None and not one.after.has_failed
        for i in one.before.row.launches
    }
    untimed = {i for i, launch in others.items() if math.isnan(other.duration_ns[launch])}
    times = array("d", (math.nan if i in untimed else ns for i, ns in enumerate(table.duration_ns)))
    if table.details is None or other.details is None:
        return replace(table, duration_ns=times, details=None)
    return replace(table, duration_ns=times, details=_Reduced(table.details, other.details, others))


def what_is_lacking(mine: Side, theirs: Side) -> str:
    """What the second report did not collect and the first did, in half a sentence."""
    kinds = [_TITLES.get(kind, kind) for kind in _kinds_lacking(mine.trace, theirs.trace)]
    named = [*kinds, *sorted(_sections(mine) - _sections(theirs))]
    if not named:
        return "not all of its counters were collected"
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return f"not collected: {listed([*named[:_NAMED], *more])}"


def _sections(side: Side) -> frozenset[str]:
    details = side.kernels.table.details
    return frozenset() if details is None or not side.rows else frozenset(details.sections(side.rows[0].launches[0]))
