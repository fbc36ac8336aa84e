"""No unit is busy, and nobody has counted what the warps wait for."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.bounds import Bound
from llmtop.analysis.rules import kernel_low_occupancy
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import SLACK, WAITING, Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.model import Finding, Trace, Unknown

id = "kernel-latency-unknown"
summary = "No unit is busy, and the report does not say what the warps wait for."
source = "Nsight Compute, SpeedOfLight rule (below 60 % of both peaks a kernel is latency-bound)"

_ADVICE = ("SOLBottleneck",)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which somebody has to look once more."""
    yield from findings(
        id, source, claims_of(heavy(trace), judge), "no unit is busy, and what the warps wait for was not collected"
    )


def judge(judged: JudgedKernel) -> Claim | None:
    """What it would save if it kept a unit busy; None where that is not its trouble, or what it waits for is known."""
    verdict, stalls = judged.verdict, judged.facts.stalls
    if verdict is None or verdict.bound is not Bound.LATENCY or not isinstance(stalls, Unknown) or not stalls.remedy:
        return None
    if judged.is_of_launches or kernel_low_occupancy.judge(judged) is not None or is_explained(judged):
        return None
    claim = Claim(
        judged,
        f"latency-bound, and what its warps wait for was not collected: {verdict.why}",
        "collect it first: memory, barriers, dependent instructions and too few warps each ask for something else",
        judged.slack_ns,
        SLACK,
        (stalls.reason,),
        WAITING,
        _ADVICE,
    )
    return claim if claim.is_worthwhile else None
