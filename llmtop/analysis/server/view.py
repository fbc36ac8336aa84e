"""The server's own numbers: throughput, queue, KV cache and latencies, with the reason for each one that is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series import ages
from llmtop.analysis.series.histograms import Distribution, Quantile, distribution, in_order
from llmtop.analysis.series.readings import (
    counter_increase,
    counter_rate,
    history,
    latest,
    rate_history,
    server_track,
    source,
    why_kind_missing,
)
from llmtop.analysis.server.configuration import Setting, configuration
from llmtop.analysis.server.liveness import Life, Liveness, liveness
from llmtop.analysis.server.objectives import JudgedObjective, judged, judged_now
from llmtop.analysis.server.refusals import answers
from llmtop.analysis.server.tokens import TokenRate, output_history, output_tokens, prompt_tokens
from llmtop.frozen import frozen
from llmtop.model import LIVE, NS_PER_S, Fact, Feature, Metric, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

RATE_WINDOW_NS = 10 * NS_PER_S
"""Long enough to smooth a scrape that comes late, short enough to follow a burst."""
_LEAST_WINDOW_NS = 2 * NS_PER_S
"""However young a server is, rates are of so much time."""
LATENCY_WINDOW_NS = 60 * NS_PER_S
"""A p99 needs observations: a minute of a busy server has hundreds."""
HISTORY_NS = 120 * NS_PER_S
"""Of the small graphs."""

_COUNTS = frozenset({"/min", "req/s", "tok/s", "requests"})

Samples = tuple[tuple[int, float | None], ...]
_VALUE = itemgetter(1)


@frozen
class ServerNumber:
    """One number of a server.

    Attributes:
        concept: The key in JSON: "output_tokens_per_s".
        history: (t_ns, value) samples for a graph; empty where a graph would mean nothing.
        bounds: Of a quantile: between what it lies. Where these are too far apart for a value, `value` says so.
        note: What the number leaves out or how it was come by, in a few words; empty where there is nothing to say.
        is_estimate: It is shown with "~".
        mean: Of a quantile: the exact mean of the same observations, where the server tells their sum.
    """

    concept: str
    title: str
    value: float | Unknown
    unit: str
    source: str = ""
    history: Samples = ()
    bounds: Quantile | None = None
    mean: float | None = None
    note: str = ""
    is_estimate: bool = False

    @property
    def text(self) -> str:
        """The value as people read it, or its bounds ("< 300 ms"); "–" when nothing is known."""
        if self.bounds is not None:
            return self.bounds.text(self.unit)
        if isinstance(self.value, Unknown):
            return "–"
        if self.is_estimate:
            return f"~{quantity(self.value, self.unit)}"
        if self.unit in _COUNTS and self.value == round(self.value):
            return f"{count(self.value) if self.unit == 'requests' else round(self.value)} {self.unit}"
        return quantity(self.value, self.unit)

    @property
    def values(self) -> tuple[float | None, ...]:
        """The history without its times."""
        return tuple(map(_VALUE, self.history))


@frozen
class ServerView:
    """What a server says of itself, by concept (`ServerView.stats`), over the windows of this module."""

    track: TrackId
    title: str
    facts: Mapping[str, Fact]
    stats: Mapping[str, ServerNumber]
    lost: Unknown | None = None
    """Why its endpoint does not answer now; what is still shown is of the window before."""
    configuration: Mapping[Feature, Setting | Unknown] = field(default_factory=dict)
    objectives: tuple[JudgedObjective, ...] = ()
    age_s: float = 0.0
    """How old the newest number is; 0 while it is of now."""
    window_s: float = LATENCY_WINDOW_NS / NS_PER_S
    """What latencies are of, and no rate of more than: their window, or as much of it as the server has been seen."""

    def value(self, concept: str) -> float | Unknown:
        """The value of a concept."""
        return self.stats[concept].value

    @property
    def rate_s(self) -> float:
        """What rates are of, in seconds."""
        return min(RATE_WINDOW_NS / NS_PER_S, self.window_s)

    @property
    def absent(self) -> tuple[ServerNumber, ...]:
        """Stats of which nothing is known."""
        return tuple(stat for stat in self.stats.values() if isinstance(stat.value, Unknown) and stat.bounds is None)


@lru_cache(maxsize=4)
def server_view(
    trace: Trace, *, rate_window_ns: int = RATE_WINDOW_NS, latency_window_ns: int = LATENCY_WINDOW_NS
) -> ServerView | Unknown:
    """Everything the server's endpoint tells, or why there is no endpoint; kept for the newest traces."""
    view = _view(trace, _StatsBuilder.all, rate_window_ns, latency_window_ns)
    return (
        view
        if isinstance(view, Unknown)
        else replace(view, configuration=configuration(trace), objectives=_objectives(trace, latency_window_ns))
    )


def _objectives(trace: Trace, window_ns: int) -> tuple[JudgedObjective, ...]:
    """Over the window that was asked for; over the usual one with what was missed in single seconds of it."""
    return judged_now(trace) if window_ns == LATENCY_WINDOW_NS else judged(trace, window_ns)


def server_load(trace: Trace) -> ServerView | Unknown:
    """What is told of a server in one line: no latencies and no graphs, which cost ten times as much."""
    return _view(trace, _StatsBuilder.load, RATE_WINDOW_NS, LATENCY_WINDOW_NS)


@cache
def concepts() -> Mapping[str, str]:
    """All numbers that a server may tell, with their units."""
    nobody = Track(ids.server(0), TrackKind.SERVER, "")
    numbers = _StatsBuilder(Trace(LIVE, tracks={nobody.id: nobody}), nobody.id, RATE_WINDOW_NS, LATENCY_WINDOW_NS).all()
    return {stat.concept: stat.unit for stat in numbers}


def _view(
    trace: Trace, choose: Callable[[_StatsBuilder], Iterable[ServerNumber]], rate_window_ns: int, latency_window_ns: int
) -> ServerView | Unknown:
    track = server_track(trace)
    life = liveness(trace)
    if track is None:
        why = _with_gpu_memory(why_kind_missing(trace, TrackKind.SERVER), trace)
        return _why_lost(life, why) or why
    if life.is_over:  # what was before the fault is not of now
        since_ns = min(fault.since_ns for fault in life.faults if fault.is_whole)
        rate_window_ns = min(rate_window_ns, max(_LEAST_WINDOW_NS, trace.end_ns - since_ns))
        if trace.why_missing(whats.track(track.id), whats.kind(TrackKind.SERVER)) is not None:
            rate_window_ns = 0  # nor is there one since
    chosen = choose(_StatsBuilder(trace, track.id, rate_window_ns, latency_window_ns))
    stats = {stat.concept: stat for stat in chosen}
    lost = _why_lost(life, trace.why_missing(whats.track(track.id), whats.kind(TrackKind.SERVER)))
    age_s = ages.old_s(trace, TrackKind.SERVER)
    window_s = min(latency_window_ns / NS_PER_S, _seen_s(trace, track.id))
    return ServerView(track.id, track.name, track.facts, stats, lost, age_s=age_s, window_s=window_s)


def _seen_s(trace: Trace, track: TrackId) -> float:
    """Since when numbers of a server are known, in seconds; infinite where it tells none of what all servers tell."""
    told = (trace.get(track, metric) for metric in (v.SERVER_RUNNING, v.SERVER_OUTPUT_TOKENS, v.SERVER_REQUESTS))
    firsts = [one.times[0] for one in told if one is not None and len(one)]
    return (trace.end_ns - min(firsts)) / NS_PER_S if firsts else math.inf


def _why_lost(life: Liveness, why: Unknown | None) -> Unknown | None:
    """Why the endpoint does not answer: a server that has exited is not starting."""
    if why is None or life.life is not Life.DEAD or life.gravest is None:
        return why
    return Unknown(life.gravest.message, life.gravest.action)


def _with_gpu_memory(why: Unknown, trace: Trace) -> Unknown:
    """Of a server that gives no numbers yet: how much GPU memory it has taken, which tells how far it has come."""
    own = {track.id for track in trace.tracks_of(TrackKind.PROCESS)}
    gpu_processes = (one for one in trace.tracks_of(TrackKind.GPU_PROCESS) if ids.process_of(one.id) in own)
    held = [latest(trace, one.id, v.GPU_PROCESS_MEMORY) for one in gpu_processes]
    total = sum(one for one in held if not isinstance(one, Unknown))
    return replace(why, reason=f"{why.reason}; it holds {quantity(total, 'bytes')} of GPU memory") if total else why


@frozen
class _StatsBuilder:
    """Makes the stats of one server track."""

    trace: Trace
    track: TrackId
    rate_window_ns: int
    latency_window_ns: int

    def load(self) -> Iterable[ServerNumber]:
        yield self.output()
        for gauge in GAUGES:
            yield self.gauge(*gauge)

    def all(self) -> Iterable[ServerNumber]:
        yield replace(self.output(), history=output_history(self.trace, self.track, HISTORY_NS)[0])
        yield self.prompt()
        for concept, title, metric, unit in GAUGES:
            stat = self.gauge(concept, title, metric, unit)
            yield replace(stat, history=history(self.trace, self.track, metric, HISTORY_NS))
        yield self.preemptions()
        yield self.prefix_hit()
        yield self.rate_graph("requests_per_s", "finished", v.SERVER_REQUESTS, "req/s")
        yield self.failed()
        yield from self.latencies()

    def stat(self, concept: str, title: str, metric: Metric, value: float | Unknown, unit: str) -> ServerNumber:
        return ServerNumber(concept, title, value, unit, source(self.trace, self.track, metric))

    def gauge(self, concept: str, title: str, metric: Metric, unit: str) -> ServerNumber:
        return self.stat(concept, title, metric, latest(self.trace, self.track, metric), unit)

    def output(self) -> ServerNumber:
        told = output_tokens(self.trace, self.track, self.rate_window_ns)
        return self.tokens("output_tokens_per_s", "output", told)

    def prompt(self) -> ServerNumber:
        told = prompt_tokens(self.trace, self.track, self.rate_window_ns)
        stat = self.tokens("prompt_tokens_per_s", "prompt", told)
        return replace(stat, history=rate_history(self.trace, self.track, v.SERVER_PROMPT_TOKENS, HISTORY_NS))

    def tokens(self, concept: str, title: str, told: TokenRate | Unknown) -> ServerNumber:
        if isinstance(told, Unknown):
            return ServerNumber(concept, title, told, "tok/s")
        value, is_estimate = told.per_second, told.is_estimate
        return ServerNumber(concept, title, value, "tok/s", told.source, note=told.note, is_estimate=is_estimate)

    def failed(self) -> ServerNumber:
        """By HTTP status where that is counted: what is refused never reaches an engine that counts failures."""
        seen = answers(self.trace, self.trace.tracks[self.track], self.rate_window_ns)
        of_engine = rate_history(self.trace, self.track, v.SERVER_FAILURES, HISTORY_NS)
        if isinstance(seen, Unknown):
            return ServerNumber("failures_per_s", "failed", seen, "req/s", history=of_engine)
        refused = seen.errors is not None
        history = rate_history(self.trace, self.track, v.SERVER_HTTP_REFUSED, HISTORY_NS) if refused else of_engine
        note = "" if refused else self.remark(v.SERVER_FAILURES)
        return ServerNumber(
            "failures_per_s", "failed", seen.failed / seen.seconds, "req/s", seen.where, history, note=note
        )

    def remark(self, metric: Metric) -> str:
        fact = self.trace.tracks[self.track].facts.get(v.remark_of(metric), "")
        return "" if isinstance(fact, Unknown) else str(fact)

    def rate(self, concept: str, title: str, metric: Metric, unit: str) -> ServerNumber:
        value = counter_rate(self.trace, self.track, metric, self.rate_window_ns)
        return self.stat(concept, title, metric, value, unit)

    def rate_graph(self, concept: str, title: str, metric: Metric, unit: str) -> ServerNumber:
        stat = self.rate(concept, title, metric, unit)
        return replace(stat, history=rate_history(self.trace, self.track, metric, HISTORY_NS))

    def preemptions(self) -> ServerNumber:
        """Per minute, over the longer window: they are rare until they are a storm."""
        per_second = counter_rate(self.trace, self.track, v.SERVER_PREEMPTIONS, self.latency_window_ns)
        value = _then(per_second, lambda rate: rate * 60)
        stat = self.stat("preemptions_per_min", "preemptions", v.SERVER_PREEMPTIONS, value, "/min")
        return replace(stat, history=rate_history(self.trace, self.track, v.SERVER_PREEMPTIONS, HISTORY_NS))

    def prefix_hit(self) -> ServerNumber:
        """Hits over queries of the window where both are counted, else the server's own running rate."""
        queries = counter_increase(self.trace, self.track, v.SERVER_PREFIX_QUERIES, self.latency_window_ns)
        hits = counter_increase(self.trace, self.track, v.SERVER_PREFIX_HITS, self.latency_window_ns)
        metric, value = v.SERVER_PREFIX_HITS, Unknown("no prefix-cache queries in the window")
        if isinstance(queries, Unknown) or isinstance(hits, Unknown):
            metric = v.SERVER_PREFIX_HIT_RATE
            return self.stat("prefix_hit", "prefix hit", metric, latest(self.trace, self.track, metric), "ratio")
        share = hits.amount / queries.amount if queries.amount else value
        return self.stat("prefix_hit", "prefix hit", metric, share, "ratio")

    def latencies(self) -> Iterable[ServerNumber]:
        """Quantiles of each latency, none of which contradicts another (`histograms.in_order`)."""
        seen = {
            name: distribution(self.trace, self.track, metric, self.latency_window_ns) for name, metric in _LATENCIES
        }
        bounds: dict[tuple[str, float], Quantile] = {}
        for q in _QUANTILES:
            told = {name: one.quantile(q) for name, one in seen.items() if isinstance(one, Distribution)}
            nested = [name for name in _NESTED if name in told]
            told |= zip(nested, in_order([told[name] for name in nested]), strict=True)
            bounds |= {(name, q): one for name, one in told.items()}
        for name, metric in _LATENCIES:
            for q in _QUANTILES:
                yield self.latency(f"{name}_p{q * 100:.0f}", metric, seen[name], bounds.get((name, q)))

    def latency(
        self, concept: str, metric: Metric, seen: Distribution | Unknown, bounds: Quantile | None
    ) -> ServerNumber:
        title = f"{_SHORT.get(metric.name, metric.title)} {concept.rpartition('_')[2]}"
        where = source(self.trace, self.track, v.bucket(metric, math.inf))
        if isinstance(seen, Unknown) or bounds is None:
            why = seen if isinstance(seen, Unknown) else Unknown("no observations in the window")
            return ServerNumber(concept, title, why, "s", where)
        if len(seen.uppers) == 1:  # its sum and count are all that the server tells
            return ServerNumber(concept, title, _ONLY_A_MEAN, "s", where, mean=seen.mean)
        text = bounds.text("s")
        value = bounds.value if bounds.value is not None else Unknown(f"{text}: the server's buckets tell no more")
        return ServerNumber(concept, title, value, "s", where, bounds=bounds, mean=seen.mean)


GAUGES = (
    ("running", "running", v.SERVER_RUNNING, "requests"),
    ("waiting", "waiting", v.SERVER_WAITING, "requests"),
    ("kv_usage", "KV cache", v.SERVER_KV_USAGE, "ratio"),
)
"""What stands at some level, of which a view has the newest reading: concept, title, metric and unit."""
_LATENCIES = (
    ("ttft", v.SERVER_TTFT),
    ("itl", v.SERVER_ITL),
    ("queue_time", v.SERVER_QUEUE_TIME),
    ("prefill_time", v.SERVER_PREFILL_TIME),
    ("decode_time", v.SERVER_DECODE_TIME),
    ("e2e", v.SERVER_E2E),
)
_NESTED = ("queue_time", "ttft", "e2e")
"""Each is a part of the next."""
_QUANTILES = (0.5, 0.99)
_SHORT = {v.SERVER_TTFT.name: "TTFT", v.SERVER_ITL.name: "ITL", v.SERVER_E2E.name: "end to end"}
_ONLY_A_MEAN = Unknown("the server tells a mean, not how it spreads")


def _then(value: float | Unknown, change: Callable[[float], float]) -> float | Unknown:
    return value if isinstance(value, Unknown) else change(value)
