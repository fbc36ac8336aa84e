"""Between two launches the thread that feeds the GPU is in CUDA calls that neither launch, copy, allocate nor wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "cuda-calls"
summary = "The GPU idles while the launching thread is in other CUDA calls."
source = idle.SOURCE

_NAMES = 2
"""Calls that the message names."""
_ACTION = (
    "take them out of the loop: ask for attributes and occupancy once, create streams, events and contexts before; "
    "where such a call lasts it waits for a lock that another thread holds in CUDA, or for the driver to be set up"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, with the calls."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.CALL)
    if lost is not None:
        calls = ", ".join(part.name for part in lost.together[:_NAMES])
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"the launching thread is in other CUDA calls ({calls})",
            action=_ACTION,
        )
