"""A kernel runs at what the memory system can give: only fewer bytes make it faster."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.bounds import Bound, Verdict
from llmtop.analysis.rules.kernel_evidence import Judged, bound_by
from llmtop.model import Finding, Severity, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-memory-roof"
summary = "The kernel is limited by memory and close to what the memory can do."
source = "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Nsight Compute, SpeedOfLight rule (60 %, 80 %)"

_NEAR_PERCENT = 80.0
"""From here on NVIDIA's SpeedOfLight rule calls a unit's use high: work has to move away from it."""


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels whose memory throughput leads, at DRAM or in the caches."""
    for judged, verdict in bound_by(trace, Bound.MEMORY):
        in_dram = verdict.dram is not None and verdict.dram >= verdict.memory - 5
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=judged.name,
            message=f"{_nearness(verdict)} {'DRAM' if in_dram else 'cache and shared-memory'} roof: {verdict.why}",
            evidence=(judged.time, *_traffic(judged)),
            action=_DRAM_ACTION if in_dram else _CACHE_ACTION,
            next_command=judged.again("MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SourceCounters"),
            source=source,
        )


_DRAM_ACTION = (
    "move fewer bytes: a larger batch (more work for each weight read), quantised weights or KV cache, "
    "or fuse it with its neighbours so that intermediates stay on the chip"
)
_CACHE_ACTION = (
    "DRAM is not the limit, the traffic between SM and caches is: coalesce accesses, use wider loads, "
    "keep values in registers (register tiling), avoid bank conflicts"
)


def _nearness(verdict: Verdict) -> str:
    return "at the" if verdict.memory >= _NEAR_PERCENT else "on the way to the"


def _traffic(judged: Judged) -> Iterator[str]:
    roofline = judged.facts.roofline
    if isinstance(roofline, Unknown):
        return
    for rate in roofline.traffic:
        yield f"{rate.level} {si(rate.achieved, 'B/s')}, {percent(100 * rate.fraction)} of {si(rate.peak, 'B/s')} (ncu)"
