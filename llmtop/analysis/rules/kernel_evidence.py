"""What rules over profiled kernels share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmtop.analysis import profiling
from llmtop.analysis.bounds import Bound, Verdict
from llmtop.analysis.counters import Counters
from llmtop.analysis.kernels import KernelFacts, Kernels, Row, kernels_of
from llmtop.model import Trace, Unknown
from llmtop.units import duration, percent

WORTHWHILE_SHARE = 0.01
"""Of the kernels' time. By Amdahl's law not even removing a smaller kernel shortens the whole by more than that."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel that matters, with the launch that stands for all its calls.

    Attributes:
        share: Of all kernels' time, 0 to 1.
    """

    trace: Trace
    kernels: Kernels
    row: Row
    launch: int
    share: float

    @property
    def name(self) -> str:
        """Its short name."""
        return self.kernels.short_name(self.launch)

    @property
    def facts(self) -> KernelFacts:
        """What the report says of it."""
        return self.kernels.facts(self.launch)

    @property
    def metrics(self) -> Counters:
        """Its counters."""
        return self.kernels.metrics(self.launch)

    @property
    def time(self) -> str:
        """Evidence: how much time it takes."""
        calls = "1 call" if self.row.calls == 1 else f"{self.row.calls} calls"
        return f"{duration(self.row.total_ns)} in {calls}, {percent(100 * self.share)} of the kernels' time"

    def again(self, *sections: str) -> str:
        """The command that collects these sections of this launch; empty where the report has them all."""
        return profiling.of_launch(self.trace, self.launch, sections)


def heavy(trace: Trace, least: float = WORTHWHILE_SHARE) -> Iterator[Judged]:
    """Kernels with counters and at least this share of the time, the heaviest first."""
    kernels = kernels_of(trace)
    if kernels.table.details is None:
        return
    for row in kernels.groups():
        share = kernels.share(row.total_ns)
        if share is None or share < least:
            return
        yield Judged(trace, kernels, row, kernels.middle(row), share)


def bound_by(trace: Trace, bound: Bound) -> Iterator[tuple[Judged, Verdict]]:
    """Heavy kernels with this verdict."""
    for judged in heavy(trace):
        verdict = judged.facts.bound
        if not isinstance(verdict, Unknown) and verdict.bound is bound:
            yield judged, verdict
