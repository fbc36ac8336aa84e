"""Prefill or a large batch keeps the tensor cores busy: the chip itself is the limit."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.advice import less_arithmetic
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import BOUND_PERCENT, gpu_names, gpus_where, on_gpus
from llmtop.analysis.rules.needs import lacks_gpu_gauges
from llmtop.model import Finding, Severity, Trace

id = "compute-bound"
summary = "The tensor cores are the limit; memory has bandwidth to spare."
source = "Williams et al., Roofline (2009); NVIDIA Nsight Compute, SpeedOfLight rule (60 %)"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Tensor activity at its limit while the GPU works, and above DRAM activity."""
    found = gpus_where(trace, (v.GPU_TENSOR, v.GPU_DRAM), _is_compute_bound)
    if found is None:
        yield from unjudged(id, lacks_gpu_gauges(trace, v.GPU_TENSOR, v.GPU_DRAM))
    else:
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=gpu_names(found.tracks),
            message=f"compute-bound{on_gpus(found.tracks)}: tensor {found.percents[0]:.0f} %, "
            f"DRAM {found.percents[1]:.0f} %{found.when}",
            evidence=found.evidence,
            action=less_arithmetic(trace),
            next_command=profiling.timeline_of_server(trace),
            source=source,
        )


def _is_compute_bound(at_work: tuple[float, ...], _: float | None) -> bool:
    tensor, dram = at_work
    return tensor >= BOUND_PERCENT and tensor > dram
