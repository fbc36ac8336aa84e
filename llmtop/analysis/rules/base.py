"""What a diagnosis rule is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace


class Rule(Protocol):
    """One diagnosis. Pure: trace in, findings out; says nothing where the data does not allow a verdict."""

    id: str
    """Kebab-case and stable: "memory-bound-decode"."""

    summary: str
    """One sentence: what it means when it fires."""

    source: str
    """Where the rule comes from (a seed's section, a paper, a vendor's guide)."""

    def check(self, trace: Trace) -> Iterable[Finding]:
        """Findings with evidence; none when it does not apply or there is not enough data."""
        ...
