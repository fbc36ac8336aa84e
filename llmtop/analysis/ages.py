"""How old what is shown is: a number of a source that fell silent, or is asked seldom, must not pass for "now"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Metric, Series, Trace

INTERVALS = 2
"""A number may be as old as this many intervals without a word: polls and frames are not in step."""
_LEAST_NS = NS_PER_S
"""At more than 2 Hz polls jitter by more than an interval."""
_USUAL_S = 1.0


def interval_s(trace: Trace) -> float:
    """Seconds between two looks at each source, as the session was told; 1 where a trace does not say."""
    interval = trace.origin.facts.get("interval_s", _USUAL_S)
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


def old_s(trace: Trace, track: str, metrics: Iterable[Metric]) -> float:
    """The age of the newest value that a track has of any of `metrics`, in seconds.

    Returns:
        0.0 while it is not older than two intervals, and where there never was one: then nothing is shown.
    """
    times = [t for metric in metrics if (t := known_ns(trace.get(track, metric))) is not None]
    age_ns = trace.end_ns - max(times) if times else 0
    return age_ns / NS_PER_S if age_ns > limit_ns(trace) else 0.0


def age_text(seconds: float) -> str:
    """What stands beside an old number; empty for one of now.

    >>> age_text(0.0), age_text(4.2), age_text(130)
    ('', '4 s old', '2 min old')
    """
    if not seconds:
        return ""
    return f"{seconds:.0f} s old" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min old"


_MINUTES_FROM_S = 120
