"""What of a file is lost, which stands above all else that is said of it. It is asked of every file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Severity

if TYPE_CHECKING:
    from llmtop.model import Trace


def damage(trace: Trace) -> tuple[str, ...]:
    """A sentence for each fault that costs a part of the file; all other views are of the rest."""
    return tuple(issue.message for issue in trace.issues if issue.severity is Severity.ERROR)


_RANKS = ("rank-unread", "rank-absent")
_ROWS = ("-times", "rows-skipped")
"""How the codes end of rows that were left out."""
_NOTABLE = 0.01
"""Of all rows: what is left of a file that lost fewer differs by no more than two runs do."""


def lost_parts(trace: Trace) -> tuple[str, ...]:
    """A sentence for each part that is missing, by which sums of the file are not sums of what was captured.

    Beside `damage` these are ranks without a file, and rows that were left out where they are more than 1 %.
    """
    left_out = (
        f"{issue.count} {issue.message}" if issue.code.endswith("-times") else issue.message
        for issue in trace.issues
        if issue.severity is Severity.WARNING
        if issue.code in _RANKS or (issue.code.endswith(_ROWS) and _is_notable(trace, issue.count))
    )
    return (*damage(trace), *left_out)


def _is_notable(trace: Trace, left_out: int) -> bool:
    rows = sum(len(trace.spans[kind]) for kind in trace.spans) + len(trace.stacks)
    return left_out > _NOTABLE * (rows + left_out)
