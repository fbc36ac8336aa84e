"""A server whose metrics are read: its engine, what it is asked once, and what its page says of its settings."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from llmtop import settings
from llmtop import vocabulary as v
from llmtop.collectors.exposed_values import wanted_names
from llmtop.collectors.impossible_values import CounterFalls
from llmtop.collectors.metrics_text import TextReader, key
from llmtop.collectors.pipelines import queue_at
from llmtop.collectors.slots import FilledContexts, Running, Slots, slots_of
from llmtop.facts import ServerFact, TargetFact
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.collectors.metrics_http import Fetch
    from llmtop.collectors.metrics_text import Exposition
    from llmtop.model import Engine, Fact, Target

_SLOTS_REFUSED = (401, 403, 404, 501)
"""Statuses of a server that has no /slots, or does not show it to this caller."""


class ServerConnection:
    """What is remembered of a server while it answers."""

    def __init__(self, url: str, engine: Engine, before: str = "", left_out: str = "") -> None:
        self.url = url
        self.engine = engine
        self.reader = TextReader(wanted_names(engine), before, left_out)
        self.pages = 0
        self.is_introduced = False
        """Whether it was asked for its version and model."""
        self.running = Running()
        self.filled = FilledContexts()
        self.counter_falls = CounterFalls()
        self._version: Fact | None = None
        self._model: Fact | None = None
        self._why_no_slots: Unknown | None = None
        """Once it has refused them it is not asked again."""
        self._settings: tuple[tuple[dict[str, str], Fact | None], dict[str, Fact]] | None = None
        """What its labels and its version were, and what follows from them."""

    def get(self, path: str, fetch: Fetch) -> Any:
        """A JSON document of the server; None when there is none."""
        try:
            page = fetch(self._base + path)
            return json.loads(page.body) if page.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None

    @property
    def _base(self) -> str:
        """Its address, without the path of the metrics."""
        url = self.url
        return url.removesuffix(next((end for end in self.engine.metrics_paths if url.endswith(end)), ""))

    def introduce(self, target: Target, exposition: Exposition, fetch: Fetch) -> None:
        """Ask once for what the page does not say."""
        if self.is_introduced:
            return
        self.is_introduced = True
        self._version = self._told_version(fetch)
        named = _label(exposition, self.engine.model_labels)
        if isinstance(target.model, Unknown) and named is None:
            self._model = self._served_model(fetch)

    def _told_version(self, fetch: Fetch) -> Fact | None:
        """The server's version; None for one that does not tell it over HTTP."""
        path = self.engine.version_path
        if not path:
            return None
        document = self.get(path, fetch)
        version = document.get(self.engine.version_key) if isinstance(document, dict) else None
        return clean(redact(version)) if isinstance(version, str) else Unknown(f"{path} does not tell it")

    def _served_model(self, fetch: Fetch) -> Fact | None:
        """The model that the OpenAI API names first, for servers that tell it nowhere else."""
        document = self.get("/v1/models", fetch)
        try:
            name = document["data"][0]["id"]
        except (LookupError, TypeError):
            return None
        return clean(redact(name)) if isinstance(name, str) else None

    def slots(self, fetch: Fetch) -> Slots | Unknown | None:
        """The requests that run now, where there is a page of them; a server that refuses it is not asked again."""
        if not self.engine.slots_path or self._why_no_slots is not None:
            return self._why_no_slots
        url = self._base + self.engine.slots_path
        try:
            page = fetch(url)
        except (OSError, http.client.HTTPException) as error:
            return Unknown(f"{url} did not answer ({type(error).__name__})")
        if page.status == 200:
            return slots_of(page.body)
        why = Unknown(f"{url} answers with status {page.status}", self.engine.slots_remedy)
        if page.status in _SLOTS_REFUSED:
            self._why_no_slots = why
        return why

    def facts(self, target: Target, exposition: Exposition) -> dict[str, Fact]:
        """What is known of the server beside its numbers: for its track."""
        engine = self.engine
        facts: dict[str, Fact] = {
            ServerFact.ENGINE: engine.title,
            ServerFact.PREEMPTS: int(engine.preempts),
            ServerFact.URL: self.url,
            ServerFact.MODEL: _label(exposition, engine.model_labels) or self._model or target.model,
        }
        waits = engine.names.get(v.SERVER_WAITING, ())
        if engine.entry_counts and (model := queue_at(engine, exposition, waits[-1].name)) is not None:
            facts[ServerFact.QUEUE_AT] = model
        if engine.answers_between_steps:
            facts[ServerFact.ANSWERS_BETWEEN_STEPS] = 1
        installed = target.facts.get(TargetFact.VERSION)
        version = installed if isinstance(self._version, Unknown | None) and installed else self._version
        if version is not None:
            facts[ServerFact.VERSION] = version
        told: dict[str, str] = {}
        facts |= {v.remark_of(metric): remark for metric, remark in engine.remarks.items()}
        for name, labels in engine.info.items():
            for sample in exposition.samples.get(key(name), ())[:1]:
                told |= {label: sample.labels[label] for label in labels if label in sample.labels}
        return facts | told | self._settings_of(target, told, version)

    def _settings_of(self, target: Target, told: dict[str, str], version: Fact | None) -> dict[str, Fact]:
        """What is set, as far as it is known; worked out again only when the page tells something else than before."""
        if self._settings is None or self._settings[0] != (told, version):
            made = settings.facts(self.engine, target.facts, told, version)
            self._settings = ((told, version), made)
        return self._settings[1]


@frozen
class PageNames:
    """Whose names a page has, and how it spells them: see `TextReader`."""

    engine: Engine
    before: str = ""
    left_out: str = ""


def names_of(text: str, engines: Iterable[Engine], kind: str) -> PageNames | None:
    """Of the engines whose names occur, the one of `kind`, else that with most; exact prefixes count before others.

    Others write the names of an engine behind a prefix of their own ("ray_vllm_..."), or without its prefix: then
    several must be the engine's, for names such as num_requests_running may be anybody's.
    """
    names = {line.partition("{")[0].partition(" ")[0].replace(":", "_") for line in text.split("\n") if line[:1] != "#"}
    by_kind = {engine.kind: engine for engine in engines if engine.prefixes}
    found = {of: PageNames(one) for of, one in by_kind.items()}
    counts = {of: sum(name.startswith(one.prefixes) for name in names) for of, one in by_kind.items()}
    if not any(counts.values()):
        for of, one in by_kind.items():
            inner, wanted = re.compile(rf"(\w+?_)((?:{'|'.join(map(re.escape, one.prefixes))})\w*)"), wanted_names(one)
            matches = [match for name in names if (match := inner.match(name)) and key(match[2]) in wanted]
            [(before, many)] = Counter(match[1] for match in matches).most_common(1) or [("", 0)]
            found[of], counts[of] = PageNames(one, before), many * (many >= _SEVERAL_NAMES)
    if not any(counts.values()):
        for of, one in by_kind.items():
            wanted, prefix = wanted_names(one), one.prefixes[0]
            known = sum(prefix + key(name) in wanted for name in names)
            found[of], counts[of] = PageNames(one, left_out=prefix), known * (known >= _SEVERAL_NAMES)
    best = kind if counts.get(kind) else max(counts, key=lambda each: counts[each], default=None)
    return found[best] if best is not None and counts[best] else None


_SEVERAL_NAMES = 4
"""Names that an engine has too, but for what stands before them, from which on they are its names."""


def _label(exposition: Exposition, labels: Sequence[str]) -> str | None:
    """The first telling value of one of `labels`; TensorRT-LLM writes "undefined" where it has none."""
    for samples in exposition.samples.values():
        for label in labels:
            value = samples[0].labels.get(label)
            if value and value != "undefined":
                return value
    return None
