"""Which of a server's GPUs departs from its peers in clocks, SM or DRAM activity.

The ranks of one server do the same work in step, so what one does the others should: the slowest sets the pace of all.
A GPU departs when, in each third of the last 15 s,

* of three or more, its mean lies more than `Z_LIMIT` robust standard deviations (1.4826 x MAD) from the median of all
  and more than the measure's `least` away from it;
* of two, which have no majority, the higher mean is `pair_ratio` times the lower: the lower one is then named.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import busy_metric, latest
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Metric, Trace, TrackId, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from llmtop.model import Track

WINDOW_NS = 15 * NS_PER_S
"""In which GPUs are compared."""
_PARTS = 3
"""A burst on one GPU falls into one third of the window or two; what stands in all three lasts."""
Z_LIMIT = 3.5
"""Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): modified z-scores above 3.5."""
_NORMAL = 1.4826
"""Turns the MAD of normal data into its standard deviation."""


@frozen
class _Measure:
    """What is compared, and from which difference on it matters.

    Attributes:
        least: The least distance from the median, as a share of it (clocks) or in points of percent.
        is_share: `least` is a share of the median.
        pair_ratio: Between two GPUs.
    """

    metric: Metric
    least: float
    is_share: bool
    pair_ratio: float


_MEASURES = (
    # GPUs of one model under one power limit differ by 8 % on average (Sinha et al., Not All GPUs Are Created Equal,
    # SC'22, arXiv:2208.11035): more than that is a finding.
    _Measure(v.GPU_SM_CLOCK, 0.10, is_share=True, pair_ratio=1.3),
    # In steady prefill one H100's 100 ms windows held DRAM within 6 points: this is well outside, as what follows is.
    _Measure(v.GPU_DRAM, 15.0, is_share=False, pair_ratio=2.0),
)
_BUSY = 20.0
"""Points by which GPUs differ in how much of the time they have work: a fifth of it."""


@frozen
class Departure:
    """That one number of a GPU stands apart: "SM clock 1400 MHz, its 3 peers' 1980 MHz"."""

    metric: Metric
    text: str


def stragglers(trace: Trace, groups: Iterable[Sequence[Track]]) -> Mapping[TrackId, Sequence[Departure]]:
    """Why GPUs depart from the others, by track; empty when they keep step, or when there is nothing to compare.

    Args:
        trace: What the recorder holds.
        groups: GPUs of one server that have equally much to do: others have no reason to keep step.
    """
    departures: dict[TrackId, list[Departure]] = {}
    for gpus in groups:
        for measure in (*_MEASURES, *_busy(trace, gpus)):
            for track, reason in _departing(trace, gpus, measure).items():
                departures.setdefault(track, []).append(Departure(measure.metric, reason))
    return departures


def _busy(trace: Trace, gpus: Sequence[Track]) -> Iterator[_Measure]:
    """How much of the time they have work, by the best that all of them tell."""
    metrics = {busy_metric(trace, gpu.id) for gpu in gpus}
    if len(metrics) == 1:
        yield _Measure(metrics.pop(), _BUSY, is_share=False, pair_ratio=2.0)


def in_words(departures: Sequence[Departure]) -> str:
    """All of a GPU's in one line."""
    return "; ".join(one.text for one in departures)


def _departing(trace: Trace, gpus: Sequence[Track], measure: _Measure) -> dict[TrackId, str]:
    means = {track.id: part for track in gpus if (part := _means(trace, track.id, measure.metric)) is not None}
    if len(means) < 2:
        return {}
    found: dict[TrackId, str] = {}
    for track, parts in means.items():
        thirds = zip(*means.values(), strict=True)
        if all(_departs(own, list(values), measure) for own, values in zip(parts, thirds, strict=True)):
            others = [sum(part) / _PARTS for other, part in means.items() if other != track]
            found[track] = _reason(trace, track, measure, sum(parts) / _PARTS, others)
    return found


def _means(trace: Trace, track: TrackId, metric: Metric) -> tuple[float, ...] | None:
    """The mean of each third of the window, oldest first; None unless all have samples."""
    series = trace.get(track, metric)
    if series is None:
        return None
    part_ns = WINDOW_NS // _PARTS
    start_ns = trace.end_ns - WINDOW_NS
    means = []
    for i in range(_PARTS):
        part = series.between(start_ns + i * part_ns + 1, start_ns + (i + 1) * part_ns)
        values = [value for _, value in part.known]
        if not values:
            return None
        means.append(sum(values) / len(values))
    return tuple(means)


def _departs(own: float, values: Sequence[float], measure: _Measure) -> bool:
    """Whether one of several values stands apart.

    >>> clock = _MEASURES[0]
    >>> _departs(1400, [1980, 1975, 1400, 1980], clock), _departs(1900, [1980, 1975, 1900, 1980], clock)
    (True, False)
    >>> _departs(1300, [1980, 1300], clock), _departs(1980, [1980, 1300], clock)
    (True, False)
    """
    if len(values) == 2:
        high = max(values)
        return own < high and high >= measure.pair_ratio * own and high - own >= _least(high, measure)
    middle = median(values)
    spread = median(abs(value - middle) for value in values)
    distance = abs(own - middle)
    return distance >= _least(middle, measure) and distance > Z_LIMIT * _NORMAL * spread


def _least(middle: float, measure: _Measure) -> float:
    return measure.least * middle if measure.is_share else measure.least


def _reason(trace: Trace, track: TrackId, measure: _Measure, own: float, others: Sequence[float]) -> str:
    metric = measure.metric
    peers = f"its {len(others)} peers'" if len(others) > 1 else "its peer's"
    text = f"{metric.title} {quantity(own, metric.unit)}, {peers} {quantity(median(others), metric.unit)}"
    mask = latest(trace, track, v.GPU_CLOCK_REASONS)
    if metric is v.GPU_SM_CLOCK and not isinstance(mask, Unknown) and v.clock_reasons(mask):
        text += f" ({', '.join(v.clock_reasons(mask))})"
    return text
