"""Requests have come to the server, and its engine does not know of them."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.configuration import change, one_of
from llmtop.analysis.readings import history, server_track
from llmtop.analysis.rules import commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, recent_mean, says
from llmtop.analysis.rules.needs import is_watched
from llmtop.analysis.rules.thread_signals import Watched, fronts, says_spent, spent_text
from llmtop.model import Feature, Finding, Severity, Trace

id = "requests-outside"
summary = "Requests wait before the engine: in the API server, or for a connection to it."
source = "Linux, tcp_info (last data sent and received); vLLM, metrics (running and waiting are the engine's own)"

_LEAST = 2.0
"""Requests more than the engine knows of. One may be a page of metrics, or a check of the server's health."""
_MOST_OF_IT = 0.5
"""Share of the requests without an answer."""
_FEWEST_LOOKS = 4
_ALL_THE_TIME = 0.9


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """More requests without an answer than run and wait in the engine, all the time; each is a second old or older.

    Those that are answered in one piece run meanwhile, and those that are streamed to somebody already are not
    counted: what is more than run and wait is the least that the engine can not have heard of.
    """
    server = server_track(trace)
    if server is None:
        return
    yield from unjudged(id, trace.why_missing("connections") if is_watched(trace) else None)
    endpoint = f"endpoint:{server.id.partition(':')[2]}"
    looks = [n for _, n in history(trace, endpoint, v.ENDPOINT_UNANSWERED, WINDOW_NS) if n is not None]
    known = [recent_mean(trace, server.id, metric) for metric in (v.SERVER_RUNNING, v.SERVER_WAITING)]
    if len(looks) < _FEWEST_LOOKS or None in known:
        return
    inside = sum(n or 0.0 for n in known)
    unanswered, lasts = sum(looks) / len(looks), sum(n >= 1 for n in looks) >= _ALL_THE_TIME * len(looks)
    outside = unanswered - inside
    if lasts and outside >= max(_LEAST, _MOST_OF_IT * unanswered):
        yield _finding(trace, server.id, endpoint, outside, unanswered)


def _finding(trace: Trace, server: str, endpoint: str, outside: float, unanswered: float) -> Finding:
    front = max(fronts(trace), key=lambda thread: thread.awake, default=None)
    longest = recent_mean(trace, endpoint, v.ENDPOINT_LONGEST_WAIT) or 0.0
    counts = ((endpoint, v.ENDPOINT_UNANSWERED, unanswered), (endpoint, v.ENDPOINT_LONGEST_WAIT, longest))
    inside = ((server, metric, recent_mean(trace, server, metric) or 0.0) for metric in _INSIDE)
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=trace.tracks[server].name if front is None else front.name,
        message=f"{outside:.0f} requests wait outside of the engine, the oldest for {longest:.1f} s"
        + (f": {front.name} {spent_text(front)}" if front is not None else ""),
        evidence=(
            *(says(trace, track, metric, value) for track, metric, value in (*counts, *inside)),
            *([says_spent(trace, front)] if front is not None else []),
        ),
        action=_action(trace, front),
        next_command=commands.stacks(trace, front.row.pid) if front is not None else "",
        source=source,
    )


_INSIDE = (v.SERVER_RUNNING, v.SERVER_WAITING)
_BUSY = 0.5


def _action(trace: Trace, front: Watched | None) -> str:
    more = change(trace, Feature.API_SERVERS, "add API server processes")
    if front is not None and front.awake >= _BUSY:
        return one_of("the API server has no time for them: take work off it", more)
    return (
        "find what the API server waits for before it hands a request on: a check of keys, a fetch of images, a lock, "
        "a limit of requests at once"
    )
