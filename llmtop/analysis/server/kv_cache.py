"""The KV cache: how many tokens it holds, and when it will be full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.lines import fitted
from llmtop.analysis.series.readings import counter_increase, latest, mean, source, why_absent
from llmtop.facts import ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.units import number, percent, seen

if TYPE_CHECKING:
    from llmtop.model import Trace, Track

GROWTH_WINDOW_NS = 30 * NS_PER_S
"""Some scheduler rounds long: one request that comes or ends is no trend."""
_LEAST_S = 8.0
"""That its readings have to span."""
_LEAST_SAMPLES = 8
"""And how many there have to be."""
_STEADY = 2.0
"""Growth of the window's first and second half may differ by this factor, or it tells nothing of what comes."""
_FARTHEST_S = 3600.0
"""A cache that would not be full within this time is not said to fill up."""
_FULL = 0.995
"""Share from which on it is full: blocks are rounded."""
_JUST_NOW_NS = 5 * NS_PER_S
"""A cache that was full longer ago may have emptied: its gauge says so."""


@frozen
class KvRunway:
    """When the KV cache will be full if it goes on as it does.

    Attributes:
        usage: Share in use now, 0 to 1.
        per_s: Growth of that share a second.
        full_s: Seconds until it is full at that rate.
        low_s: The same at the higher of the rates of the window's two halves.
        high_s: And at the lower one.
    """

    usage: float
    per_s: float
    full_s: float
    low_s: float
    high_s: float
    source: str

    @property
    def text(self) -> str:
        """One line: "full in 40 s at this rate (36 to 47 s; 72 % now, 0.70 points a second)"."""
        rate = f"{percent(self.usage * 100)} now, {number(self.per_s * 100)} points a second"
        low, high = f"{self.low_s:.0f}", f"{self.high_s:.0f}"
        between = f"{low} to {high} s; " if low != high else ""
        return f"full in {self.full_s:.0f} s at this rate ({between}{rate})"


def kv_capacity(server: Track) -> int | Unknown:
    """How many tokens a server's KV cache holds."""
    blocks, size = (_whole(server.facts.get(name)) for name in (ServerFact.NUM_GPU_BLOCKS, ServerFact.BLOCK_SIZE))
    if blocks is None or size is None:
        return Unknown("the server does not tell how many tokens its KV cache holds")
    return blocks * size


def _whole(fact: object) -> int | None:
    text = str(fact)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def kv_tokens_in_use(trace: Trace, server: Track, window_ns: int = 0) -> float | Unknown:
    """Tokens that a server's KV cache holds now; over a window on the mean."""
    key = server.id, v.SERVER_KV_USAGE
    usage = mean(trace, *key, window_ns, at_least=1) if window_ns else latest(trace, *key)
    if isinstance(usage, Unknown):
        return usage
    capacity = kv_capacity(server)
    return capacity if isinstance(capacity, Unknown) else usage * capacity


def kv_runway(trace: Trace, server: Track, window_ns: int = GROWTH_WINDOW_NS) -> KvRunway | Unknown:
    """When the cache is full at the rate of the last `window_ns`; why that cannot be said.

    The rate is that of a straight line through the samples. It says something of what comes only where both halves of
    the window grew, and alike.
    """
    series = trace.get(server.id, v.SERVER_KV_USAGE)
    if series is None:
        return why_absent(trace, server.id, v.SERVER_KV_USAGE)
    usage = latest(trace, server.id, v.SERVER_KV_USAGE)
    if isinstance(usage, Unknown):
        return usage
    if (full := _why_full(trace, server, usage, window_ns)) is not None:
        return full
    points = [(t / NS_PER_S, value) for t, value in series.between(trace.end_ns - window_ns, trace.end_ns).known]
    span_s = points[-1][0] - points[0][0] if points else 0.0
    if len(points) < _LEAST_SAMPLES or span_s < _LEAST_S:
        return Unknown(
            f"its growth was seen for {seen(span_s)} only, in {len(points)} looks",
            "look for longer",
            UnknownKind.PASSING,
        )
    half = len(points) // 2
    whole, first, second = (fitted(part).slope for part in (points, points[:half], points[half:]))
    if whole * _FARTHEST_S < 1 - usage:
        return Unknown(f"{percent(usage * 100)} in use, and it will not be full within an hour at this rate")
    if min(first, second) <= 0 or max(first, second) > _STEADY * min(first, second):
        halves = f"{number(first * 100)} and then {number(second * 100)} points a second"
        return Unknown(f"{percent(usage * 100)} in use, and it grows too unevenly to say when it is full: {halves}")
    rates = whole, max(whole, first, second), min(whole, first, second)
    full_s, low_s, high_s = ((1 - usage) / rate for rate in rates)
    return KvRunway(usage, whole, full_s, low_s, high_s, source(trace, server.id, v.SERVER_KV_USAGE))


def _why_full(trace: Trace, server: Track, usage: float, window_ns: int) -> Unknown | None:
    """A cache out of which requests are thrown has no room left, whatever its gauge says right after."""
    thrown_out, just_now = (
        counter_increase(trace, server.id, v.SERVER_PREEMPTIONS, ns) for ns in (window_ns, _JUST_NOW_NS)
    )
    if not isinstance(thrown_out, Unknown) and thrown_out.amount > 0:
        many = f"{thrown_out.amount:.0f} requests were thrown out in {seen(thrown_out.seconds)}"
        if not isinstance(just_now, Unknown) and not just_now.amount:
            return Unknown(
                f"it was full: {many}, none in the last {seen(just_now.seconds)}; {percent(usage * 100)} now"
            )
        return Unknown(f"it is full: {many}")
    return Unknown("it is full") if usage >= _FULL else None


def kv_tokens_per_request(trace: Trace, server: Track, window_ns: int) -> float | Unknown:
    """Tokens that a running request has in the cache, by means of the window; those that several share count once."""
    capacity = kv_capacity(server)
    if isinstance(capacity, Unknown):
        return capacity
    usage, running = (
        mean(trace, server.id, metric, window_ns, at_least=1) for metric in (v.SERVER_KV_USAGE, v.SERVER_RUNNING)
    )
    if isinstance(usage, Unknown):
        return usage
    if isinstance(running, Unknown):
        return running
    return usage * capacity / running if running else Unknown("no request runs")
