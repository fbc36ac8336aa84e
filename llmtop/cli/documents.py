"""What the JSON documents have in common: values, and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.model import Fact, Finding

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
_NOT_FINITE = Unknown("not a finite number")
FoundT = TypeVar("FoundT")


def fact(value: Fact, not_finite: Unknown = _NOT_FINITE) -> Json:
    """A value, or the object that stands for one that is not known; JSON knows neither NaN nor infinity.

    Args:
        value: A number, a text, or why there is none.
        not_finite: What is said of a number that JSON does not know.
    """
    if isinstance(value, float) and not isfinite(value):
        value = not_finite
    if isinstance(value, Unknown):
        return {"unknown": value.reason, "remedy": value.remedy}
    return value


def document_or_why(found: FoundT | Unknown, document: Callable[[FoundT], Json]) -> Json:
    """What a document says of what was found, or the object that stands for what is not known."""
    return fact(found) if isinstance(found, Unknown) else document(found)


def finding_document(finding: Finding) -> dict[str, Json]:
    """What each document says of a finding."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": finding.message,
        "evidence": list(finding.evidence),
        "action": finding.action,
        "next_command": finding.next_command,
        "source": finding.source,
    }
