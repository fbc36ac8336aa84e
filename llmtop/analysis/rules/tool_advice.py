"""What the profiler's own rules estimate to be worth something, of a kernel of which no rule of ours speaks."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.rules import (
    kernel_compute_bound,
    kernel_enough_warps,
    kernel_latency_unknown,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_memory_roof,
    kernel_uneven,
    kernel_waits,
)
from llmtop.analysis.rules.kernel_causes import claims
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, findings, heavy
from llmtop.model import Finding, RuleResult, Trace, Unknown
from llmtop.units import percent

id = "tool-advice"
summary = "Nsight Compute's own rules estimate a speedup of what no other finding is about."
source = "Nsight Compute, rule results in the report (global estimates, in % of the kernel's time)"

_OF_SIZES = frozenset(("LaunchConfiguration", "WorkloadImbalance", "SMWorkloadImbalance", "TailEffect"))
"""Rules whose advice is about the grid, which follows from sizes; the others' is to change code, and nobody can where
it is a library's."""
_OVERALL = (
    kernel_memory_roof,
    kernel_compute_bound,
    kernel_enough_warps,
    kernel_latency_unknown,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_waits,
)


def check(trace: Trace) -> Iterator[Finding]:
    """The largest estimate for each kernel, of those that are left."""
    worthwhile = [claim for judged in heavy(trace) if (claim := judge(judged)) is not None]
    yield from findings(id, source, worthwhile, "the profiler's own estimate")


def judge(judged: JudgedKernel) -> Claim | None:
    """The largest global estimate, where nothing else is said. Local ones are of a part that nobody measured."""
    if judged.is_of_launches or claims(judged) or any(rule.judge(judged) for rule in _OVERALL):
        return None
    details = judged.kernels.table.details
    results = () if details is None else details.rules(judged.launch)
    spoken = _spoken_of(judged)
    left = [(result, estimate) for result in results if result.id not in spoken and (estimate := _estimate(result))]
    if not left:
        return None
    result, estimate = max(left, key=lambda pair: pair[1])
    claim = Claim(
        judged,
        f"{result.advised}: up to {percent(estimate)} of this kernel (estimate of ncu)",
        f"see what the section {result.section} of the report says",
        judged.row.total_ns * estimate / 100,
        "the profiler's own estimate",
        tuple(_texts(result)),
        (result.section, "SourceCounters"),
    )
    return claim if claim.is_worthwhile else None


def _spoken_of(judged: JudgedKernel) -> frozenset[str]:
    """The profiler's rules that say nothing new of this kernel, or what nobody can follow."""
    details = judged.kernels.table.details
    results = () if details is None else details.rules(judged.launch)
    of_code = frozenset(result.id for result in results) - _OF_SIZES if judged.kind.library else frozenset()
    if isinstance(judged.facts.waves, Unknown):
        return of_code
    return of_code | {kernel_uneven.ADVICE[0]}  # judged by ourselves


def _estimate(result: RuleResult) -> float:
    return max((percents for kind, percents in result.speedups if kind == "global"), default=0.0)


def _texts(result: RuleResult) -> Iterator[str]:
    """What it advises; that it would have liked another metric is no advice."""
    texts = (text for kind, text in result.messages if kind == "optimization" and "could not be found" not in text)
    yield from list(texts)[:1]
