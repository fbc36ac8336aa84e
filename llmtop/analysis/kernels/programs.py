"""What a captured program is written in, so that advice speaks of what its author can change."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.family import INDUCTOR, kernel_kind
from llmtop.frozen import frozen
from llmtop.model import SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from llmtop.model import Trace


class Program(Enum):
    """Kinds of programs that are told different things."""

    PYTORCH = auto()
    DIRECTIVES = auto()
    """Loops that a compiler makes kernels of: OpenACC, OpenMP."""
    OTHER = auto()
    """CUDA C++ and all else, or the capture does not tell."""


_OF_TORCH = re.compile(r"(?:^|[\s/])(?:torchrun|accelerate|deepspeed|vllm|sglang)(?:\s|$)")
_PYTHON = re.compile(r"(?:^|[\s/])python[\d.]*(?:\s|$)")
_OF_OTHERS = re.compile(
    r"^cupy_|\bcudapy::|^numba_|_cuda_kernel_(?:forward|backward)$"  # CuPy, Numba, Warp
    r"|^(?:\w+_)?fusion(?:_\d+)?$|^wrapped_\w+$|\bEigen::|\btensorflow::"  # XLA (JAX), TensorFlow
)
"""Kernels that other frameworks for Python make."""
_TORCH_RANGE = re.compile(r"^(?:aten|c10d|autograd|torch)::|Backward\d*(?:,|$)")
_OF_DIRECTIVES = re.compile(r"(?:_\d+_gpu(?:__red)?|^nvkernel_\w+|^__omp_offloading_\w+)$")
"""Names of kernels as nvc and nvfortran (function_line_gpu, nvkernel_) and LLVM make them of a loop."""


@lru_cache(maxsize=4)
def program_of(trace: Trace) -> Program:
    """By its operators and ranges, its command line and the names of its kernels.

    A Python program without a kernel or range that tells is taken for PyTorch's, unless it has kernels of another
    framework.
    """
    functions = () if trace.kernels is None else trace.kernels.functions
    if 2 * _count(_OF_DIRECTIVES, functions) > len(functions):
        return Program.DIRECTIVES
    names = () if trace.kernels is None else trace.kernels.names
    command = profiling.program(trace)
    is_torch = any(_count(_TORCH_RANGE, marks) for marks in _marks(trace)) or _OF_TORCH.search(command)
    if is_torch or any(kernel_kind(name).library == "PyTorch" for name in names):
        return Program.PYTORCH
    is_python = _PYTHON.search(command) and not _count(_OF_OTHERS, functions)
    return Program.PYTORCH if is_python else Program.OTHER


_OF_TRAINING = re.compile(
    r"^Optimizer\.(?:step|zero_grad)|^autograd::engine::|Backward\d*(?:,|$)|^RegisterPostBackwardFunction|^FSDP::"
)
"""Operators and ranges that PyTorch names as gradients are computed and applied, or will be."""
_GRADIENTS = re.compile(r"_backward\b|_backward_|_bwd_|wgrad|fused_?adam|FusedOptimizer", re.IGNORECASE)
"""Kernels that do; that of an input's gradient (dgrad) computes transposed convolutions too."""


@lru_cache(maxsize=4)
def trains(trace: Trace) -> bool:
    """Whether a PyTorch program computes gradients, by its operators, ranges and kernels."""
    names = () if trace.kernels is None else trace.kernels.names
    return any(_count(_OF_TRAINING, marks) for marks in _marks(trace)) or _count(_GRADIENTS, names) > 0


def is_of_torch(operator: str) -> bool:
    """Whether an operator is one of PyTorch's own, by its name.

    >>> is_of_torch("aten::mm"), is_of_torch("vllm::unified_attention")
    (True, False)
    """
    return _TORCH_RANGE.search(operator) is not None


def _marks(trace: Trace) -> Iterator[Sequence[str]]:
    """The names of operators, and those of ranges."""
    return (trace.spans[kind].names for kind in (SpanKind.OPERATOR, SpanKind.NVTX) if kind in trace.spans)


def _count(pattern: re.Pattern[str], names: Iterable[str]) -> int:
    return sum(pattern.search(name) is not None for name in names)


COMPILED = "torch.compile is on, and leaves these apart: TORCH_LOGS=graph_breaks,fusion says why"
"""In the place of the advice to use it, where it is used."""


def is_compiled(trace: Trace) -> bool:
    """Whether a capture has kernels that torch.compile generated."""
    return trace.kernels is not None and _count(INDUCTOR, trace.kernels.functions) > 0


@frozen
class Words:
    """What is said of one thing, in the words of what a program is written in.

    Attributes:
        pytorch: What speaks of PyTorch, of its options, or of servers that are written in it stands here alone.
        other: Also where the capture does not tell.
        directives: Empty where it is as for others.
        compiled: Of a PyTorch program that torch.compile has compiled; empty where it is as for all of them.
        training: Of a PyTorch program that trains, which has an optimizer and no requests; None where it is as for all.
    """

    pytorch: str
    other: str
    directives: str = ""
    compiled: str = ""
    training: Words | None = None

    def of(self, trace: Trace) -> str:
        """Those for the program of a capture."""
        if self.training is not None and program_of(trace) is Program.PYTORCH and trains(trace):
            return self.training.of(trace)
        pytorch = self.compiled if self.compiled and is_compiled(trace) else self.pytorch
        said = {Program.PYTORCH: pytorch, Program.DIRECTIVES: self.directives, Program.OTHER: self.other}
        return said[program_of(trace)] or self.other
