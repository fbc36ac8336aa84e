"""What of a file is lost, which stands above all else that is said of it. It is asked of every file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Severity

if TYPE_CHECKING:
    from llmtop.model import Trace


def damage(trace: Trace) -> tuple[str, ...]:
    """A sentence for each fault that costs a part of the file; all other views are of the rest."""
    return tuple(issue.message for issue in trace.issues if issue.severity is Severity.ERROR)
