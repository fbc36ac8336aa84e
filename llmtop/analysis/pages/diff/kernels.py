"""The kernels of two reports, each with what it takes in both: a call, and all calls of a step or a report."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.match import KernelPair, Likeness, pairs_of
from llmtop.analysis.pages.diff.noise import Noise, TimeSample, noise_of, noise_of_sum
from llmtop.analysis.pages.diff.side import Side
from llmtop.columns import chosen
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.analysis.kernels.family import KernelFamily
    from llmtop.analysis.kernels.table import Row

ABSENT = Noise(0.0, 0.0, is_known=True)


@frozen
class CallTimes:
    """The calls of a kernel in one report.

    Attributes:
        launch: The one that stands for them.
        calls: Of a step where steps are compared, else of the report.
        times: Of a call, in ns; None where none has one.
        median_ns: NaN where none has one.
        has_failed: Whether it never ran.
    """

    name: str
    row: Row
    launch: int
    calls: float
    times: TimeSample | None
    median_ns: float
    has_failed: bool

    @property
    def total_ns(self) -> float:
        """Of all calls; 0 where none has a time."""
        return 0.0 if self.times is None else self.calls * self.times.mean

    @property
    def mean_ns(self) -> float:
        """Of a call; NaN where none has a time."""
        return math.nan if self.times is None else self.times.mean


@frozen
class KernelChange:
    """A kernel of one report or of both. What changed is in ns, of a step or of the report.

    Attributes:
        noise: Of the mean of a call.
    """

    family: KernelFamily
    likeness: Likeness | None
    before: CallTimes | None
    after: CallTimes | None
    noise: Noise

    @property
    def name(self) -> str:
        """What to call it: by both names where it has two."""
        names = dict.fromkeys(one.name for one in (self.before, self.after) if one is not None)
        return " → ".join(names)

    @property
    def is_in_both(self) -> bool:
        """Whether it is neither new nor gone."""
        return self.before is not None and self.after is not None

    @property
    def calls_between(self) -> float:
        """The mean of the calls of both."""
        return sum(one.calls for one in (self.before, self.after) if one is not None) / 2

    @property
    def call_ns(self) -> float:
        """By how much a call takes longer; NaN where that is not known or it is not in both."""
        if self.before is None or self.after is None:
            return math.nan
        return self.after.mean_ns - self.before.mean_ns

    @property
    def by_time_ns(self) -> float:
        """What longer calls cost at the mean of the calls of both; with `by_calls_ns` it is `total_ns`."""
        return 0.0 if math.isnan(self.call_ns) else self.call_ns * self.calls_between

    @property
    def by_calls_ns(self) -> float:
        """What more calls cost, at the mean time of both; of what is new or gone all of it."""
        return self.total_ns - self.by_time_ns

    @property
    def is_timed(self) -> bool:
        """Whether every report that has it tells its time."""
        return all(one.times is not None for one in (self.before, self.after) if one is not None)

    @property
    def total_ns(self) -> float:
        """What it takes more in all; 0 where a report does not tell its time."""
        if not self.is_timed:
            return 0.0
        ends = [0.0 if one is None else one.total_ns for one in (self.before, self.after)]
        return ends[1] - ends[0]

    @property
    def is_changed(self) -> bool:
        """Whether a call takes another time, beyond the noise."""
        return not math.isnan(self.call_ns) and not self.noise.hides(self.call_ns)

    @property
    def has_other_calls(self) -> bool:
        """Whether it is called more or less often; of steps by more than their ends make of it."""
        return (
            self.before is None
            or self.after is None
            or not math.isclose(self.before.calls, self.after.calls, rel_tol=SAME_CALLS)
        )


SAME_CALLS = 0.02
"""Calls a step that differ by less than this are the same: a step that is cut off has some less."""


@lru_cache(maxsize=4)
def kernel_changes(before: Side, after: Side) -> tuple[KernelChange, ...]:
    """All kernels of both, those that cost or save most first. Decodes nothing."""
    pairs = pairs_of(before.kernels, before.rows, after.kernels, after.rows)
    changes = [_change(before, after, pair) for pair in pairs]
    return tuple(sorted(changes, key=lambda one: (-abs(one.total_ns), -_total(one), one.name)))


def _total(change: KernelChange) -> float:
    return sum(one.total_ns for one in (change.before, change.after) if one is not None)


def _change(before: Side, after: Side, pair: KernelPair) -> KernelChange:
    is_one_shape = pair.likeness in (Likeness.SAME, None)
    times = (
        None if pair.before is None else _calls(before, pair.before, is_shaped=is_one_shape),
        None if pair.after is None else _calls(after, pair.after, is_shaped=is_one_shape),
    )
    samples = [one.times for one in times if one is not None and one.times is not None]
    noise = noise_of(samples[0], samples[1]) if len(samples) == 2 else ABSENT
    side, row = (after, pair.after) if pair.after is not None else (before, pair.before)
    assert row is not None
    return KernelChange(side.kernels.kind(row.launches[0]).family, pair.likeness, *times, noise)


def _calls(side: Side, row: Row, *, is_shaped: bool) -> CallTimes:
    known = chosen(side.kernels.table.duration_ns, row.launches)
    launch = side.kernels.middle(row)
    return CallTimes(
        name=side.kernels.row_name(row) if is_shaped else side.kernels.short_name(launch),
        row=row,
        launch=launch,
        calls=row.calls / side.units,
        times=TimeSample.of(known) if known else None,
        median_ns=median(known) if known else math.nan,
        has_failed=side.kernels.has_failed(launch),
    )


def noise_of_calls(changes: tuple[KernelChange, ...]) -> Noise:
    """Of the time of all kernels that both have, at the mean of their calls."""
    return noise_of_sum(one.noise.times(one.calls_between) for one in changes if one.is_in_both)
