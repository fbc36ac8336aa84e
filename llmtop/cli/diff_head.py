"""What every format of `llmtop diff` begins with: which reports are compared, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.analysis.diff.verdict import diff_verdict
from llmtop.cli.report_rows import counted

if TYPE_CHECKING:
    from llmtop.analysis.diff.side import Side
    from llmtop.analysis.diff.verdict import DiffVerdict

CARE = "with care"


@dataclass(frozen=True, slots=True)
class Compared:
    """A report beside the one that it is compared with.

    Attributes:
        names: What sentences call the two: A is the baseline.
    """

    before: Side
    after: Side
    names: tuple[str, str]

    @property
    def verdict(self) -> DiffVerdict:
        """What stands above all else."""
        return diff_verdict(self.before, self.after, self.names)


def head_of(one: Compared) -> Iterator[tuple[str, str]]:
    """The two reports: what they are called, and what they are."""
    for name, side in zip(one.names, (one.before, one.after), strict=True):
        yield name, about(side)


def about(side: Side) -> str:
    """A report in a line: its path, its tool, its GPU, and how much it is of."""
    origin, launches = side.trace.origin, len(side.kernels.table)
    tool = " ".join(part for part in (origin.kind, origin.tool_version.split(" ")[0]) if part)
    steps = "" if side.steps is None else counted(side.steps.of_capture, "step")
    parts = (origin.path, tool, origin.gpu, counted(launches, "launch") if launches else "", steps)
    return " · ".join(part for part in parts if part)
