"""Output tokens a second, from what the server counts: some count a request's tokens only when it ends.

Such a counter is no rate: two long requests would read 0 tokens a second for a minute, and then thousands. What there
is instead, the best first:

1. a counter that moves with each step (vLLM, SGLang since 0.5.8, LMDeploy, Dynamo; llama.cpp with /slots);
2. the server's own mean over its last steps (SGLang before);
3. steps times running requests: each running request gets a token with each step (llama.cpp without /slots, TGI). An
   estimate: too high while prompts are computed, too low with speculative decoding;
4. the tokens of requests that ended in the window, where they are short against it (TensorRT-LLM).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from llmtop import vocabulary as v
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import (
    counter_increase,
    counter_rate,
    history,
    latest,
    mean,
    rate_history,
    server_track,
    source,
)
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown, UnknownKind

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace

ENDED_WINDOW_NS = 60 * NS_PER_S
"""What ended is counted over so long at least."""
_LEAST_ENDED = 10
"""Requests, of fewer of which nothing is said."""
_SHORT = 0.25
"""Requests of a mean length below this share of the window: then what ended in it is what was generated in it, but for
that share at its two ends."""
_LEAST_ZERO_S = 1.0
"""A long prompt takes a good part of a second, in which no request gets a token: none in less time is no rate of 0."""
_NONE_YET = Unknown("no token was counted yet, in less than a second", "wait for the next poll", UnknownKind.PASSING)
_BY_STEPS = "estimate: a token per step and running request"

Samples: TypeAlias = "tuple[tuple[int, float | None], ...]"


@frozen
class TokenRate:
    """Tokens a second; `note` says how they are known where they are not counted as they come.

    `is_estimate`: they are not of these very tokens or not of this very window.
    """

    per_second: float
    source: str
    note: str = ""
    is_estimate: bool = False


OF_ENGINE: tuple[Metric, ...] = (
    v.SERVER_OUTPUT_TOKENS,
    v.SERVER_OUTPUT_TOKENS_ENDED,
    v.SERVER_PROMPT_TOKENS,
    v.SERVER_PROMPT_TOKENS_ENDED,
    v.SERVER_STEPS,
    *(v.bucket(one, math.inf) for one in (v.SERVER_TTFT, v.SERVER_ITL)),
)
"""Counters that only an engine at work moves; requests that end may have failed."""


def moved_ns(trace: Trace) -> int | None:
    """When the engine was last seen to make a token or a step; None where it was not."""
    server = server_track(trace)
    series = (trace.get(server.id, metric) for metric in OF_ENGINE) if server is not None else ()
    pairs = (pairwise(one.known) for one in series if one is not None)
    return max((t for both in pairs for (_, before), (t, now) in both if now != before), default=None)


def output_tokens(trace: Trace, server: TrackId, window_ns: int) -> TokenRate | Unknown:
    """Output tokens a second over the window, by the best that the server (a track id) tells."""
    counted = _counted(trace, server, v.SERVER_OUTPUT_TOKENS, window_ns)
    if isinstance(counted, TokenRate) or counted is _NONE_YET:
        return counted
    own = mean(trace, server, v.SERVER_OUTPUT_RATE, window_ns, at_least=1)
    if not isinstance(own, Unknown):
        return TokenRate(own, source(trace, server, v.SERVER_OUTPUT_RATE), "the server's own mean")
    if trace.get(server, v.SERVER_OUTPUT_TOKENS_ENDED) is None:
        return counted
    by_steps = _by_steps(trace, server, window_ns)
    return by_steps or _ended(trace, server, v.SERVER_OUTPUT_TOKENS_ENDED, window_ns, counted)


def prompt_tokens(trace: Trace, server: TrackId, window_ns: int) -> TokenRate | Unknown:
    """Prompt tokens a second over the window, those that a cache held among them."""
    counted = _counted(trace, server, v.SERVER_PROMPT_TOKENS, window_ns)
    if isinstance(counted, TokenRate) or counted is _NONE_YET:
        return counted
    if trace.get(server, v.SERVER_PROMPT_TOKENS_ENDED) is None:
        return counted
    return _ended(trace, server, v.SERVER_PROMPT_TOKENS_ENDED, window_ns, counted)


def _counted(trace: Trace, server: TrackId, metric: Metric, window_ns: int) -> TokenRate | Unknown:
    """What a counter that moves with each step tells; of less than a second no 0 while requests run."""
    grown = counter_increase(trace, server, metric, window_ns)
    if isinstance(grown, Unknown):
        return grown
    if not grown.amount and grown.seconds < _LEAST_ZERO_S and latest(trace, server, v.SERVER_RUNNING) != 0:
        return _NONE_YET
    return TokenRate(grown.per_second, source(trace, server, metric))


def output_history(trace: Trace, server: TrackId, window_ns: int) -> tuple[Samples, str]:
    """The (t_ns, output tokens a second) samples of the window, and their source; none where only ends are counted."""
    if trace.get(server, v.SERVER_OUTPUT_TOKENS) is not None:
        return rate_history(trace, server, v.SERVER_OUTPUT_TOKENS, window_ns), source(
            trace, server, v.SERVER_OUTPUT_TOKENS
        )
    if trace.get(server, v.SERVER_OUTPUT_RATE) is not None:
        return history(trace, server, v.SERVER_OUTPUT_RATE, window_ns), source(trace, server, v.SERVER_OUTPUT_RATE)
    running = trace.get(server, v.SERVER_RUNNING)
    if running is None or trace.get(server, v.SERVER_OUTPUT_TOKENS_ENDED) is None:
        return (), ""
    steps = rate_history(trace, server, v.SERVER_STEPS, window_ns)
    batches = ((t_ns, rate, running.at(t_ns)) for t_ns, rate in steps)
    estimated = ((t_ns, None if rate is None or batch is None else rate * batch) for t_ns, rate, batch in batches)
    return tuple(estimated), f"{source(trace, server, v.SERVER_STEPS)}, {_BY_STEPS}"


def _by_steps(trace: Trace, server: TrackId, window_ns: int) -> TokenRate | None:
    steps = counter_rate(trace, server, v.SERVER_STEPS, window_ns)
    batch = mean(trace, server, v.SERVER_RUNNING, window_ns)
    if isinstance(steps, Unknown) or isinstance(batch, Unknown):
        return None
    return TokenRate(steps * batch, source(trace, server, v.SERVER_STEPS), _BY_STEPS, is_estimate=True)


def _ended(trace: Trace, server: TrackId, metric: Metric, window_ns: int, why_not: Unknown) -> TokenRate | Unknown:
    """What ended a second, where that tells what was generated; 0 where nothing ran and nothing ended."""
    window_ns = max(window_ns, ENDED_WINDOW_NS)
    ended = counter_increase(trace, server, metric, window_ns)
    if isinstance(ended, Unknown):
        return ended
    busy = mean(trace, server, v.SERVER_RUNNING, window_ns)
    where = source(trace, server, metric)
    if not ended.amount and busy == 0:
        return TokenRate(0.0, where)
    lasted, number = (
        increase(trace.get(server, part), window_ns, trace.end_ns)
        for part in (v.total(v.SERVER_E2E), v.bucket(v.SERVER_E2E, math.inf))
    )
    if isinstance(lasted, Unknown) or isinstance(number, Unknown) or number.amount < _LEAST_ENDED:
        return Unknown(f"{why_not.reason}; too few ended within {ended.seconds:.0f} s", why_not.remedy)
    if lasted.amount / number.amount > _SHORT * ended.seconds:
        return Unknown(f"{why_not.reason}; they are too long for a rate of those that ended", why_not.remedy)
    note = f"of requests that ended within {ended.seconds:.0f} s"
    return TokenRate(ended.per_second, where, note, is_estimate=True)
