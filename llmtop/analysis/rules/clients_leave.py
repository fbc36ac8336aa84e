"""Clients go away before their answer is complete."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.refusals import LEFT
from llmtop.model import Finding, Trace

id = LEFT
summary = "Clients go away before their answer is complete."
source = (
    "prometheus-fastapi-instrumentator, http_requests_total; vLLM, metrics (request_success counts what was finished)"
)


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.server.refusals` has found of this kind."""
    yield from findings_of(trace, id, source)
