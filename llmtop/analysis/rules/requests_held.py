"""Requests wait for something that is neither room nor the GPU: a grammar, KV blocks from elsewhere, a LoRA slot."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import metrics_command, recent_mean, says
from llmtop.analysis.series.readings import server_track
from llmtop.frozen import frozen
from llmtop.model import Finding, Metric, Severity, Trace
from llmtop.units import counted

id = "requests-held"
summary = "Requests are held back before they may run, for something other than room."
source = "vLLM, metrics (num_requests_waiting_by_reason: deferred by transient constraints); SGLang, metrics (queues)"

_LEAST = 1.0
"""Requests, in the mean, that are held back."""
_MOST = 0.5
"""Share of those that wait for any reason: the others wait for room, which other rules tell of."""


@frozen
class _HeldRequests:
    metric: Metric
    words: str
    action: str


_HOLDS = (
    _HeldRequests(
        v.SERVER_HELD_GRAMMAR,
        "for grammars to be compiled",
        "send the same schemas again so that they are cached, make them simpler, or give the server more CPU",
    ),
    _HeldRequests(
        v.SERVER_HELD_TRANSFER,
        "for KV blocks from prefill servers",
        "see the link between prefill and decode servers and their rates, and whether enough prefill servers run",
    ),
    _HeldRequests(
        v.SERVER_HELD,
        "for something other than room",
        "it is a grammar that is compiled, KV blocks that come from elsewhere, or a LoRA adapter without a place "
        "(more of them at once: --max-loras): see which of these the requests use",
    ),
)


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """One at least, on average, and half of all that wait."""
    server = server_track(trace)
    if server is None:
        return
    waiting = recent_mean(trace, server.id, v.SERVER_WAITING)
    for hold in _HOLDS:
        held = recent_mean(trace, server.id, hold.metric)
        if held is None or held < _LEAST or held < _MOST * (waiting or 0.0):
            continue
        others = () if waiting is None else (says(trace, server.id, v.SERVER_WAITING, waiting),)
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=server.name,
            message=f"{counted(held, 'request', 'wait')} {hold.words}",
            evidence=(says(trace, server.id, hold.metric, held), *others),
            action=hold.action,
            next_command=metrics_command(server, "waiting|queue|lora|grammar|transfer"),
            source=source,
        )
