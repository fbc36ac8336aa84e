"""Several versions of one thing, each beside a baseline and beside the best: reports, or the kernels of one report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.pages.diff.comparable import caveats
from llmtop.analysis.pages.diff.headline import headline
from llmtop.analysis.pages.diff.noise import Noise, TimeSample, noise_of
from llmtop.columns import chosen
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown
from llmtop.units import si

if TYPE_CHECKING:
    from llmtop.analysis.kernels.roofline import KernelRoofline
    from llmtop.analysis.kernels.table import Kernels, Row
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.model import Trace

_NO_WORK = Unknown("no floating-point operations were counted")
_SAME_WORK = 2.0
"""Kernels of up to so many times the floating-point operations a call are taken for versions of one: tiles that stick
out, and what is computed again for want of memory, change their number. Ours."""


@frozen
class Rung:
    """One of several.

    Attributes:
        ns: What it takes, of what the baseline takes `baseline_ns` for: of reports that differ in length each is held
            to the calls that it has in common with the baseline, so that `baseline_ns` may differ.
        noise: Of the difference from the baseline.
        of_best: How fast it is beside the fastest, 0 to 1.
        flops_per_s: Of a kernel.
        bound: Of a kernel; empty of a report.
        why_not: Why it has no time, where that is not because none was collected.
        flop: Floating-point operations of a call of a kernel; None of a report.
        other_work: That it does other work than the baseline, so that its time says nothing of which is better.
    """

    name: str
    ns: float
    baseline_ns: float
    noise: Noise
    of_best: float
    flops_per_s: float | Unknown | None = None
    bound: str = ""
    why_not: Unknown | None = None
    flop: float | Unknown | None = None
    other_work: Unknown | None = None

    @property
    def speed(self) -> float:
        """How many times as fast as the baseline it is; NaN where one has no time, or they do different work."""
        if self.other_work is not None:
            return math.nan
        return self.baseline_ns / self.ns if self.ns > 0 and self.baseline_ns > 0 else math.nan

    @property
    def is_beyond_noise(self) -> bool:
        """Whether it differs from the baseline; not where there is no speed."""
        return not math.isnan(self.speed) and not self.noise.hides(self.ns - self.baseline_ns)


_NONE = Noise(0.0, 0.0, is_known=True)


def ladder_of_reports(before: Side, others: Sequence[tuple[str, Side, Side]], name: str) -> tuple[Rung, ...]:
    """The baseline, then the others in their order.

    Args:
        before: The baseline.
        others: Each with what to call it, and both sides as they are compared.
        name: What to call the baseline.
    """
    rungs = []
    for other, mine, theirs in others:
        lost = next((one.text for one in caveats(mine, theirs) if one.leaves_nothing), "")
        found = None if lost else headline(mine, theirs)
        times = (math.nan, math.nan) if found is None else (found.after_ns, found.before_ns)
        noise, why_not = _NONE if found is None else found.noise, Unknown(lost) if lost else None
        rungs.append(Rung(other, *times, noise, math.nan, why_not=why_not))
    first = headline(before, before)
    ns = math.nan if first is None else first.before_ns
    return _beside_best([Rung(name, ns, ns, _NONE, math.nan), *rungs])


def ladder_of_kernels(trace: Trace, baseline: int = 0) -> tuple[Rung, ...]:
    """The kernels of a report by name, grid and block, in the order in which they were first launched.

    Args:
        trace: Any trace with kernels.
        baseline: Which of them the others are held against, from 0 on.
    """
    kernels = kernels_of(trace)
    rows = kernel_rungs(kernels)
    samples = [_times(kernels, row) for row in rows]
    rungs = [_rung(kernels, row, mine, samples[baseline]) for row, mine in zip(rows, samples, strict=True)]
    whole = rungs[baseline].flop
    return _beside_best([replace(one, other_work=_other_work(one.flop, whole)) for one in rungs])


def _other_work(mine: float | Unknown | None, whole: float | Unknown | None) -> Unknown | None:
    """That a kernel does other work than the baseline; None where it does the same, or that is not known."""
    if not isinstance(mine, float) or not isinstance(whole, float) or mine == whole:
        return None
    less, more = sorted((mine, whole))
    if less and more / less <= _SAME_WORK:
        return None
    return Unknown(f"other work than the baseline: {si(mine, 'FLOP')} a call, not {si(whole, 'FLOP')}")


def kernel_rungs(kernels: Kernels) -> tuple[Row, ...]:
    """The rows that a ladder of kernels has."""
    return tuple(sorted(kernels.groups(), key=lambda row: row.launches[0]))


def _times(kernels: Kernels, row: Row) -> TimeSample | None:
    known = chosen(kernels.table.duration_ns, row.launches)
    return TimeSample.of(known) if known else None


def _rung(kernels: Kernels, row: Row, mine: TimeSample | None, baseline: TimeSample | None) -> Rung:
    launch = kernels.middle(row)
    facts = kernels.facts(launch)
    roofline = facts.roofline
    work = roofline if isinstance(roofline, Unknown) else next((one.achieved for one in roofline.work), _NO_WORK)
    bound = "" if isinstance(facts.bound, Unknown) else str(facts.bound_name)
    ns, baseline_ns = (math.nan if one is None else one.mean for one in (mine, baseline))
    noise = _NONE if mine is None or baseline is None else noise_of(baseline, mine)
    flop = _flop(roofline, kernels.table.duration_ns[launch])
    return Rung(kernels.row_name(row), ns, baseline_ns, noise, math.nan, work, bound, flop=flop)


def _flop(roofline: KernelRoofline | Unknown, ns: float) -> float | Unknown:
    """Floating-point operations of one launch, of all precisions."""
    if isinstance(roofline, Unknown) or math.isnan(ns):
        return roofline if isinstance(roofline, Unknown) else _NO_WORK
    if roofline.refusals:
        return roofline.refusals[0].why
    return math.fsum(one.achieved for one in roofline.work) * ns / NS_PER_S


def _beside_best(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    speeds = [one.speed for one in rungs if not math.isnan(one.speed)]
    best = max(speeds, default=math.nan)
    return tuple(replace(one, of_best=one.speed / best) for one in rungs)
