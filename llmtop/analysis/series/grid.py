"""Series of different sources on one common grid of time, without inventing what was not measured.

Each source is read at its own moments. What a reading tells is a mean over the time since the one before: of a
counter its growth, of an activity the driver's average. So every series becomes steps, and a cell of the grid is the
mean of the steps that lie in it. A cell of which less than half was measured is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from llmtop.model import Series

Step: TypeAlias = tuple[int, int, float]
"""Start and end in ns, and the mean value (of a counter: its growth per second) in between."""
Cells: TypeAlias = "tuple[float | None, ...]"
"""One value a cell of a grid, None where it was not measured."""

LONGEST_STEP_NS = 5 * NS_PER_S
"""No live source is polled less often; readings further apart, and three times further than usual, leave a gap."""
_LEAST_COVERED = 0.5
"""Share of a cell that was looked at, below which the cell is unknown."""


@frozen
class Grid:
    """Cells of equal length, one after another."""

    start_ns: int
    step_ns: int
    cells: int

    @property
    def end_ns(self) -> int:
        """The end of the last cell."""
        return self.start_ns + self.cells * self.step_ns

    @property
    def step_s(self) -> float:
        """The length of a cell in seconds."""
        return self.step_ns / NS_PER_S


def grid_of(start_ns: int, end_ns: int, step_ns: int) -> Grid:
    """As many whole cells as fit, the last one ending at `end_ns`."""
    cells = max(0, (end_ns - start_ns) // step_ns)
    return Grid(end_ns - cells * step_ns, step_ns, cells)


def usual_step_ns(series: Series | None) -> int:
    """The median time between two readings; 0 with fewer than two."""
    return 0 if series is None else usual_distance(series.times)


def usual_distance(times: Iterable[int]) -> int:
    """The median distance of neighbours; 0 with fewer than two."""
    distances = sorted(after - before for before, after in pairwise(times))
    return distances[len(distances) // 2] if distances else 0


def gauge_steps(series: Series | None, start_ns: int, end_ns: int) -> list[Step]:
    """Each value over the time since the reading before it; a lone one after a gap over the usual time."""
    times, values = _readings(series, start_ns, end_ns)
    usual = usual_distance(times)
    longest = max(LONGEST_STEP_NS, 3 * usual)
    return [
        (before if t - before <= longest else t - usual, t, value)
        for before, t, value in zip(times, times[1:], values[1:], strict=False)
        if value == value  # NaN: the source had none
    ]


def counter_steps(series: Series | None, start_ns: int, end_ns: int) -> list[Step]:
    """Growth per second between neighbouring readings; a restart or a reading without a value leaves a gap."""
    times, values = _readings(series, start_ns, end_ns)
    longest = max(LONGEST_STEP_NS, 3 * usual_distance(times))
    return [
        (t0, t, (after - before) * NS_PER_S / (t - t0))
        for t0, t, before, after in zip(times, times[1:], values, values[1:], strict=False)
        if after >= before and t - t0 <= longest  # false for NaN
    ]


def probe_steps(series: Series | None, observed: Series | None, start_ns: int, end_ns: int) -> list[Step]:
    """Growth per second of a counter that has readings only where it moved, while its probes were attached.

    `series` None is a counter that never moved. `observed` (`vocabulary.SCHEDULER_OBSERVED` and its like) is how
    long its probes were attached: it says when standing still means zero and when nobody looked. A reading without
    a value begins a time in which this counter alone was not looked at.
    """
    watched = [
        (a, b) for a, b, share in counter_steps(observed, start_ns, end_ns) if share >= _LEAST_COVERED * NS_PER_S
    ]
    if not watched:
        return []
    cadence = max(1, sorted(b - a for a, b in watched)[len(watched) // 2])
    grown: list[Step] = []
    shares = {t: share / NS_PER_S for _, t, share in counter_steps(observed, start_ns, end_ns)}
    times, values = _readings(series, start_ns, end_ns)
    for t0, t, before, after in zip(times, [*times[1:], end_ns], values, [*values[1:], math.nan], strict=False):
        if after > before:
            begin = max(t0, t - cadence)
            # Probes that came or went in between have counted for a part of the time only.
            share = min(1.0, max(_LEAST_COVERED, shares.get(t, 1.0)))
            grown.append((begin, t, (after - before) * NS_PER_S / (t - begin) / share))
        elif math.isnan(before):
            watched = _without(watched, t0, t)
    return _with_zeros(grown, watched) if watched else grown


def on_grid(steps: Sequence[Step], grid: Grid) -> Cells:
    """The mean of the steps over each cell; None where less than half of it was measured."""
    sums, covered = [0.0] * grid.cells, [0] * grid.cells
    origin, length, limit = grid.start_ns, grid.step_ns, grid.end_ns
    for start, end, value in steps:
        if end <= origin or start >= limit:
            continue
        left = (start if start > origin else origin) - origin
        right = (end if end < limit else limit) - origin
        for cell in range(left // length, (right - 1) // length):  # all but the last: mostly none or one
            edge = (cell + 1) * length
            sums[cell] += value * (edge - left)
            covered[cell] += edge - left
            left = edge
        cell = left // length
        sums[cell] += value * (right - left)
        covered[cell] += right - left
    least = _LEAST_COVERED * length
    return tuple(total / part if part >= least else None for total, part in zip(sums, covered, strict=True))


def _readings(series: Series | None, start_ns: int, end_ns: int) -> tuple[list[int], list[float]]:
    """Times and values of a window with the reading before it; NaN where the source had no value."""
    if series is None:
        return [], []
    before = series.between(-(2**62), start_ns - 1)
    window = series.between(start_ns, end_ns)
    last = slice(-1, None) if len(before) else slice(0)
    return [*before.times[last], *window.times], [*before.values[last], *window.values]


def _without(spans: list[tuple[int, int]], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The spans without one stretch of time."""
    parts = [part for a, b in spans for part in ((a, min(b, start_ns)), (max(a, end_ns), b))]
    return [(a, b) for a, b in parts if a < b]


def _with_zeros(grown: list[Step], watched: list[tuple[int, int]]) -> list[Step]:
    """The steps, and zeros over the time that was watched and in which nothing grew."""
    filled: list[Step] = []
    rest = iter(grown)
    step = next(rest, None)
    at = watched[0][0]
    for start, end in watched:
        at = max(at, start)
        while step is not None and step[0] < end:
            if step[0] > at:
                filled.append((at, step[0], 0.0))
            filled.append(step)
            at = max(at, step[1])
            step = next(rest, None)
        if at < end:
            filled.append((at, end, 0.0))
    return filled
