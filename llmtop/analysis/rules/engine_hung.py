"""Requests run, no token comes, and nothing works on them."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.progress import STALLED
from llmtop.model import Finding, Trace

id = STALLED
summary = "Requests run, no token comes, and nothing works on them."
source = "vLLM documentation, troubleshooting (hangs); PyTorch, NCCL watchdog; GPM"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.liveness` has found of this kind; a fact needs no second signal."""
    yield from findings_of(trace, id, source)
