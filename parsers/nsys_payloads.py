"""What NVTX events say beside their text: category, payload, and of ranges that are started and ended on which threads.

Payloads of the NVTX extension are bytes with a schema (nvToolsExtPayload.h of NVTX 3). An export has them behind 32
bytes: domain, schema (each in 8 bytes of which 4 count), the size of what follows, and of all. NVTX's headers have no
such structure and nsys's manual does not tell of it: it is nsys's own, as others read it of exports of 2026 too. NCCL
tells by payloads how much it sends, over which communicator.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmtop.frozen import frozen
from llmtop.parsers.nsys_export import DAMAGE, lost
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.model import SpanTable, TrackId, Value
    from llmtop.parsers.nsys_export import Capture, Export

EVENTS = "NVTX_EVENTS"
_VALUES = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
_TELLING = ("category", *_VALUES, "jsonTextId", "jsonText", "binaryData")
_STARTED_ENDED = 60
_CATEGORY = 33
"""The event type that names a category of its domain."""
_HEADER = struct.Struct("<IIIIQQ")
_FORMATS = {
    1: "<b", 2: "<B", 3: "<h", 4: "<H", 5: "<i", 6: "<I", 7: "<q", 8: "<Q", 9: "<q", 10: "<Q", 11: "<b", 12: "<B",
    13: "<h", 14: "<H", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 19: "<f", 20: "<d", 22: "<Q", 23: "<Q",
    42: "<e", 43: "<f", 44: "<d", 90: "<I", 128: "<Q",
}  # fmt: skip
"""By NVTX_PAYLOAD_ENTRY_TYPE: of numbers, categories and times, on the 64-bit Linux that captures are of."""


def notes(capture: Capture, spans: SpanTable, chosen: str) -> Mapping[int, Mapping[str, Value]]:
    """What is told of these spans beside name and time, by their rows.

    Args:
        capture: The export they were read of.
        spans: Ranges or marks.
        chosen: The condition, in SQL, that the events are of this kind.
    """
    try:
        return dict(_by_row(capture, spans, chosen))
    except DAMAGE as error:
        capture.issues.append(lost(f"{spans.kind} payloads", error))
        return {}


def _by_row(capture: Capture, spans: SpanTable, chosen: str) -> Iterator[tuple[int, Mapping[str, Value]]]:
    told = _Events(capture.export).told(chosen)
    track_of = capture.devices.thread_track
    return placed(spans, ((start, end, track_of(thread), note) for start, end, thread, note in told))


def placed(
    spans: SpanTable, told: Iterable[tuple[int, int, TrackId, Mapping[str, Value]]]
) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """What is told of spans by their start, end and track, with the row of each; of several alike in their order."""
    taken: set[int] = set()
    for start, end, track, note in told:
        row = bisect_left(spans.start_ns, start)
        while row < len(spans) and spans.start_ns[row] == start:
            if spans.end_ns[row] == end and spans.tracks[spans.track_id[row]] == track and row not in taken:
                taken.add(row)
                yield row, note
                break
            row += 1


@frozen
class _PayloadEntry:
    """One number of a payload; `form` is empty of what is none, an int of enumerations; offset -1 is not told."""

    name: str
    type: int
    form: str
    offset: int


class _Events:
    """The events of an export that say more than their text."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._columns = export.columns(EVENTS)
        self._enums = _enums(export)
        self._schemas = _schemas(export, self._enums)
        self._categories = self._named_categories()

    def told(self, chosen: str) -> Iterator[tuple[int, int, int, Mapping[str, Value]]]:
        """Start, end and thread of each event that says more, and what it says."""
        telling = [name for name in _TELLING if name in self._columns]
        wanted = ["start", '"end"', "eventType", "globalTid", *self._if_there("endGlobalTid", "domainId"), *telling]
        says = " OR ".join([f"eventType = {_STARTED_ENDED}", *(f"{name} IS NOT NULL" for name in telling)])
        rows = self._export.execute(f"SELECT {', '.join(wanted)} FROM {EVENTS} WHERE {chosen} AND ({says})").fetchall()
        names = [name.strip('"') for name in wanted]
        events = [dict(zip(names, row, strict=True)) for row in rows]
        texts = self._export.strings({key for event in events if isinstance(key := event.get("jsonTextId"), int)})
        for event in events:
            start, thread = event["start"], event["globalTid"]
            if isinstance(start, int) and isinstance(thread, int) and (told := dict(self._says(event, texts))):
                yield start, event["end"] if isinstance(event["end"], int) else start, thread, told

    def _if_there(self, *names: str) -> Iterator[str]:
        return (name for name in names if name in self._columns)

    def _says(self, event: Mapping[str, Any], texts: Mapping[Any, str]) -> Iterator[tuple[str, Value]]:
        domain, category = event.get("domainId"), event.get("category")
        if isinstance(category, int) and category:
            name = self._categories.get((event["globalTid"] >> 24, domain, category))
            yield "category", f"{name} ({category})" if name else category
        for name in _VALUES:
            if isinstance(value := event.get(name), int | float):
                yield "payload", value
        text = event.get("jsonText") or texts.get(event.get("jsonTextId"))
        if isinstance(text, str):
            yield from _of_json(text)
        written = event.get("binaryData")
        if isinstance(written, bytes | str):  # a folder of tables has text where the bytes happen to be some
            yield from self._of_bytes(written.encode() if isinstance(written, str) else written)
        if event["eventType"] == _STARTED_ENDED:
            yield from _of_started(event)

    def _named_categories(self) -> Mapping[tuple[int, Any, int], str]:
        if "category" not in self._columns:
            return {}
        optional = (name if name in self._columns else "NULL" for name in ("domainId", "textId"))
        query = f"SELECT globalTid, {', '.join(optional)}, category, text FROM {EVENTS} WHERE eventType = {_CATEGORY}"
        rows = [row for row in self._export.execute(query) if isinstance(row[0], int) and isinstance(row[3], int)]
        texts = self._export.strings({row[2] for row in rows if isinstance(row[2], int)})
        named = ((row[0] >> 24, row[1], row[3], row[4] or texts.get(row[2])) for row in rows)
        return {(process, domain, category): str(name) for process, domain, category, name in named if name}

    def _of_bytes(self, written: bytes) -> Iterator[tuple[str, Value]]:
        """The numbers of a payload whose schema is there; of any other how long it is."""
        if len(written) < _HEADER.size:
            yield "payload", f"{len(written)} bytes"
            return
        domain, _, schema, _, size, _ = _HEADER.unpack_from(written)
        entries = self._schemas.get((domain, schema), ())
        if size != len(written) - _HEADER.size or not entries:
            yield "payload", f"{len(written)} bytes without a schema in this export"
            return
        for entry in entries:
            value = self._value(written[_HEADER.size :], domain, entry)
            if value is not None:
                yield entry.name, value

    def _value(self, payload: bytes, domain: int, entry: _PayloadEntry) -> Value | None:
        names = self._enums.get((domain, entry.type))
        if not entry.form or entry.offset < 0 or entry.offset + struct.calcsize(entry.form) > len(payload):
            return None
        (value,) = struct.unpack_from(entry.form, payload, entry.offset)
        return names.get(value, str(value)) if names else value


def _of_started(event: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """That a range was started and ended, not pushed and popped, and on which other thread."""
    yield "kind of range", "started and ended"
    other = event.get("endGlobalTid")
    if isinstance(other, int) and other and other != event["globalTid"]:
        yield "ended on thread", other & 0xFFFFFF


def _of_json(text: str) -> Iterator[tuple[str, Value]]:
    """The values of an object; of other JSON, and of what is none, the text."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        yield "payload", clean(text)
        return
    for key, value in read.items():
        is_plain = isinstance(value, int | float) and not isinstance(value, bool)
        yield clean(key), value if is_plain else clean(value if isinstance(value, str) else json.dumps(value))


def _schemas(export: Export, enums: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], Sequence[_PayloadEntry]]:
    """The entries of each schema by domain and schema; those that are one number alone."""
    rows = export.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "idx", "type", "name", "flags", "offset")
    found: dict[tuple[int, int], dict[int, _PayloadEntry]] = defaultdict(dict)
    for domain, schema, index, kind, name, flags, offset in rows:
        if isinstance(domain, int) and isinstance(schema, int) and isinstance(index, int) and isinstance(kind, int):
            form = "" if flags else "<i" if (domain, kind) in enums else _FORMATS.get(kind, "")
            at = offset if isinstance(offset, int) else -1
            found[domain, schema][index] = _PayloadEntry(str(name or f"value {index}"), kind, form, at)
    return {key: [*_aligned(entries)] for key, entries in found.items()}


def _aligned(entries: Mapping[int, _PayloadEntry]) -> Iterator[_PayloadEntry]:
    """The numbers of a schema in order; where no offset is told it is the next multiple of the number's size.

    That is NVTX's rule, as in a C structure. After an array, or what is no number, it cannot be known.
    """
    end: int | None = 0
    for index, entry in sorted(entries.items()):
        size = struct.calcsize(entry.form)
        if index and index - 1 not in entries:
            end = None
        if entry.offset == -1 and end is not None and size:
            entry = replace(entry, offset=-(-end // size) * size)
        end = entry.offset + size if size and entry.offset >= 0 else None
        if size:
            yield entry


def _enums(export: Export) -> Mapping[tuple[int, int], Mapping[int, str]]:
    """The names of the values of each enumeration by domain and number."""
    found: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for domain, schema, name, value in export.rows(
        "NVTX_PAYLOAD_ENUM_ENTRIES", "domainId", "schemaId", "name", "value"
    ):
        if isinstance(domain, int) and isinstance(schema, int) and isinstance(value, int):
            found[domain, schema][value] = str(name)
    return found
