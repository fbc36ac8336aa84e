"""The KV cache is full: running requests are thrown out and computed again, or others wait for room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import more_room_in_kv, room_in_kv
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, metrics_command, recent_mean, says
from llmtop.analysis.rules.limits import limit, waiting_now
from llmtop.analysis.rules.needs import lacks_server
from llmtop.analysis.rules.preemptions import Preempted, preempted
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.series.readings import history, server_track
from llmtop.facts import ServerFact
from llmtop.model import Finding, Metric, Severity, Trace, Track, TrackId, Unknown
from llmtop.units import counted, percent

id = "kv-bound"
summary = "KV cache exhausted: preempted requests are recomputed, latency tails grow."
source = "NVIDIA AIPerf guide, server metrics (preemptions are memory pressure); vLLM documentation, Preemption"

_GAUGES = (v.SERVER_KV_USAGE, v.SERVER_WAITING, v.SERVER_RUNNING)
_STEADY = 0.05
_NEAR_FULL = 0.8
"""Preempting frees blocks, so a cache that is too small shows less than full on average."""
_FULL = 0.95
"""For servers that do not count preemptions: so full all the time that what waits has no room."""

ABOUT_ROOM = "preempt|retract|kv_cache|_usage|running|processing|scheduled|pending|waiting|queue|deferred"
"""What servers call what the evidence quotes, in their metrics."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Requests are thrown out now, and others wait (or the cache is nearly full): whatever its gauge says.

    A preemption proves by itself that no block was left. It is said as soon as three are counted; of a server that
    does so now and then while something else is at its limit, for information. Servers that count none are judged by
    their gauges.
    """
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_server(trace)) if is_watched(trace) else ()
        return
    thrown_out = preempted(trace, server.id)
    if isinstance(thrown_out, Unknown):
        yield from _by_gauges(trace, server, thrown_out)
        return
    gauges = {one: value for one in _GAUGES if (value := recent_mean(trace, server.id, one)) is not None}
    usage = _most_used(trace, server.id) if v.SERVER_KV_USAGE in gauges else 0.0
    if thrown_out.is_going_on and (gauges.get(v.SERVER_WAITING, 0) >= 1 or usage >= _NEAR_FULL):
        yield _finding(trace, server, thrown_out, gauges)


def _by_gauges(trace: Trace, server: Track, uncounted: Unknown) -> Iterator[Finding | Unjudged]:
    """Without a count of preemptions: a full cache and requests that wait. With neither there is no shortage."""
    usage, waiting = (recent_mean(trace, server.id, one) for one in (v.SERVER_KV_USAGE, v.SERVER_WAITING))
    if usage is None or waiting is None or usage < _FULL or waiting < 1:
        is_short = waiting is None or waiting >= 1 or usage is None or usage >= _NEAR_FULL
        yield from unjudged(id, uncounted) if is_short and server.facts.get(ServerFact.PREEMPTS) != 0 else ()
        return
    if not limit(trace, server.id).is_kv:
        return  # all places are taken: no block is missed
    gauges = ((v.SERVER_KV_USAGE, usage), (v.SERVER_WAITING, waiting))
    now = counted(waiting_now(trace, server.id, waiting), "request", "wait")
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"KV-bound: KV cache {usage * 100:.0f} %, {now} for room",
        evidence=tuple(says(trace, server.id, *gauge) for gauge in gauges),
        action=room_in_kv(trace),
        next_command=metrics_command(server, ABOUT_ROOM),
        source=source,
    )


def _finding(trace: Trace, server: Track, thrown_out: Preempted, gauges: Mapping[Metric, float]) -> Finding:
    is_limit = limit(trace, server.id).is_kv
    rate = f"{thrown_out.counted.per_second * 60:.0f} preemptions/min"
    told = [_usage(trace, server.id, gauges[one]) for one in (v.SERVER_KV_USAGE,) if one in gauges]
    told += [rate]
    if v.SERVER_WAITING in gauges:
        told += [f"{waiting_now(trace, server.id, gauges[v.SERVER_WAITING]):.0f} waiting"]
    aside = "" if thrown_out.share is None else f", {percent(100 * thrown_out.share)} of the requests finished"
    return Finding(
        rule=id,
        severity=Severity.ERROR if thrown_out.is_much else Severity.WARNING if is_limit else Severity.INFO,
        subject=server.name,
        message="KV-bound: " + ", ".join(told) if is_limit else f"KV full now and then: {rate}{aside}",
        evidence=(*thrown_out.evidence, *(_says(trace, server.id, *gauge) for gauge in gauges.items())),
        action=more_room_in_kv(trace) if is_limit else room_in_kv(trace),
        next_command=metrics_command(server, ABOUT_ROOM),
        source=source,
    )


def _says(trace: Trace, track: TrackId, metric: Metric, mean: float) -> str:
    """Preempting keeps the KV gauge moving: its mean tells little without its most."""
    said = says(trace, track, metric, mean)
    return f"{said}, up to {_most_used(trace, track) * 100:.0f} %" if metric is v.SERVER_KV_USAGE else said


def _usage(trace: Trace, track: TrackId, mean: float) -> str:
    """The gauge where it stands still; else the most of the window: right after a preemption it shows less."""
    most = _most_used(trace, track)
    return f"KV cache {mean * 100:.0f} %" if most - mean <= _STEADY else f"KV cache up to {most * 100:.0f} %"


def _most_used(trace: Trace, track: TrackId) -> float:
    seen = (value for _, value in history(trace, track, v.SERVER_KV_USAGE, WINDOW_NS) if value is not None)
    return max(seen, default=0.0)
