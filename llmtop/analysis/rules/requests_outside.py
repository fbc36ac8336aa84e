"""Requests have come to the server, and its engine does not know of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import known, recent_mean, says
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import UnadmittedRequests, unadmitted_requests
from llmtop.analysis.rules.thread_signals import ServerThread, fronts
from llmtop.analysis.series.readings import latest, server_track, told_why_absent
from llmtop.analysis.server.configuration import change, one_of
from llmtop.model import Feature, Finding, Severity, Trace, Track
from llmtop.units import counted

id = "requests-outside"
summary = "Requests wait before the engine: in the API server, or for a connection to it."
source = "Linux, tcp_info (last data sent and received); vLLM, metrics (running and waiting are the engine's own)"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Requests at the server's sockets that are neither run, nor queued, nor answered."""
    server = server_track(trace)
    if server is None:
        return
    yield from unjudged(id, told_why_absent(trace, ids.NONE, v.ENDPOINT_CONNECTIONS) if is_watched(trace) else None)
    found = unadmitted_requests(trace)
    if found is not None:
        yield _finding(trace, server, found)


def _finding(trace: Trace, server: Track, found: UnadmittedRequests) -> Finding:
    front = max(fronts(trace), key=lambda thread: thread.awake, default=None)
    endpoint = ids.endpoint(ids.port(server.id))
    longest = recent_mean(trace, endpoint, v.ENDPOINT_LONGEST_WAIT) or 0.0
    oldest = known(latest(trace, endpoint, v.ENDPOINT_LONGEST_WAIT)) or longest
    many = counted(outside_now(trace, found), "request", "wait")
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name if front is None else front.row.role,
        message=f"{many} outside of the engine, the oldest for {oldest:.1f} s",
        evidence=(*found.lines, says(trace, endpoint, v.ENDPOINT_LONGEST_WAIT, longest), *_says_waits(trace)),
        action=_action(trace, front),
        next_command=commands.stacks(trace, front.row.pid) if front is not None else "",
        source=source,
    )


def outside_now(trace: Trace, found: UnadmittedRequests) -> float:
    """How many the engine does not know of at this moment; their mean where that is none, or not known."""
    server = server_track(trace)
    if server is None:
        return found.value
    endpoint = ids.endpoint(ids.port(server.id))
    of_engine = [latest(trace, server.id, metric) for metric in (v.SERVER_RUNNING, v.SERVER_WAITING)]
    counts = [known(one) for one in (latest(trace, endpoint, v.ENDPOINT_UNANSWERED), *of_engine)]
    unanswered, running, waiting = (count or 0.0 for count in counts)
    now = unanswered - running - waiting
    return found.value if None in counts or now < 1 else now


def _says_waits(trace: Trace) -> Iterator[str]:
    """What the threads that take requests wait for: as many as requests wait, for one thing, is what holds them up."""
    waits = Counter(thread.shares.main_cause for thread in fronts(trace) if thread.shares.blocked_total >= _ASLEEP)
    if waits:
        said = ", ".join(f"{count} in {cause}" for cause, count in waits.most_common())
        yield f"threads of the API server asleep: {said} (schedstat, causes as in the threads' pane)"


_ASLEEP = 0.5
"""Share of its time from which on a front's thread waits."""
_BUSY = 0.5
"""And from which on one is at work."""


def _action(trace: Trace, front: ServerThread | None) -> str:
    if front is not None and front.awake >= _BUSY:
        more = change(trace, Feature.API_SERVERS, "add API server processes")
        return one_of("the API server has no time for them: take work off it", more)
    return (
        "find what the API server waits for before it hands a request on: a check of keys, a fetch of images, a lock, "
        "a limit of requests at once"
    )
