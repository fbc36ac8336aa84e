"""Within CUDA graphs the GPU idles between one kernel and the next: no CPU is involved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "graph-gaps"
summary = "The GPU idles between the kernels of one CUDA graph."
source = idle.SOURCE

_ACTION = (
    "fewer and longer kernels: fuse them (torch.compile, fused norm and activation kernels), batch more, let "
    "branches that do not depend on each other run beside each other"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.GRAPH)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="between the kernels of CUDA graphs, where the CPU has no part",
            action=_ACTION,
            no_command="the GPU takes this time by itself: no tool records more of it",
        )
