"""The KV cache is full: running requests are thrown out and computed again, or others wait for room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.readings import counter_increase, history, latest, server_track
from llmtop.analysis.readings import source as source_of
from llmtop.analysis.rules.advice import more_room_in_kv, room_in_kv
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, known, metrics_command, recent_mean, says
from llmtop.analysis.rules.needs import is_watched, lacks_server
from llmtop.model import NS_PER_S, Finding, Metric, Severity, Trace, Track, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.rates import Increase

id = "kv-bound"
summary = "KV cache exhausted: preempted requests are recomputed, latency tails grow."
source = "NVIDIA AIPerf guide, server metrics (preemptions are memory pressure); vLLM documentation, Preemption"

_WINDOW_NS = 60 * NS_PER_S
"""Preemptions come in bursts: a minute catches them."""
_LEAST = 3.0
"""Requests: one that did not fit is an accident."""
_GAUGES = (v.SERVER_KV_USAGE, v.SERVER_WAITING, v.SERVER_RUNNING)
_STEADY = 0.05
_MOST_OFTEN = 1 / 3
"""Thrown out for each request that ended, from which it is the server's trouble and not one beside others: a queue in
front of an engine that is short of CPUs fills the cache too, and a tenth of its requests was seen thrown out."""
_NEAR_FULL = 0.8
"""Preempting frees blocks, so a cache that is too small shows less than full on average."""
_FULL = 0.95
"""For servers that do not count preemptions: so full all the time that what waits has no room."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Requests are thrown out now, and others wait (or the cache is nearly full): whatever its gauge says.

    A preemption proves by itself that no block was left. It is said as soon as three are counted. Servers that count
    none are judged by their gauges.
    """
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_server(trace)) if is_watched(trace) else ()
        return
    preempted = counter_increase(trace, server.id, v.SERVER_PREEMPTIONS, _WINDOW_NS)
    now = counter_increase(trace, server.id, v.SERVER_PREEMPTIONS, WINDOW_NS)
    if isinstance(preempted, Unknown) or isinstance(now, Unknown):
        why = preempted if isinstance(preempted, Unknown) else now
        yield from _by_gauges(trace, server, why if isinstance(why, Unknown) else None)
        return
    gauges = {one: value for one in _GAUGES if (value := known(latest(trace, server.id, one))) is not None}
    is_short = gauges.get(v.SERVER_WAITING, 0) >= 1 or gauges.get(v.SERVER_KV_USAGE, 0) >= _NEAR_FULL
    if preempted.amount >= _LEAST and now.amount > 0 and is_short:
        yield _finding(trace, server, preempted, gauges)


def _by_gauges(trace: Trace, server: Track, uncounted: Unknown | None) -> Iterator[Finding | Unjudged]:
    """Without a count of preemptions: a full cache and requests that wait. With neither there is no shortage."""
    usage, waiting = (recent_mean(trace, server.id, one) for one in (v.SERVER_KV_USAGE, v.SERVER_WAITING))
    if usage is None or waiting is None or usage < _FULL or waiting < 1:
        is_short = waiting is None or waiting >= 1 or usage is None or usage >= _NEAR_FULL
        yield from unjudged(id, uncounted) if is_short and server.facts.get("preempts") != 0 else ()
        return
    gauges = ((v.SERVER_KV_USAGE, usage), (v.SERVER_WAITING, waiting))
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"KV-bound: KV cache {usage * 100:.0f} %, {waiting:.0f} requests wait for room",
        evidence=tuple(says(trace, server.id, *gauge) for gauge in gauges),
        action=room_in_kv(trace),
        next_command=metrics_command(server, "kv_cache|cache_usage|token_usage|waiting|queue|deferred"),
        source=source,
    )


def _finding(trace: Trace, server: Track, preempted: Increase, gauges: Mapping[Metric, float]) -> Finding:
    per_minute = preempted.per_second * 60
    counted = (
        f"{preempted.amount:.0f} in {preempted.seconds:.0f} s ({source_of(trace, server.id, v.SERVER_PREEMPTIONS)})"
    )
    told = [_usage(trace, server.id, gauges[one]) for one in (v.SERVER_KV_USAGE,) if one in gauges]
    told += [f"{per_minute:.0f} preemptions/min"]
    told += [f"{gauges[one]:.0f} waiting" for one in (v.SERVER_WAITING,) if one in gauges]
    ended = counter_increase(trace, server.id, v.SERVER_REQUESTS, _WINDOW_NS)
    is_rare = not isinstance(ended, Unknown) and preempted.amount < _MOST_OFTEN * ended.amount
    return Finding(
        rule=id,
        severity=Severity.WARNING if is_rare else Severity.ERROR,
        subject=server.name,
        message="KV-bound: " + ", ".join(told),
        evidence=(
            f"{v.SERVER_PREEMPTIONS.title} {counted}",
            *([] if isinstance(ended, Unknown) else [_beside(trace, server.id, ended)]),
            *(says(trace, server.id, metric, value) for metric, value in gauges.items()),
        ),
        action=more_room_in_kv(trace),
        next_command=metrics_command(server, "preempt|retract|kv_cache|token_usage|waiting|queue"),
        source=source,
    )


def _beside(trace: Trace, track: str, ended: Increase) -> str:
    where = source_of(trace, track, v.SERVER_REQUESTS)
    return f"{v.SERVER_REQUESTS.title} {ended.amount:.0f} in {ended.seconds:.0f} s ({where})"


def _usage(trace: Trace, track: str, now: float) -> str:
    """The gauge where it stands still; else the most of the window: right after a preemption it shows less."""
    seen = [value for _, value in history(trace, track, v.SERVER_KV_USAGE, WINDOW_NS) if value is not None]
    most = max((*seen, now))
    return f"KV cache {now * 100:.0f} %" if most - now <= _STEADY else f"KV cache up to {most * 100:.0f} %"
