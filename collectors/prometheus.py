"""The server's own numbers, from its Prometheus endpoint, under the names of the vocabulary."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors.endpoint_failures import Failure
from llmtop.collectors.loading import age
from llmtop.collectors.metrics_http import Fetch, Fetcher
from llmtop.collectors.scrape_aside import ScrapeAside
from llmtop.collectors.scrape_pace import SLOW_NS, ScrapePace
from llmtop.collectors.scraper import FetchThread, Scrape, Scraper
from llmtop.collectors.server_addresses import ServerAddresses, port
from llmtop.collectors.server_numbers import server_numbers
from llmtop.facts import EndpointFact, ServerFact
from llmtop.model import (
    LIVE,
    NS_PER_S,
    Engine,
    Fact,
    Issue,
    Mark,
    MarkKind,
    Missing,
    Reading,
    Severity,
    Source,
    Target,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
)
from llmtop.text import redact
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector
    from llmtop.collectors.metrics_text import Exposition

PATIENCE_S = 0.9
"""For how long a poll waits for the page; one that takes longer comes with a later poll."""
SILENT_NS = 3 * NS_PER_S // 2
"""A page that is waited for this long is said not to come: with the poll after the first, within 2 s."""
LOST_NS = 10 * NS_PER_S
"""After so long without an answer, histories get a gap."""
_SERVER = whats.kind(TrackKind.SERVER)
_Looks: TypeAlias = "tuple[Mapping[TrackId, Track], tuple[Reading, ...]]"
"""Tracks, and readings of them."""
_NO_LOOKS: _Looks = ({}, ())


class PrometheusCollector:
    """Reads the metrics of the server behind a target, and says what became of them since the last page.

    Args:
        engines: The servers known; the one of the target's kind is preferred where the names seen allow both.
        fetch: Gets a page; the tests' own, or HTTP.
        find_urls: Where the metrics are by now, for servers that open their port late: asked before every page as
            long as none has come.
        headers: Sent with each request: a key.
        last_line: The newest line of the server's output, where llmtop has it.
        asks_from: A process in whose network namespace is asked: the server's, by default.
    """

    name = "prometheus"
    owns = Source(
        name,
        (TrackKind.SERVER, TrackKind.ENDPOINT),
        families=("server.",),
        metrics=(v.ENDPOINT_ANSWER, v.ENDPOINT_TIME),
    )
    period_s = 0.2

    def __init__(
        self,
        target: Target,
        engines: Sequence[Engine],
        clock: Clock = time.monotonic_ns,
        fetch: Fetch | None = None,
        find_urls: Callable[[], Sequence[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        last_line: Callable[[], str] = str,
        asks_from: int | None = None,
    ) -> None:
        self._target = target
        self._clock = clock
        asks_from = target.root_pid if asks_from is None else asks_from
        self._first: FetchThread[Scrape | Failure | Unknown] = FetchThread(
            Fetcher(asks_from, headers=headers, clock=clock), fetch
        )
        self._beside: FetchThread[int | None] = FetchThread(Fetcher(asks_from, headers=headers, clock=clock), fetch)
        self._addresses = ServerAddresses(target, find_urls, last_line, clock)
        self._pace = ScrapePace()
        self._scraper = Scraper(target, engines, self._addresses, self._first, self._pace, clock, has_key=bool(headers))
        self._aside = ScrapeAside(target, self._beside, self._pace, clock)
        self._not_before_ns = 0
        self._missing: tuple[Missing, ...] = ()
        self._shown: tuple[TrackId, Sequence[Reading]] | None = None
        """Track and readings of the last good scrape."""
        self._is_lost = self._is_eager = self._was_awaited = False
        """`_was_awaited`: there was nothing to read when it was first asked for: the server was starting."""

    def missing(self) -> Unknown | None:
        engine = self._scraper.expected
        if engine is not None and not engine.metrics_paths:
            return Unknown(f"{engine.title} exports no metrics", engine.metrics_remedy)
        return self._addresses.why_never()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._first.close()
        self._beside.close()

    @property
    def is_starting(self) -> bool:
        """Whether the first page is still waited for: nothing has come, and nothing has failed."""
        return self._shown is None and not self._missing

    @property
    def is_eager(self) -> bool:
        """A page is on its way, or was the first one: after a start, or after a time without any."""
        return self._first.is_busy or self._is_eager

    def poll(self) -> Trace:
        """The page, or that it has not come yet: it is waited for elsewhere, so that a poll never hangs."""
        now = self._clock()
        if not self._first.is_busy:
            if now < self._not_before_ns:
                return self._trace(now)
            if self._shown is None or self._is_lost:  # while pages come there is nothing to look for
                self._addresses.look_again()
            self._scraper.start()
        if not self._first.is_done(PATIENCE_S):
            return self._waiting(self._clock())
        answer = self._first.take()
        if isinstance(answer, Scrape):
            self._aside.follow(answer)
        now = self._clock()
        self._not_before_ns = now + self._pace.wait_ns
        if isinstance(answer, Scrape):
            return self._answered(answer, now)
        return self._failed(answer, now, self._scraper.took_ns)

    def _trace(self, now: int, looks: _Looks = _NO_LOOKS) -> Trace:
        """What is told of this moment, of what is missing by now."""
        return Trace(LIVE, now, now, tracks=looks[0], readings=looks[1], missing=self._missing)

    def _waiting(self, now: int) -> Trace:
        """The page has not come yet; what came before still stands, and how long this takes is a number too."""
        silence = self._scraper.silence(now)
        if silence is None:
            return self._trace(now)
        failure, waited_ns = silence
        if waited_ns >= LOST_NS:
            return self._failed(failure, now, waited_ns)
        is_silent = waited_ns >= SILENT_NS
        why = failure.why if is_silent else None
        tracks, looks = _endpoint(failure.url, failure.answer, waited_ns, now, why, self._overdue())
        if not is_silent:
            return self._trace(now, (tracks, looks[1:]))
        missing = (Missing(_SERVER, failure.why), *(one for one in self._missing if one.what != _SERVER))
        return replace(self._trace(now, (tracks, looks)), missing=missing)

    def _failed(self, problem: Failure | Unknown, now: int, took_ns: int) -> Trace:
        """No numbers this time: histories get a gap, and the moment is marked."""
        why = problem if isinstance(problem, Unknown) else problem.why
        self._missing = (Missing(_SERVER, why),)
        self._was_awaited |= self._shown is None
        looks = _NO_LOOKS
        if isinstance(problem, Failure):
            closed_ns = self._first.fetcher.closed_ns if problem.answer == EndpointAnswer.REFUSED else None
            more = self._overdue() | ({} if closed_ns is None else {EndpointFact.CLOSED_NS: closed_ns})
            looks = _endpoint(problem.url, problem.answer, took_ns, now, why, more)
        trace = self._trace(now, looks)
        if self._shown is None or self._is_lost:
            return trace
        self._is_lost = True
        track_id, last = self._shown
        of_itself = (reading for reading in last if not v.has_label(reading.metric.name))
        gaps = (Reading(track_id, one.metric, now, None, one.source) for one in of_itself)
        said = why if isinstance(problem, Unknown) else problem.in_short
        mark = Mark(now, MarkKind.METRICS_LOST, track_id, f"metrics lost: {said.reason}", Severity.WARNING, about=said)
        return replace(trace, readings=(*trace.readings, *gaps), marks=(mark,))

    def _overdue(self) -> dict[str, Fact]:
        return {EndpointFact.OVERDUE: 1} if self._shown is None and self._addresses.is_overdue() else {}

    def _welcome(self, now: int, track: TrackId) -> Iterable[Mark]:
        """What the first page after a time without any is said to be."""
        if self._is_lost:
            yield Mark(now, MarkKind.METRICS_BACK, track, "metrics are back")
        elif self._was_awaited and (age_s := age(self._target)) is not None:
            said = f"{self._target.title} is ready: first metrics {age_s:.0f} s after its start"
            yield Mark(now, MarkKind.SERVER, track, said)

    def _answered(self, scrape: Scrape, now: int) -> Trace:
        connection, exposition = scrape.connection, scrape.exposition
        track_id = ids.server(port(connection.url))
        numbers = server_numbers(scrape, track_id)
        readings, self._missing = numbers.readings, numbers.missing
        marks = tuple(self._welcome(now, track_id))
        self._is_eager = self._shown is None or self._is_lost
        self._is_lost = self._was_awaited = False
        self._shown = track_id, readings
        facts = connection.facts(self._target, exposition) | {ServerFact.SCRAPE_MS: round(scrape.took_ns / 1e6, 1)}
        track = Track(track_id, TrackKind.SERVER, connection.engine.title, facts=facts)
        own_ns = self._pace.own_ns
        more: dict[str, Fact] = {} if own_ns is None else {EndpointFact.OWN_S: own_ns / NS_PER_S}
        endpoint, looks = _endpoint(connection.url, EndpointAnswer.METRICS, scrape.took_ns, now, more=more)
        trace = self._trace(now, ({track_id: track, **endpoint}, (*readings, *looks)))
        return replace(trace, marks=marks, issues=(*numbers.issues, *_issues(exposition, self._pace)))


def _endpoint(
    url: str, answer: int, took_ns: int, now: int, why: Unknown | None = None, more: Mapping[str, Fact] | None = None
) -> _Looks:
    """What this look at the endpoint came to, whether it brought numbers or not."""
    number = port(url)
    id = ids.endpoint(number)
    facts: dict[str, Fact] = {EndpointFact.URL: redact(url), **(more or {})}
    if why is not None:
        facts[EndpointFact.SAID] = why
    looks = ((v.ENDPOINT_ANSWER, float(answer)), (v.ENDPOINT_TIME, took_ns / NS_PER_S))
    readings = tuple(Reading(id, metric, now, value, "GET " + redact(url)) for metric, value in looks)
    return {id: Track(id, TrackKind.ENDPOINT, f":{number}", facts=facts)}, readings


def _issues(exposition: Exposition, pace: ScrapePace) -> Iterable[Issue]:
    if exposition.left_out:
        said = "the server's metrics have more lines than llmtop reads: numbers on the others are missing"
        yield Issue(Severity.WARNING, "metrics-too-many", said, exposition.left_out)
    if exposition.unreadable:
        yield Issue(
            Severity.WARNING, "metrics-text", "lines of the server's metrics cannot be read", exposition.unreadable
        )
    if pace.wait_ns:
        yield Issue(
            Severity.WARNING,
            "metrics-slow",
            f"the server's metrics cost its front end more than {SLOW_NS // 1_000_000} ms; they are read less often",
        )


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry; where the user has said where the metrics are, nothing else is asked."""
    told = aim.endpoint.url
    return PrometheusCollector(
        replace(target, metrics_urls=(told,)) if told else target,
        aim.engines,
        find_urls=None if told else aim.find_urls,
        headers=aim.endpoint.headers,
        last_line=aim.last_line,
        asks_from=os.getpid() if told else None,
    )
