"""A process of the server has no file descriptors left, or few."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.server.liveness import findings_of
from llmtop.analysis.server.open_files import OUT_OF_FILES
from llmtop.model import Finding, Trace

id = OUT_OF_FILES
summary = "A process of the server has no file descriptors left, or few."
source = "Linux, getrlimit(2) (RLIMIT_NOFILE); accept(2) (EMFILE)"


def check(trace: Trace) -> Iterator[Finding]:
    """What `llmtop.analysis.server.open_files` has found."""
    yield from findings_of(trace, id, source)
