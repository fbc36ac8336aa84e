"""Code is loaded or compiled while the GPU waits for its launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "code-loading"
summary = "The GPU idles while code is loaded or compiled, or in single launches that last."
source = "CUDA C++ Programming Guide (lazy loading: a kernel's code is loaded at its first launch)"

_LOADED = (
    "code is loaded, compiled or captured while the GPU waits",
    "leave the warm-up out of the capture, and warm up before serving (CUDA_MODULE_LOADING=EAGER loads all code at "
    "once); where it comes at every step, keep shapes the same and cache what is compiled (NVRTC, Triton) or captured",
)
_SLOW = (
    "single launch calls last longer than 200 µs",
    "the first launch of a kernel loads its code: leave the warm-up out of the capture, and warm up before serving; "
    "later ones wait for a lock (other threads that call CUDA) or for a CPU (--cpuctxsw=process-tree tells)",
)
_LOADING = frozenset({Cause.LOADING, Cause.GRAPH_BUILD})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause in _LOADING or part.cause is Cause.SLOW_LAUNCH)
    if lost is not None:
        loading_ns = sum(part.ns for part in lost.together if part.cause in _LOADING)
        message, action = _LOADED if 2 * loading_ns >= sum(part.ns for part in lost.together) else _SLOW
        yield idle.finding(trace, lost, rule=id, message=message, action=action, source=source)
