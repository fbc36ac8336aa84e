"""Within CUDA graphs the GPU idles between one kernel and the next: no CPU is involved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "graph-gaps"
summary = "The GPU idles between the kernels of one CUDA graph."
source = idle.SOURCE

_BESIDE = "let branches that do not depend on each other run beside each other"
_ACTION = Words(
    pytorch="fewer and longer kernels: fuse them (torch.compile, fused norm and activation kernels), batch more, "
    f"{_BESIDE}",
    compiled=f"fewer and longer kernels: fuse them ({COMPILED}; fused norm and activation kernels), batch more, "
    f"{_BESIDE}",
    other=f"fewer and longer kernels: fuse them, give each more work, {_BESIDE}",
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
            action=_ACTION.of(trace),
            no_command="the GPU takes this time by itself: no tool records more of it",
        )
