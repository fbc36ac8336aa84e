"""Prefill or a large batch keeps the tensor cores busy: the chip itself is the limit."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import gpu_tracks
from llmtop.analysis.rules.evidence import BOUND_PERCENT, gpu_name, means, says
from llmtop.model import Finding, Severity, Trace

id = "compute-bound"
summary = "The tensor cores are the limit; memory has bandwidth to spare."
source = "Williams et al., Roofline (2009); NVIDIA Nsight Compute, SpeedOfLight rule (60 %)"


def check(trace: Trace) -> Iterator[Finding]:
    """Tensor activity at its limit and above DRAM activity."""
    for track in gpu_tracks(trace):
        values = means(trace, track.id, (v.GPU_TENSOR, v.GPU_DRAM))
        if values is None:
            continue
        tensor, dram = values
        if tensor >= BOUND_PERCENT and tensor > dram:
            yield Finding(
                rule=id,
                severity=Severity.INFO,
                subject=gpu_name(track.id),
                message=f"compute-bound: tensor {tensor:.0f} %, DRAM {dram:.0f} %",
                evidence=(says(trace, track.id, v.GPU_TENSOR, tensor), says(trace, track.id, v.GPU_DRAM, dram)),
                action="use a lower precision (fp8), shorten or cache prompts (prefix caching), or add GPUs",
                next_command="ncu --section SpeedOfLight --section ComputeWorkloadAnalysis "
                "--target-processes all --launch-count 50 -o prefill -- COMMAND",
                source=source,
            )
