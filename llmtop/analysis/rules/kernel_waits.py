"""Warps wait for each other or for their own instructions: barriers, fixed latencies, shared memory, fences."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.stalls import REASONS, StallReason
from llmtop.analysis.kernels.waits import WAITS
from llmtop.analysis.rules import kernel_low_occupancy, kernel_memory_latency
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
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import percent

id = "kernel-waits"
summary = "No unit is busy, and the warps wait for something else than global memory."
source = "Nsight Compute, CPIStall rule (a reason above 30 %) and Kernel Profiling Guide, warp scheduler states"

_DOMINANT_SHARE = 0.3


_LIBRARY = (
    "give it more to do at once: a larger batch or other sizes, a newer version of the library, or another algorithm"
)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels that load no unit."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "warps wait, and no unit is busy")


def is_waiting(judged: JudgedKernel) -> bool:
    """Whether this rule or that on loads names what the kernel waits for: then it is at no roof."""
    return judge(judged) is not None or kernel_memory_latency.judge(judged) is not None


def judge(judged: JudgedKernel) -> Claim | None:
    """What less waiting could save; None where something else is the reason."""
    verdict = judged.verdict
    if verdict is None or judged.is_of_launches:
        return None
    if (
        isinstance(judged.facts.stalls, Unknown)
        or kernel_low_occupancy.judge(judged) is not None
        or is_explained(judged)
    ):
        return None
    wait = max(WAITS, key=lambda wait: judged.stalled(*wait.reasons))
    share = judged.stalled(*wait.reasons)
    if share < _DOMINANT_SHARE or judged.stalled(StallReason.LONG_SCOREBOARD) >= share or not judged.is_held_up(share):
        return None
    reason = max(wait.reasons, key=judged.stalled)
    claim = Claim(
        judged,
        f"warps wait {wait.title}: {percent(100 * share)} of all waiting; {verdict.why}",
        _LIBRARY if judged.kind.library else wait.action,
        judged.slack_ns * share,
        SLACK_OF_WAITING,
        (f"{reason}: {REASONS[reason]} ({percent(100 * judged.stalled(reason))}, ncu)", occupancy_text(judged)),
        ("WarpStateStats", "SchedulerStats", "SourceCounters"),
        kernel_low_occupancy.ADVICE,
    )
    return claim if claim.is_worthwhile else None
