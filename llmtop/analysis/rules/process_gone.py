"""The server or a part of it has ended: nothing is served without it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.processes import GONE
from llmtop.model import Finding, Trace

id = GONE
summary = "The server or a part of it has ended: nothing is served without it."
source = "Linux, proc(5), pidfd_open(2); kernel log (OOM killer, XID); cgroup memory.events"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
