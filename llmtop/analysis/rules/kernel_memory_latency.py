"""Warps wait for loads that nothing hides, although there is room for more of them."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.kernels.waits import MORE_LOADS
from llmtop.analysis.rules import kernel_low_occupancy
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import (
    SLACK_OF_WAITING,
    Claim,
    JudgedKernel,
    claims_of,
    findings,
    heavy,
    occupancy_text,
)
from llmtop.model import Finding, Trace
from llmtop.units import percent

id = "kernel-memory-latency"
summary = "Load latency is not hidden: warps wait for global memory, and neither it nor the SMs are busy."
source = (
    "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Nsight Compute, CPIStall rule (a reason above 30 % "
    "while schedulers issue in less than 80 % of cycles)"
)

_REASON = StallReason.LONG_SCOREBOARD
_DOMINANT_SHARE = 0.3
_LIBRARY = "give it more to do at once: a larger batch or longer sequences, or fuse it with what comes before or after"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "warps wait for loads that nothing hides")


def judge(judged: JudgedKernel) -> Claim | None:
    """What hiding the loads could save; None where something else is the reason."""
    share, verdict = judged.stalled(_REASON), judged.verdict
    if share < _DOMINANT_SHARE or verdict is None or not judged.is_held_up(share) or judged.is_of_launches:
        return None
    if kernel_low_occupancy.judge(judged) is not None or is_explained(judged):
        return None
    claim = Claim(
        judged,
        f"waits for loads: {_REASON} is {percent(100 * share)} of all waiting, no unit is at its limit: {verdict.why}",
        _LIBRARY if judged.kind.library else MORE_LOADS,
        judged.slack_ns * share,
        SLACK_OF_WAITING,
        (occupancy_text(judged),),
        ("Occupancy", "LaunchStats", "MemoryWorkloadAnalysis", "SourceCounters"),
        kernel_low_occupancy.ADVICE,
    )
    return claim if claim.is_worthwhile else None
