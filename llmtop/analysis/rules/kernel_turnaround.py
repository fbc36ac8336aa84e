"""Kernels are queued, and yet the GPU idles a moment before each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.capability import capability_of
from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.capability import FIRST_OF

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "kernel-turnaround"
summary = "The GPU idles between kernels that are queued: each takes a moment to start."
source = idle.SOURCE

_HIDDEN = "a CUDA graph shortens the moment{}; the CPU has no part in it"
_DEPENDENT = ", programmatic dependent launch hides it"
_SINCE = FIRST_OF["Hopper"]
"""The first compute capability with programmatic dependent launch (CUDA C++ Programming Guide)."""
_ACTION = Words(
    pytorch=f"fewer and longer kernels: fuse them (torch.compile), batch more; {_HIDDEN}",
    compiled=f"fewer and longer kernels: fuse them ({COMPILED}), batch more; {_HIDDEN}",
    directives="fewer and longer kernels: fuse loops into fewer constructs; the CPU has no part in it",
    other=f"fewer and longer kernels: fuse them, give each more work; {_HIDDEN}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.TURNAROUND)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="the next kernel is queued, and takes a moment to start",
            action=_ACTION.of(trace).replace("{}", _DEPENDENT if (capability_of(trace) or _SINCE) >= _SINCE else ""),
            no_command="the GPU takes this time by itself: no tool records more of it",
        )
