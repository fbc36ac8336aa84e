"""Which architecture a capture's GPU has: by its compute capability or name, else by kernels that run on no other."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.capability import capability_of, tensor_types_of
from llmtop.capability import FIRST_OF, architecture_of, tensor_types
from llmtop.text import listed

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
    if (lowest := capability_of(trace)) is not None:
        return architecture_of(lowest)
    names = () if trace.kernels is None or trace.origin.gpu else trace.kernels.names
    return next((name for name, pattern in _ONLY_THERE if any(map(pattern.search, names))), "")


def tensor_types_used(trace: Trace) -> frozenset[str] | None:
    """The types that the capture's tensor cores multiply; None where nothing tells which GPU it is of."""
    known = tensor_types_of(trace)
    name = architecture(trace)
    return tensor_types(FIRST_OF[name]) if known is None and name else known


_BITS = {"fp64": 64, "fp32": 32, "tf32": 32, "int32": 32, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
"""Of types that kernels compute in, but those of 16 bits."""


def narrower_types(trace: Trace, dtype: str) -> str:
    """What inputs of tensor cores could be instead of this type on the GPU of a capture; empty where nothing.

    "FP8 or INT8"; where nothing tells which GPU it is of, what the newest have.
    """
    types, own = tensor_types_used(trace), _BITS.get(dtype, 16)
    ranked = ("bf16", "fp16", "FP8", "INT8", "FP4")
    fit = [one for one in ranked if _BITS.get(one.lower(), 16) < own and (types is None or one.lower() in types)]
    return listed(fit, "or") if fit else ""


def quantised_types(trace: Trace, dtype: str = "") -> str:
    """What weights of this type could be stored in on the GPU of a capture: "FP8, INT4"; empty where nothing."""
    types, own = tensor_types_used(trace), _BITS.get(dtype, 16)
    eight = "FP8" if types is None or "fp8" in types else "INT8"
    return ", ".join(name for name in (eight, "INT4") if _BITS[name.lower()] < own)
