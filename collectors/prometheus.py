"""The server's own numbers, from its Prometheus endpoint, under the names of the vocabulary."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from llmtop import ids, settings, whats
from llmtop import vocabulary as v
from llmtop.collectors.endpoint_failures import Failure, likeliest, refused, silent, strange, unreachable
from llmtop.collectors.exposed_values import read_values, wanted_names
from llmtop.collectors.job_thread import Job, JobThread
from llmtop.collectors.loading import Start, age, progress
from llmtop.collectors.metrics_http import TIMEOUT_S, Fetch, Fetcher, NotHttpError, Page
from llmtop.collectors.metrics_text import Exposition, TextReader, key
from llmtop.collectors.scrape_pace import SLOW_NS, ScrapePace
from llmtop.collectors.slots import Running, Slots, slots_of
from llmtop.model import (
    NS_PER_S,
    Engine,
    Fact,
    Issue,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
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
from llmtop.text import clean
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector

PATIENCE_S = 0.9
"""For how long a poll waits for the page; one that takes longer comes with a later poll."""
SILENT_NS = 3 * NS_PER_S // 2
"""A page that is waited for this long is said not to come: with the poll after the first, within 2 s."""
LOST_NS = 10 * NS_PER_S
"""After so long without an answer, histories get a gap."""
SILENT_PORT_S = 1.0
"""For a port that may be none for metrics, where there are others to try."""
MUTE_NS = 60 * NS_PER_S
"""For how long an address that does not speak HTTP is not asked again."""
_SETTLED_PAGES = 5
"""So many pages are read before a slow server is asked for its version too."""
_SERVER = whats.kind(TrackKind.SERVER)
_NO_SERVER = Unknown(
    "this process is no LLM server that llmtop knows",
    "its own numbers need a server that is known by its command, as vllm serve is (docs/servers.md lists them), "
    "or to be told where they are: --metrics-url http://localhost:PORT/metrics; "
    "threads, GPUs and system calls are shown of any process",
)
_SAME_IN_OTHER_WORDS = {
    v.SERVER_PREFIX_HIT_RATE: v.SERVER_PREFIX_HITS,
    v.SERVER_PREFIX_HITS: v.SERVER_PREFIX_HIT_RATE,
    v.SERVER_PREFIX_QUERIES: v.SERVER_PREFIX_HIT_RATE,
    v.SERVER_OUTPUT_RATE: v.SERVER_OUTPUT_TOKENS,
}
"""Not missed where the other is there: servers have counters or a rate."""
_ALL = tuple(
    m for m in vars(v).values() if isinstance(m, Metric) and m.name.startswith("server.") and m not in v.ENDED.values()
)
_UNANSWERED = (EndpointAnswer.NOT_HTTP, EndpointAnswer.UNREACHABLE, EndpointAnswer.REFUSED, EndpointAnswer.SILENT)


@dataclass(slots=True)
class _Connected:
    """What is remembered of a server while it answers."""

    url: str
    engine: Engine
    reader: TextReader
    version: Fact | None = None
    model: Fact | None = None
    pages: int = 0
    is_introduced: bool = False
    """Whether it was asked for its version and model."""
    running: Running = field(default_factory=Running)
    why_no_slots: Unknown | None = None
    """Once it has refused them it is not asked again."""
    settings: tuple[tuple[dict[str, str], Fact | None], dict[str, Fact]] | None = None
    """What its labels and its version were, and what follows from them."""


@dataclass(frozen=True, slots=True)
class _Scrape:
    """A page that was read.

    Attributes:
        t_ns: When its first byte came: its numbers are of then, however late it is read.
        took_ns: From asking for it to its last byte.
        slots: The requests that run, of a server that tells them on another page.
    """

    connected: _Connected
    exposition: Exposition
    t_ns: int
    took_ns: int
    slots: Slots | Unknown | None = None


class _FetchThread:
    """A connection and the thread that asks over it."""

    def __init__(self, fetcher: Fetcher, fetch: Fetch | None) -> None:
        self.hand = JobThread()
        self.fetcher = fetcher
        self.fetch: Fetch = fetch or fetcher


class PrometheusCollector:
    """Reads the metrics of the server behind a target.

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
        self._engines = tuple(engines)
        self._clock, self._last_line = clock, last_line
        asks_from = target.root_pid if asks_from is None else asks_from
        self._first = _FetchThread(Fetcher(asks_from, headers=headers, clock=clock), fetch)
        self._beside = _FetchThread(Fetcher(asks_from, headers=headers, clock=clock), fetch)
        """Asks a slow server what its numbers need not wait for, over a connection of its own."""
        self._find_urls = find_urls
        self._has_key = bool(headers)
        self._start = Start(target)
        self._urls = tuple(target.metrics_urls)
        self._secure: set[str] = set()
        """Addresses ("host:port") that turned out to speak TLS."""
        self._mute: dict[str, tuple[int, Failure]] = {}
        """Addresses that turned out not to speak HTTP, until when they are left alone, and what they said."""
        self._pace = ScrapePace()
        self._not_before_ns = 0
        self._job: Job[_Scrape | Failure | Unknown] | None = None
        self._aside: Job[int | None] | None = None
        self._asked: tuple[str, int] | None = None
        """The URL that is being asked, and since when."""
        self._took_ns = 0
        """Of the last page asked for, from asking to its last byte or its failure."""
        self._connected: _Connected | None = None
        self._missing: tuple[Missing, ...] = ()
        self._shown: tuple[TrackId, Sequence[Reading]] | None = None
        """Track and readings of the last good scrape."""
        self._is_lost = self._is_eager = self._may_be_tls = self._was_awaited = False
        """`_was_awaited`: there was nothing to read when it was first asked for: the server was starting."""

    def missing(self) -> Unknown | None:
        kind = self._target.kind
        if not self._urls and kind == "process" and self._find_urls is None:
            return _NO_SERVER
        engine = next((engine for engine in self._engines if engine.kind == kind), None)
        if engine is not None and not engine.metrics_paths:
            return Unknown(f"{engine.title} exports no metrics", engine.metrics_remedy)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asker in (self._first, self._beside):
            asker.hand.close()
        # Else its thread has the connection, and leaves it at its deadline.
        if self._job is None:
            self._first.fetcher.close()
        if self._aside is None or self._aside.wait(0):
            self._beside.fetcher.close()

    @property
    def is_starting(self) -> bool:
        """Whether the first page is still waited for: nothing has come, and nothing has failed."""
        return self._shown is None and not self._missing

    @property
    def is_eager(self) -> bool:
        """A page is on its way, or was the first one: after a start, or after a time without any."""
        return self._job is not None or self._is_eager

    def poll(self) -> Trace:
        """The page, or that it has not come yet: it is waited for elsewhere, so that a poll never hangs."""
        now = self._clock()
        if self._job is None:
            if now < self._not_before_ns:
                return Trace(Origin("live"), now, now, missing=self._missing)
            self._look_again()
            self._asked = None
            self._job = self._first.hand.start(self._scrape)
        if not self._job.wait(PATIENCE_S):
            return self._waiting(self._clock())
        job, self._job = self._job, None
        answer = job.outcome
        if isinstance(answer, _Scrape):
            self._ask_aside(answer)
        now = self._clock()
        self._not_before_ns = now + self._pace.wait_ns
        if isinstance(answer, _Scrape):
            return self._answered(answer, now)
        return self._failed(answer, now, self._took_ns)

    def _scrape(self) -> _Scrape | Failure | Unknown:
        """Try the URL that worked last, then the others; the reason given is that of the likeliest one."""
        last = (self._connected.url,) if self._connected is not None else ()
        urls = list(dict.fromkeys((*last, *map(self._spoken, self._urls))))
        is_alone = len({_address(url) for url in urls}) == 1
        problems: list[Failure] = []
        for url in urls:
            muted = self._muted(url) if url not in last else None
            answer = muted or self._try(url, is_sure=is_alone or url in last)
            if isinstance(answer, _Scrape):
                return answer
            problems.append(answer)
        return likeliest(problems) if problems else self._why_no_url()

    def _try(self, url: str, *, is_sure: bool) -> _Scrape | Failure:
        """Ask one URL; in TLS where that is what answers. `is_sure`: it is worth a long wait."""
        self._first.fetcher.timeout_s = TIMEOUT_S if is_sure else SILENT_PORT_S
        answer = self._ask(url)
        if isinstance(answer, Failure) and url.startswith("http://") and self._may_be_tls:
            secured = self._ask(url.replace("http://", "https://", 1))
            if not isinstance(secured, Failure) or secured.answer not in _UNANSWERED:
                self._secure.add(_address(url))
                return secured
        if isinstance(answer, Failure) and (
            answer.answer == EndpointAnswer.NOT_HTTP or (answer.answer == EndpointAnswer.SILENT and not is_sure)
        ):
            self._mute[_address(url)] = (self._clock() + MUTE_NS, answer)
        return answer

    def _ask(self, url: str) -> _Scrape | Failure:
        started = self._clock()
        page = self._page(url)
        if isinstance(page, Failure):
            return page
        text = _unquoted(page.body.decode("utf-8", "replace"))
        known = self._understand(url, text)
        if isinstance(known, Failure):
            return known
        connected, exposition = known
        scrape = _Scrape(connected, exposition, page.t_ns or self._clock(), self._took_ns, self._slots(connected))
        self._pace.took(self._clock() - started)
        connected.pages += 1
        if scrape.took_ns <= SLOW_NS:
            self._introduce(connected, exposition, self._first.fetch)
        return scrape

    def _page(self, url: str) -> Page | Failure:
        self._asked = (url, self._clock())
        self._may_be_tls = False
        has_answered = self._connected is not None and self._connected.url == url
        try:
            page = self._first.fetch(url)
        except (OSError, http.client.HTTPException) as error:
            closed = isinstance(error, ConnectionResetError | http.client.RemoteDisconnected)
            self._may_be_tls = not has_answered and (closed or (isinstance(error, NotHttpError) and error.is_tls))
            return unreachable(url, error, has_answered=has_answered)
        finally:
            self._took_ns = self._clock() - self._asked[1]
        if page.status != 200 or page.is_cut:
            return refused(url, page, self._expected(), has_key=self._has_key)
        return page

    def _introduce(self, connected: _Connected, exposition: Exposition, fetch: Fetch) -> None:
        """Ask once for what the page does not say."""
        if connected.is_introduced:
            return
        connected.is_introduced = True
        connected.version = self._version(connected, fetch)
        named = _label(exposition, connected.engine.model_labels)
        if isinstance(self._target.model, Unknown) and named is None:
            connected.model = self._served_model(connected, fetch)

    def _ask_aside(self, scrape: _Scrape) -> None:
        """Of a slow server: what it is, not before it has given numbers, and how long it takes for next to nothing."""
        is_settled = scrape.connected.pages >= _SETTLED_PAGES and not scrape.connected.is_introduced
        if self._aside is None and scrape.took_ns > SLOW_NS and (is_settled or self._pace.is_cost_open):
            self._aside = self._beside.hand.start(lambda: self._look_aside(scrape, is_settled))
        if self._aside is not None and self._aside.wait(SLOW_NS / NS_PER_S):  # mostly it is quick
            beside_ns, self._aside = self._aside.outcome, None
            if beside_ns is not None:
                self._pace.took_beside(scrape.took_ns, beside_ns)

    def _look_aside(self, scrape: _Scrape, is_settled: bool) -> int | None:
        """How long a request for next to nothing took; None where that needs no answer any more."""
        connected, fetch = scrape.connected, self._beside.fetch
        if is_settled:
            self._introduce(connected, scrape.exposition, fetch)
        if not self._pace.is_cost_open:
            return None
        started = self._clock()
        _get(connected, connected.engine.version_path or "/health", fetch)
        return self._clock() - started

    def _spoken(self, url: str) -> str:
        return url.replace("http://", "https://", 1) if _address(url) in self._secure else url

    def _muted(self, url: str) -> Failure | None:
        until_ns, failure = self._mute.get(_address(url), (0, None))
        return failure if self._clock() < until_ns else None

    def _why_no_url(self) -> Unknown:
        unread = next((missing.why for missing in self._target.missing if missing.what == whats.TARGET_PORTS), None)
        if unread is not None:
            return unread
        doing = progress(self._target, self._last_line)
        if self._target.kind == "process":
            not_yet = f", or not yet ({doing})" if doing and self._start.is_under_way else ""
            return replace(_NO_SERVER, reason=_NO_SERVER.reason + not_yet + _listens(self._target.ports))
        return Unknown(
            f"{self._target.title} listens on no port yet" + (f": {doing}" if doing else ""),
            "it may still be loading its model: llmtop goes on looking",
        )

    def _look_again(self) -> None:
        """Ask where the metrics are by now; while they come there is nothing to ask."""
        if self._find_urls is not None and (self._shown is None or self._is_lost):
            self._urls = tuple(self._find_urls()) or self._urls

    def _understand(self, url: str, text: str) -> tuple[_Connected, Exposition] | Failure:
        connected = self._connected
        if connected is None or connected.url != url:
            engine = engine_of(text, self._engines, self._target.kind)
            if engine is None:
                return strange(url, text, self._expected())
            connected = _Connected(url, engine, TextReader(wanted_names(engine)))
        exposition = connected.reader.read(text)
        if not exposition:
            self._connected = None  # another server may have taken over the port: look at its names afresh
            return strange(url, text, self._expected())
        self._connected = connected
        return connected, exposition

    def _expected(self) -> Engine | None:
        return next((engine for engine in self._engines if engine.kind == self._target.kind), None)

    def _version(self, connected: _Connected, fetch: Fetch) -> Fact | None:
        """The server's version; None for one that does not tell it over HTTP."""
        path = connected.engine.version_path
        if not path:
            return None
        document = _get(connected, path, fetch)
        version = document.get(connected.engine.version_key) if isinstance(document, dict) else None
        return clean(version) if isinstance(version, str) else Unknown(f"{path} does not tell it")

    def _served_model(self, connected: _Connected, fetch: Fetch) -> Fact | None:
        """The model that the OpenAI API names first, for servers that tell it nowhere else."""
        document = _get(connected, "/v1/models", fetch)
        try:
            name = document["data"][0]["id"]
        except (LookupError, TypeError):
            return None
        return clean(name) if isinstance(name, str) else None

    def _waiting(self, now: int) -> Trace:
        """The page has not come yet; what came before still stands, and how long this takes is a number too."""
        if self._asked is None:
            return Trace(Origin("live"), now, now, missing=self._missing)
        url, since_ns = self._asked
        waited_ns = now - since_ns
        has_answered = self._connected is not None and self._connected.url == url
        failure = silent(url, waited_ns, has_answered=has_answered)
        if waited_ns >= LOST_NS:
            return self._failed(failure, now, waited_ns)
        is_silent = waited_ns >= SILENT_NS
        tracks, looks = _endpoint(url, failure.answer, waited_ns, now, failure.why if is_silent else None)
        if not is_silent:
            return Trace(Origin("live"), now, now, tracks=tracks, readings=looks[1:], missing=self._missing)
        missing = (Missing(_SERVER, failure.why), *(one for one in self._missing if one.what != _SERVER))
        return Trace(Origin("live"), now, now, tracks=tracks, readings=looks, missing=missing)

    def _of_slots(
        self, scrape: _Scrape, readings: Sequence[Reading], unread: Mapping[Metric, Unknown]
    ) -> Iterable[tuple[Metric, float | Unknown]]:
        """What the requests that run add to counters that know only of those that ended."""
        ended = next((each.value for each in readings if each.metric is v.SERVER_OUTPUT_TOKENS_ENDED), None)
        slots = scrape.slots
        if slots is None or ended is None:
            return
        if isinstance(slots, Unknown):
            why = unread[v.SERVER_OUTPUT_TOKENS].reason
            yield v.SERVER_OUTPUT_TOKENS, Unknown(f"{why}, and {slots.reason}", slots.remedy)
            return
        yield v.SERVER_OUTPUT_TOKENS, scrape.connected.running.count(ended, slots.decoded)

    def _slots(self, connected: _Connected) -> Slots | Unknown | None:
        """The requests that run now, where there is a page of them; a server that refuses it is not asked again."""
        if not connected.engine.slots_path or connected.why_no_slots is not None:
            return connected.why_no_slots
        url = _base(connected) + connected.engine.slots_path
        try:
            page = self._first.fetch(url)
        except (OSError, http.client.HTTPException) as error:
            return Unknown(f"{url} did not answer ({type(error).__name__})")
        if page.status == 200:
            return slots_of(page.body)
        why = Unknown(f"{url} answers with status {page.status}", connected.engine.slots_remedy)
        if page.status in (401, 403, 404, 501):
            connected.why_no_slots = why
        return why

    def _failed(self, problem: Failure | Unknown, now: int, took_ns: int) -> Trace:
        """No numbers this time: histories get a gap, and the moment is marked."""
        why = problem if isinstance(problem, Unknown) else problem.why
        self._missing = (Missing(_SERVER, why),)
        self._was_awaited |= self._shown is None
        tracks: dict[TrackId, Track] = {}
        looks: tuple[Reading, ...] = ()
        if isinstance(problem, Failure):
            closed_ns = self._first.fetcher.closed_ns if problem.answer == EndpointAnswer.REFUSED else None
            more: dict[str, Fact] = {} if closed_ns is None else {"closed_ns": closed_ns}
            tracks, looks = _endpoint(problem.url, problem.answer, took_ns, now, why, more)
        if self._shown is None or self._is_lost:
            return Trace(Origin("live"), now, now, tracks=tracks, readings=looks, missing=self._missing)
        self._is_lost = True
        track_id, last = self._shown
        metrics = {reading.metric for reading in last if not v.has_label(reading.metric.name)}
        gaps = tuple(Reading(track_id, metric, now, None, "") for metric in metrics)
        mark = Mark(now, MarkKind.SERVER, track_id, f"metrics lost: {why.reason}", Severity.WARNING)
        readings = (*looks, *gaps)
        return Trace(Origin("live"), now, now, tracks=tracks, readings=readings, marks=(mark,), missing=self._missing)

    def _welcome(self) -> Iterable[str]:
        """What the first page after a time without any is said to be."""
        if self._is_lost:
            yield "metrics are back"
        elif self._was_awaited and (age_s := age(self._target)) is not None:
            yield f"{self._target.title} is ready: first metrics {age_s:.0f} s after its start"

    def _numbers(self, scrape: _Scrape, track_id: TrackId) -> tuple[list[Reading], dict[Metric, Unknown]]:
        """What the page tells of the server, and why not what it does not tell."""
        engine, t_ns = scrape.connected.engine, scrape.t_ns
        readings: list[Reading] = []
        unread: dict[Metric, Unknown] = {}
        for metric in _ALL:
            read = read_values(engine, metric, scrape.exposition)
            if isinstance(read, Unknown):
                if metric not in v.SERVER_OPTIONAL:
                    unread[metric] = read
            else:
                readings += (Reading(track_id, each, t_ns, value, source) for each, value, source in read)
                if (ended := v.ENDED.get(metric)) is not None and read[0][0] is ended:
                    unread[metric] = Unknown(f"{engine.title} counts a request's {metric.title} when it ends, at once")
        for metric, running in self._of_slots(scrape, readings, unread):
            if isinstance(running, Unknown):
                unread[metric] = running
            else:
                unread.pop(metric, None)
                readings.append(Reading(track_id, metric, t_ns, running, f"{engine.title} {engine.slots_path}"))
        return readings, unread

    def _answered(self, scrape: _Scrape, now: int) -> Trace:
        connected, exposition = scrape.connected, scrape.exposition
        track_id = _track_id(connected.url)
        readings, unread = self._numbers(scrape, track_id)
        marks = tuple(Mark(now, MarkKind.SERVER, track_id, said) for said in self._welcome())
        self._is_eager = self._shown is None or self._is_lost
        self._is_lost = self._was_awaited = False
        self._shown = track_id, readings
        self._missing = tuple(
            Missing(whats.reading(track_id, metric), why)
            for metric, why in unread.items()
            if _SAME_IN_OTHER_WORDS.get(metric, metric) in unread
        )
        facts = _facts(self._target, connected, exposition) | {"scrape_ms": round(scrape.took_ns / 1e6, 1)}
        track = Track(track_id, TrackKind.SERVER, connected.engine.title, facts=facts)
        own_ns = self._pace.own_ns
        more: dict[str, Fact] = {} if own_ns is None else {"own_s": own_ns / NS_PER_S}
        endpoint, looks = _endpoint(connected.url, EndpointAnswer.METRICS, scrape.took_ns, now, more=more)
        return Trace(
            Origin("live"),
            now,
            now,
            tracks={track_id: track, **endpoint},
            readings=(*readings, *looks),
            marks=marks,
            missing=self._missing,
            issues=tuple(_issues(exposition, self._pace)),
        )


def _listens(ports: Sequence[int]) -> str:
    """Said of what is no known server: nobody asks an unknown program for its metrics, which may cost it something."""
    named = ", ".join(f":{port}" for port in ports)
    return f"; it listens on {named}, which is not asked" if named else ""


def _get(connected: _Connected, path: str, fetch: Fetch) -> Any:
    """A JSON document of the server; None when there is none."""
    try:
        page = fetch(_base(connected) + path)
        return json.loads(page.body) if page.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None


def _base(connected: _Connected) -> str:
    """Its address, without the path of the metrics."""
    url = connected.url
    return url.removesuffix(next((end for end in connected.engine.metrics_paths if url.endswith(end)), ""))


def engine_of(text: str, engines: Iterable[Engine], kind: str) -> Engine | None:
    """Whose metrics a text holds: of the engines whose prefixes occur, the one of `kind`, else the most frequent."""
    counts = {engine.kind: 0 for engine in engines}
    by_kind = {engine.kind: engine for engine in engines}
    for line in text.split("\n"):
        name = line.partition("{")[0].replace(":", "_")
        for engine in by_kind.values():
            counts[engine.kind] += name.startswith(engine.prefixes) if engine.prefixes else 0
    if counts.get(kind):
        return by_kind[kind]
    best = max(counts, key=lambda each: counts[each], default=None)
    return by_kind[best] if best is not None and counts[best] else None


def _facts(target: Target, connected: _Connected, exposition: Exposition) -> dict[str, Fact]:
    engine = connected.engine
    facts: dict[str, Fact] = {
        "engine": engine.title,
        "preempts": int(engine.preempts),
        "url": connected.url,
        "model": _label(exposition, engine.model_labels) or connected.model or target.model,
    }
    installed = target.facts.get("version")
    version = installed if isinstance(connected.version, Unknown | None) and installed else connected.version
    if version is not None:
        facts["version"] = version
    told: dict[str, str] = {}
    facts |= {v.remark_of(metric): remark for metric, remark in engine.remarks.items()}
    for name, labels in engine.info.items():
        for sample in exposition.samples.get(key(name), ())[:1]:
            told |= {label: sample.labels[label] for label in labels if label in sample.labels}
    return facts | told | _settings(target, connected, told, version)


def _settings(target: Target, connected: _Connected, told: dict[str, str], version: Fact | None) -> dict[str, Fact]:
    """What is set, as far as it is known; worked out again only when the page tells something else than before."""
    if connected.settings is None or connected.settings[0] != (told, version):
        made = settings.facts(connected.engine, target.facts, told, version)
        connected.settings = ((told, version), made)
    return connected.settings[1]


def _label(exposition: Exposition, labels: Sequence[str]) -> str | None:
    """The first telling value of one of `labels`; TensorRT-LLM writes "undefined" where it has none."""
    for samples in exposition.samples.values():
        for label in labels:
            value = samples[0].labels.get(label)
            if value and value != "undefined":
                return value
    return None


def _endpoint(
    url: str, answer: int, took_ns: int, now: int, why: Unknown | None = None, more: Mapping[str, Fact] | None = None
) -> tuple[dict[TrackId, Track], tuple[Reading, ...]]:
    """What this look at the endpoint came to, whether it brought numbers or not."""
    port = _port(url)
    id = ids.endpoint(port)
    facts: dict[str, Fact] = {"url": url, **(more or {})}
    if why is not None:
        facts["said"] = why
    looks = ((v.ENDPOINT_ANSWER, float(answer)), (v.ENDPOINT_TIME, took_ns / NS_PER_S))
    readings = tuple(Reading(id, metric, now, value, "GET " + url) for metric, value in looks)
    return {id: Track(id, TrackKind.ENDPOINT, f":{port}", facts=facts)}, readings


def _issues(exposition: Exposition, pace: ScrapePace) -> Iterable[Issue]:
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


def _track_id(url: str) -> TrackId:
    return ids.server(_port(url))


def _port(url: str) -> str:
    """The port of a URL, or the name of its Unix socket."""
    return unquote(_address(url)).rpartition(":")[2].rpartition("/")[2]


def _address(url: str) -> str:
    return url.split("/")[2]


def _unquoted(text: str) -> str:
    """Some llama-server builds sent the whole text as one JSON string."""
    if not text.startswith('"'):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    return inner if isinstance(inner, str) else text


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
