"""Work has been launched, and the GPU does not start it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "queued-work"
summary = "The GPU idles although work has been launched."
source = idle.SOURCE

_ACTION = (
    "see in the timeline what it waits for: an event of another stream or GPU (cudaStreamWaitEvent), a host "
    "function in the stream (cudaLaunchHostFunc), memory that is being moved; before the first work of a capture also "
    "what the GPU had been given before it, which is not in it"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.QUEUED)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="work that has been launched does not start",
            action=_ACTION,
            no_command="a timeline does not tell what a stream waits for: the calls before it, in this capture, do",
        )
