"""A queue that does not go away: more comes than is finished, whether or not the clients go on adding to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, known, metrics_command, recent_mean, says
from llmtop.analysis.rules.limits import limit, queue_grows, waiting_now
from llmtop.analysis.rules.needs import lacks_requests
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import Signal
from llmtop.analysis.series.histograms import distribution
from llmtop.analysis.series.readings import counter_rate, history, latest, server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.facts import ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Finding, Metric, Severity, Trace, TrackId, Unknown, UnknownKind
from llmtop.units import counted, quantity

id = "queue-standing"
summary = "The server is saturated: a queue stands, and requests wait in it for long."
source = "NVIDIA AIPerf guide, server metrics (waiting); Little (1961), L = lambda W; TTFT below 500 ms is acceptable"

_LEAST_SECONDS = 8.0
"""That its readings have to span."""
_LEAST_WAITING = 2.0
"""Requests, in the mean: fewer come and go."""
_LONG_S = 0.5
"""A wait of more than the time that a first token may take (seed: TTFT below 500 ms is generally acceptable)."""
_UNANSWERED_S = 1.0
"""Age from which a request at the server's sockets is counted as without an answer (`ENDPOINT_UNANSWERED`)."""
_LATENCY_NS = 60 * NS_PER_S
"""In which waits are looked at."""
_NO_WAIT = Unknown("how long requests wait is not told, and none were finished", "look for longer", UnknownKind.PASSING)


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Two wait at least, never none, in all of the window; and they wait longer than a first token may take.

    Clients that send their next request when they have their answer keep a queue of one length: it does not grow.
    """
    server = server_track(trace)
    if server is None:
        yield from unjudged(id, lacks_requests(trace)) if is_watched(trace) else ()
        return
    waiting = _standing(trace, server.id)
    if waiting is None:
        yield from unjudged(id, lacks_requests(trace))
        return
    if waiting < _LEAST_WAITING:
        return
    wait = _wait(trace, server.id, waiting)
    if wait is None:
        finished = latest(trace, server.id, v.SERVER_REQUESTS)
        yield from unjudged(id, finished if isinstance(finished, Unknown) else _NO_WAIT)
    elif wait.value >= _LONG_S:
        held, running = limit(trace, server.id), recent_mean(trace, server.id, v.SERVER_RUNNING)
        now = counted(waiting_now(trace, server.id, waiting), "request", "wait")
        at = server.facts.get(ServerFact.QUEUE_AT)
        now += f' (most of them before model "{at}")' if isinstance(at, str) else ""
        says_running = () if running is None else (says(trace, server.id, v.SERVER_RUNNING, running),)
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=server.name,
            message=f"saturated: {now}, {wait.brief}; {held.name}",
            evidence=(says(trace, server.id, v.SERVER_WAITING, waiting), wait.text, *says_running, *held.evidence),
            action=held.action,
            next_command=metrics_command(server, "running|waiting|queue|first_token"),
            source=source,
        )


def _standing(trace: Trace, track: TrackId) -> float | None:
    """How many wait on average since there was last none; 0 where that was just now; None where it is not read.

    Only the last `WINDOW_NS` are looked at.
    """
    samples = [(t_ns, value) for t_ns, value in history(trace, track, v.SERVER_WAITING, WINDOW_NS) if value is not None]
    if isinstance(latest(trace, track, v.SERVER_WAITING), Unknown) or not _lasts(samples):
        return None
    last_none = max((i for i, (_, value) in enumerate(samples) if value < 1), default=-1)
    standing = samples[last_none + 1 :]
    return fmean(value for _, value in standing) if _lasts(standing) else 0.0


def _lasts(samples: Sequence[tuple[int, float]]) -> bool:
    return len(samples) > 2 and samples[-1][0] - samples[0][0] >= _LEAST_SECONDS * NS_PER_S


@frozen
class QueueWait(Signal):
    """How long requests wait, or something that tells of it takes, in seconds; `brief` is that in a message."""

    brief: str


def _wait(trace: Trace, track: TrackId, waiting: float) -> QueueWait | None:
    """How long requests wait on average; of servers that tell nothing of that, how long some do at least."""
    return _mean_wait(trace, track, waiting) or _unanswered(trace, track)


def _unanswered(trace: Trace, track: TrackId) -> QueueWait | None:
    """More requests without a byte of an answer than run: the others have waited for `_UNANSWERED_S` and longer."""
    endpoint = ids.endpoint(ids.port(track))
    unanswered, running = (
        recent_mean(trace, *one) for one in ((endpoint, v.ENDPOINT_UNANSWERED), (track, v.SERVER_RUNNING))
    )
    if unanswered is None or running is None or unanswered - running < 1:
        return None
    count = f"{unanswered - running:.0f} of them at least"
    age = f"{_UNANSWERED_S:.0f} s"
    text = f"{says(trace, endpoint, v.ENDPOINT_UNANSWERED, unanswered)} for {age} or longer, more than run"
    return QueueWait(_UNANSWERED_S, text, f"{count} for {age} or longer")


def _mean_wait(trace: Trace, track: TrackId, waiting: float) -> QueueWait | None:
    """Seconds in the queue on average: as the server tells, or from how fast it is emptied, or to a first token.

    The time to a first token contains the queue: it stands in where the queue itself is not known to be long, and rules
    out a longer estimate unless the queue grows.
    """
    told = [one for latency in _LATENCIES if (one := _mean(trace, track, *latency)) is not None]
    longest = next((one for one in told if one.value >= _LONG_S), told[-1] if told else None)
    finished = known(counter_rate(trace, track, v.SERVER_REQUESTS, WINDOW_NS))
    is_settled = longest is not None and (longest.value >= _LONG_S or not queue_grows(trace, track))
    if is_settled or not finished:
        return longest
    where = source_of(trace, track, v.SERVER_REQUESTS)
    rate = quantity(finished, "req/s")
    seconds = waiting / finished
    text = f"a queue of {waiting:.0f} at {rate} finished ({where}) is {seconds:.2g} s"
    queue = QueueWait(seconds, text, f"for about {seconds:.2g} s at {rate}")
    return queue if longest is None else max(queue, longest, key=lambda one: one.value)


_LATENCIES = (
    (v.SERVER_QUEUE_TIME, "mean time queued", "for {} on average"),
    (v.SERVER_TTFT, "mean time to first token", "first tokens take {} on average"),
)


def _mean(trace: Trace, track: TrackId, metric: Metric, words: str, brief: str) -> QueueWait | None:
    """Of those that came through in the last minute: the ones that wait still will have waited longer."""
    seen = distribution(trace, track, metric, _LATENCY_NS)
    mean = None if isinstance(seen, Unknown) else seen.mean
    if mean is None:
        return None
    where, said = source_of(trace, track, v.total(metric)), quantity(mean, "s")
    seconds = min(_LATENCY_NS, trace.end_ns - trace.start_ns) / NS_PER_S
    return QueueWait(mean, f"{words} {said} ({where}, mean of {seconds:.0f} s)", brief.format(said))
