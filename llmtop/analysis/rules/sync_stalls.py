"""The CPU waits until the GPU has run dry, and only then launches more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "sync-stalls"
summary = "The GPU idles after synchronisations that waited for all of its work."
source = idle.SOURCE

_LESS = "synchronise less often: launch the next step before the result of this one is read, "
_ON_EVENT = ", wait for an event instead of the whole stream or device"
_ACTION = Words(
    pytorch=f"{_LESS}keep results on the GPU (no .item(), .cpu() or print in the loop){_ON_EVENT}",
    directives="synchronise less often: a compute construct waits for its kernel unless it is told not to; give it an "
    "async clause (OpenMP: nowait) and wait once a step, before results are read on the CPU, and keep arrays on the "
    "GPU in a data region around the loop",
    other=f"{_LESS}keep results on the GPU (neither copied to the host nor printed in the loop){_ON_EVENT}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.SYNC)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="the CPU waits for the GPU to finish before it launches more",
            action=_ACTION.of(trace),
        )
