"""Requests get errors instead of answers."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.refusals import REFUSED
from llmtop.model import Finding, Trace

id = REFUSED
summary = "Requests get errors instead of answers: all of them, or a share that matters."
source = "prometheus-fastapi-instrumentator, http_requests_total; RFC 9110, 15.5 and 15.6"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.server.refusals` has found of this kind."""
    yield from findings_of(trace, id, source)
