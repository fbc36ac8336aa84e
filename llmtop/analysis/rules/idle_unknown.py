"""Idle time of which the capture does not tell the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.sums import GRAPHS_UNTRACED

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "idle-unknown"
summary = "The capture does not tell why the GPU idles."
source = idle.SOURCE
_OR_BUSY = "or busy with CUDA graphs, which were launched and not traced"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, with what would tell."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.UNKNOWN)
    if lost is not None:
        reasons = {str(missing.what): missing.why for missing in idle_account(trace).unknown}
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=_OR_BUSY if lost.together[0].name == GRAPHS_UNTRACED else "the capture does not tell why",
            general=[f"{part.name}: {reasons[part.name].reason}" for part in lost.together if part.name in reasons],
            action="; ".join(
                dict.fromkeys(reasons[part.name].remedy for part in lost.together if part.name in reasons)
            ),
            next_command=profiling.timeline_with_threads(trace),
        )
