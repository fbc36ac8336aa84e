"""Prefill or a large batch keeps the tensor cores busy: the chip itself is the limit."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import less_arithmetic
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import BOUND_PERCENT
from llmtop.analysis.rules.gpu_limits import GpuLimit, findings
from llmtop.model import Finding, Trace

id = "compute-bound"
summary = "The tensor cores are the limit; memory has bandwidth to spare."
source = "Williams et al., Roofline (2009); NVIDIA Nsight Compute, SpeedOfLight rule (60 %)"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Tensor activity at its limit while the GPU works, and above DRAM activity."""
    yield from findings(id, source, _LIMIT, trace)


def _is_compute_bound(at_work: tuple[float, ...], _: float | None) -> bool:
    tensor, dram = at_work
    return tensor >= BOUND_PERCENT and tensor > dram


_LIMIT = GpuLimit("compute-bound", (v.GPU_TENSOR, v.GPU_DRAM), _is_compute_bound, less_arithmetic)
