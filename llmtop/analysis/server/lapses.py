"""When a latency was later than promised within the last minute, though the minute as a whole may not have been."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from llmtop.analysis.series.labels import labels
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S
from llmtop.vocabulary import SUM, bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.model import Metric, Trace, TrackId

LENGTH_NS = 5 * NS_PER_S
"""Users feel the latency of some seconds, which a minute dilutes. In five a busy server gives thousands of tokens, of
which one in a hundred still tells something."""
LEAST_LATE = 2
"""Observations beyond the limit: one request alone breaks no promise."""
_LOOKS_LATE = 3
"""Looks at the server in five seconds that found something late: of one stall, which all that run feel at once, one or
two do."""


@frozen
class Lapse:
    """A time in which each five seconds were later than promised.

    Attributes:
        start_ns: From the look before the first late observation of it.
        end_ns: Up to the look that found the last.
        worst_ns: Where its worst five seconds end.
        share: Of the observations in those, how many were late for certain.
    """

    start_ns: int
    end_ns: int
    worst_ns: int
    share: float


@frozen
class _Late:
    """What was late between two looks at the server."""

    start_ns: int
    end_ns: int
    observed: float
    late: float


def lapses(
    trace: Trace, track: TrackId, metric: Metric, limit: float, allowed: float, span_ns: int
) -> tuple[Lapse, ...]:
    """Those of the last `span_ns`, oldest first.

    Args:
        trace: Live or recorded.
        track: The server.
        metric: The latency, told in cumulative buckets. What lies in the limit's own bucket is not late for certain.
        limit: In the metric's unit.
        allowed: The share of observations that may be later.
        span_ns: How far back to look.
    """
    looks = tuple(_between_looks(trace, track, metric, limit, span_ns))
    found: list[Lapse] = []
    for one in _late_windows(looks, allowed):
        if found and one.start_ns < found[-1].end_ns:
            worst = max(one, found[-1], key=lambda lapse: lapse.share)
            found[-1] = Lapse(found[-1].start_ns, one.end_ns, worst.worst_ns, worst.share)
        else:
            found.append(one)
    return tuple(found)


def _between_looks(trace: Trace, track: TrackId, metric: Metric, limit: float, span_ns: int) -> Iterator[_Late]:
    uppers = sorted(float(label) for label in labels(trace, metric).get(track, ()) if label != SUM)
    upper = next((one for one in uppers if one >= limit), math.inf)
    whole, timely = (trace.get(track, bucket(metric, one)) for one in (math.inf, upper))
    if whole is None or timely is None or math.isinf(upper):
        return
    in_time = dict(timely.between(trace.end_ns - span_ns, trace.end_ns).known)
    counted = [(t, n, in_time[t]) for t, n in whole.between(trace.end_ns - span_ns, trace.end_ns).known if t in in_time]
    for (before_ns, n, kept), (now_ns, more, still_kept) in pairwise(counted):
        # A server that has started anew has counted from 0: what it shows is what came since.
        grown, within = (more - n, still_kept - kept) if more >= n else (more, still_kept)
        yield _Late(before_ns, now_ns, grown, max(0.0, grown - within))


def _late_windows(looks: Sequence[_Late], allowed: float) -> Iterator[Lapse]:
    """Windows of `LENGTH_NS` that are later than allowed, each up to one of the looks, from its first late one on."""
    starts = [one.start_ns for one in looks]
    observed = [0.0, *accumulate(one.observed for one in looks)]
    late = [0.0, *accumulate(one.late for one in looks)]
    for i, last in enumerate(looks):
        first = bisect_right(starts, last.end_ns - LENGTH_NS) - 1
        if first < 0 or last.end_ns - starts[first] > 2 * LENGTH_NS:
            continue
        beyond, seen = late[i + 1] - late[first], observed[i + 1] - observed[first]
        if round(beyond) < LEAST_LATE or beyond <= allowed * seen:
            continue
        stalls = [one for one in looks[first : i + 1] if one.late > 0]
        if len(stalls) >= _LOOKS_LATE:
            yield Lapse(stalls[0].start_ns, stalls[-1].end_ns, last.end_ns, beyond / seen)
