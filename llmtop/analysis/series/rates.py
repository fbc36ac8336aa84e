"""Rates of counters: never negative, never made of one sample, and honest about gaps and restarts."""

from __future__ import annotations

from itertools import pairwise
from operator import le, sub, truediv
from typing import TYPE_CHECKING, TypeAlias

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Series

Samples: TypeAlias = "tuple[tuple[int, float | None], ...]"

TOO_FEW = Unknown("not enough samples yet", "wait for two polls", UnknownKind.PASSING)


@frozen
class Increase:
    """How much a counter grew, in its own unit, and over how many seconds of samples."""

    amount: float
    seconds: float

    @property
    def per_second(self) -> float:
        """The mean rate."""
        return self.amount / self.seconds


def increase(series: Series | None, window_ns: int, now_ns: int | None = None) -> Increase | Unknown:
    """How much a counter grew within the last `window_ns` before `now_ns` (default: its newest sample).

    The window starts at the last sample at or before its edge, so that a poll that comes a little late still counts.
    A counter that falls was restarted: what it shows then is what it grew since, a lower bound (as Prometheus'
    `increase` has it). Samples without a value are bridged: the counter went on counting.
    """
    if series is None or not len(series):
        return TOO_FEW
    end_ns = now_ns if now_ns is not None else series.last_t_ns or 0
    times, values = series.stretch(end_ns - window_ns, end_ns)
    if _has_no_break(times, values, end_ns - 2 * window_ns):
        return Increase(values[-1] - values[0], (times[-1] - times[0]) / NS_PER_S)
    points = list(_window(series, end_ns - window_ns, end_ns).known)
    if len(points) < 2:
        return TOO_FEW
    amount = sum(_growth(before, after) for (_, before), (_, after) in pairwise(points))
    return Increase(amount, (points[-1][0] - points[0][0]) / NS_PER_S)


def amounts(several: Sequence[Series | None], window_ns: int, now_ns: int) -> list[float | Unknown]:
    """How much counters grew that are read together and begin anew together, the largest last: a histogram's buckets.

    As `increase` has it. Where the last has neither a gap nor a restart in the window, the others have none: of them
    two values are read. One that by its next poll has counted what it had before a restart hides that restart.
    """
    whole = several[-1] if several else None
    if whole is None:
        return [_amount(one, window_ns, now_ns) for one in several]
    times, values = whole.stretch(now_ns - window_ns, now_ns)
    if not _has_no_break(times, values, now_ns - 2 * window_ns):
        return [_amount(one, window_ns, now_ns) for one in several]
    last = whole.from_end(now_ns)
    first = last + len(times) - 1
    first_ns, last_ns = times[0], times[-1]
    steps = (one.step(first, first_ns, last, last_ns) if one is not None else None for one in several)
    return [
        step if step is not None and step >= 0 else _amount(one, window_ns, now_ns)
        for one, step in zip(several, steps, strict=True)
    ]


def _has_no_break(times: Sequence[int], values: Sequence[float], since_ns: int) -> bool:
    """Whether a stretch has neither a gap nor a restart, as nearly always.

    Hundreds of counters a frame are compared so without a Python loop. A sample without a value is NaN, which is not
    at most anything.
    """
    return len(times) > 1 and times[0] >= since_ns and all(map(le, values, values[1:]))


def _amount(series: Series | None, window_ns: int, now_ns: int) -> float | Unknown:
    grown = increase(series, window_ns, now_ns)
    return grown if isinstance(grown, Unknown) else grown.amount


def rate(series: Series | None, window_ns: int, now_ns: int | None = None) -> float | Unknown:
    """The mean growth per second of a counter over the window, in its unit per second; see `increase`."""
    grown = increase(series, window_ns, now_ns)
    return grown if isinstance(grown, Unknown) else grown.per_second


def rate_samples(series: Series | None) -> Samples:
    """The rate between each two neighbouring samples, at the later one's time, for graphs.

    A restart or a sample without a value leaves a gap (None): a graph shows what was measured, not what was bridged.
    """
    if series is None:
        return ()
    times, values = series.times, series.values
    later, after = times[1:], values[1:]
    if all(map(le, values, after)):  # no gap and no restart, as nearly always: see `increase`
        per_ns = map(truediv, map(sub, after, values), map(sub, later, times))
        return tuple(zip(later, map(float(NS_PER_S).__mul__, per_ns), strict=True))
    return tuple(
        (t, (end - start) * NS_PER_S / (t - t0) if start <= end else None)
        for (t0, start), (t, end) in pairwise(zip(times, values, strict=True))
    )


@frozen
class RateHistory:
    """The rates between neighbouring samples of a counter, and the stretch that they are of."""

    series: Series
    samples: Samples

    @classmethod
    def of(cls, series: Series, before: RateHistory | None = None) -> RateHistory:
        """As `rate_samples` has it; of `before`, one of the same counter, what is still in the stretch is kept."""
        if before is None or not before._goes_on_in(series):
            return cls(series, rate_samples(series))
        new = series.newest(series.stop - before.series.stop + 1)
        return cls(series, before.samples[series.start - before.series.start :] + rate_samples(new))

    def _goes_on_in(self, series: Series) -> bool:
        old = self.series
        return series.shares_columns(old) and old.start <= series.start < old.stop <= series.stop


def step_increase(series: Series | None, start_ns: int, end_ns: int) -> float:
    """How much a counter of probes grew in (start, end]; one that falls was started again.

    Such a counter has a sample only where it moved: what it was at the start is its last sample until then.
    """
    if series is None or (series.last_t_ns or 0) <= start_ns:
        return 0.0
    _, values = series.stretch(start_ns, end_ns)
    # As in `increase`: mostly there is no gap and no restart, and there are thousands of these counters.
    if len(values) > 1 and all(map(le, values, values[1:])):
        return values[-1] - values[0]
    known = [value for value in values if value == value]  # NaN: its probes were taken off
    return sum(_growth(last, after) for last, after in pairwise(known))


def _window(series: Series, start_ns: int, end_ns: int) -> Series:
    """The samples of the window, from the last one with a value at or before its start on."""
    before = series.between(2 * start_ns - end_ns, start_ns)
    first_ns = before.last_t_ns
    if first_ns is not None and before.last is None:
        first_ns = max((t for t, _ in before.known), default=None)
    return series.between(start_ns + 1 if first_ns is None else first_ns, end_ns)


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after
