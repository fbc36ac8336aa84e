"""What a program marks itself (NVTX): ranges and moments, named `domain:text` outside of the default domain."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from llmtop.columns import in_order
from llmtop.lazy import LazyDictionary
from llmtop.model import Issue, Severity, SpanKind, SpanTable
from llmtop.parsers.nsys_export import Capture, Columns, Export, Rows, SqlColumns, read_rows, span_table, timed
from llmtop.parsers.nsys_payloads import EVENTS, notes

_MARKS = (34,)
_RANGES = (59, 60)
"""Event types: pushed and popped, started and ended. The latter may end on another thread than they began on."""
_DOMAIN = 75
"""The event type that names a domain of its process."""
_DEFAULT = 0
_NO_TEXT = "(no text)"
TextOf: TypeAlias = Callable[[int], str]


def nvtx(capture: Capture) -> Iterator[tuple[str, SpanTable]]:
    """Spans by kind: ranges that ended (nvtx), moments (mark). Of a range that stayed open no length is known."""
    if not capture.export.has(EVENTS, "start", "end", "eventType", "text", "globalTid"):
        return
    _count_left_out(capture)
    for kind, types in ((SpanKind.NVTX, _RANGES), (SpanKind.MARK, _MARKS)):
        rows, text_of = _rows(capture.export, types)
        name_of = _in_domains(capture.export, rows, text_of)
        table = span_table(kind, rows, name_of, capture.devices.thread_track)
        yield kind, replace(table, notes=LazyDictionary(partial(notes, capture, table, _are(types))))


def _count_left_out(capture: Capture) -> None:
    """Tell of ranges that have no end, and of those with times that cannot be."""
    has_times = timed({"end"})
    is_open = "\"end\" IS NULL AND typeof(start) = 'integer'"
    left_out = f"{_are(_RANGES)} AND NOT coalesce({has_times}, 0)"
    query = f"SELECT sum({is_open}), sum(NOT ({is_open})) FROM {EVENTS} WHERE {left_out}"
    still_open, damaged = capture.export.execute(query).fetchone()
    if still_open:
        text = "NVTX ranges were open when the capture ended: how long they took is not known"
        capture.issues.append(Issue(Severity.INFO, "nsys-nvtx-open", text, still_open))
    if damaged:
        text = "nvtx rows without a usable start and end were left out"
        capture.issues.append(Issue(Severity.WARNING, "nsys-nvtx-times", text, damaged))


def _are(types: Sequence[int]) -> str:
    return f"eventType IN ({', '.join(map(str, types))})"


def _rows(export: Export, types: Sequence[int]) -> tuple[Rows, TextOf]:
    """Start, end, key of the text, thread, -1 and domain of these events, and what text a key stands for.

    A text is in the row, or registered and then in StringIds. Rows of one text get one key either way.
    """
    names = export.columns(EVENTS)
    has_own = export.execute(f"SELECT 1 FROM {EVENTS} WHERE text IS NOT NULL AND {_are(types)} LIMIT 1").fetchone()
    if types == _RANGES and has_own is None and "textId" in names:
        rows = read_rows(export, EVENTS, _keys, _ended_ranges)
        return rows, _registered(export, set(rows.columns[2]))
    return _rows_with_texts(export, types)


def _keys(of: Columns) -> Sequence[Any]:
    return of.integer("textId"), of.integer("globalTid"), -1, of.integer("domainId")


def _ended_ranges(of: Columns) -> Any:
    return of.choose(of.among(of.integer("eventType"), _RANGES), of.integer("end") >= of.integer("start"), 0)


def _registered(export: Export, keys: set[int]) -> TextOf:
    texts = export.strings(keys)
    return lambda key: texts.get(key, _NO_TEXT if key < 0 else f"text {key} (not in the file)")


def _rows_with_texts(export: Export, types: Sequence[int]) -> tuple[Rows, TextOf]:
    text = "coalesce(text, textId)" if "textId" in export.columns(EVENTS) else "text"
    of = SqlColumns(export.columns(EVENTS), checked=True)
    end = '"end"' if types == _RANGES else "start"
    usable = timed({"end"}) if types == _RANGES else timed(())
    number_by_text: dict[object, int] = {}
    columns = [array("q") for _ in range(6)]
    query = f"SELECT start, {end}, {text}, {of.integer('globalTid')}, {of.integer('domainId')} FROM {EVENTS}"
    for start, until, key, thread, domain in export.execute(f"{query} WHERE {_are(types)} AND {usable}"):
        number = number_by_text.setdefault(key, len(number_by_text))
        for column, value in zip(columns, (start, until, number, thread, -1, domain), strict=True):
            column.append(value)
    texts = export.strings({key for key in number_by_text if isinstance(key, int)})
    names = [texts.get(key, _NO_TEXT) if isinstance(key, int) else str(key or _NO_TEXT) for key in number_by_text]
    return Rows(in_order(columns)), names.__getitem__


def _in_domains(export: Export, rows: Rows, text_of: TextOf) -> TextOf:
    """Make the keys of texts such of text and domain, where a domain has a name; what text each stands for then."""
    domains = _domains(export)
    if not domains:
        return text_of
    keys, threads, of_domains = rows.columns[2], rows.columns[3], rows.columns[5]
    numbers: dict[tuple[int, str], int] = {}
    for i, (key, thread, domain) in enumerate(zip(keys, threads, of_domains, strict=True)):
        name = domains.get((thread >> 24, domain), "") if domain > _DEFAULT else ""
        keys[i] = numbers.setdefault((key, name), len(numbers))
    names = [f"{domain}:{text_of(key)}" if domain else text_of(key) for key, domain in numbers]
    return names.__getitem__


def _domains(export: Export) -> Mapping[tuple[int, int], str]:
    """Names of domains by process and number."""
    columns = export.columns(EVENTS)
    if "domainId" not in columns:
        return {}
    text_id = "textId" if "textId" in columns else "NULL"
    query = f"SELECT globalTid, domainId, text, {text_id} FROM {EVENTS} WHERE eventType = {_DOMAIN}"
    found = [row for row in export.execute(query) if isinstance(row[0], int) and isinstance(row[1], int)]
    texts = export.strings({key for *_, key in found if isinstance(key, int)})
    named = ((thread, domain, text or texts.get(key)) for thread, domain, text, key in found)
    return {(thread >> 24, domain): name for thread, domain, name in named if isinstance(name, str) and name}
