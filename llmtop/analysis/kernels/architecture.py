"""Which architecture a capture's GPU has, by its name or, where the file has none, by kernels that run on no other."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.models import GpuModel, find_gpu

if TYPE_CHECKING:
    from llmtop.model import Trace

_ONLY_THERE = (
    ("Blackwell", re.compile(r"^nvjet_sm1[02]\d_|(?:^|_)sm1[02]\d_xmma_|\bSm1[02]\d\b")),
    ("Hopper", re.compile(r"^nvjet_(?:sm90_|[a-z]+_)|(?:^|_)sm90_xmma_|cutlass3x_sm90_|\bSm90\b")),
)
"""Names of kernels with instructions of one architecture (sm_90a, sm_100a), which load on no other.

Code for sm_80 runs on all that came after, and tells nothing. nvjet kernels without a number are those of cuBLAS 12 for
Hopper.
"""


@lru_cache(maxsize=4)
def architecture(trace: Trace) -> str:
    """The architecture's name as `GpuModel` has it; empty where nothing tells."""
    gpu = find_gpu(trace.origin.gpu)
    if isinstance(gpu, GpuModel):
        return gpu.architecture
    names = () if trace.kernels is None or trace.origin.gpu else trace.kernels.names
    return next((name for name, pattern in _ONLY_THERE if any(map(pattern.search, names))), "")
