"""The profiler keeps the launching thread from its work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.model import Severity

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "profiler-cost"
summary = "The GPU idles while the profiler works on the launching thread."
source = idle.SOURCE

_ACTION = "without the profiler this time is shorter: trace less (no backtraces, no OS calls), or for a shorter while"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.PROFILER)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="the profiler itself works on the launching thread",
            action=_ACTION,
            next_command=profiling.lightest_timeline(trace),
            severity=Severity.INFO,
        )
