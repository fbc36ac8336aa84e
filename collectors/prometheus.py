"""The server's own numbers, from its Prometheus endpoint, under the names of the vocabulary.

One number may stand in several samples: per data-parallel engine, per rank, per outcome. How they become one:

* ranks of one tensor-parallel group repeat each other (`Engine.replicas`): the largest counts once;
* counts and request gauges add up over everything else;
* KV cache usage is that of the fullest engine, because that one preempts, however empty the others are;
* hit rates are the mean over engines, and so are estimates "per GPU".
"""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from llmtop import settings
from llmtop import vocabulary as v
from llmtop.collectors.metrics_http import MAX_BYTES, TIMEOUT_S, Fetch, Fetcher, Page
from llmtop.collectors.metrics_text import ExposedSample, Exposition, TextReader, key, names
from llmtop.model import (
    NS_PER_S,
    Engine,
    Fact,
    Issue,
    Mark,
    Metric,
    Missing,
    Origin,
    Reading,
    Sample,
    Severity,
    Target,
    Trace,
    Track,
    TrackKind,
    Unknown,
)
from llmtop.text import clean
from llmtop.vocabulary import Answer

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock

SLOW_NS = 50_000_000
"""A scrape runs on the server's front end: beyond this it takes time away from requests, and is said so."""
MAX_SHARE = 0.05
"""Scrapes of a slow server are spread out until they take no more of its time than this ..."""
MAX_WAIT_NS = 10 * NS_PER_S
"""... but what is shown as "now" must not get older than this."""
FIRST_LOOK_NS = 5 * NS_PER_S
LONGEST_LOOK_NS = 60 * NS_PER_S
"""Looking for the server's port goes through all processes: while it finds nothing, it is done ever less often."""
_NO_SERVER = Unknown("this process is no LLM server that llmtop knows", "docs/servers.md lists those it knows")
_LARGEST = {v.SERVER_KV_USAGE}
_MEAN = {v.SERVER_PREFIX_HIT_RATE, v.SERVER_FLOPS, v.SERVER_READ_BYTES, v.SERVER_WRITE_BYTES}
_SAME_IN_OTHER_WORDS = {
    v.SERVER_PREFIX_HIT_RATE: v.SERVER_PREFIX_HITS,
    v.SERVER_PREFIX_HITS: v.SERVER_PREFIX_HIT_RATE,
    v.SERVER_PREFIX_QUERIES: v.SERVER_PREFIX_HIT_RATE,
}
"""Not missed where the other is there: servers have counters or a rate."""
_ALL = tuple(m for m in vars(v).values() if isinstance(m, Metric) and m.name.startswith("server."))
_HEAD = 256
"""Characters that tell what kind of page it is."""
_SUFFIXES = ("_bucket", "_sum", "_count")


@dataclass(slots=True)
class _Connected:
    """What is remembered of a server while it answers."""

    url: str
    engine: Engine
    reader: TextReader
    version: Fact | None


@dataclass(frozen=True, slots=True)
class _Failure:
    """A look at one URL that brought no metrics: what came instead (`vocabulary.ENDPOINT_ANSWER`), and why."""

    url: str
    answer: int
    why: Unknown


class PrometheusCollector:
    """Reads the metrics of the server behind a target.

    Args:
        engines: The servers known; the one of the target's kind is preferred where the names seen allow both.
        fetch: Gets a page; the tests' own, or HTTP.
        find_urls: Looks for the server's metrics again, for servers that open their port late or on another one
            after a restart. Called 5 s after there was nothing to read, then ever less often.
    """

    name = "prometheus"
    period_s = 0.2

    def __init__(
        self,
        target: Target,
        engines: Sequence[Engine],
        clock: Clock = time.monotonic_ns,
        fetch: Fetch | None = None,
        find_urls: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._target = target
        self._engines = tuple(engines)
        self._clock = clock
        self._fetcher = Fetcher(target.root_pid)
        self._fetch: Fetch = fetch or self._fetcher
        self._find_urls = find_urls
        self._urls = tuple(target.metrics_urls)
        self._look_ns = clock() + FIRST_LOOK_NS
        self._look_after_ns = FIRST_LOOK_NS
        self._not_before_ns = 0
        self._took_ns = 0
        """Time that this poll has waited for the server; our own work is not the server's cost."""
        self._connected: _Connected | None = None
        self._missing: tuple[Missing, ...] = ()
        self._shown: tuple[str, set[Metric]] | None = None
        """Track and metrics of the last good scrape."""
        self._is_lost = False

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
        self._fetcher.close()

    def poll(self) -> Trace:
        started = self._clock()
        if started < self._not_before_ns:
            return Trace(Origin("live"), started, started, missing=self._missing)
        self._took_ns = 0
        answer = self._scrape()
        now, took = self._clock(), self._took_ns
        self._not_before_ns = now + min(int(took / MAX_SHARE) - took, MAX_WAIT_NS) if took > SLOW_NS else 0
        if isinstance(answer, _Failure | Unknown):
            return self._failed(answer, now)
        return self._answered(*answer, now)

    def _scrape(self) -> tuple[_Connected, Exposition] | _Failure | Unknown:
        """Try the URL that worked last, then the others; the reason given is that of the likeliest one."""
        self._look_again()
        last = (self._connected.url,) if self._connected is not None else ()
        problems: list[_Failure] = []
        for url in dict.fromkeys((*last, *self._urls)):
            text = self._text(url)
            answer = text if isinstance(text, _Failure) else self._understand(url, text)
            if not isinstance(answer, _Failure):
                return answer
            problems.append(answer)
        return problems[0] if problems else self._why_no_url()

    def _why_no_url(self) -> Unknown:
        unread = next((missing.why for missing in self._target.missing if missing.what == "target.ports"), None)
        if unread is not None:
            return unread
        if self._target.kind == "process":
            return _NO_SERVER
        return Unknown(
            f"{self._target.title} listens on no port yet", "it may still be loading its model: llmtop goes on looking"
        )

    def _look_again(self) -> None:
        now = self._clock()
        if self._shown is not None and not self._is_lost:
            self._look_ns, self._look_after_ns = now + FIRST_LOOK_NS, FIRST_LOOK_NS
        elif self._find_urls is not None and now >= self._look_ns:
            self._look_after_ns = min(2 * self._look_after_ns, LONGEST_LOOK_NS)
            self._look_ns = now + self._look_after_ns
            self._urls = tuple(self._find_urls()) or self._urls

    def _text(self, url: str) -> str | _Failure:
        try:
            page = self._timed_fetch(url)
        except (OSError, http.client.HTTPException) as error:
            return _unreachable(url, error)
        if page.status != 200 or page.is_cut:
            return _Failure(url, Answer.STRANGE if page.is_cut else page.status, self._refused(url, page))
        text = page.body.decode("utf-8", "replace")
        return _unquoted(text)

    def _timed_fetch(self, url: str) -> Page:
        started = self._clock()
        try:
            return self._fetch(url)
        finally:
            self._took_ns += self._clock() - started

    def _refused(self, url: str, page: Page) -> Unknown:
        engine = self._expected()
        title = engine.title if engine is not None else "the server"
        remedy = engine.metrics_remedy if engine is not None else ""
        if page.is_cut:
            return Unknown(f"{url} is longer than {MAX_BYTES >> 20} MiB, which no server's metrics are")
        if page.location:
            return Unknown(f"{url} sends us elsewhere, to {clean(page.location)}", "llmtop talks to the server only")
        if page.status in (404, 501):  # llama-server answers 501 without --metrics
            return Unknown(f"{title} serves no metrics at {url} ({page.status})", remedy)
        if page.status in (401, 403):
            return Unknown(f"{url} wants a key ({page.status})", "let the metrics path through without one")
        return Unknown(f"{url} answers with status {page.status}", f"its log says why: curl -i {url}")

    def _understand(self, url: str, text: str) -> tuple[_Connected, Exposition] | _Failure:
        connected = self._connected
        if connected is None or connected.url != url:
            engine = engine_of(text, self._engines, self._target.kind)
            if engine is None:
                return self._strange(url, text)
            connected = _Connected(url, engine, TextReader(_wanted(engine)), self._version(url, engine))
        exposition = connected.reader.read(text)
        if not exposition:
            self._connected = None  # another server may have taken over the port: look at its names afresh
            return self._strange(url, text)
        self._connected = connected
        return connected, exposition

    def _strange(self, url: str, text: str) -> _Failure:
        """Status 200 and no metrics: only a page of foreign metrics may mean that the server's own are off."""
        engine = self._expected()
        seen = ", ".join(names(text))
        remedy = engine.metrics_remedy if engine is not None and seen else f"see what comes: curl -i {url}"
        why = Unknown(f"{url} has none of the names that llmtop knows, but {seen or _kind_of(text)}", remedy)
        return _Failure(url, Answer.STRANGE, why)

    def _expected(self) -> Engine | None:
        return next((engine for engine in self._engines if engine.kind == self._target.kind), None)

    def _version(self, url: str, engine: Engine) -> Fact | None:
        """The server's version; None for one that does not tell it over HTTP."""
        if not engine.version_path:
            return None
        where = url.removesuffix(next((path for path in engine.metrics_paths if url.endswith(path)), ""))
        try:
            page = self._timed_fetch(where + engine.version_path)
            version = json.loads(page.body)["version"] if page.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, RecursionError):
            version = None
        return clean(version) if isinstance(version, str) else Unknown(f"{where}{engine.version_path} does not tell it")

    def _failed(self, problem: _Failure | Unknown, now: int) -> Trace:
        """No numbers this time: histories get a gap, and the moment is marked."""
        why = problem if isinstance(problem, Unknown) else problem.why
        self._missing = (Missing("server", why),)
        tracks: dict[str, Track] = {}
        looks: tuple[Reading, ...] = ()
        if isinstance(problem, _Failure):
            tracks, looks = _endpoint(problem.url, problem.answer, self._took_ns, now, why)
        if self._shown is None or self._is_lost:
            return Trace(Origin("live"), now, now, tracks=tracks, readings=looks, missing=self._missing)
        self._is_lost = True
        track_id, metrics = self._shown
        gaps = tuple(Reading(track_id, metric, now, None, "") for metric in metrics)
        mark = Mark(now, "server", track_id, f"metrics lost: {why.reason}", Severity.WARNING)
        readings = (*looks, *gaps)
        return Trace(Origin("live"), now, now, tracks=tracks, readings=readings, marks=(mark,), missing=self._missing)

    def _answered(self, connected: _Connected, exposition: Exposition, now: int) -> Trace:
        track_id = _track_id(connected.url)
        engine = connected.engine
        readings: list[Reading] = []
        unread: dict[Metric, Unknown] = {}
        for metric in _ALL:
            read = _read(engine, metric, exposition)
            if isinstance(read, Unknown):
                unread[metric] = read
            else:
                readings += (Reading(track_id, each, now, value, source) for each, value, source in read)
        marks = (Mark(now, "server", track_id, "metrics are back"),) if self._is_lost else ()
        self._is_lost = False
        self._shown = track_id, {reading.metric for reading in readings if "|" not in reading.metric.name}
        self._missing = tuple(
            Missing(f"{track_id}/{metric.name}", why)
            for metric, why in unread.items()
            if _SAME_IN_OTHER_WORDS.get(metric, metric) in unread
        )
        facts = _facts(self._target, connected, exposition) | {"scrape_ms": round(self._took_ns / 1e6, 1)}
        track = Track(track_id, TrackKind.SERVER, engine.title, facts=facts)
        endpoint, looks = _endpoint(connected.url, Answer.METRICS, self._took_ns, now)
        return Trace(
            Origin("live"),
            now,
            now,
            tracks={track_id: track, **endpoint},
            readings=(*readings, *looks),
            marks=marks,
            missing=self._missing,
            issues=tuple(_issues(exposition, self._took_ns)),
        )


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


def _wanted(engine: Engine) -> set[str]:
    plain = {key(sample.name) for samples in engine.names.values() for sample in samples}
    parts = {
        key(sample.name + suffix)
        for samples in engine.distributions.values()
        for sample in samples
        for suffix in _SUFFIXES
    }
    return plain | parts | {key(name) for name in engine.info}


_Values = list[tuple[Metric, float | None, str]]


def _read(engine: Engine, metric: Metric, exposition: Exposition) -> _Values | Unknown:
    """The readings of one vocabulary metric, each with the name it came from, or why there are none."""
    if metric in engine.names:
        for sample in engine.names[metric]:
            chosen = _chosen(exposition.samples.get(key(sample.name), ()), sample)
            if chosen:
                return [(metric, _folded(metric, chosen, engine.replicas, sample.scale), chosen[0].name)]
        return _absent(engine, engine.names[metric], exposition)
    if metric in engine.distributions:
        for sample in engine.distributions[metric]:
            values = _distribution(metric, sample, exposition, engine.replicas)
            if values:
                return values
        return _absent(engine, engine.distributions[metric], exposition)
    return Unknown(f"{engine.title} exports no {metric.title}")


def _absent(engine: Engine, samples: Sequence[Sample], exposition: Exposition) -> Unknown:
    name = samples[0].name
    if samples[0].where and exposition.samples.get(key(name)):
        label, values = next(iter(samples[0].where.items()))
        return Unknown(f"{engine.title} has no {name} with {label}={'|'.join(values)}, or none so far")
    return Unknown(f"this {engine.title} shows no {name}: another version, or none so far")


def _chosen(samples: Sequence[ExposedSample], wanted: Sample) -> list[ExposedSample]:
    where = wanted.where.items()
    return [sample for sample in samples if all(sample.labels.get(label, "") in values for label, values in where)]


def _folded(metric: Metric, samples: Iterable[ExposedSample], replicas: Sequence[str], scale: float) -> float | None:
    values = list(_without_replicas(samples, replicas).values())
    if not values:
        return None
    if metric in _LARGEST:
        return max(values) * scale
    return sum(values) * scale / (len(values) if metric in _MEAN else 1)


def _without_replicas(
    samples: Iterable[ExposedSample], replicas: Sequence[str]
) -> dict[tuple[tuple[str, str], ...], float]:
    """One value for each set of labels that is left when the replicas' labels are taken away."""
    values: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        if sample.value is not None:
            labels = tuple(sorted(pair for pair in sample.labels.items() if pair[0] not in replicas))
            values[labels] = max(sample.value, values.get(labels, -math.inf))
    return values


def _distribution(metric: Metric, sample: Sample, exposition: Exposition, replicas: Sequence[str]) -> _Values:
    """The counters of a histogram: one per bucket, the count as the bucket up to infinity, and the sum."""

    def part(suffix: str) -> list[ExposedSample]:
        return _chosen(exposition.samples.get(key(sample.name + suffix), ()), sample)

    buckets: dict[float, float] = {}
    for labels, value in _without_replicas(part("_bucket"), replicas).items():
        upper = _upper_bound(dict(labels)) * sample.scale
        buckets[upper] = buckets.get(upper, 0.0) + value
    counts = part("_count")
    source = next((one.name.rpartition("_")[0] for one in (*part("_bucket"), *counts)), "")
    if math.inf not in buckets and counts:
        buckets[math.inf] = sum(_without_replicas(counts, replicas).values())
    values: _Values = [
        (v.bucket(metric, upper), count, source) for upper, count in sorted(buckets.items()) if not math.isnan(upper)
    ]
    if values and (sums := part("_sum")):
        values.append((v.total(metric), sum(_without_replicas(sums, replicas).values()) * sample.scale, source))
    return values


def _upper_bound(labels: Mapping[str, str]) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


def _facts(target: Target, connected: _Connected, exposition: Exposition) -> dict[str, Fact]:
    engine = connected.engine
    facts: dict[str, Fact] = {
        "engine": engine.title,
        "url": connected.url,
        "model": _label(exposition, engine.model_labels) or target.model,
    }
    if connected.version is not None:
        facts["version"] = connected.version
    told: dict[str, str] = {}
    for name, labels in engine.info.items():
        for sample in exposition.samples.get(key(name), ())[:1]:
            told |= {label: sample.labels[label] for label in labels if label in sample.labels}
    return facts | told | settings.facts(engine, target.facts, told, connected.version)


def _label(exposition: Exposition, labels: Sequence[str]) -> str | None:
    """The first telling value of one of `labels`; TensorRT-LLM writes "undefined" where it has none."""
    for samples in exposition.samples.values():
        for label in labels:
            value = samples[0].labels.get(label)
            if value and value != "undefined":
                return value
    return None


def _endpoint(
    url: str, answer: int, took_ns: int, now: int, why: Unknown | None = None
) -> tuple[dict[str, Track], tuple[Reading, ...]]:
    """What this look at the endpoint came to, whether it brought numbers or not."""
    port = _port(url)
    id = f"endpoint:{port}"
    facts: dict[str, Fact] = {"url": url}
    if why is not None:
        facts["said"] = why
    looks = ((v.ENDPOINT_ANSWER, float(answer)), (v.ENDPOINT_TIME, took_ns / NS_PER_S))
    readings = tuple(Reading(id, metric, now, value, "GET " + url) for metric, value in looks)
    return {id: Track(id, TrackKind.ENDPOINT, f":{port}", facts=facts)}, readings


def _issues(exposition: Exposition, took: int) -> Iterable[Issue]:
    if exposition.unreadable:
        yield Issue(
            Severity.WARNING, "metrics-text", "lines of the server's metrics cannot be read", exposition.unreadable
        )
    if took > SLOW_NS:
        yield Issue(
            Severity.WARNING,
            "metrics-slow",
            f"reading the server's metrics took more than {SLOW_NS // 1_000_000} ms; it is done less often",
        )


def _track_id(url: str) -> str:
    return f"server:{_port(url)}"


def _port(url: str) -> str:
    return url.split("/")[2].rpartition(":")[2]


def _kind_of(text: str) -> str:
    """What a page is that holds no metric, in words."""
    start = text[:_HEAD].lstrip().lower()
    if not start:
        return "the page is empty"
    if start.startswith(("<!doctype", "<html", "<?xml")):
        return "a web page (HTML)"
    return "JSON" if start[0] in "{[" else "nothing that is a metric"


def _unquoted(text: str) -> str:
    """Some llama-server builds sent the whole text as one JSON string."""
    if not text.startswith('"'):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    return inner if isinstance(inner, str) else text


def _unreachable(url: str, error: OSError | http.client.HTTPException) -> _Failure:
    match error:
        case ConnectionRefusedError():
            why = Unknown(f"nothing listens at {url}", "it may still be starting: llmtop goes on trying")
            return _Failure(url, Answer.REFUSED, why)
        case TimeoutError():
            stuck = "its front end is stuck or overloaded: see its threads"
            return _Failure(url, Answer.SILENT, Unknown(f"{url} did not answer within {TIMEOUT_S:g} s", stuck))
        case PermissionError():
            why = Unknown(
                "the server has a network of its own (a container), which only root may enter",
                "run llmtop with sudo, or inside the container",
            )
            return _Failure(url, Answer.UNREACHABLE, why)
        case OSError():
            return _Failure(url, Answer.UNREACHABLE, Unknown(f"{url} cannot be reached: {error.strerror or error}"))
        case _:
            why = Unknown(f"{url} does not answer in HTTP ({type(error).__name__})", "llmtop does not speak TLS yet")
            return _Failure(url, Answer.NOT_HTTP, why)
