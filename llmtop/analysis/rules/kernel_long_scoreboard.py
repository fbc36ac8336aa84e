"""Warps wait for global memory, and there are too few of them to hide it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis import counters as c
from llmtop.analysis.counters import number
from llmtop.analysis.rules.kernel_evidence import Judged, heavy
from llmtop.model import Finding, Severity, Trace, Unknown
from llmtop.units import percent

id = "kernel-memory-latency"
summary = "Load latency is not hidden: warps wait for global memory and occupancy is low."
source = (
    "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Nsight Compute, CPIStall rule (a reason above 30 % "
    "while schedulers issue in less than 80 % of cycles)"
)

_REASON = "long_scoreboard"
_DOMINANT_SHARE = 0.3
_LOW_OCCUPANCY_PERCENT = 50.0
"""Half of the warps an SM can hold. A first guess of ours: no source gives a number."""
_DRAM_BUSY_PERCENT = 60.0
"""With DRAM this busy the wait is bandwidth, not latency: the memory-roof rule speaks then."""


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels that wait for loads at low occupancy while DRAM has room."""
    for judged in heavy(trace):
        stalls, occupancy = judged.facts.stalls, judged.facts.occupancy
        dram = c.first(judged.metrics, c.DRAM_PERCENT)
        if isinstance(stalls, Unknown) or isinstance(occupancy, Unknown) or dram is None or _has_small_grid(judged):
            continue
        share = dict(stalls.shares).get(_REASON, 0.0)
        few_warps = occupancy < _LOW_OCCUPANCY_PERCENT and stalls.starved is not False
        if share >= _DOMINANT_SHARE and few_warps and dram < _DRAM_BUSY_PERCENT:
            yield _finding(judged, share, occupancy, dram)


def _has_small_grid(judged: Judged) -> bool:
    """Whether the grid is the reason for the low occupancy, which is another rule's finding."""
    waves = judged.facts.waves
    return isinstance(waves, float) and waves < 1


def _finding(judged: Judged, share: float, occupancy: float, dram: float) -> Finding:
    evidence = (
        judged.time,
        f"occupancy {percent(occupancy)} of {_theoretical(judged)} (ncu)",
        f"DRAM {percent(dram)} of peak (ncu)",
    )
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=judged.name,
        message=f"waits for loads: {_REASON} is {percent(100 * share)} of all waiting, occupancy {percent(occupancy)}",
        evidence=evidence,
        action="give the SMs more to do at once (larger grids or batches, fewer registers or less shared memory a "
        "block), or load earlier (cp.async, TMA, prefetch) and coalesce",
        next_command=judged.again("Occupancy", "LaunchStats", "MemoryWorkloadAnalysis", "SourceCounters"),
        source=source,
    )


def _theoretical(judged: Judged) -> str:
    limit = number(judged.metrics, c.THEORETICAL_OCCUPANCY_PERCENT)
    return "an unknown limit" if limit is None else f"{percent(limit)} that its launch allows"
