"""The KV cache is full: running requests are thrown out and computed again."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import counter_rate, server_track
from llmtop.analysis.rules.advice import more_room_in_kv
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import known, means, metrics_command, says
from llmtop.analysis.rules.needs import is_watched, lacks_server
from llmtop.model import NS_PER_S, Finding, Severity, Trace, Unknown

id = "kv-bound"
summary = "KV cache exhausted: preempted requests are recomputed, latency tails grow."
source = "NVIDIA AIPerf guide, server metrics (KV above 0.9 is the limit, preemptions are memory pressure)"

_FULL = 0.95
_WINDOW_NS = 60 * NS_PER_S
"""Preemptions come in bursts: a minute catches them."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """KV at its limit, preemptions counted, requests waiting: all three."""
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_server(trace)) if is_watched(trace) else ()
        return
    values = means(trace, server.id, (v.SERVER_KV_USAGE, v.SERVER_WAITING))
    preempted = counter_rate(trace, server.id, v.SERVER_PREEMPTIONS, _WINDOW_NS)
    rate = known(preempted)
    if values is None or rate is None:
        why = preempted if isinstance(preempted, Unknown) else None
        yield from unjudged(id, lacks_server(trace, v.SERVER_KV_USAGE, v.SERVER_WAITING), why)
        return
    usage, waiting = values
    if usage >= _FULL and rate > 0 and waiting > 0:
        per_minute = rate * 60
        yield Finding(
            rule=id,
            severity=Severity.ERROR,
            subject=server.name,
            message=f"KV-bound: KV cache {usage * 100:.0f} %, {per_minute:.0f} preemptions/min, {waiting:.0f} waiting",
            evidence=(
                says(trace, server.id, v.SERVER_KV_USAGE, usage),
                says(trace, server.id, v.SERVER_PREEMPTIONS, per_minute, "/min"),
                says(trace, server.id, v.SERVER_WAITING, waiting),
            ),
            action=more_room_in_kv(trace),
            next_command=metrics_command(server, "preempt|retract|kv_cache|token_usage|waiting|queue"),
            source=source,
        )
