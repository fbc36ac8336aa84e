"""A part of the server hangs in the kernel, where no signal reaches it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.processes import HUNG
from llmtop.model import Finding, Trace

id = HUNG
summary = "A part of the server hangs in the kernel, where no signal reaches it."
source = "Linux, proc_pid_stat(5) (state D)"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
