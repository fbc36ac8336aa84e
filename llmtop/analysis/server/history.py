"""What a server's numbers were over the last minutes, as lanes: latencies as means, which histograms tell exactly."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import between_looks
from llmtop.analysis.series.readings import history, rate_history, server_track, source
from llmtop.analysis.server.objectives import objectives
from llmtop.analysis.views import Lane, LaneLimit, LaneMark, Lanes
from llmtop.model import NS_PER_S, Metric, Trace, TrackId
from llmtop.units import two_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_NS = 300 * NS_PER_S
"""That the server's history shows."""
_LATENCIES = (
    ("TTFT mean", v.SERVER_TTFT),
    ("ITL mean", v.SERVER_ITL),
    ("e2e mean", v.SERVER_E2E),
    ("queued mean", v.SERVER_QUEUE_TIME),
    ("prefill mean", v.SERVER_PREFILL_TIME),
    ("decode mean", v.SERVER_DECODE_TIME),
)


@lru_cache(maxsize=2)
def server_history(trace: Trace, window_ns: int = WINDOW_NS) -> Lanes:
    """Lanes of one server; one that it tells nothing for is left out, the pane above says why."""
    start_ns = trace.end_ns - window_ns
    marks = (mark for mark in trace.marks if start_ns <= mark.t_ns <= trace.end_ns)
    lanes = tuple(lane for lane in _lanes(trace, window_ns) if any(value is not None for _, value in lane.samples))
    return Lanes(start_ns, trace.end_ns, lanes, tuple(LaneMark(m.t_ns, m.text, m.severity.value) for m in marks))


def _lanes(trace: Trace, window_ns: int) -> Iterator[Lane]:
    track = server_track(trace)
    if track is None:
        return
    for title, metric in _LATENCIES:
        where = source(trace, track.id, v.bucket(metric, inf))
        means = _means(trace, track.id, metric, window_ns)
        yield Lane(title, "s", where, means, limits=tuple(_promised(trace, metric)))
    for title, metric in (("waiting", v.SERVER_WAITING), ("running", v.SERVER_RUNNING)):
        yield Lane(title, "requests", source(trace, track.id, metric), history(trace, track.id, metric, window_ns))
    for title, metric in (("output", v.SERVER_OUTPUT_TOKENS), ("prompt", v.SERVER_PROMPT_TOKENS)):
        rates = rate_history(trace, track.id, metric, window_ns)
        yield Lane(title, "tok/s", source(trace, track.id, metric), rates)
    kv = history(trace, track.id, v.SERVER_KV_USAGE, window_ns)
    yield Lane("KV cache", "ratio", source(trace, track.id, v.SERVER_KV_USAGE), kv, high=1.0)


def _promised(trace: Trace, metric: Metric) -> Iterator[LaneLimit]:
    """The objectives of a latency, the lowest first."""
    own = (one for one in objectives(trace) if one.metric == metric)
    for one in sorted(own, key=lambda one: one.limit_s):
        yield LaneLimit(one.limit_s, f"p{one.percent} {two_digits(one.limit_s, 's')}")


def _means(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> tuple[tuple[int, float | None], ...]:
    """Sum over count of what was observed between two looks; none where nothing was, or the server started anew."""
    return tuple(
        (one.end_ns, one.sum / one.count if one.count > 0 and one.sum >= 0 else None)
        for one in between_looks(trace, track, metric, window_ns)
    )
