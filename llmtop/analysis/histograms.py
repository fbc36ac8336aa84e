"""Quantiles of latency distributions that a server exports as cumulative buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.rates import increase
from llmtop.analysis.readings import why_absent
from llmtop.model import Unknown
from llmtop.vocabulary import bucket

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile in the metric's unit. `is_lower_bound`: it lies beyond the last finite bucket, show it with ">"."""

    value: float
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """Observations of a window: `uppers` are bucket bounds, ascending, the last one inf; `counts` are cumulative."""

    uppers: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def observations(self) -> float:
        """How many there were."""
        return self.counts[-1]

    def quantile(self, q: float) -> Quantile:
        """Interpolate linearly within the bucket where the rank falls.

        As Prometheus' `histogram_quantile` does: the first bucket starts at 0, and a rank in the +Inf bucket gives
        the largest finite bound, which is then a lower bound only.
        """
        rank = q * self.observations
        i = next(i for i, count in enumerate(self.counts) if count >= rank)
        upper = self.uppers[i]
        lower, below = (self.uppers[i - 1], self.counts[i - 1]) if i else (0.0, 0.0)
        if math.isinf(upper):
            return Quantile(lower, is_lower_bound=True)
        inside = self.counts[i] - below
        return Quantile(lower + (upper - lower) * ((rank - below) / inside if inside else 1.0))


@lru_cache(maxsize=8)
def distribution(trace: Trace, track: str, metric: Metric, window_ns: int) -> Distribution | Unknown:
    """What was observed of a latency within the last `window_ns`; kept for the quantiles that are asked for next."""
    uppers = _uppers(trace, track, metric)
    if not uppers:
        return why_absent(trace, track, metric)
    grown = [increase(trace.get(track, bucket(metric, upper)), window_ns, trace.end_ns) for upper in uppers]
    counts: list[float] = []
    for one in grown:
        if isinstance(one, Unknown):
            return one
        counts.append(max(one.amount, counts[-1] if counts else 0.0))
    if not counts[-1]:
        return Unknown("no observations in the window")
    return Distribution(uppers, tuple(counts))


def quantile(trace: Trace, track: str, metric: Metric, q: float, window_ns: int) -> Quantile | Unknown:
    """A quantile (`q` from 0 to 1) of a latency over the last `window_ns`, in the metric's unit (seconds)."""
    seen = distribution(trace, track, metric, window_ns)
    return seen if isinstance(seen, Unknown) else seen.quantile(q)


def _uppers(trace: Trace, track: str, metric: Metric) -> tuple[float, ...]:
    prefix = f"{metric.name}|"
    labels = (name[len(prefix) :] for owner, name in trace.series if owner == track and name.startswith(prefix))
    uppers = tuple(sorted(float(label) for label in labels if label != "sum"))
    return uppers if len(uppers) > 1 and math.isinf(uppers[-1]) else ()
