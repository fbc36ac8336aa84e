"""What requests get: where the time to their first token goes, how many are in time, what a preemption costs.

Everything is of the server's own histograms and counters, over one window. Histograms count observations in buckets,
each latency by itself: how many requests keep one limit is known up to those in the limit's bucket, and how many keep
two of them only as bounds, because no histogram tells which request is in which bucket of another.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import Distribution, distribution
from llmtop.analysis.series.readings import counter_increase, counter_rate, server_track, source, why_kind_missing
from llmtop.analysis.server.kv_cache import KvRunway, kv_runway, kv_tokens_per_request
from llmtop.analysis.server.objectives import WINDOW_NS, Objective, objectives
from llmtop.frozen import frozen
from llmtop.model import Trace, Track, TrackKind, Unknown
from llmtop.units import count, percent, two_digits

if TYPE_CHECKING:
    from llmtop.model import Metric

_ONCE = 1.5
"""Observations for each request that ended, up to which a latency is told once a request and not with each token."""
_ROUNDING = 1e-6
"""So that 0.29 in binary is 29 %."""
_EXACT = 0.005
"""Bounds of a share that are closer are one number in whole per cent."""


@frozen
class ShareBounds:
    """Between what a share lies, 0 to 1."""

    low: float
    high: float

    @property
    def text(self) -> str:
        """As people read it: "97 %", "90 to 98 %", "at most 95 %"."""
        if self.high - self.low <= _EXACT:
            return _all_but_few((self.low + self.high) / 2)
        if self.low <= 0:
            return f"at most {_all_but_few(self.high)}" if self.high < 1 else "not told"
        return f"{math.floor(self.low * 100 + _ROUNDING)} to {_all_but_few(self.high)}"


def _all_but_few(share: float) -> str:
    """A share in per cent; one of nearly all is never rounded to all."""
    return f"{math.floor(share * 1000 + _ROUNDING) / 10:.1f} %" if 0.99 < share < 1 else percent(share * 100)


@frozen
class FirstToken:
    """The mean time to the first token, and what it is made of.

    Attributes:
        total_s: Mean of the first tokens of the window.
        parts: Name and seconds; they add up to `total_s`, the last being what is left.
        notes: What to know about the numbers, a sentence each.
    """

    total_s: float
    parts: tuple[tuple[str, float], ...]
    observations: float
    source: str
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line: "TTFT 260 ms = queue 170 ms + prefill and first step 80 ms + outside the engine 10 ms"."""
        parts = [f"{name} {two_digits(seconds, 's')}" for name, seconds in self.parts]
        total = f"TTFT {two_digits(self.total_s, 's')}"
        if self.parts[-1][1] < 0:
            return f"{total}; of requests that ended, which are others: {' + '.join(parts[:-1])}"
        return f"{total} = {' + '.join(parts)}"


@frozen
class Goodput:
    """How much of what is served is in time.

    Attributes:
        limits: The objectives that count: of each latency what nearly all are promised.
        first_tokens: Share of first tokens within the limit of TTFT.
        gaps: Share of the times between tokens within the limit of ITL.
        requests: Share of the requests that began in the window whose first token was in time, and none of whose gaps
            in the window was late. All late gaps may be of requests that were late already, or each of another one
            that was not: hence the bounds.
        tokens: Share of output tokens in time, each by the limit that is its own: the first by TTFT, others by ITL.
        per_s: First tokens a second.
        notes: What to know about the numbers, a sentence each.
    """

    limits: tuple[Objective, ...]
    first_tokens: ShareBounds
    gaps: ShareBounds
    requests: ShareBounds
    tokens: ShareBounds
    per_s: float | Unknown
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line: "requests 90 to 97 %, tokens 98 % in time (TTFT within 500 ms 97 %, ITL within 50 ms 98 %)"."""
        shares = zip(self.limits, (self.first_tokens, self.gaps), strict=True)
        each = ", ".join(f"{one.latency} within {two_digits(one.limit_s, 's')} {share.text}" for one, share in shares)
        return f"requests {self.requests.text}, tokens {self.tokens.text} in time ({each})"


@frozen
class PreemptionCost:
    """What it costs to throw a running request out of the KV cache: its tokens are computed again.

    Attributes:
        thrown_out: Requests in the window.
        tokens_each: Of one: what a running request holds on the mean.
        tokens_per_s: Of all of them.
        of_prompts: The same over the prompt tokens computed meanwhile; None where these are not counted.
    """

    thrown_out: float
    window_s: float
    tokens_each: float
    source: str
    of_prompts: float | None = None

    @property
    def tokens_per_s(self) -> float:
        return self.thrown_out * self.tokens_each / self.window_s

    @property
    def text(self) -> str:
        """One line: "a preemption costs about 1,300 tokens computed again; 4 in 60 s: 87 tok/s"."""
        each = f"a preemption costs about {count(self.tokens_each)} tokens computed again"
        if not self.thrown_out:
            return f"{each}; none in {self.window_s:.0f} s"
        beside = "" if self.of_prompts is None else f", {percent(self.of_prompts * 100)} of the prompt tokens"
        many = f"{self.thrown_out:.0f} in {self.window_s:.0f} s"
        return f"{each}; {many}: {two_digits(self.tokens_per_s, 'tok/s')}{beside}"


@frozen
class RequestsView:
    """What requests get from a server, each part or why it is not known."""

    first_token: FirstToken | Unknown
    goodput: Goodput | Unknown
    runway: KvRunway | Unknown
    preemption: PreemptionCost | Unknown


@lru_cache(maxsize=4)
def requests_view(trace: Trace, window_ns: int = WINDOW_NS) -> RequestsView | Unknown:
    """Over the last `window_ns`; Unknown without a server. Kept for the newest traces."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    return RequestsView(
        _first_token(trace, server, window_ns),
        _goodput(trace, server, window_ns),
        kv_runway(trace, server),
        _preemption(trace, server, window_ns),
    )


# The first token


def _first_token(trace: Trace, server: Track, window_ns: int) -> FirstToken | Unknown:
    seen = distribution(trace, server.id, v.SERVER_TTFT, window_ns)
    if isinstance(seen, Unknown):
        return seen
    if seen.mean is None:
        return Unknown("the server does not tell how long first tokens took together")
    means = {name: _mean(trace, server, metric, window_ns) for name, metric in _PARTS.items()}
    parts = [(name, mean) for name, mean in means.items() if mean is not None]
    if not parts:
        return Unknown(f"the server tells of {two_digits(seen.mean, 's')} no part: neither queue nor prefill")
    rest_s = seen.mean - sum(mean for _, mean in parts)
    rest = "outside the engine" if len(parts) == len(_PARTS) else "all else"
    notes = ["the parts are told of requests that ended, first tokens when they come"]
    if rest_s < 0:
        notes.append("they are longer than the whole: other requests ended in the window than began")
    where = source(trace, server.id, v.total(v.SERVER_TTFT))
    return FirstToken(seen.mean, (*parts, (rest, rest_s)), seen.observations, where, tuple(notes))


_PARTS = {"queue": v.SERVER_QUEUE_TIME, "prefill and first step": v.SERVER_PREFILL_TIME}
"""Prefill, as vLLM has it, is the time from being scheduled to the first token: the step that makes it is in it."""


def _mean(trace: Trace, server: Track, metric: Metric, window_ns: int) -> float | None:
    seen = distribution(trace, server.id, metric, window_ns)
    return None if isinstance(seen, Unknown) else seen.mean


# Goodput


def _goodput(trace: Trace, server: Track, window_ns: int) -> Goodput | Unknown:
    limits = [_strictest(trace, key) for key in ("ttft", "itl")]
    known = [one for one in limits if one is not None]
    if len(known) < len(limits):
        return Unknown("it needs an objective for TTFT and one for ITL", "--ttft-slo MS --itl-slo MS")
    seen = [distribution(trace, server.id, one.metric, window_ns) for one in known]
    firsts, gaps = seen
    if isinstance(firsts, Unknown):
        return firsts
    if isinstance(gaps, Unknown):
        return gaps
    in_time, between = (
        ShareBounds(*one.shares_within(limit.limit_s)) for one, limit in zip((firsts, gaps), known, strict=True)
    )
    once = is_told_once_a_request(trace, server, gaps, window_ns)
    notes = ("ITL is told once a request, as its mean: a late token within it is not seen",) if once else ()
    return Goodput(
        tuple(known),
        in_time,
        between,
        _both(in_time, between, firsts.observations, gaps.observations),
        _weighted(in_time, between, firsts.observations, gaps.observations),
        counter_rate(trace, server.id, v.bucket(v.SERVER_TTFT, math.inf), window_ns),
        notes,
    )


def _strictest(trace: Trace, key: str) -> Objective | None:
    """What is promised to most: p99 before p50."""
    promised = [one for one in objectives(trace) if one.key == key]
    return max(promised, key=lambda one: one.percent, default=None)


def is_told_once_a_request(trace: Trace, server: Track, gaps: Distribution, window_ns: int) -> bool:
    """Whether a server observes ITL as a mean when a request ends, as TGI and TensorRT-LLM do."""
    ended = counter_increase(trace, server.id, v.SERVER_REQUESTS, window_ns)
    return not isinstance(ended, Unknown) and 0 < gaps.observations <= _ONCE * ended.amount


def _both(firsts: ShareBounds, gaps: ShareBounds, requests: float, observed: float) -> ShareBounds:
    """Each late gap spoils one request at most, and all of them may be of requests that were late already."""
    late = (1 - gaps.low) * observed
    return ShareBounds(max(0.0, firsts.low - late / requests), firsts.high)


def _weighted(firsts: ShareBounds, gaps: ShareBounds, requests: float, observed: float) -> ShareBounds:
    together = requests + observed
    low, high = (
        (one * requests + other * observed) / together
        for one, other in ((firsts.low, gaps.low), (firsts.high, gaps.high))
    )
    return ShareBounds(low, high)


# Preemptions


def _preemption(trace: Trace, server: Track, window_ns: int) -> PreemptionCost | Unknown:
    counted = counter_increase(trace, server.id, v.SERVER_PREEMPTIONS, window_ns)
    if isinstance(counted, Unknown):
        return counted
    each = kv_tokens_per_request(trace, server, window_ns)
    where = "KV cache in use over running requests; fewer where the prefix cache still holds them"
    if isinstance(each, Unknown):
        each, where = _half_done(trace, server, window_ns, each), "a mean prompt and half of a mean answer"
    if isinstance(each, Unknown):
        return each
    prompts = counter_increase(trace, server.id, v.SERVER_PROMPT_TOKENS, window_ns)
    share = None if isinstance(prompts, Unknown) or not prompts.amount else counted.amount * each / prompts.amount
    return PreemptionCost(counted.amount, counted.seconds, each, where, share)


def _half_done(trace: Trace, server: Track, window_ns: int, why_not: Unknown) -> float | Unknown:
    """Tokens of a request in the middle of its answer, by those of the window's requests."""
    prompts, outputs, firsts, ended = (
        counter_increase(trace, server.id, metric, window_ns)
        for metric in (
            v.SERVER_PROMPT_TOKENS,
            v.SERVER_OUTPUT_TOKENS,
            v.bucket(v.SERVER_TTFT, math.inf),
            v.SERVER_REQUESTS,
        )
    )
    if isinstance(prompts, Unknown) or isinstance(outputs, Unknown):
        return why_not
    if isinstance(firsts, Unknown) or isinstance(ended, Unknown) or not firsts.amount or not ended.amount:
        return why_not
    return prompts.amount / firsts.amount + outputs.amount / ended.amount / 2
