"""Prometheus text into samples, at the cost of a dictionary look-up per line.

A server repeats the same few hundred series at every scrape and only their values change. So each series (what
stands before the value) is taken apart by prometheus_client once, and remembered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from llmtop.text import clean

MAX_REMEMBERED = 50_000
"""Series; a server whose labels change at every scrape must not fill memory."""
_TYPE = "# TYPE "
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*[{ ]")
"""How a sample begins (Prometheus documentation, exposition formats)."""


def key(name: str) -> str:
    """A name under which spellings of it meet: vllm:prompt_tokens_total is vllm_prompt_tokens.

    Counters end in _total in some expositions of one and the same server and not in others, and a relabelling
    proxy may write _ for the colon.
    """
    return name.replace(":", "_").removesuffix("_total")


Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True, slots=True)
class ExposedSample:
    """One line of the text: `name` as the server spells it, labels and value clean of what could steer a terminal.

    Attributes:
        pairs: The labels in alphabetical order, by which samples are told apart; the same object at each scrape.
    """

    name: str
    labels: Mapping[str, str]
    value: float | None
    pairs: Pairs = ()


@dataclass(frozen=True, slots=True)
class _Series:
    key: str
    name: str
    labels: Mapping[str, str]
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class Exposition:
    """What one scrape says of the wanted names.

    Attributes:
        samples: By `key`, in the order of the text. A NaN or infinite value is None: the server had none.
        unreadable: Lines that are no samples.
        declared: By `key`, what the text names with its type: it may have no sample yet.
    """

    samples: Mapping[str, tuple[ExposedSample, ...]]
    unreadable: int = 0
    declared: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.samples)


class TextReader:
    """Reads scrape after scrape of one server."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)
        self._series: dict[str, _Series | None] = {}
        """None stands for a series that nobody wants."""
        self._skipped: dict[int, str] = {}
        """What lines begin with, by number, that say nothing of what is wanted: of a page nine in ten."""

    def read(self, text: str) -> Exposition:
        """All wanted samples of a text; a line that cannot be read costs only itself."""
        if len(self._series) > MAX_REMEMBERED:
            self._series.clear()
            self._skipped.clear()
        samples: dict[str, list[ExposedSample]] = {}
        unreadable = 0
        declared = set()
        for number, line in enumerate(text.split("\n")):
            skipped = self._skipped.get(number)
            if skipped is not None and line.startswith(skipped):
                continue
            if line.startswith(_TYPE):
                declared.add(key(line.split(" ", 3)[2]))
            if not line or line[0] == "#" or line.isspace():
                continue
            try:
                head, value = _split(line)
                series = self._series[head] if head in self._series else self._take_apart(head)
            except ValueError:
                unreadable += 1
                continue
            if series is not None:
                sample = ExposedSample(series.name, series.labels, _finite(value), series.pairs)
                samples.setdefault(series.key, []).append(sample)
            elif head.endswith("}") and number < MAX_REMEMBERED:
                self._skipped[number] = head
        return Exposition({name: tuple(several) for name, several in samples.items()}, unreadable, frozenset(declared))

    def _take_apart(self, head: str) -> _Series | None:
        name, _, labelled = head.partition("{")
        series = None
        if key(name.strip()) in self._wanted:
            labels = _labels(head) if labelled else {}
            series = _Series(key(name.strip()), clean(name.strip()), labels, tuple(sorted(labels.items())))
        self._series[head] = series
        return series


def names(text: str, limit: int = 5) -> tuple[str, ...]:
    """The first few distinct names of metrics in a text, for saying what was found instead of a server's."""
    found: dict[str, None] = {}
    for line in text.split("\n"):
        if len(found) == limit:
            break
        if _NAME.match(line) and _is_sample(line):
            found[clean(line.partition("{")[0].partition(" ")[0])] = None
    return tuple(found)


def _is_sample(line: str) -> bool:
    try:
        _split(line)
    except ValueError:
        return False
    return True


def _split(line: str) -> tuple[str, float]:
    """What names the series, and the value; a timestamp behind it is left out.

    Raises:
        ValueError: It is no sample.
    """
    end = line.rfind("}") + 1
    if end == 0:
        name, *rest = line.split()
        head = name
    else:
        head, rest = line[:end], line[end:].split()
    if not rest or len(rest) > 2:
        raise ValueError("no value, or more than a value and a timestamp")
    return head, float(rest[0])


def _labels(head: str) -> dict[str, str]:
    """The labels, unescaped.

    Raises:
        ValueError: They are not written as Prometheus writes them.
    """
    from prometheus_client.parser import text_string_to_metric_families  # slow to import

    try:
        family = next(iter(text_string_to_metric_families(f"{head} 0\n")))
        return {clean(label): clean(value) for label, value in family.samples[0].labels.items()}
    except (StopIteration, IndexError, KeyError) as error:
        raise ValueError(f"labels that cannot be read in {head!r}") from error


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
