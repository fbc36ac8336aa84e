"""The front end takes a second and more for a page that takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.endpoint import SLOW
from llmtop.analysis.server.liveness import findings_of
from llmtop.model import Finding, Trace

id = SLOW
summary = "The front end takes a second and more for a page that takes milliseconds."
source = "the server's own HTTP endpoint"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
