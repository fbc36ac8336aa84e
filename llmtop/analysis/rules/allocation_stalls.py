"""Memory is allocated or freed between kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.facts import OriginFact

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "allocation-stalls"
summary = "The GPU idles while the launching thread allocates or frees memory."
source = idle.SOURCE

_OF_HOST = re.compile(r"Host(?:Alloc|Register|Unregister)|FreeHost|MallocHost|HostFree|MemAllocHost")
"""Calls for pinned memory of the host, of the runtime (cudaHostAlloc) and of the driver (cuMemHostAlloc)."""
_ONCE = "allocate once and reuse: "
_POOLS_DO_NOT = "; cudaFree and cudaMalloc wait for the GPU, pools do not"
_SEGMENTS = ", PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_ACTION = Words(
    pytorch="PyTorch's allocator keeps memory, and asks the driver where sizes grow or its cache was emptied: keep "
    f"sizes the same, leave torch.cuda.empty_cache() out of the loop{_SEGMENTS}{_POOLS_DO_NOT}",
    other=f"{_ONCE}a pool (cudaMallocAsync with a release threshold), or buffers that stay{_POOLS_DO_NOT}",
    directives=f"{_ONCE}keep data on the GPU by a data region around the loop (enter data, target data), so that "
    f"nothing is allocated in it{_POOLS_DO_NOT}",
)
_PINNED = Words(
    pytorch="pinned host memory is slow to allocate: pin buffers before the steady part and reuse them (a DataLoader "
    "with pin_memory=True keeps its own)",
    other="pinned host memory is slow to allocate, since the system maps and locks each page: allocate it once, before "
    "the steady part, and reuse it",
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
            action=(_PINNED if _is_of_host(lost) else _ACTION).of(trace).replace(_SEGMENTS, _segments(trace)),
        )


def _segments(trace: Trace) -> str:
    """The setting, where the program does not have it."""
    return "" if "expandable_segments:True" in str(trace.origin.facts.get(OriginFact.ALLOCATOR)) else _SEGMENTS


def _is_of_host(lost: idle.Stake) -> bool:
    """Whether most of it is for memory of the host: pools of the GPU's memory change nothing there."""
    of_host = sum(part.ns for part in lost.together if _OF_HOST.search(part.name))
    return 2 * of_host > sum(part.ns for part in lost.together)
