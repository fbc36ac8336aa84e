"""A kernel is limited by the SMs' own throughput."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.bounds import Bound
from llmtop.analysis.roofline_kernels import KernelRoofline
from llmtop.analysis.rules.kernel_evidence import bound_by
from llmtop.model import Finding, Severity, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-compute-bound"
summary = "The kernel keeps the SMs busy; what they are busy with decides whether that is good."
source = "Williams et al., Roofline (2009); Nsight Compute, SpeedOfLight (60 %) and SOLFPRoofline (60 %) rules"

_NEAR_ROOF = 0.6
"""From this share of the FLOP peak on SOLFPRoofline speaks of high use."""


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels whose compute throughput leads."""
    for judged, verdict in bound_by(trace, Bound.COMPUTE):
        roofline = judged.facts.roofline
        near = _near_its_roof(roofline)
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=judged.name,
            message=f"compute-bound: {verdict.why}" + ("" if near is None else _AT_ROOF if near else _BELOW_ROOF),
            evidence=(judged.time, *_work(roofline)),
            action=_action(roofline, near),
            next_command=judged.again("ComputeWorkloadAnalysis", "InstructionStats", "SourceCounters"),
            source=source,
        )


_AT_ROOF = "; near the floating-point peak"
_BELOW_ROOF = "; far below the floating-point peak: other instructions keep the SMs busy"


def _near_its_roof(roofline: KernelRoofline | Unknown) -> bool | None:
    if isinstance(roofline, Unknown) or not roofline.work:
        return None
    return roofline.work[0].fraction >= _NEAR_ROOF


def _work(roofline: KernelRoofline | Unknown) -> Iterator[str]:
    if isinstance(roofline, Unknown):
        return
    for rate in roofline.work:
        yield f"{rate.level} {si(rate.achieved, 'FLOP/s')}, {percent(100 * rate.fraction)} of the peak (ncu)"


def _action(roofline: KernelRoofline | Unknown, near: bool | None) -> str:
    if isinstance(roofline, Unknown) or not roofline.work:
        return "see which pipe is busy; work that can run at lower precision or on tensor cores runs faster there"
    if "tensor" in roofline.work[0].level:
        return "only fewer or cheaper operations help: FP8 or INT8 weights and activations, or less work (prefix cache)"
    if near:
        return (
            f"{roofline.work[0].level} arithmetic is the limit: tensor cores, or a lower precision, have a higher roof"
        )
    return "cut instructions that are not arithmetic: address computation, type conversions, predicated-off threads"
