"""The server's endpoint refuses or does not answer while its processes live."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.endpoint import DEAD
from llmtop.analysis.server.liveness import findings_of
from llmtop.model import Finding, Trace

id = DEAD
summary = "The server's endpoint refuses or does not answer while its processes live."
source = "the server's own HTTP endpoint"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
