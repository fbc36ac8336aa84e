"""Prefill or a large batch keeps the tensor cores busy: the chip itself is the limit."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.rules.advice import less_arithmetic
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.gpu_limits import GpuUnit, findings
from llmtop.model import Finding, Trace

id = "compute-bound"
summary = "The tensor cores are the limit; memory has bandwidth to spare."
source = "Williams et al., Roofline (2009); NVIDIA Nsight Compute, SpeedOfLight rule (60 %)"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """The tensor cores are at their limit while the GPU works."""
    action = less_arithmetic(trace)
    yield from findings(id, source, GpuUnit.ARITHMETIC, lambda _dram, _tensor: "compute-bound", action, (), trace)
