"""Objectives of latency: what was promised, and whether the last minute kept it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import distribution
from llmtop.analysis.series.readings import server_track
from llmtop.analysis.series.readings import source as source_of
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
LEAST_LATE = 2
"""Observations beyond the limit: one request alone breaks no promise."""
DEFAULTS = {"ttft.p99": 0.5, "ttft.p50": 0.2, "itl.p99": 0.05, "itl.p50": 0.025}
"""Seconds. A first token below 500 ms is generally acceptable and below 200 ms feels responsive; 50 ms between tokens
supports comfortable reading, real-time speech may require 25 ms (Machine Learning Systems, Performance Engineering,
table of metrics). The acceptable is asked of nearly all requests, the comfortable of half of them."""
_LATENCIES = {"ttft": ("TTFT", v.SERVER_TTFT), "itl": ("ITL", v.SERVER_ITL)}
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
        window_ns: Of what time.
        late: Between which shares of them were later than the limit, 0 to 1: both ends of its bucket.
    """

    objective: Objective
    is_met: bool | Unknown
    seen: Quantile | None = None
    observations: float = 0.0
    source: str = ""
    window_ns: int = WINDOW_NS
    late: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """One line: "TTFT p99 1.3 s, objective 500 ms, 3.1 to 4.0 % later, of 812 in 60 s"."""
        seen = "–" if self.seen is None else self.seen.text("s")
        limit, counted = two_digits(self.objective.limit_s, "s"), f"{self.observations:.0f}"
        span = f"{self.window_ns / NS_PER_S:.0f} s"
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


def judged_now(trace: Trace) -> tuple[JudgedObjective, ...]:
    """As `judged`; where the last minute as a whole does not miss an objective, but the newest of it does, that."""
    newest = judged(trace, NEWEST_NS)
    return tuple(
        new if new.is_met is False is not old.is_met else old for old, new in zip(judged(trace), newest, strict=True)
    )


def missed(trace: Trace) -> tuple[JudgedObjective, ...]:
    """Those that were certainly not kept in the last minute, or in the newest of it."""
    return tuple(one for one in judged_now(trace) if one.is_met is False)


def _judge(trace: Trace, track: TrackId, objective: Objective, window_ns: int) -> JudgedObjective:
    seen = distribution(trace, track, objective.metric, window_ns)
    if isinstance(seen, Unknown):
        return JudgedObjective(objective, seen, window_ns=window_ns)
    quantile, where = seen.quantile(objective.percent / 100), source_of(trace, track, v.total(objective.metric))
    late = seen.shares_beyond(objective.limit_s)
    is_met = _is_met(seen, quantile, objective.limit_s)
    return JudgedObjective(objective, is_met, quantile, seen.observations, where, window_ns, late)


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
