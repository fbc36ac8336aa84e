"""Latencies over time: how often the server's threads queued for a CPU, or stayed in a system call, and for how long.

Made of the counters that probes keep by powers of two. Such a counter has a sample only where it moved; when the probes
looked is told by the counter of the time in which they were attached.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.analysis.series.histograms import Distribution, Quantile
from llmtop.analysis.series.labels import labelled
from llmtop.analysis.series.latency_counters import LatencyCounters
from llmtop.analysis.series.readings import told_why_unseen
from llmtop.analysis.views import HeatColumn, Heatmap
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Metric, Series, Trace, Unknown, UnknownKind
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_HOLD = 2.5
"""Samples further apart than this many of their usual distances leave a gap between them."""
_LEAST_SHARE = 0.1
"""Probes that were attached for less than this part of a column saw too little of it to speak for it."""
_NO_SCHEDULER = Unknown(
    "the scheduler has not been looked at yet", "wait for the first report of the probes", UnknownKind.PASSING
)
_NO_CALLS = Unknown(
    "system calls have not been timed yet", "wait for the first report of the probes", UnknownKind.PASSING
)


@frozen
class _ProbeReports:
    """When the probes reported, and how long they had been attached by then."""

    polls: tuple[int, ...]
    attached: tuple[Series, ...]
    hold_ns: float

    def interval(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """The polls that tell of [start, end): those in it and the one before; else the two around it.

        None where nobody looked.
        """
        first, stop = bisect_right(self.polls, start_ns), bisect_right(self.polls, end_ns)
        stop = max(stop, first + 1)
        if first == 0 or stop > len(self.polls):
            return None
        since, until = self.polls[first - 1], self.polls[stop - 1]
        is_gap = any(b - a > self.hold_ns for a, b in pairwise(self.polls[first - 1 : stop]) if b > start_ns)
        return None if is_gap else (since, until)

    def seconds(self, since_ns: int, until_ns: int) -> float:
        """How long the probes were attached between two polls."""
        grown = ((one.at(until_ns) or 0.0) - (one.at(since_ns) or 0.0) for one in self.attached)
        return min(until_ns - since_ns, max(grown, default=0.0)) / NS_PER_S


def run_queue_heatmap(trace: Trace, window_ns: int, columns: int, known: Heatmap | None = None) -> Heatmap | Unknown:
    """How long the server's threads waited for a CPU, all processes together.

    Args:
        trace: Live or recorded; its end is the right edge.
        window_ns: How far back the left edge is.
        columns: How many columns there is room for.
        known: The last heatmap of the same thing, whose finished columns are taken over.
    """
    looks = _looks(trace, v.SCHEDULER_OBSERVED)
    if looks is None:
        return told_why_unseen(trace, whats.SCHEDULER) or _NO_SCHEDULER
    counters = tuple(_counters(trace, {v.PROCESS_RUN_QUEUE_LATENCY.name}))
    return _heatmap("run-queue latency", trace, looks, counters, window_ns, columns, known)


def syscall_heatmap(
    trace: Trace, name: str | None, window_ns: int, columns: int, known: Heatmap | None = None
) -> Heatmap | Unknown:
    """How long one system call took (None: all of them together), all processes together; see `run_queue_heatmap`."""
    looks = _looks(trace, v.SYSCALL_TIMED)
    if looks is None:
        return told_why_unseen(trace, whats.SYSCALLS) or _NO_CALLS
    names = {v.labelled(v.SYSCALL_LATENCY, name).name} if name is not None else None
    counters = tuple(_counters(trace, names))
    return _heatmap("all system calls" if name is None else name, trace, looks, counters, window_ns, columns, known)


def _looks(trace: Trace, observed: Metric) -> _ProbeReports | None:
    series = [one for (_, name), one in trace.series.items() if name == observed.name and len(one) > 1]
    if not series:
        return None
    polls = tuple(sorted({t for one in series for t, _ in one.known}))
    usual = statistics.median(b - a for a, b in pairwise(polls)) if len(polls) > 1 else NS_PER_S
    return _ProbeReports(polls, tuple(series), _HOLD * usual)


def _counters(trace: Trace, names: set[str] | None) -> Iterator[LatencyCounters]:
    """The distributions of these names on all tracks; of all system calls where None."""
    found: dict[tuple[str, str], list[tuple[float, Series]]] = {}
    for track, full in labelled(trace):
        name, upper = v.without_bound(full)
        is_asked_for = name in names if names is not None else v.parted(name)[0] == v.SYSCALL_LATENCY.name
        if is_asked_for and upper != v.SUM:
            found.setdefault((track, name), []).append((float(upper), trace.series[track, full]))
    for bounds in found.values():
        bounds.sort(key=lambda bound: bound[0])
        uppers, series_of = zip(*bounds, strict=True)
        yield LatencyCounters(uppers, series_of)


def _heatmap(
    title: str,
    trace: Trace,
    looks: _ProbeReports,
    counters: Sequence[LatencyCounters],
    window_ns: int,
    columns: int,
    known: Heatmap | None,
) -> Heatmap:
    step_ns = max(1, window_ns // max(1, columns))
    end_ns = -(-trace.end_ns // step_ns) * step_ns
    start_ns = end_ns - step_ns * columns
    uppers = tuple(sorted({upper for one in counters for upper in one.uppers}))
    final = _final_columns(known, title, step_ns, uppers)
    column = cache(lambda interval: _column(looks, counters, uppers, interval))
    made = tuple(
        final[start] if start in final else column(looks.interval(start, start + step_ns))
        for start in range(start_ns, end_ns, step_ns)
    )
    # Reports that stay away for longer than usual are not on their way: the probes are off.
    seen_ns = max(looks.polls[-1] if looks.polls else 0, int(trace.end_ns - looks.hold_ns))
    return Heatmap(title, "ns", _source(trace), start_ns, step_ns, uppers, made, seen_ns)


def _final_columns(
    known: Heatmap | None, title: str, step_ns: int, uppers: Sequence[float]
) -> Mapping[int, HeatColumn | None]:
    """The columns of an earlier heatmap that nothing can change any more, by their start."""
    if known is None or known.title != title or known.step_ns != step_ns or known.uppers != uppers:
        return {}
    starts = range(known.start_ns, known.start_ns + step_ns * len(known.columns), step_ns)
    return {start: one for start, one in zip(starts, known.columns, strict=True) if start + step_ns <= known.seen_ns}


def _column(
    looks: _ProbeReports, counters: Iterable[LatencyCounters], uppers: Sequence[float], interval: tuple[int, int] | None
) -> HeatColumn | None:
    """What was counted between two polls: neighbours that are narrower than a poll share it."""
    if interval is None:
        return None
    seconds = looks.seconds(*interval)
    if seconds * NS_PER_S < _LEAST_SHARE * (interval[1] - interval[0]):
        return None
    counts = dict.fromkeys(uppers, 0.0)
    for one in counters:
        if (grown := one.grown(*interval)) is not None:
            for upper, count in zip(one.uppers, grown, strict=True):
                counts[upper] += count
    p50, p99 = _quantiles(counts)
    return HeatColumn(tuple(count / seconds for count in counts.values()), p50, p99)


def _quantiles(counts: Mapping[float, float]) -> tuple[Quantile | None, Quantile | None]:
    sums = tuple(accumulate(counts.values()))
    if not sums or not sums[-1]:
        return None, None
    seen = Distribution(tuple(counts), sums)
    return seen.quantile(0.5), seen.quantile(0.99)


def _source(trace: Trace) -> str:
    names = (v.SCHEDULER_OBSERVED.name, v.SYSCALL_TIMED.name)
    return next((clean(one.source) for (_, name), one in trace.series.items() if name in names), "")
