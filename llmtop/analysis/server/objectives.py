"""Objectives of latency: what was promised, and whether the last minute kept it, in each of its seconds too."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import distribution
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import as_of, server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.lapses import LEAST_LATE, LENGTH_NS, Lapse, lapses
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown, UnknownKind
from llmtop.units import percent, two_digits

if TYPE_CHECKING:
    from llmtop.analysis.series.histograms import Distribution, Quantile
    from llmtop.model import Metric, Trace

WINDOW_NS = 60 * NS_PER_S
"""A p99 needs observations: a minute of a busy server has hundreds."""
NEWEST_NS = 15 * NS_PER_S
"""What has just begun is diluted in a minute of what was before: the newest quarter of it is judged too."""
MEDIAN = 50
"""Per cent. What is promised of more than half of all is looked for in single seconds too."""
_JUST_NOW_NS = 2 * NS_PER_S
"""A lapse that ended no longer ago goes on: a look or two may find nothing late between two stalls."""
DEFAULTS = {"ttft.p99": 0.5, "ttft.p50": 0.2, "itl.p99": 0.05, "itl.p50": 0.025}
"""Seconds. A first token below 500 ms is generally acceptable and below 200 ms feels responsive; 50 ms between tokens
supports comfortable reading, real-time speech may require 25 ms (Machine Learning Systems, Performance Engineering,
table of metrics). The acceptable is asked of nearly all requests, the comfortable of half of them."""
ITL = "ITL"
"""As people call the time between tokens."""
_LATENCIES = {"ttft": ("TTFT", v.SERVER_TTFT), "itl": (ITL, v.SERVER_ITL)}
FACT = "objective"
"""Those that were told are facts of a trace's origin: "objective.ttft.p99" in seconds; 0 is none."""


@frozen
class Objective:
    """What was promised: a share of all observations (`percent`) is no longer than `limit_s`."""

    key: str
    metric: Metric
    percent: int
    limit_s: float

    @property
    def latency(self) -> str:
        """Of what, as people say it: "TTFT"."""
        return _LATENCIES[self.key][0]

    @property
    def title(self) -> str:
        """With the quantile: "TTFT p99"."""
        return f"{self.latency} p{self.percent}"


@frozen
class JudgedObjective:
    """An objective against what was seen.

    Attributes:
        is_met: Unknown where nothing was seen, or where the server's buckets do not tell.
        seen: The quantile; None without observations.
        observations: How many there were.
        window_ns: Of how long a time it was asked.
        seen_ns: Of how long a time observations are known: less than the window of a server that has just come.
        late: Between which shares of them were later than the limit, 0 to 1: both ends of its bucket.
        ago_ns: How long ago that ended.
        lapses: When it was missed within the last minute, by five seconds each; of `judged_now`.
        is_past: Whether it is kept again.
    """

    objective: Objective
    is_met: bool | Unknown
    seen: Quantile | None = None
    observations: float = 0.0
    source: str = ""
    window_ns: int = WINDOW_NS
    late: tuple[float, float] | None = None
    ago_ns: int = 0
    lapses: tuple[Lapse, ...] = ()
    is_past: bool = False
    seen_ns: int = WINDOW_NS

    @property
    def is_of_seconds(self) -> bool:
        """Whether some seconds are judged alone, and no window up to now."""
        return self.window_ns == LENGTH_NS

    @property
    def text(self) -> str:
        """One line: "TTFT p99 1.3 s, objective 500 ms, 3.1 to 4.0 % later, of 812 in 60 s"."""
        seen = "–" if self.seen is None else self.seen.text("s")
        limit, counted = two_digits(self.objective.limit_s, "s"), f"{self.observations:.0f}"
        span = f"{self.seen_ns / NS_PER_S:.0f} s"
        span += f" up to {self.ago_ns / NS_PER_S:.0f} s ago" if self.ago_ns >= NS_PER_S else ""
        late = "" if self.late is None else f"{_shares(*self.late)} later, "
        return f"{self.objective.title} {seen}, objective {limit}, {late}of {counted} in {span} ({self.source})"


def _shares(low: float, high: float) -> str:
    """Two bounds as one where they are alike: "4.0 %", "none", "3.1 to 4.0 %"."""
    least, most = percent(100 * low), percent(100 * high)
    if least == most:
        return most if high else "none"
    return f"{least.removesuffix(' %')} to {most}"


def objectives(trace: Trace) -> tuple[Objective, ...]:
    """Those in force: the defaults, unless the user said otherwise."""
    told = {name: trace.origin.facts.get(f"{FACT}.{name}", limit) for name, limit in DEFAULTS.items()}
    made = []
    for name, limit in told.items():
        key, _, quantile = name.partition(".p")
        if isinstance(limit, int | float) and limit > 0:
            made.append(Objective(key, _LATENCIES[key][1], int(quantile), float(limit)))
    return tuple(made)


def judged(trace: Trace, window_ns: int = WINDOW_NS) -> tuple[JudgedObjective, ...]:
    """All objectives against the last `window_ns`; none without a server. Kept for the newest traces."""
    return _judged(trace, window_ns)


@lru_cache(maxsize=4)
def _judged(trace: Trace, window_ns: int) -> tuple[JudgedObjective, ...]:
    # Apart, because the cache would take a window that is left out for another one than the same by name.
    server = server_track(trace)
    return () if server is None else tuple(_judge(trace, server.id, one, window_ns) for one in objectives(trace))


@lru_cache(maxsize=4)
def judged_now(trace: Trace) -> tuple[JudgedObjective, ...]:
    """As `judged`; where the last minute as a whole does not miss an objective, what does.

    That is the newest of it, or else the worst five seconds of it: a median is not looked for there.
    """
    newest = judged(trace, NEWEST_NS)
    return tuple(_soonest(trace, old, new) for old, new in zip(judged(trace), newest, strict=True))


def missed(trace: Trace) -> tuple[JudgedObjective, ...]:
    """Those that were certainly not kept in the last minute, or in some seconds of it."""
    return tuple(one for one in judged_now(trace) if one.is_met is False)


@lru_cache(maxsize=2)
def as_missed(trace: Trace, lapse: Lapse) -> Trace:
    """The trace as it stood at the end of the worst seconds of a lapse: what explains it was measured then."""
    return as_of(trace, lapse.worst_ns)


def goes_on(trace: Trace, found: tuple[Lapse, ...]) -> bool:
    """Whether the last of several has not ended, as far as that can be known by now."""
    return bool(found) and trace.end_ns - found[-1].end_ns <= _JUST_NOW_NS


def worst(found: tuple[Lapse, ...]) -> Lapse:
    """The one with the largest share of late observations."""
    return max(found, key=lambda lapse: lapse.share)


def said_when(trace: Trace, found: tuple[Lapse, ...]) -> str:
    """When it was missed, of several times the newest two: "35 to 28 s and 24 to 19 s ago"."""
    ago = [((trace.end_ns - one.start_ns) / NS_PER_S, (trace.end_ns - one.end_ns) / NS_PER_S) for one in found[-2:]]
    times = " and ".join(f"{start:.0f} to {end:.0f} s" for start, end in ago)
    return f"{times} ago" if len(found) <= len(ago) else f"{len(found)} times within a minute, the last two {times} ago"


def _soonest(trace: Trace, old: JudgedObjective, new: JudgedObjective) -> JudgedObjective:
    server, promised = server_track(trace), old.objective
    if server is None or promised.percent <= MEDIAN:
        return new if new.is_met is False is not old.is_met else old
    allowed = 1 - promised.percent / 100
    found = lapses(trace, server.id, promised.metric, promised.limit_s, allowed, WINDOW_NS)
    if old.is_met is False or new.is_met is False:
        is_past = bool(found) and trace.end_ns - found[-1].end_ns >= LENGTH_NS
        return replace(old if old.is_met is False else new, lapses=found, is_past=is_past)
    if not found:
        return old
    worst_ns = worst(found).worst_ns
    then = _judge(trace, server.id, promised, LENGTH_NS, worst_ns)
    then = replace(then, ago_ns=trace.end_ns - worst_ns, lapses=found, is_past=not goes_on(trace, found))
    return then if then.is_met is False else old


def _judge(
    trace: Trace, track: TrackId, objective: Objective, window_ns: int, end_ns: int | None = None
) -> JudgedObjective:
    seen = distribution(trace, track, objective.metric, window_ns, end_ns)
    if isinstance(seen, Unknown):
        return JudgedObjective(objective, seen, window_ns=window_ns, seen_ns=window_ns)
    quantile = seen.quantile(objective.percent / 100)
    return JudgedObjective(
        objective,
        _is_met(seen, quantile, objective.limit_s),
        quantile,
        seen.observations,
        source_of(trace, track, v.total(objective.metric)),
        window_ns,
        seen.shares_beyond(objective.limit_s),
        seen_ns=_seen_ns(trace, track, objective.metric, window_ns, end_ns),
    )


def _seen_ns(trace: Trace, track: TrackId, metric: Metric, window_ns: int, end_ns: int | None) -> int:
    """How much of the window lies between the first look that counted and the last."""
    counted = increase(trace.get(track, v.bucket(metric, math.inf)), window_ns, end_ns or trace.end_ns)
    return window_ns if isinstance(counted, Unknown) else min(window_ns, round(counted.seconds * NS_PER_S))


def _is_met(seen: Distribution, quantile: Quantile, limit: float) -> bool | Unknown:
    exceeds = quantile.exceeds(limit)
    if exceeds is None:
        return Unknown(f"the server's buckets do not tell: it lies at {quantile.text('s')}")
    if not exceeds:
        return True
    late = seen.observations * seen.shares_beyond(limit)[0]
    if round(late) >= LEAST_LATE:
        return False
    return Unknown(
        f"{late:.0f} of {seen.observations:.0f} was later: too few to tell", "look for longer", UnknownKind.PASSING
    )
