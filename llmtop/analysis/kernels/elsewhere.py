"""The same kernel in other reports: a timeline tells when it runs and how often, a profile why it takes so long."""

from __future__ import annotations

from collections.abc import Sequence

from llmtop.analysis.kernels.bounds import Verdict
from llmtop.analysis.kernels.family import kernel_kind
from llmtop.analysis.kernels.table import Kernels, Row, kernels_of
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown


@frozen
class Elsewhere:
    """A kernel in another report.

    Attributes:
        report: What the report is called.
        launch: One launch that stands for all of them there.
        launches: How many there are of this name, grid and block.
        mean_ns: Of their durations; NaN where none has one.
        share: Of all kernels' time there, 0 to 1; None without times.
        has_same_size: Whether grid and block are those of the launch that was asked for.
        bound: What limits it there.
    """

    report: str
    trace: Trace
    launch: int
    launches: int
    mean_ns: float
    share: float | None
    has_same_size: bool
    bound: Verdict | Unknown


def elsewhere(trace: Trace, launch: int, reports: Sequence[tuple[str, Trace]]) -> tuple[Elsewhere, ...]:
    """A launch's kernel in other reports: those after its own one first, so that going on comes round.

    A kernel is told by its name, or by what its name says where tools spell it differently ("GEMM 64x8 bf16 nvjet");
    of several, one of the same grid and block leads, then one of the same name, then the one that takes longest.

    Args:
        trace: A report with kernels; it may be among `reports`.
        launch: Counted from 0.
        reports: Those that are open, with what they are called.

    Returns:
        One for each report that has the kernel.
    """
    mine, found = kernels_of(trace), []
    here = next((i for i, (_, other) in enumerate(reports) if other is trace), len(reports))
    for report, other in (*reports[here + 1 :], *reports[:here]):
        if other.kernels is None:
            continue
        theirs = kernels_of(other)
        row = max(theirs.groups(), key=lambda row: _likeness(mine, launch, theirs, row.launches[0]), default=None)
        if row is not None and any(likeness := _likeness(mine, launch, theirs, row.launches[0])):
            found.append(_told(report, other, row, has_same_size=likeness[0]))
    return tuple(found)


def _likeness(mine: Kernels, launch: int, theirs: Kernels, other: int) -> tuple[bool, bool, bool]:
    """Whether it is the same kernel at the same size, by the same name, or at all; all False where it is not."""
    has_same_name = mine.table.name(launch) == theirs.table.name(other)
    title = kernel_kind(mine.table.name(launch)).title
    if not has_same_name and not (title and title == kernel_kind(theirs.table.name(other)).title):
        return False, False, False
    has_same_size = (mine.grid(launch), mine.block(launch)) == (theirs.grid(other), theirs.block(other))
    return has_same_size, has_same_name, True


def _told(report: str, trace: Trace, row: Row, *, has_same_size: bool) -> Elsewhere:
    kernels = kernels_of(trace)
    launch = kernels.middle(row)
    return Elsewhere(
        report=report,
        trace=trace,
        launch=launch,
        launches=row.calls,
        mean_ns=row.total_ns / row.calls,
        share=kernels.share(row.total_ns),
        has_same_size=has_same_size,
        bound=kernels.facts(launch).bound,
    )
