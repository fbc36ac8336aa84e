"""Requests that got no answer: refused, failed, or left by their clients, over the window of a verdict.

An engine counts what it finished. What the API server refuses never reaches it, and what a client leaves vanishes
from its books. The web framework counts both, by HTTP status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import counter_increase, history, server_track, source
from llmtop.analysis.server.fault import Fault
from llmtop.facts import ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Severity, Unknown
from llmtop.text import quoted
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Trace, Track

REFUSED, LEFT = "requests-failed", "clients-leave"
WINDOW_NS = 15 * NS_PER_S
"""That of a verdict (`rules.evidence`)."""
_LEAST = 5
"""Requests that failed in it: one client that tries something out makes no finding."""
_NOTABLE = 0.05
"""Share of all requests."""
_ALL = 0.995


@frozen
class Answers:
    """What became of the requests of the window, by whoever counts most of it.

    Attributes:
        failed: Requests that got an error instead of an answer.
        total: All that were answered, with an error or without.
        by: The counts behind it, for people: "4xx 148 req/s".
        errors: The part of `failed` that is the server's fault, where that is known: HTTP 5xx.
        where: The counters' names.
    """

    failed: float
    total: float
    seconds: float
    by: tuple[str, ...]
    errors: float | None
    where: str

    @property
    def share(self) -> float:
        return self.failed / self.total if self.total else 0.0


def answers(trace: Trace, server: Track, window_ns: int = WINDOW_NS) -> Answers | Unknown:
    """By HTTP status where a framework counts them, or by the engine's own counters, whichever has more failures.

    An engine that fails in the middle of an answer has sent its status already.
    """
    by_status, by_engine = _by_status(trace, server, window_ns), _by_engine(trace, server, window_ns)
    if by_status is None or (isinstance(by_engine, Answers) and by_engine.failed > by_status.failed):
        return by_engine
    return by_status


def _by_status(trace: Trace, server: Track, window_ns: int) -> Answers | None:
    metrics = (v.SERVER_HTTP_DONE, v.SERVER_HTTP_REFUSED, v.SERVER_HTTP_FAILED)
    grown = [counter_increase(trace, server.id, metric, window_ns) for metric in metrics]
    known = [one for one in grown if not isinstance(one, Unknown)]
    if len(known) < len(metrics):
        return None
    done, refused, errors = known
    by = [f"{name} {quantity(one.per_second, 'req/s')}" for name, one in zip(("2xx", "4xx", "5xx"), known, strict=True)]
    failed, where = refused.amount + errors.amount, source(trace, server.id, v.SERVER_HTTP_DONE)
    return Answers(failed, done.amount + failed, done.seconds, tuple(by), errors.amount, where)


def _by_engine(trace: Trace, server: Track, window_ns: int) -> Answers | Unknown:
    failed = counter_increase(trace, server.id, v.SERVER_FAILURES, window_ns)
    if isinstance(failed, Unknown):
        return failed
    left_out = server.facts.get(v.remark_of(v.SERVER_FAILURES))
    if left_out and not failed.amount:
        return Unknown(
            f"{server.facts.get(ServerFact.ENGINE, server.name)} does not count refused requests ({left_out})",
            "its page has no http_requests_total: its log has the status of each request",
        )
    ended = counter_increase(trace, server.id, v.SERVER_REQUESTS, window_ns)
    total = 0.0 if isinstance(ended, Unknown) else ended.amount
    where, of_all = (source(trace, server.id, metric) for metric in (v.SERVER_FAILURES, v.SERVER_REQUESTS))
    by = (f"failed {quantity(failed.per_second, 'req/s')}",)
    # One counter of both, split by a label, has the failures among all.
    total = max(total, failed.amount) if where == of_all else total + failed.amount
    return Answers(failed.amount, total, failed.seconds, by, None, where)


def refusal_faults(trace: Trace) -> Iterator[Fault]:
    """Of all requests a notable share got an error; an error where none was served."""
    server = server_track(trace)
    found = None if server is None else answers(trace, server)
    if server is None or found is None or isinstance(found, Unknown):
        return
    if found.failed < _LEAST or found.share < _NOTABLE:
        return
    is_all = found.share >= _ALL and not _makes_tokens(trace, server)
    share = "all requests" if is_all else f"{percent(found.share * 100)} of all requests"
    is_fault = found.errors is None or found.errors * 2 >= found.failed
    word = "FAIL" if is_fault else "REFUSED"
    verb = "fail" if is_fault else "are refused"
    yield Fault(
        REFUSED,
        f"{'ALL ' if is_all else ''}REQUESTS {word}",
        server.name,
        f"{share} {verb}: {quantity(found.failed / found.seconds, 'req/s')} in the last {found.seconds:.0f} s",
        (
            f"{', '.join(found.by)} ({found.where}, {found.seconds:.0f} s)",
            f"{found.failed:.0f} of {found.total:.0f} requests got an error ({found.where})",
        ),
        _ACTIONS[is_fault],
        _command(server),
        trace.end_ns - int(found.seconds * NS_PER_S),
        is_whole=False,
        severity=Severity.ERROR if is_all else Severity.WARNING,
    )


def _makes_tokens(trace: Trace, server: Track) -> bool:
    grown = counter_increase(trace, server.id, v.SERVER_OUTPUT_TOKENS, WINDOW_NS)
    return not isinstance(grown, Unknown) and grown.amount > 0


_ACTIONS = {
    True: "read the server's log: it names the error of each request",
    False: "find the client: the server's log has its address, and the answer to it says what is wrong with its "
    "requests (a prompt that is too long, a wrong model name, a missing key)",
}


def leaving_faults(trace: Trace) -> Iterator[Fault]:
    """Answers that began and that the engine never finished: their clients went away.

    Frameworks count an answer when it ends, or when it begins: then those that run have begun and not ended.
    """
    server = server_track(trace)
    if server is None:
        return
    counters = (v.SERVER_HTTP_GENERATED, v.SERVER_REQUESTS)
    begun, ended = (counter_increase(trace, server.id, metric, WINDOW_NS) for metric in counters)
    if isinstance(begun, Unknown) or isinstance(ended, Unknown):
        return
    left = begun.amount - ended.amount - max(0.0, _more_at_hand(trace, server))
    if left < _LEAST or left < _NOTABLE * begun.amount:
        return
    share = percent(left / begun.amount * 100)
    yield Fault(
        LEFT,
        "CLIENTS LEAVE",
        server.name,
        f"clients leave before their answer is complete: {quantity(left / begun.seconds, 'req/s')}, {share} of those "
        f"that it answers, in the last {begun.seconds:.0f} s",
        tuple(
            f"{words} {quantity(one.per_second, 'req/s')} ({source(trace, server.id, metric)}, {one.seconds:.0f} s)"
            for words, one, metric in zip(
                ("answers begun", "finished by the engine"), (begun, ended), counters, strict=True
            )
        ),
        "compare the time-out of the clients, and of the proxy before the server, with its end-to-end latency: what "
        "they leave was computed for nothing",
        _command(server),
        trace.end_ns - int(begun.seconds * NS_PER_S),
        is_whole=False,
        severity=Severity.WARNING,
    )


def _more_at_hand(trace: Trace, server: Track) -> float:
    """How many requests more run and wait now than when the window began."""
    grown = 0.0
    for metric in (v.SERVER_RUNNING, v.SERVER_WAITING):
        known = [value for _, value in history(trace, server.id, metric, WINDOW_NS) if value is not None]
        grown += known[-1] - known[0] if known else 0.0
    return grown


def _command(server: Track) -> str:
    """What shows the counters themselves, by path, status and reason."""
    url = server.facts.get(ServerFact.URL)
    return (
        f"curl -s {quoted(url)} | grep -E 'http_re|request_success|failure|error|abort'" if isinstance(url, str) else ""
    )
