"""How old what is shown is: a number of a source that fell silent, or is asked seldom, must not pass for "now"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.facts import OriginFact
from llmtop.model import NS_PER_S, TrackKind

if TYPE_CHECKING:
    from llmtop.model import Series, Trace

INTERVALS = 2
"""A number may be as old as this many intervals without a word: polls and frames are not in step."""
_LEAST_NS = NS_PER_S
"""At more than 2 Hz polls jitter by more than an interval."""
_USUAL_S = 1.0
"""Between two polls, where a recording does not say."""


def interval_s(trace: Trace) -> float:
    """Seconds between two looks at each source, as the session was told; 1 where a trace does not say."""
    interval = trace.origin.facts.get(OriginFact.INTERVAL_S, _USUAL_S)
    return float(interval) if isinstance(interval, int | float) else _USUAL_S


def limit_ns(trace: Trace) -> int:
    """From which age on a number is shown with it."""
    return max(_LEAST_NS, int(INTERVALS * interval_s(trace) * NS_PER_S))


def known_ns(series: Series | None) -> int | None:
    """When a series last had a value."""
    if series is None or not len(series):
        return None
    if series.last is not None:
        return series.last_t_ns
    return max((t for t, _ in series.newest(_LOOK_BACK).known), default=None)


_LOOK_BACK = 64
"""Samples among which the newest one with a value is looked for."""


def old_s(trace: Trace, kind: TrackKind) -> float:
    """The age of the newest value that any track of a kind has, in seconds.

    Returns:
        0.0 while it is not older than two intervals, and where there never was one: then nothing is shown.
    """
    oldest_ns = trace.end_ns - limit_ns(trace)
    newest_ns: int | None = None
    for track in trace.tracks_of(kind):
        for metric in _STEADY[kind]:
            t_ns = known_ns(trace.get(track.id, metric))
            if t_ns is None:
                continue
            if t_ns >= oldest_ns:  # one of hundreds of threads is enough
                return 0.0
            newest_ns = t_ns if newest_ns is None else max(newest_ns, t_ns)
    return 0.0 if newest_ns is None else (trace.end_ns - newest_ns) / NS_PER_S


_STEADY = {
    TrackKind.SERVER: (
        v.SERVER_RUNNING,
        v.SERVER_OUTPUT_TOKENS,
        v.SERVER_REQUESTS,
        v.SERVER_WAITING,
        v.SERVER_STEPS,
        v.SERVER_KV_USAGE,
    ),
    TrackKind.GPU: (v.GPU_POWER, v.GPU_UTIL, v.GPU_MEMORY_USED, v.GPU_ACTIVE),
    TrackKind.THREAD: (v.THREAD_ON_CPU,),
}
"""What is read at every look, as far as it is there at all."""


def age_text(seconds: float) -> str:
    """What stands beside an old number; empty for one of now.

    >>> age_text(0.0), age_text(4.2), age_text(130)
    ('', '4 s old', '2 min old')
    """
    if not seconds:
        return ""
    return f"{seconds:.0f} s old" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min old"


_MINUTES_FROM_S = 120
"""From which age on it is told in minutes."""
