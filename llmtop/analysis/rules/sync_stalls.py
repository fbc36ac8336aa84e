"""The CPU waits until the GPU has run dry, and only then launches more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "sync-stalls"
summary = "The GPU idles after synchronisations that waited for all of its work."
source = idle.SOURCE

_ACTION = (
    "synchronise less often: launch the next step before the result of this one is read, keep results on the GPU "
    "(no .item(), .cpu() or print in the loop), wait for an event instead of the whole stream or device"
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
            action=_ACTION,
        )
