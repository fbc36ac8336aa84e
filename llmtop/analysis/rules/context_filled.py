"""Requests fill the context that they have, and their answers are cut short there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import says
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import latest, server_track
from llmtop.analysis.server.configuration import change, one_of
from llmtop.facts import ServerFact
from llmtop.model import NS_PER_S, Feature, Finding, Severity, Trace, Track, Unknown

id = "context-filled"
summary = "Requests fill their context: the server ends their answers there, and the client gets what there is."
source = "llama.cpp, server documentation (--ctx-size, truncated in the answer)"

_WINDOW_NS = 60 * NS_PER_S


def check(trace: Trace) -> Iterator[Finding]:
    """One in the last minute at least; only servers that tell of their slots are judged."""
    server = server_track(trace)
    filled = (
        None if server is None else increase(trace.get(server.id, v.SERVER_CONTEXT_FILLED), _WINDOW_NS, trace.end_ns)
    )
    if server is None or filled is None or isinstance(filled, Unknown) or filled.amount < 1:
        return
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"answers are cut short: {_requests(filled.amount)} filled the context in {filled.seconds:.0f} s",
        evidence=tuple(_evidence(trace, server, filled.amount)),
        action=one_of(
            change(trace, Feature.MAX_LENGTH, "a larger context"),
            change(trace, Feature.MAX_RUNNING, "fewer slots"),
            "shorter prompts and answers",
        ),
        next_command=_command(server),
        source=source,
        window_s=_WINDOW_NS / NS_PER_S,
    )


def _requests(count: float) -> str:
    return "at least one request" if count < 2 else f"at least {count:.0f} requests"


def _evidence(trace: Trace, server: Track, count: float) -> Iterator[str]:
    yield says(trace, server.id, v.SERVER_CONTEXT_FILLED, count)
    room = latest(trace, server.id, v.SERVER_CONTEXT)
    if not isinstance(room, Unknown):
        yield f"{says(trace, server.id, v.SERVER_CONTEXT, room)}, for prompt and answer"


def _command(server: Track) -> str:
    url = server.facts.get(ServerFact.URL)
    if not isinstance(url, str):
        return ""
    slots = shlex.quote(f"{url.rpartition('/')[0]}/slots")
    return f"curl -s {slots} | grep -oE '\"(id|n_ctx|n_prompt_tokens)\":[0-9]+'"
