"""What a captured program is written in, so that advice speaks of what its author can change."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.family import kernel_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Trace


class Program(Enum):
    """Kinds of programs that are told different things."""

    PYTORCH = auto()
    DIRECTIVES = auto()
    """Loops that a compiler makes kernels of: OpenACC, OpenMP."""
    OTHER = auto()
    """CUDA C++ and all else, or the capture does not tell."""


_PYTHON = re.compile(r"(?:^|[\s/])(?:python[\d.]*|torchrun|accelerate|vllm|sglang|trtllm-serve|tritonserver)(?:\s|$)")
_TORCH_RANGE = re.compile(r"^(?:aten|c10d|autograd|torch)::|Backward\d*(?:,|$)")
_OF_DIRECTIVES = re.compile(r"(?:_\d+_gpu(?:__red)?|^nvkernel_\w+|^__omp_offloading_\w+)$")
"""Names of kernels as nvc and nvfortran (function_line_gpu, nvkernel_) and LLVM make them of a loop."""


@lru_cache(maxsize=4)
def program_of(trace: Trace) -> Program:
    """By its NVTX ranges, its command line and the names of its kernels; none of them is guessed from."""
    functions = () if trace.kernels is None else trace.kernels.functions
    if 2 * _count(_OF_DIRECTIVES, functions) > len(functions):
        return Program.DIRECTIVES
    ranges, names = trace.spans.get("nvtx"), () if trace.kernels is None else trace.kernels.names
    is_torch = (ranges is not None and _count(_TORCH_RANGE, ranges.names)) or _PYTHON.search(profiling.program(trace))
    if is_torch or any(kernel_kind(name).library == "PyTorch" for name in names):
        return Program.PYTORCH
    return Program.OTHER


def _count(pattern: re.Pattern[str], names: Iterable[str]) -> int:
    return sum(pattern.search(name) is not None for name in names)


def by_program(trace: Trace, *, pytorch: str, directives: str, other: str) -> str:
    """The words for what a program is written in; `other` also where the capture does not tell."""
    return {Program.PYTORCH: pytorch, Program.DIRECTIVES: directives, Program.OTHER: other}[program_of(trace)]
