"""The queue grows while the number of running requests stands still: the server is saturated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop import vocabulary as v
from llmtop.analysis.configuration import change, one_of
from llmtop.analysis.readings import history, latest, server_track
from llmtop.analysis.rules.advice import more_room_in_kv
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import known, metrics_command, says
from llmtop.analysis.rules.needs import is_watched, lacks_requests
from llmtop.model import NS_PER_S, Feature, Finding, Metric, Severity, Trace, Unknown

id = "queue-growth"
summary = "More requests come than the server finishes."
source = "NVIDIA AIPerf guide, server metrics (waiting grows with running flat: saturation)"

_WINDOW_NS = 60 * NS_PER_S
_LEAST_SAMPLES = 9
"""Three in each third of the window."""
_LEAST_GROWTH = 3.0
"""Requests: less than this is noise of arrivals."""
_TOO_FEW = Unknown(f"fewer than {_LEAST_SAMPLES} readings of the queue yet", "wait some seconds")
_FLAT = 0.1
"""Running may change by this share and still count as flat."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Waiting rises from third to third of the last minute; running does not."""
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_requests(trace)) if is_watched(trace) else ()
        return
    waiting = _thirds(trace, server.id, v.SERVER_WAITING)
    running = _thirds(trace, server.id, v.SERVER_RUNNING)
    if waiting is None or running is None:
        yield from unjudged(id, lacks_requests(trace) or _TOO_FEW)
        return
    rises = waiting[0] < waiting[1] < waiting[2] and waiting[2] - waiting[0] >= _LEAST_GROWTH
    if rises and running[2] > 0 and running[2] <= running[0] * (1 + _FLAT):
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=server.name,
            message=f"the queue grows: {waiting[0]:.0f} to {waiting[2]:.0f} waiting, {running[2]:.0f} running",
            evidence=(
                says(trace, server.id, v.SERVER_WAITING, waiting[2] - waiting[0], title="waiting grew in a minute by"),
                says(trace, server.id, v.SERVER_RUNNING, running[2], title="running, flat at"),
            ),
            action=_action(trace, server.id),
            next_command=metrics_command(server, "running|waiting|queue"),
            source=source,
        )


def _thirds(trace: Trace, track: str, metric: Metric) -> tuple[float, float, float] | None:
    values = [value for _, value in history(trace, track, metric, _WINDOW_NS) if value is not None]
    if len(values) < _LEAST_SAMPLES:
        return None
    n = len(values) // 3
    return _mean(values[:n]), _mean(values[n:-n]), _mean(values[-n:])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _action(trace: Trace, track: str) -> str:
    usage = known(latest(trace, track, v.SERVER_KV_USAGE))
    if usage is not None and usage < 0.9:
        more = change(trace, Feature.MAX_RUNNING, "let more requests run at once")
        return f"KV is at {usage * 100:.0f} % only: {one_of(more, 'look for the CPU-side limit')}"
    return f"send less load, add a replica, or {more_room_in_kv(trace)}"
