"""Latencies that probes count by powers of two: how many came in each slot between two moments."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.model import Series


@frozen
class LatencyCounters:
    """The counters of one distribution on one track: `series[i]` counts what is at or below `uppers[i]`, ascending."""

    uppers: tuple[float, ...]
    series: tuple[Series, ...]

    def grown(self, since_ns: int, until_ns: int) -> list[float] | None:
        """How many came in each slot (above the bound before, up to its own) within (since, until]; None for none.

        A counter of probes has a sample only where it moved, and had been 0 before its first one.
        """
        newest = self.series[-1]
        if newest.at(since_ns) == newest.at(until_ns):
            return None  # of hundreds of distributions few have moved
        before, after = self._counts(since_ns), self._counts(until_ns)
        if before[-1] > after[-1]:  # started again
            before = [0.0] * len(after)
        below = [0.0, *(late - early for early, late in zip(before, after, strict=True))]
        return [max(0.0, upto - lower) for lower, upto in pairwise(below)]

    def _counts(self, t_ns: int) -> list[float]:
        """How many were at or below each bound by then.

        A bound that is first seen late begins with 0, though all that was shorter is at or below it: the largest of
        the lower bounds says how many that were.
        """
        return list(accumulate((series.at(t_ns) or 0.0 for series in self.series), max))
