"""Whether a server is on its way to an orderly end: it has closed its port, or its parts end as they were told to.

A server that was told to end closes its port, finishes what runs, ends its engines, and exits: seconds in which it
looks as if its endpoint or an engine had died. vLLM 0.26 kills its engines first, and closes its port right after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import FRESH_NS
from llmtop.facts import EndedFact, EndpointFact, SignalSender
from llmtop.model import NS_PER_S, TrackKind
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from llmtop.model import Series, Trace, Track

ENDING_NS = 10 * NS_PER_S
"""vLLM 0.26 exits 1 to 5 s after it has closed its port; a supervisor kills after 10 s (Docker) or more."""
_RESTED_NS = 3 * NS_PER_S
"""Uvicorn closes a connection after 5 s without a request, and others later."""
OBEYED_NS = 3 * NS_PER_S // 2
"""A part that ended as it was told to may be ahead of the server by so much, or ahead of the look at its port."""


ORDERLY_NS = NS_PER_S // 2
"""vLLM 0.26 closes its port within 0.2 s of its engine's end where it ended that itself. Where the engine died by
itself it does so at the next request, or within 5 s: in this time nobody can tell who killed it."""
KILLED_NS = NS_PER_S
"""So long it takes to see whether the port is closed after an engine was killed."""


def is_ending(trace: Trace) -> bool:
    """Whether a port that gave metrics was closed a moment ago."""
    for track in trace.tracks_of(TrackKind.ENDPOINT):
        answers = trace.get(track.id, v.ENDPOINT_ANSWER)
        if answers is not None and answers.last == EndpointAnswer.REFUSED and is_recent(answers, trace.end_ns):
            return True
    return False


def ended_by_server(trace: Trace, ended: Track) -> bool:
    """Whether the server has ended a part of its own: the kernel told who sent the signal, or its port tells.

    Where nobody listened to signals, a part that was still alive when the server closed its port, or just before, was
    ended by it. Only what was killed or ended in order: nobody is told to crash.
    """
    if not (ended.facts.get(EndedFact.IS_REGULAR) or ended.facts.get(EndedFact.IS_KILLED)):
        return False
    match ended.facts.get(EndedFact.SENDER):
        case SignalSender.OWN:
            return True
        case SignalSender.OUTSIDE:
            return _was_told_before(trace, ended)
    alive_ns = ended.facts.get(EndedFact.ALIVE_NS)
    return isinstance(alive_ns, int | float) and any(
        isinstance(closed_ns := track.facts.get(EndpointFact.CLOSED_NS), int | float)
        and closed_ns < alive_ns + ORDERLY_NS
        for track in trace.tracks_of(TrackKind.ENDPOINT)
        if _was_at_work(trace, track)
    )


def _was_told_before(trace: Trace, ended: Track) -> bool:
    """Whether the server had been told to end before somebody outside ended its part: both are one stop."""
    told_ns = [
        track.facts.get(EndedFact.SENT_NS)
        for track in trace.tracks_of(TrackKind.ENDED)
        if track is not ended
        and track.facts.get(EndedFact.PID) == ended.facts.get(EndedFact.ROOT)
        and track.facts.get(EndedFact.IS_REGULAR)
    ]
    sent_ns = ended.facts.get(EndedFact.SENT_NS)
    return any(isinstance(ns, int | float) and isinstance(sent_ns, int | float) and ns <= sent_ns for ns in told_ns)


def _was_at_work(trace: Trace, track: Track) -> bool:
    """Whether the connection was closed soon after a page: one that has rested is closed by a server that lives."""
    answers, closed_ns = trace.get(track.id, v.ENDPOINT_ANSWER), track.facts.get(EndpointFact.CLOSED_NS)
    good = None if answers is None else _last_good_ns(answers)
    return good is not None and isinstance(closed_ns, int | float) and closed_ns - good < _RESTED_NS


def _last_good_ns(answers: Series) -> int | None:
    pairs = zip(reversed(answers.times), reversed(answers.values), strict=True)
    return next((t for t, value in pairs if value == EndpointAnswer.METRICS), None)


def is_recent(answers: Series, now_ns: int) -> bool:
    """Whether metrics came until at most `ENDING_NS` ago, and the port is still looked at."""
    good = _last_good_ns(answers)
    return good is not None and now_ns - good <= ENDING_NS and now_ns - (answers.last_t_ns or 0) <= FRESH_NS
