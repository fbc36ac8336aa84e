"""The queue grows while the number of running requests stands still: the server is saturated."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import metrics_command
from llmtop.analysis.rules.limits import limit
from llmtop.analysis.rules.needs import lacks_requests
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.series.readings import history, server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Finding, Metric, Severity, Trace, Track, TrackId, Unknown, UnknownKind

id = "queue-growth"
summary = "More requests come than the server finishes."
source = "NVIDIA AIPerf guide, server metrics (waiting grows with running flat: saturation)"

_WINDOW_NS = 60 * NS_PER_S
"""In which a queue is looked at."""
_LEAST_SAMPLES = 9
"""Three in each third of the window."""
_LEAST_S = 5.0
"""That its readings have to span."""
_LEAST_GROWTH = 3.0
"""Requests: less than this is noise of arrivals."""
_TOO_FEW = Unknown(
    f"fewer than {_LEAST_SAMPLES} readings of the queue over {_LEAST_S:.0f} s yet",
    "wait some seconds",
    UnknownKind.PASSING,
)
_FLAT = 0.1
"""Running may rise by this share and still count as not rising."""


@frozen
class _Thirds:
    """The means of a gauge over the thirds of the seconds that it was read in."""

    first: float
    middle: float
    last: float
    seconds: float

    @property
    def text(self) -> str:
        """How it went, without a claim that it was steady."""
        return " to ".join(dict.fromkeys((f"{self.first:.0f}", f"{self.last:.0f}")))


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Waiting rises from third to third of the last minute, or of what was seen of it; running does not."""
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_requests(trace)) if is_watched(trace) else ()
        return
    waiting = _thirds(trace, server.id, v.SERVER_WAITING)
    running = _thirds(trace, server.id, v.SERVER_RUNNING)
    if waiting is None or running is None:
        yield from unjudged(id, lacks_requests(trace) or _TOO_FEW)
        return
    rises = waiting.first < waiting.middle < waiting.last and waiting.last - waiting.first >= _LEAST_GROWTH
    if rises and running.last > 0 and running.last <= running.first * (1 + _FLAT):
        yield _finding(trace, server, waiting, running)


def _finding(trace: Trace, server: Track, waiting: _Thirds, running: _Thirds) -> Finding:
    held = limit(trace, server.id)
    over = f"{waiting.seconds:.0f} s"
    where = (source_of(trace, server.id, metric) for metric in (v.SERVER_WAITING, v.SERVER_RUNNING))
    told = (f"waiting {waiting.text} in {over}", f"running {running.text} in {over}")
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"the queue grows: {waiting.text} waiting in {over}, {running.last:.0f} running; {held.name}",
        evidence=(*(f"{text} ({who})" for text, who in zip(told, where, strict=True)), *held.evidence),
        action=held.action,
        next_command=metrics_command(server, "running|waiting|queue"),
        source=source,
    )


def _thirds(trace: Trace, track: TrackId, metric: Metric) -> _Thirds | None:
    samples = [(t_ns, value) for t_ns, value in history(trace, track, metric, _WINDOW_NS) if value is not None]
    seconds = (samples[-1][0] - samples[0][0]) / NS_PER_S if samples else 0.0
    if len(samples) < _LEAST_SAMPLES or seconds < _LEAST_S:
        return None
    values, n = [value for _, value in samples], len(samples) // 3
    return _Thirds(fmean(values[:n]), fmean(values[n:-n]), fmean(values[-n:]), seconds)
