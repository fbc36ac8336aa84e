"""Memory is allocated or freed between kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "allocation-stalls"
summary = "The GPU idles while the launching thread allocates or frees memory."
source = idle.SOURCE

_ACTION = (
    "allocate once and reuse: a caching allocator or a pool (cudaMallocAsync with a release threshold, "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); cudaFree and cudaMalloc wait for the GPU, pools do not"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.ALLOCATION)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="the launching thread allocates or frees memory between kernels",
            action=_ACTION,
        )
