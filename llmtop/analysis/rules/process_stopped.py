"""The server or a part of it may not run: stopped, held by a debugger, or frozen."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.processes import STOPPED
from llmtop.model import Finding, Trace

id = STOPPED
summary = "The server or a part of it may not run: stopped, held by a debugger, or frozen."
source = "Linux, proc_pid_stat(5) (states T and t); kernel documentation, cgroup-v2 (freezer)"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
