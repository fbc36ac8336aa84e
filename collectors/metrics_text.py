"""Prometheus text into samples, at the cost of a comparison per line.

A server repeats the same few hundred series at every scrape and only their values change. So each series (what
stands before the value) is taken apart by prometheus_client once, and remembered; so is where it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from llmtop.frozen import frozen
from llmtop.text import clean, redact

MAX_REMEMBERED = 50_000
"""Series; a server whose labels change at every scrape must not fill memory."""
MAX_LINES = 50_000
"""Of a page: sixty engines have as many. More would cost llmtop seconds of CPU for each page."""
_TYPE = "# TYPE "
_EXEMPLAR = " # {"
"""What comes between a value and an exemplar (OpenMetrics), also of a server that was not asked for any."""
_HEAD = re.compile(r'[^\s{]*\{[^"}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"}]*)*\}')
_WORD = 8
"""Characters of a label that is too short for a key."""
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*[{ ]")
"""How a sample begins (Prometheus documentation, exposition formats)."""


def key(name: str) -> str:
    """A name under which spellings of it meet: vllm:prompt_tokens_total is vllm_prompt_tokens.

    Counters end in _total in some expositions of one and the same server and not in others, and a relabelling
    proxy may write _ for the colon.
    """
    return name.replace(":", "_").removesuffix("_total")


Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(slots=True)
class ExposedSample:
    """One line of the text: `name` as the server spells it, labels and value clean of what could steer a terminal.

    Held to be frozen by the type checker alone, as `model.Reading` is.

    Attributes:
        pairs: The labels in alphabetical order, by which samples are told apart; the same object at each scrape.
    """

    name: Final[str]
    labels: Final[Mapping[str, str]]
    value: Final[float | None]
    pairs: Final[Pairs] = ()


@frozen
class _Series:
    key: str
    name: str
    labels: Mapping[str, str]
    pairs: Pairs


@frozen
class Exposition:
    """What one scrape says of the wanted names.

    Attributes:
        samples: By `key`, in the order of the text. A NaN or infinite value is None: the server had none.
        unreadable: Lines that are no samples.
        left_out: Lines behind the first `MAX_LINES`.
        declared: By `key`, what the text names with its type: it may have no sample yet.
    """

    samples: Mapping[str, tuple[ExposedSample, ...]]
    unreadable: int = 0
    declared: frozenset[str] = frozenset()
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.samples)


@dataclass(slots=True)
class _Wanted:
    """A line that somebody wants: where it stands, how long what names it is, and what it said last."""

    number: int
    end: int
    series: _Series
    line: str
    sample: ExposedSample

    def read(self, lines: Sequence[str]) -> ExposedSample:
        """What it says now.

        Raises:
            ValueError: It is no sample any more.
        """
        line = lines[self.number]
        if line != self.line:
            self.line, self.sample = line, _sample(self.series, _value(line[self.end :].split()))
        return self.sample


@dataclass(slots=True)
class _Layout:
    """What each line of a page begins with: the next page has mostly the same lines, with other values.

    Attributes:
        heads: Of a sample all that names it; of other lines all of it.
        blank: Numbers of the lines with nothing in them.
        wanted: By `key`, in the order of the text.
    """

    declared: frozenset[str]
    heads: list[str] = field(default_factory=list)
    blank: list[int] = field(default_factory=list)
    wanted: dict[str, list[_Wanted]] = field(default_factory=dict)

    def is_of(self, lines: Sequence[str]) -> bool:
        """Whether a page has these lines."""
        is_as_long = len(lines) == len(self.heads)
        return is_as_long and all(map(str.startswith, lines, self.heads)) and not any(lines[n] for n in self.blank)


class TextReader:
    """Reads scrape after scrape of one server.

    Args:
        wanted: Names, as `key` writes them.
        before: What the page writes before all of these, as Ray does: "ray_".
        left_out: What the page leaves out of them: NIM writes vLLM's names without "vllm_".
    """

    def __init__(self, wanted: Iterable[str], before: str = "", left_out: str = "") -> None:
        self._wanted = frozenset(wanted)
        self._before, self._left_out = before, left_out
        self._series: dict[str, _Series | None] = {}
        """None stands for a series that nobody wants."""
        self._layout: _Layout | None = None
        """That of the last page, where all of it could be read."""

    def read(self, text: str) -> Exposition:
        """All wanted samples of a text; a line that cannot be read costs only itself."""
        lines = text.split("\n")
        left_out = max(0, len(lines) - MAX_LINES)
        del lines[MAX_LINES:]
        layout = self._layout
        if layout is not None and layout.is_of(lines):
            try:
                samples = {name: tuple(one.read(lines) for one in several) for name, several in layout.wanted.items()}
            except ValueError:
                pass
            else:
                return Exposition(samples, 0, layout.declared, left_out)
        return self._read_anew(lines, left_out)

    def _read_anew(self, lines: Sequence[str], left_out: int) -> Exposition:
        """Each line for itself, and what each of them begins with."""
        if len(self._series) >= MAX_REMEMBERED:
            self._series.clear()
        declared = (line.split(" ", 3)[2] for line in lines if line.startswith(_TYPE))
        layout = _Layout(frozenset(map(self._key, declared)))
        unreadable = 0
        for number, line in enumerate(lines):
            try:
                layout.heads.append(self._read_line(layout, number, line))
            except ValueError:
                unreadable += 1
        self._layout = None if unreadable else layout
        samples = {name: tuple(one.sample for one in several) for name, several in layout.wanted.items()}
        return Exposition(samples, unreadable, layout.declared, left_out)

    def _read_line(self, layout: _Layout, number: int, line: str) -> str:
        """Take one line into a layout; what it begins with.

        Raises:
            ValueError: It is no sample.
        """
        if not line or line[0] == "#" or line.isspace():
            if not line:
                layout.blank.append(number)
            return line
        name, end, value = _split(line)
        series = self._series[name] if name in self._series else self._take_apart(name)
        if series is not None:
            wanted = _Wanted(number, end, series, line, _sample(series, value))
            layout.wanted.setdefault(series.key, []).append(wanted)
        return line[:end]

    def _take_apart(self, head: str) -> _Series | None:
        name, _, labelled = head.partition("{")
        series, known = None, self._key(name.strip())
        if known in self._wanted:
            labels = _labels(head) if labelled else {}
            series = _Series(known, clean(name.strip()), labels, tuple(sorted(labels.items())))
        self._series[head] = series
        return series

    def _key(self, name: str) -> str:
        """Under which wanted name a name of the page is read."""
        known = key(name).removeprefix(self._before)
        return known if known in self._wanted or not self._left_out else self._left_out + known


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


def _split(line: str) -> tuple[str, int, float]:
    """What names the series, where that ends with the space behind it, and the value.

    Raises:
        ValueError: It is no sample.
    """
    end = line.rfind("}") + 1
    if end and _EXEMPLAR in line:  # which has labels and a value of its own
        end = found.end() if (found := _HEAD.match(line)) else 0
    if end:
        return line[:end], end, _value(line[end:].split())
    name, *rest = line.split()
    return name, line.index(name) + len(name) + 1, _value(rest)


def _value(words: Sequence[str]) -> float:
    """The value; a timestamp behind it is left out, and an exemplar of OpenMetrics.

    Raises:
        ValueError: It is none.
    """
    if len(words) > 2 and "#" in words:
        words = words[: words.index("#")]
    if not words or len(words) > 2:
        raise ValueError("no value, or more than a value and a timestamp")
    return float(words[0])


def _sample(series: _Series, value: float) -> ExposedSample:
    return ExposedSample(series.name, series.labels, value if math.isfinite(value) else None, series.pairs)


def _labels(head: str) -> dict[str, str]:
    """The labels, unescaped.

    Raises:
        ValueError: They are not written as Prometheus writes them.
    """
    from prometheus_client.parser import text_string_to_metric_families  # slow to import

    try:
        family = next(iter(text_string_to_metric_families(f"{head} 0\n")))
        labels = family.samples[0].labels
        return {clean(name): clean(redact(value) if len(value) > _WORD else value) for name, value in labels.items()}
    except (StopIteration, IndexError, KeyError) as error:
        raise ValueError(f"labels that cannot be read in {head!r}") from error
