"""Prompts that used to begin alike are computed from their beginning again."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import room_in_kv
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import metrics_command, recent_mean, says
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.configuration import is_on, one_of
from llmtop.model import NS_PER_S, Feature, Finding, Severity, Trace, TrackId, Unknown

id = "prefix-misses"
summary = "The prefix cache hits far less than it did: prefill computes again what it had."
source = "vLLM documentation, Automatic Prefix Caching; NVIDIA AIPerf guide, server metrics (prefix cache)"

_NOW_NS = 60 * NS_PER_S
_BEFORE_NS = 240 * NS_PER_S
_LEAST_QUERIES = 2000.0
"""Tokens asked for: a few prompts are no trend."""
_USED_TO_HIT = 0.3
_LESS = 0.5
_EVICTING = 0.9
"""Share of KV blocks in use from which cached ones are taken for new requests."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Of the last minute's tokens less than half the share hits of the four minutes before."""
    server = server_track(trace)
    if server is None or is_on(trace, Feature.PREFIX_CACHING) is False:
        return
    now = _share(trace, server.id, _NOW_NS, trace.end_ns)
    before = _share(trace, server.id, _BEFORE_NS, trace.end_ns - _NOW_NS)
    if now is None or before is None or before < _USED_TO_HIT or now > _LESS * before:
        return
    usage = recent_mean(trace, server.id, v.SERVER_KV_USAGE)
    where = source_of(trace, server.id, v.SERVER_PREFIX_HITS)
    yield Finding(
        rule=id,
        severity=Severity.INFO,
        subject=server.name,
        message=f"the prefix cache hits {now * 100:.0f} % of prompt tokens, {before * 100:.0f} % before",
        evidence=(
            f"prefix hits {now * 100:.0f} % in the last minute, {before * 100:.0f} % in the minutes before ({where})",
            *(() if usage is None else (says(trace, server.id, v.SERVER_KV_USAGE, usage),)),
        ),
        action=_action(trace, usage),
        next_command=metrics_command(server, "prefix_cache|cached_tokens|cache_hit"),
        source=source,
        window_s=_NOW_NS / NS_PER_S,
    )


def _action(trace: Trace, usage: float | None) -> str:
    if usage is not None and usage >= _EVICTING:
        return f"KV is full, so cached blocks are given away: {room_in_kv(trace)}"
    return one_of(
        "see whether prompts begin otherwise now (a time or an id in front of a system prompt)",
        "whether a router spreads sessions over more servers",
    )


def _share(trace: Trace, track: TrackId, window_ns: int, end_ns: int) -> float | None:
    grown = [
        increase(trace.get(track, one), window_ns, end_ns) for one in (v.SERVER_PREFIX_HITS, v.SERVER_PREFIX_QUERIES)
    ]
    hits, queries = grown
    if isinstance(hits, Unknown) or isinstance(queries, Unknown) or queries.amount < _LEAST_QUERIES:
        return None
    return hits.amount / queries.amount
