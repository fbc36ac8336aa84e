"""Ready warps queue for the schedulers: there are enough of them, and instructions are the limit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.bounds import LATENCY_PERCENT
from llmtop.analysis.kernels.stalls import REASONS, StallReason
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import (
    HIGH_USE_PERCENT,
    SLACK,
    Claim,
    JudgedKernel,
    claims_of,
    findings,
    heavy,
    occupancy_text,
)
from llmtop.analysis.rules.kernel_waits import is_waiting
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import number as text
from llmtop.units import percent

id = "kernel-enough-warps"
summary = "Most of what warps wait for is their turn: more of them, or more occupancy, will not help."
source = (
    "Nsight Compute, Kernel Profiling Guide (stall reason Not Selected: enough warps to cover latencies), CPIStall "
    "rule (a reason above 30 %)"
)

_REASON = StallReason.NOT_SELECTED
_DOMINANT_SHARE = 0.3
_ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
_PIPES = (
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    *c.TENSOR_PERCENT,
)
ADVICE = ("CPIStall", "IssueSlotUtilization")
_OWN = (
    "fewer instructions for the same work: several results a thread from registers (which may cost occupancy, there is "
    "enough), vector types, fused multiply-adds, less index arithmetic; no more warps, and no higher occupancy"
)
_LIBRARY = "a lower precision, another algorithm of the library or other sizes; a larger batch adds time, not speed"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "enough warps: instructions are the limit")


@lru_cache(maxsize=64)
def judge(judged: JudgedKernel) -> Claim | None:
    """What is left up to high use; None where another reason leads, a pipe is full, or it is not known.

    A pipe that is full is what warps queue for; which one is for another rule to say.
    """
    stalls, verdict, issuing = judged.facts.stalls, judged.verdict, judged.counter(c.ISSUE_ACTIVE)
    if isinstance(stalls, Unknown) or verdict is None or issuing is None or 100 * issuing < LATENCY_PERCENT:
        return None
    reason, share = stalls.shares[0]
    if reason != _REASON or share < _DOMINANT_SHARE or verdict.memory > 100 * issuing:
        return None
    full = max((value for name in _PIPES if (value := judged.counter(name)) is not None), default=0.0)
    if full >= max(HIGH_USE_PERCENT, 100 * issuing) or is_explained(judged) or is_waiting(judged):
        return None
    eligible = judged.counter(_ELIGIBLE)
    ready = "" if eligible is None else f", {text(eligible)} warps are ready in each cycle and one can issue (ncu)"
    return Claim(
        judged,
        f"enough warps: {percent(100 * share)} of the waiting is for their turn; issue slots {percent(100 * issuing)} "
        "used",
        _LIBRARY if judged.kind.library else _OWN,
        judged.slack_ns,
        SLACK,
        (f"{_REASON}: {REASONS[_REASON]} ({percent(100 * share)}, ncu){ready}", occupancy_text(judged)),
        ("SchedulerStats", "InstructionStats", "SourceCounters"),
        ADVICE,
    )
