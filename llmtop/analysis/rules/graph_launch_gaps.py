"""Between two launches of CUDA graphs the GPU waits for the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "graph-launch-gaps"
summary = "The GPU idles until the next CUDA graph is launched."
source = idle.SOURCE

_ACTION = (
    "launch the next graph before the result of the last one is read, and take what is launched or computed in "
    "between into the graph; a graph of many nodes takes long to launch: fuse its kernels"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.LAUNCH and part.before_graph)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="the next CUDA graph is launched late",
            action=_ACTION,
        )
