"""How much of a server's work is prompts: while one is computed, nobody else gets a token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.signals import Signal
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import source as source_of
from llmtop.model import TrackId, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from llmtop.model import Trace

_PREFILLS = 0.2
"""Requests in prefill on average, from which steps of decode share their time with prompts."""
_MOSTLY_PROMPTS = 0.8
"""Share of prompts among the tokens that are computed, from which the same holds, for servers that do not tell the
time in prefill: each token costs as much arithmetic, and so steps of prompts are most of the work."""


def prompts_between(trace: Trace, track: TrackId, window_ns: int) -> Signal | None:
    """Steps of decode share their time with prompts: by the time in prefill, else by what is computed of each."""
    grown = increase(trace.get(track, v.total(v.SERVER_PREFILL_TIME)), window_ns, trace.end_ns)
    if isinstance(grown, Unknown):
        return mostly_prompts(trace, track, window_ns)
    where = source_of(trace, track, v.total(v.SERVER_PREFILL_TIME))
    said = f"in prefill {grown.per_second:.2g} requests on average ({where})"
    return Signal(grown.per_second, said) if grown.per_second >= _PREFILLS else None


def says_prompts(trace: Trace, track: TrackId, window_ns: int) -> Iterator[str]:
    """How many tokens of prompts are computed, and how long prompts are."""
    grown, firsts = (
        increase(trace.get(track, one), window_ns, trace.end_ns)
        for one in (v.SERVER_PROMPT_TOKENS, v.bucket(v.SERVER_TTFT, math.inf))
    )
    if isinstance(grown, Unknown) or isinstance(firsts, Unknown) or not firsts.amount:
        return
    where = source_of(trace, track, v.SERVER_PROMPT_TOKENS)
    mean = quantity(grown.amount / firsts.amount, "tokens")
    yield f"prompts {quantity(grown.per_second, 'tok/s')}, {mean} each on average ({where})"


def mostly_prompts(trace: Trace, track: TrackId, window_ns: int) -> Signal | None:
    """Most tokens that are computed are of prompts: their share."""
    prompt, output, cached = (
        increase(trace.get(track, one), window_ns, trace.end_ns)
        for one in (v.SERVER_PROMPT_TOKENS, v.SERVER_OUTPUT_TOKENS, v.SERVER_PREFIX_HITS)
    )
    if isinstance(prompt, Unknown) or isinstance(output, Unknown):
        return None
    computed = prompt.per_second - (0.0 if isinstance(cached, Unknown) else cached.per_second)
    if computed < _MOSTLY_PROMPTS * (computed + output.per_second):
        return None
    where = source_of(trace, track, v.SERVER_PROMPT_TOKENS)
    said = f"computed {computed:.0f} tok/s of prompts beside {output.per_second:.0f} tok/s of output ({where})"
    return Signal(computed / (computed + output.per_second), said)
