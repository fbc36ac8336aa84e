"""Quantiles of latency distributions that a server exports as cumulative buckets: as exact as these allow, no more."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, combinations, pairwise
from typing import TYPE_CHECKING

from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import amounts, increase
from llmtop.analysis.series.readings import grown_within, why_absent
from llmtop.frozen import frozen
from llmtop.model import TrackId, Unknown
from llmtop.units import bounds, two_digits
from llmtop.vocabulary import SUM, bucket, total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.model import Metric, Trace

RESOLVED_RATIO = 1.25
"""Bounds that lie no further apart than by this factor tell a value: their middle is wrong by 11 % at most, which is
what two digits of a latency promise. Servers' buckets are mostly wider (vLLM's step by 1.2 to 5, and its queue time
begins at 0.3 s): within one of those any value would be made up."""
_SLACK = 1e-6
"""By so much of itself a bound made of a sum is moved outwards: differences of large counters are off by less."""


@frozen
class Quantile:
    """Where a quantile lies, in the metric's unit: never below `low`, never above `high` (inf: no bound is known).

    `value` is the middle of bounds that are close (`RESOLVED_RATIO`), else None: it would be made up.
    """

    low: float
    high: float
    value: float | None = None

    @property
    def is_upper_bound(self) -> bool:
        """Nothing but an upper bound is known: it is shown with "<"."""
        return self.value is None and self.low == 0 and math.isfinite(self.high)

    @property
    def is_lower_bound(self) -> bool:
        """It lies beyond what the buckets reach to: it is shown with ">"."""
        return self.value is None and math.isinf(self.high)

    def exceeds(self, limit: float) -> bool | None:
        """Whether it is above a limit; None where the limit lies between the bounds."""
        if self.high <= limit:
            return False
        return True if self.low >= limit else None

    def text(self, unit: str) -> str:
        """The value with two digits, or the bounds: "94 ms", "< 300 ms", "80 to 120 s", "> 2560 s"."""
        return bounds(self.low, self.high, unit) if self.value is None else two_digits(self.value, unit)

    @property
    def _shown(self) -> tuple[float, float]:
        return (self.low, self.high) if self.value is None else (self.value, self.value)


def within(low: float, high: float) -> Quantile:
    """A quantile of which the bounds are known, with its value where they are close."""
    return Quantile(low, high, (low + high) / 2 if high <= low * RESOLVED_RATIO else None)


@frozen
class Distribution:
    """Observations of a window.

    Attributes:
        uppers: Bucket bounds, ascending, the last one inf.
        counts: How many were at or below each.
        sum: Of all observations, in the metric's unit; None where the server does not tell.
    """

    uppers: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float | None = None

    @property
    def observations(self) -> float:
        """How many there were."""
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        """Exact: sum over count."""
        return None if self.sum is None else self.sum / self.observations

    def shares_within(self, limit: float) -> tuple[float, float]:
        """Between what the share of observations at or below a limit lies: both ends of the limit's bucket."""
        low = max((n for upper, n in zip(self.uppers, self.counts, strict=True) if upper <= limit), default=0.0)
        high = next(n for upper, n in zip(self.uppers, self.counts, strict=True) if upper >= limit)
        return low / self.observations, high / self.observations

    def shares_beyond(self, limit: float) -> tuple[float, float]:
        """Likewise of those above it, the smaller one first."""
        low, high = self.shares_within(limit)
        return 1 - high, 1 - low

    def quantile(self, q: float) -> Quantile:
        """The bounds of the bucket where the rank falls, drawn closer by what the sum allows.

        Observations are never negative. The quantile is the smallest observation that is not below a share `q` of all
        of them (as NumPy's "inverted_cdf").
        """
        rank = max(q * self.observations, min(1.0, self.observations))
        i = next(i for i, count in enumerate(self.counts) if count >= rank * (1 - 1e-12))
        low, below = (self.uppers[i - 1], self.counts[i - 1]) if i else (0.0, 0.0)
        low = max(0.0, low)
        return within(*self._summed(low, self.uppers[i], i, math.ceil(rank - below - 1e-9)))

    def _summed(self, lower: float, upper: float, i: int, place: int) -> tuple[float, float]:
        """What the sum leaves of a bucket's bounds, for the observation that stands at `place` (from 1) within it.

        Those behind it are as long at least, and those before it as long at most: with all others at the ends of their
        buckets, the sum says how long it can be. A sum that contradicts the buckets (read while the server counted)
        says nothing.
        """
        if self.sum is None:
            return lower, upper
        inside = self.counts[i] - (self.counts[i - 1] if i else 0.0)
        least, most = self._ends(but=i)
        low, high = lower, upper
        if (not_shorter := inside - place + 1) >= 1:
            high = min(high, _apart((self.sum - least - (place - 1) * lower) / not_shorter, _SLACK))
        if math.isfinite(most + upper):
            low = max(low, _apart((self.sum - most - (inside - place) * upper) / place, -_SLACK))
        return (low, high) if low <= high else (lower, upper)

    def _ends(self, *, but: int) -> tuple[float, float]:
        """The smallest and the largest sum that the observations of all buckets but one can have."""
        least = most = below = lower = 0.0
        for i, (upper, count) in enumerate(zip(self.uppers, self.counts, strict=True)):
            if i != but and count > below:
                least += (count - below) * max(0.0, lower)
                most += (count - below) * upper
            lower, below = upper, count
        return least, most


@lru_cache(maxsize=16)
def distribution(
    trace: Trace, track: TrackId, metric: Metric, window_ns: int, end_ns: int | None = None
) -> Distribution | Unknown:
    """What was observed of a latency within `window_ns` up to a moment; kept for the quantiles that are asked for next.

    A server that tells only how many there were and how long together has one bucket, without an end.
    """
    uppers = _uppers(trace, track, metric)
    if not uppers:
        return why_absent(trace, track, metric)
    series = [trace.get(track, bucket(metric, upper)) for upper in uppers]
    end_ns = trace.end_ns if end_ns is None else end_ns
    grown = amounts(series, window_ns, end_ns)
    known = [one for one in grown if not isinstance(one, Unknown)]
    if len(known) < len(grown):
        each, untold = next((each, one) for each, one in zip(series, grown, strict=True) if isinstance(one, Unknown))
        why = grown_within(trace, track, each, window_ns)
        return why if isinstance(why, Unknown) else untold
    counts = list(accumulate(known, max))
    if not counts[-1]:
        return Unknown("no observations in the window")
    together = increase(trace.get(track, total(metric)), window_ns, end_ns)
    return Distribution(uppers, tuple(counts), None if isinstance(together, Unknown) else together.amount)


@frozen
class Looked:
    """What was observed of a latency between two looks at the server: how often, and how long together."""

    start_ns: int
    end_ns: int
    count: float
    sum: float


def between_looks(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> Iterator[Looked]:
    """Of each two neighbouring looks of the last `window_ns`; negative where the server started anew meanwhile."""
    sums, counts = trace.get(track, total(metric)), trace.get(track, bucket(metric, math.inf))
    if sums is None or counts is None:
        return
    start_ns = trace.end_ns - window_ns
    seen = dict(counts.between(start_ns, trace.end_ns).known)
    both = [(t, together, seen[t]) for t, together in sums.between(start_ns, trace.end_ns).known if t in seen]
    for (before_ns, old, old_count), (now_ns, new, count) in pairwise(both):
        yield Looked(before_ns, now_ns, count - old_count, new - old)


def quantile(trace: Trace, track: TrackId, metric: Metric, q: float, window_ns: int) -> Quantile | Unknown:
    """A quantile (`q` from 0 to 1) of a latency over the last `window_ns`, in the metric's unit (seconds)."""
    seen = distribution(trace, track, metric, window_ns)
    return seen if isinstance(seen, Unknown) else seen.quantile(q)


def in_order(quantiles: Sequence[Quantile]) -> tuple[Quantile, ...]:
    """The same quantile of latencies of which each contains the one before, so that what is shown is in that order.

    A request waits no longer than until its first token, and for that no longer than until its end. But a window
    counts different requests for each (first tokens when they come, whole requests when they end), so that what was
    measured may be in another order: then the bounds of both are shown, and where these contradict each other too,
    they are as wide as both together. The bounds stay true.
    """
    shown = list(quantiles)
    while pair := _contradiction(shown):
        earlier, later = (shown[i] for i in pair)
        low, high = min(earlier.low, later.low), max(earlier.high, later.high)
        for i in pair:
            known = replace(shown[i], value=None)
            shown[i] = Quantile(low, high) if earlier.low > later.high else known
    return tuple(shown)


def _contradiction(shown: Sequence[Quantile]) -> tuple[int, int] | None:
    pairs = combinations(range(len(shown)), 2)
    return next(((i, j) for i, j in pairs if shown[i]._shown[0] > shown[j]._shown[1]), None)


def _apart(bound: float, slack: float) -> float:
    return bound + slack * abs(bound)


def _uppers(trace: Trace, track: TrackId, metric: Metric) -> tuple[float, ...]:
    return _ascending(labels(trace, metric).get(track, ()))


@lru_cache(maxsize=64)
def _ascending(told: tuple[str, ...]) -> tuple[float, ...]:
    """The bounds that labels tell; kept, because a server's hardly ever change."""
    uppers = tuple(sorted(float(label) for label in told if label != SUM))
    return uppers if uppers and math.isinf(uppers[-1]) else ()
