"""What `llmtop diff` prints, whatever the format: which reports, the verdict, and sections below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.ladder import ladder_of_kernels, ladder_of_reports
from llmtop.analysis.pages.diff.page import diff_sections, ladder_section, parts_section
from llmtop.analysis.pages.diff.verdict import diff_verdict
from llmtop.cli.report import is_same_file
from llmtop.cli.report_rows import counted
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.ladder import Rung
    from llmtop.analysis.pages.diff.page import DiffSection
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.analysis.pages.diff.verdict import DiffVerdict
    from llmtop.model import Trace

CARE = "with care"
A = "A"
"""What the baseline is called."""
ALONE = "one report: its kernels against each other"


@frozen
class Compared:
    """A report beside the baseline; `name` is what sentences call it."""

    before: Side
    after: Side
    name: str

    @property
    def verdict(self) -> DiffVerdict:
        """What stands above all else."""
        found = diff_verdict(self.before, self.after, (A, self.name))
        paths = (Path(side.trace.origin.path) for side in (self.before, self.after))
        return replace(found, said=f"the same file twice: {found.said}") if is_same_file(*paths) else found


@frozen
class DiffPage:
    """One comparison.

    Attributes:
        head: The reports: what they are called, and what they are.
        verdict: None where there is none.
        alone: What stands first where there is none.
    """

    head: tuple[tuple[str, str], ...]
    verdict: DiffVerdict | None
    sections: Iterable[DiffSection]
    alone: str = ""

    @property
    def first(self) -> str:
        """What stands above all else: what cannot be said of the reports, or that there is one alone."""
        return self.alone if self.verdict is None else self.verdict.cannot

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to be careful about, as sentences."""
        return () if self.verdict is None else tuple(f"{CARE}: {one.text}" for one in self.verdict.cautions)


def diff_pages(compared: Sequence[Compared]) -> Iterator[DiffPage]:
    """One of two reports; of more a ladder, then for each what its difference is made of."""
    if len(compared) == 1:
        (one,) = compared
        head = (A, about(one.before)), (one.name, about(one.after))
        yield DiffPage(head, one.verdict, diff_sections(one.before, one.after))
        return
    heads = (A, about(compared[0].before)), *((one.name, about(one.after)) for one in compared)
    paths = {A: compared[0].before, **{one.name: one.after for one in compared}}
    files = {name: PurePath(side.trace.origin.path).name for name, side in paths.items()}
    named = [replace(one, name=f"{one.name} {files[one.name]}") for one in rungs_of(compared)]
    lost = [f"{one.name}: {one.why_not.reason}" for one in named if one.why_not is not None]
    yield DiffPage(heads, None, (ladder_section(named),), f"no time is compared of {'; '.join(lost)}" if lost else "")
    for one in compared:
        yield DiffPage((), one.verdict, parts_section(one.before, one.after))


def rungs_of(compared: Sequence[Compared]) -> tuple[Rung, ...]:
    """The ladder of several reports."""
    return ladder_of_reports(compared[0].before, [(one.name, one.before, one.after) for one in compared], A)


def kernel_pages(trace: Trace, baseline: int) -> Iterator[DiffPage]:
    """The ladder of one report's kernels."""
    from llmtop.analysis.pages.diff.side import sides

    head = ((A, about(sides(trace, trace)[0])),)
    yield DiffPage(head, None, (ladder_section(ladder_of_kernels(trace, baseline)),), ALONE)


def about(side: Side) -> str:
    """A report in a line: its path, its tool, its GPU, and how much it is of."""
    origin, launches = side.trace.origin, len(side.kernels.table)
    tool = " ".join(part for part in (origin.kind, origin.tool_version.split(" ")[0]) if part)
    steps = "" if side.steps is None else counted(side.steps.of_capture, "step")
    parts = (origin.path, tool, origin.gpu, counted(launches, "launch") if launches else "", steps)
    return " · ".join(part for part in parts if part)
