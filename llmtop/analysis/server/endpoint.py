"""The metrics endpoint: dead, failing, hanging or slow, of a server whose processes live."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import FRESH_NS
from llmtop.analysis.server.configuration import change, one_of
from llmtop.analysis.server.ending import is_recent
from llmtop.analysis.server.fault import Fault, for_s
from llmtop.analysis.server.processes import is_front, parts
from llmtop.analysis.threads.shares import Shares, threads_view
from llmtop.facts import EndpointFact, ServerFact
from llmtop.model import NS_PER_S, Feature, Severity, TrackKind, Unknown
from llmtop.text import quoted
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Series, Trace, Track

DEAD, FAILING, SLOW = "endpoint-dead", "endpoint-failing", "endpoint-slow"
SILENT_S = 0.85
"""Without an answer for so long, and three times longer than usual, it hangs: a page takes milliseconds. Just under a
second, so that the poll after the one that asked says so, within two seconds at 1 Hz."""
_LONGER = 3.0
"""Times what answers usually take, from which on one is late."""
STARTING_S = 60.0
"""A server that was seen to start may take connections long before it can answer: its model is loaded meanwhile."""
OVERDUE_S = 5.0
"""Without a first answer for so long, a server that takes connections and has been up for a while hangs."""
SLOW_S = 1.0
"""A page that takes so long, three times in a row, waits its turn behind requests that do too."""
_LOOKS = 3
"""Answers in a row that must be slow."""
_OWN = 0.8
"""Share of its time by which a page is slower than a request for next to nothing, from which it is slow by itself."""
_WORKS = 0.5
"""Share of the time in which a thread of the server computes or waits for a CPU, from which a step goes on."""
_LONGEST_STEP_S = 60.0
"""A batch of 2,048 prompt tokens of a 7 B model takes half a minute at 1 TFLOP/s (2 FLOP for each weight and token).
From here on nobody can tell a step from a page that will not come."""
_HELD_UP = "a long step, as of a prompt, holds it up, or it gets no CPU"
"""Most builds of llama-server answer between two steps only; the newest while a step goes on, with another thread."""
_FIRST_HTTP = 100
_SERVER_ERROR = 500
"""The first status that is the server's fault (RFC 9110, 15.6)."""
_NOT_READY = (501, 503)
"""llama-server answers 501 without --metrics, and servers that load their model 503."""
_LOST = {
    EndpointAnswer.REFUSED: "nothing listens at {url} any more, though {who} lives",
    EndpointAnswer.NOT_HTTP: "{url} does not answer in HTTP any more",
    EndpointAnswer.UNREACHABLE: "{url} cannot be reached any more, though {who} lives",
    EndpointAnswer.STRANGE: "{url} answers, and not with metrics any more",
}


_REFUSED = "it shuts down, or its front end failed: its log says which; clients get no connection"


def endpoint_faults(trace: Trace) -> tuple[Fault, ...]:
    """What is wrong with the endpoints of a server that lives; of one that has exited, that says all."""
    return tuple(fault for track in trace.tracks_of(TrackKind.ENDPOINT) for fault in _faults(trace, track))


def _faults(trace: Trace, track: Track) -> Iterator[Fault]:
    answers, times = trace.get(track.id, v.ENDPOINT_ANSWER), trace.get(track.id, v.ENDPOINT_TIME)
    if answers is None or answers.last is None or trace.end_ns - (answers.last_t_ns or 0) > FRESH_NS:
        return
    answer, since = int(answers.last), _failing_since(answers)
    asked_ns = _asked_ns(answers, times)
    if asked_ns is not None:
        yield from _silent(
            trace, track, answers, times, min(since, asked_ns) if answer == EndpointAnswer.SILENT else asked_ns
        )
    elif answer == EndpointAnswer.METRICS:
        yield from _slow(trace, track, answers, times)
    elif answer == EndpointAnswer.SILENT:
        yield from _silent(trace, track, answers, times, since)
    elif _has_answered(answers, trace, track) or _is_broken(answers):
        yield _lost(
            trace, track, answer, since, is_ending=answer == EndpointAnswer.REFUSED and is_recent(answers, trace.end_ns)
        )


def _asked_ns(answers: Series, times: Series | None) -> int | None:
    """When the page was asked for that is waited for now; None where the last one came, or failed."""
    if times is None or times.last is None or (times.last_t_ns or 0) <= (answers.last_t_ns or 0):
        return None
    return (times.last_t_ns or 0) - int(times.last * NS_PER_S)


def _has_answered(answers: Series, trace: Trace, track: Track) -> bool:
    """Whether metrics have come from there: a server that starts has nothing to lose yet."""
    if _is_anew(answers, trace):
        return False
    return ids.server(ids.port(track.id)) in trace.tracks or any(
        value == EndpointAnswer.METRICS for value in answers.values
    )


def _is_anew(answers: Series, trace: Trace) -> bool:
    """Whether the server was started while this was looked at, and has given no metrics since."""
    seen = [series.times[0] for part in parts(trace) if (series := trace.get(part.track.id, v.PROCESS_STATE))]
    since = min(seen, default=0)
    if since - answers.times[0] < FRESH_NS:  # the first looks at both come in any order
        return False
    return not any(t >= since and value == EndpointAnswer.METRICS for t, value in answers.known)


def _is_broken(answers: Series) -> bool:
    """It never gave metrics, and says itself, more than once, that this is an error."""
    answer = int(answers.last or 0)
    return answer >= _SERVER_ERROR and answer not in _NOT_READY and _count_last(answers) > 1


def _lost(trace: Trace, track: Track, answer: int, since: int, *, is_ending: bool) -> Fault:
    url, said = _url(track), track.facts.get(EndpointFact.SAID)
    remedy = said.remedy if isinstance(said, Unknown) else ""
    living = next((part.name for part in parts(trace)), "the server")
    if answer >= _FIRST_HTTP:
        text, rule, state = f"{url} answers with status {answer} instead of metrics", FAILING, "ENDPOINT FAILING"
    else:
        is_dead = answer in (EndpointAnswer.REFUSED, EndpointAnswer.UNREACHABLE)
        rule, state = (DEAD, "ENDPOINT DEAD") if is_dead else (FAILING, "ENDPOINT FAILING")
        text = _LOST[EndpointAnswer(answer)].format(url=url, who=living)
    if is_ending:
        text, state = f"{living} has closed {url}: it shuts down, or its front end has just failed", "SERVER ENDING"
    return Fault(
        rule,
        state,
        "metrics endpoint",
        f"{text}, for {for_s(since, trace.end_ns)}",
        (
            f"{said.reason if isinstance(said, Unknown) else text} (GET {url})",
            f"alive: {', '.join(part.name for part in parts(trace)[:3]) or 'not known'} (/proc)",
        ),
        _REFUSED if answer == EndpointAnswer.REFUSED else remedy or "its log says why",
        f"curl -si {quoted(url)} | head",
        since,
        is_whole=False,
    )


def _silent(trace: Trace, track: Track, answers: Series, times: Series | None, since: int) -> Iterator[Fault]:
    """Named while the answer is still out."""
    waited = max((times.last or 0.0) if times is not None else 0.0, (trace.end_ns - since) / NS_PER_S)
    usual = _usual_s(answers, times)
    has_answered = _has_answered(answers, trace, track)
    is_overdue = bool(track.facts.get(EndpointFact.OVERDUE))
    first_s = OVERDUE_S if is_overdue else _patience_s(answers, trace)
    if waited < (max(SILENT_S, _LONGER * usual) if has_answered else first_s):
        return
    url = _url(track)
    if has_answered and waited < _LONGEST_STEP_S and _is_answered_between_steps(trace, track) and _works(trace, waited):
        yield _late(trace, url, waited, usual, since)
        return
    why, action, *shown = _why_silent(trace)
    yield Fault(
        DEAD,
        "ENDPOINT HANGS",
        "metrics endpoint",
        f"{url} has not answered for {waited:.0f} s: {why}",
        (
            *shown,
            f"waited {waited:.1f} s for it so far (GET {url})",
            f"it took {usual * 1000:.0f} ms before (GET {url})" if has_answered else f"it never answered (GET {url})",
        ),
        action,
        f"curl -s -m 10 -o /dev/null -w '%{{http_code}} %{{time_total}}\\n' {quoted(url)}",
        since,
        is_whole=False,
        severity=Severity.ERROR if has_answered or is_overdue else Severity.WARNING,
    )


def _why_silent(trace: Trace) -> tuple[str, ...]:
    """Why it may be so, what to do about it, and the line of evidence: a front end that gets no CPU is not stuck."""
    view = threads_view(trace, _STARVED_NS)
    fronts = [row for row in (() if isinstance(view, Unknown) else view.rows) if is_front(row.role)]
    queued = max((row.shares.run_queue for row in fronts if isinstance(row.shares, Shares)), default=0.0)
    if queued >= _WORKS:
        return (
            "the front end gets no CPU",
            "give it CPUs: others take them, or its cgroup, nice or quota leaves it few (the findings below say which)",
            f"the front end waits for a CPU {queued:.0%} of the last {_STARVED_NS // NS_PER_S} s (schedstat)",
        )
    loop = next((row.shares for row in fronts if row.tid == row.pid and isinstance(row.shares, Shares)), None)
    if loop is not None and loop.blocked_total >= _WORKS and loop.main_cause in _BLOCKS:
        return (
            f"its event loop waits at {_BLOCKS[loop.main_cause]}",
            "find what it writes there (its log, as a rule) and why nobody takes it: a log shipper that is stopped, a "
            "pager, a disk that is full or does not answer",
            f"its first thread waits {loop.blocked_total:.0%} of the time, most in {loop.main_cause} (/proc)",
        )
    return (
        "the front end is stuck, or has far more to do than it can",
        "see what the API server's threads do (pane 4): a blocked event loop, no CPU, or too many requests for it",
    )


_STARVED_NS = 5 * NS_PER_S
_BLOCKS: dict[str, str] = {
    v.ThreadCause.PIPE: "a pipe or a FIFO",
    v.ThreadCause.TERMINAL: "a terminal",
    v.ThreadCause.NETWORK_FS: "a network file system",
    v.ThreadCause.DISK: "a disk",
}
"""What an event loop that has time waits for in no call."""


def _is_answered_between_steps(trace: Trace, track: Track) -> bool:
    server = trace.tracks.get(ids.server(ids.port(track.id)))
    return server is not None and bool(server.facts.get(ServerFact.ANSWERS_BETWEEN_STEPS))


def _works(trace: Trace, seconds: float) -> bool:
    """Whether a thread of the server computes, or would if it had a CPU, while the page is waited for."""
    view = threads_view(trace, max(NS_PER_S, int(seconds * NS_PER_S)))
    rows = () if isinstance(view, Unknown) else view.rows
    known = (row.shares for row in rows if isinstance(row.shares, Shares))
    return any(shares.on_cpu + shares.run_queue >= _WORKS for shares in known)


def _late(trace: Trace, url: str, waited: float, usual: float, since: int) -> Fault:
    return Fault(
        SLOW,
        "ENDPOINT LATE",
        "metrics endpoint",
        f"{url} has not answered for {waited:.0f} s, and the engine computes: {_HELD_UP}",
        (
            f"waited {waited:.1f} s for it so far (GET {url})",
            f"it took {usual * 1000:.0f} ms before (GET {url})",
            "a thread of the server computes, or waits for a CPU (schedstat)",
        ),
        _shorter_steps(trace),
        f"curl -s -m 60 -o /dev/null -w '%{{http_code}} %{{time_total}}\n' {quoted(url)}",
        since,
        is_whole=False,
        severity=Severity.WARNING,
    )


def _shorter_steps(trace: Trace) -> str:
    return one_of(change(trace, Feature.MAX_BATCHED_TOKENS, "smaller steps"), "shorter prompts", "CPUs of its own")


def _patience_s(answers: Series, trace: Trace) -> float:
    return STARTING_S if _is_anew(answers, trace) else FRESH_NS / NS_PER_S


def _slow(trace: Trace, track: Track, answers: Series, times: Series | None) -> Iterator[Fault]:
    took = _good_times(answers, times)[-_LOOKS:]
    if len(took) < _LOOKS or min(took) < SLOW_S:
        return
    url = _url(track)
    title, message, action = _slowness(trace, track, took[-1])
    looks = f"the last {_LOOKS} looks took {', '.join(f'{one:.1f}' for one in took)} s (GET {url})"
    yield Fault(
        SLOW,
        title,
        "metrics endpoint",
        message,
        (looks, f"numbers of the server are as old as that, or older (GET {url})"),
        action,
        f"curl -s -o /dev/null -w '%{{time_total}}\\n' {quoted(url)}",
        trace.end_ns,
        is_whole=False,
        severity=Severity.WARNING,
    )


def _slowness(trace: Trace, track: Track, took_s: float) -> tuple[str, str, str]:
    """What it is called, what it means, and what helps: by whether the page, a step, or the front end is slow."""
    own_s = track.facts.get(EndpointFact.OWN_S)
    if isinstance(own_s, float) and own_s >= _OWN * took_s:
        return (
            "METRICS SLOW",
            f"the metrics page takes {took_s:.1f} s, and a request for next to nothing {own_s:.1f} s less: "
            "it is the page that is slow, not the queue before the front end",
            "scrape it less often, and see what it collects: many series, many processes, a slow disk behind them",
        )
    if _is_answered_between_steps(trace, track):
        return "ENDPOINT SLOW", f"it takes {took_s:.1f} s to answer: {_HELD_UP}", _shorter_steps(trace)
    message = f"the front end takes {took_s:.1f} s to answer: every request waits as long before it is looked at"
    return "ENDPOINT SLOW", message, f"its event loop has no time: {_relieved(trace)}"


def _relieved(trace: Trace) -> str:
    return one_of(change(trace, Feature.API_SERVERS, "add API server processes"), "take load off it")


def _good_times(answers: Series, times: Series | None) -> list[float]:
    """How long the pages took that came, in seconds."""
    if times is None:
        return []
    good = {t for t, answer in answers.newest(_REMEMBERED).known if answer == EndpointAnswer.METRICS}
    return [took for t, took in times.newest(_REMEMBERED).known if t in good]


_REMEMBERED = 60
"""Answers among which good ones are looked for."""


def _usual_s(answers: Series, times: Series | None) -> float:
    good = _good_times(answers, times)
    return median(good) if good else 0.0


def _failing_since(answers: Series) -> int:
    """When the last metrics came, or else the first look."""
    since = answers.last_t_ns or 0
    for t, value in zip(reversed(answers.times), reversed(answers.values), strict=True):
        if value == EndpointAnswer.METRICS:
            break
        since = t
    return since


def _count_last(answers: Series) -> int:
    """How many looks in a row came to the same."""
    count = 0
    for value in reversed(answers.values):
        if value != answers.last:
            break
        count += 1
    return count


def _url(track: Track) -> str:
    return str(track.facts.get(EndpointFact.URL, track.name))
