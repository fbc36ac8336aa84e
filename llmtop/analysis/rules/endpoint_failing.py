"""The server's endpoint answers with something else than its metrics."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.endpoint import FAILING
from llmtop.analysis.server.liveness import findings_of
from llmtop.model import Finding, Trace

id = FAILING
summary = "The server's endpoint answers with something else than its metrics."
source = "the server's own HTTP endpoint; RFC 9110 (status codes)"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
