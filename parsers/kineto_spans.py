"""What the events of a trace are: spans by kind, kernels, tracks, memory and counters over time.

Categories are those of libkineto (libkineto/include/ActivityType.h), and what they were called before 2022. Where an
event belongs is told by its category, never by its numbers alone: Kineto writes a GPU's index where others have a PID.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import Any, Final, TypeAlias

from llmtop.model import GPU_WORK, SpanKind, Value
from llmtop.parsers.kineto_json import DECODER, Event, EventColumns, nanoseconds
from llmtop.text import clean

KIND_BY_CATEGORY: Final[Mapping[str, str]] = {
    "kernel": SpanKind.KERNEL,
    "concurrent_kernel": SpanKind.KERNEL,
    "gpu_memcpy": SpanKind.MEMCPY,
    "memcpy": SpanKind.MEMCPY,
    "gpu_memset": SpanKind.MEMSET,
    "memset": SpanKind.MEMSET,
    "cuda_sync": SpanKind.SYNC,
    "runtime": SpanKind.CALL,
    "cpu_op": SpanKind.OPERATOR,
    "operator": SpanKind.OPERATOR,
    "user_annotation": SpanKind.NVTX,
    "gpu_user_annotation": SpanKind.GPU_RANGE,
    "python_function": SpanKind.PYTHON,
    "overhead": SpanKind.OVERHEAD,
}
"""In small letters. What else ends in "_runtime" or "_driver" is a call (of CUDA, HIP, XPU ...); others are regions."""
_ON_STREAMS = frozenset({*GPU_WORK, SpanKind.SYNC, SpanKind.GPU_RANGE})
WITH_BYTES: Final = frozenset({SpanKind.MEMCPY, SpanKind.MEMSET})
_CALLS = ("_runtime", "_driver")
_PROFILE = "trace"
"""The one event that spans all that was recorded."""
_BY_NAME: Final = (
    (SpanKind.CALL, lambda name: "Launch" in name, SpanKind.LAUNCH),
    # A step was an operator before 2022.
    (SpanKind.OPERATOR, lambda name: name.startswith("ProfilerStep"), SpanKind.NVTX),
)
_MEMORY = "[memory]"
_CPU = 0
"""c10::DeviceType; all others are accelerators."""
_FIRST_MADE_UP = 1 << 22
"""Above the highest PID of Linux: where events have a text in place of a PID or TID, its number counts from here on."""
_NUMBER = re.compile(r"-?\d{1,18}")
_IN_NAME = re.compile(r"\b(?:GPU|stream|Device) (\d{1,9})\b")
_CORRELATION = re.compile(rb'"correlation":\s*(\d{1,18})(?!\d)').search
_COPY = re.compile(r"(?:Memcpy |Copy)(Host|Device|Array|Peer|[HDAP])\w*?[tT]o(H|D|A|P)")
_OVERHEADS = {
    "Lazy Function Loading": "lazy function loading",
    "Runtime Triggered Module Loading": "module loading",
    "Driver Compiler": "JIT compilation",
    "Command Buffer Full": "command buffer full",
}
"""What the driver does of itself, by the names that such work has in captures of other tools too."""
_MOST = 1 << 62
_SOME = 100
"""Operators of each piece of a file that are looked at for whether shapes were recorded."""
_LAUNCH_COLUMNS = 11
_SIZES = ("grid", "block")
_LAUNCH = ("registers per thread", "shared memory", "est. achieved occupancy %")
COLLECTIVE: Final = (
    "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size", "Process Group Name",
    "Process Group Description", "Process Group Ranks", "Rank", "Src Rank", "Dst Rank", "Seq",
)  # fmt: skip
"""What PyTorch records of operations between ranks, on kernels and on the operators that ask for them."""
_ASKS = "record_param_comms"
"""The operator that stands for a call of a process group, with what it was asked to do."""
_GROWTH = "Bytes"
"""Below 0 where memory is given back; nothing else is."""
MEMORY: Final = ("Total Allocated", "Total Reserved", _GROWTH, "Addr")

Place: TypeAlias = tuple[str, int, int]
""""gpu", device and stream; "cpu", PID and TID."""


class _SpanNames(dict["bytes | str", int]):
    """Numbers of the names of a kind, by what is written in the file."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.by_text: dict[str, int] = {}

    def __missing__(self, raw: bytes | str) -> int:
        text = _text(raw) if isinstance(raw, bytes) else raw
        number = self.by_text.setdefault(name_of(self._kind, clean(text)), len(self.by_text))
        self[raw] = number
        return number


def _text(raw: bytes) -> str:
    """What stands between the quotes of a JSON text, escaped by the rules or not."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def name_of(kind: str, text: str) -> str:
    """The name that a span has whichever tool recorded it.

    >>> name_of("memcpy", "Memcpy HtoD (Pageable -> Device)"), name_of("memcpy", "CopyDeviceToHost")
    ('copy HtoD (pageable)', 'copy DtoH')
    >>> name_of("memset", "Memset (Device)"), name_of("operator", "aten::mm")
    ('memset', 'aten::mm')
    """
    if kind == SpanKind.MEMCPY and (found := _COPY.search(text)):
        return f"copy {found[1][0]}to{found[2]}" + (" (pageable)" if "Pageable" in text else "")
    if kind == SpanKind.MEMSET:
        return "memset"
    return _OVERHEADS.get(text, text) if kind == SpanKind.OVERHEAD else text


class _RowNumbers(dict["bytes | str | int", int]):
    """PIDs and TIDs by what is written in the file; texts get numbers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[int, str] = {}

    def __missing__(self, raw: bytes | str | int) -> int:
        text = _text(raw.strip(b'"')) if isinstance(raw, bytes) else str(raw)
        if _NUMBER.fullmatch(text):
            number = int(text)
        else:
            number = _FIRST_MADE_UP + len(self.texts)
            self.texts[number] = clean(text) or "(no name)"
        self[raw] = number
        return number


class _Places(dict[tuple[Any, Any], int]):
    """Numbers of threads, by PID and TID as they are written in the file."""

    def __init__(self, numbers: _RowNumbers) -> None:
        super().__init__()
        self._numbers = numbers
        self.all: dict[Place, int] = {}

    def __missing__(self, written: tuple[Any, Any]) -> int:
        pid, tid = map(self._numbers.__getitem__, written)
        self[written] = number = self.number(("cpu", pid, tid))
        return number

    def number(self, place: Place) -> int:
        return self.all.setdefault(place, len(self.all))


class SpanRows:
    """Spans of one kind as they are met, in columns; names and places are numbers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.names = _SpanNames(kind)
        self.starts, self.ends, self.name_ids, self.places, self.joins, self.bytes = (array("q") for _ in range(6))
        self.launches = tuple(array("q") for _ in range(_LAUNCH_COLUMNS if kind == SpanKind.KERNEL else 0))
        """Of kernels: device, stream, grid x y z, block x y z, registers, shared memory, estimated occupancy."""
        self.notes: list[Mapping[str, Value]] = []
        self.note_ids = array("q")
        """What else is told of some spans; of each span which of these, -1 where none."""

    @property
    def columns(self) -> list[array[int]]:
        """All columns, of which some kinds have fewer."""
        told = [self.bytes] if self.kind in WITH_BYTES else []
        noted = [self._all_note_ids()] if self.notes else []
        return [self.starts, self.ends, self.name_ids, self.places, self.joins, *told, *self.launches, *noted]

    def note(self, rows: Iterable[int], told: Iterable[Mapping[str, Any]]) -> None:
        """Keep what is told of operations between ranks, by the rows that it is told of."""
        for row, args in zip(rows, told, strict=True):
            if COLLECTIVE[0] in args:
                self.note_ids.extend([-1] * (row - len(self.note_ids)))
                self.note_ids.append(len(self.notes))
                self.notes.append({key: _plain(args[key]) for key in COLLECTIVE if key in args})

    def move(self, is_moved: Callable[[str], bool], to: SpanRows) -> None:
        """Hand the spans with some names over to another kind."""
        number_by_own = {own: to.names[text] for text, own in self.names.by_text.items() if is_moved(text)}
        chosen = [own in number_by_own for own in self.name_ids]
        to.name_ids.extend(map(number_by_own.__getitem__, compress(self.name_ids, chosen)))
        kept = [not one for one in chosen]
        if self.notes:
            self.note_ids = array("q", compress(self._all_note_ids(), kept))
        for name in ("starts", "ends", "places", "joins"):
            column = getattr(self, name)
            getattr(to, name).extend(compress(column, chosen))
            setattr(self, name, array("q", compress(column, kept)))
        self.name_ids = array("q", compress(self.name_ids, kept))

    def _all_note_ids(self) -> array[int]:
        return self.note_ids + array("q", [-1]) * (len(self.starts) - len(self.note_ids))


class EventSorter:
    """All that is known of the events so far.

    Attributes:
        has_shapes: Whether operators tell the shapes of what they were given.
        has_fractions: Whether any time is finer than a microsecond.
        recorded_ns: How long was recorded, as the profiler says; 0 where it does not.
        odd: Events without a usable time, or with a beginning or an end alone, which were left out.
        rows: By kind.
        places: Where they are, by number.
        memory: When memory was allocated or freed, what of `MEMORY` was said then, and the number of the place of the
            thread, by device or process.
        counters: Samples by device or process, and title.
        pids: How many calls each process made.
    """

    def __init__(self) -> None:
        self.has_shapes = self.has_fractions = False
        self.recorded_ns = 0
        self.odd = 0
        self._numbers = _RowNumbers()
        self.places = _Places(self._numbers)
        self.rows: dict[str, SpanRows] = {}
        self.memory: dict[tuple[str, int], tuple[array[Any], ...]] = defaultdict(_samples)
        self.counters: dict[tuple[tuple[str, int], str], list[tuple[int, float | None]]] = defaultdict(list)
        self._open: dict[tuple[object, ...], list[tuple[int, str, Event]]] = defaultdict(list)
        self.process_names: dict[int, str] = {}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.pids: Counter[int] = Counter()

    @property
    def texts(self) -> Mapping[int, str]:
        """What stands in the file where a PID or TID was made up."""
        return self._numbers.texts

    def take(self, events: Iterable[EventColumns | Event]) -> None:
        """Sort events in."""
        by_phase = {"C": self._counter, "M": self._named}
        by_phase |= dict.fromkeys("BEbe", self._half) | dict.fromkeys("XiI", self._single)
        for one in events:
            if isinstance(one, EventColumns):
                self._take(one)
            elif (phase := str(one.get("ph"))) in by_phase:
                by_phase[phase](one)

    def _single(self, event: Event) -> None:
        """A span or an instant that was read as JSON."""
        start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
        if start is None or length is None or length < 0:
            self.odd += 1
        else:
            self._take(EventColumns.of_one(event, start, start + length))

    def _take(self, columns: EventColumns) -> None:
        """Sort spans and instants of one category in."""
        self.has_fractions |= columns.has_fractions
        category = columns.category.lower()
        if columns.phase != "X":
            self._instants(columns)
        elif category == _PROFILE:
            self.recorded_ns = max(columns.ends) - min(columns.starts)
        else:
            kind = KIND_BY_CATEGORY.get(category, SpanKind.CALL if category.endswith(_CALLS) else SpanKind.REGION)
            rows = self._rows_of(kind)
            if kind in _ON_STREAMS:
                self._take_gpu(kind, rows, columns)
            else:
                self._take_cpu(kind, rows, columns)
            rows.starts.extend(columns.starts)
            rows.ends.extend(columns.ends)
            rows.name_ids.extend(map(rows.names.__getitem__, columns.names))

    def _rows_of(self, kind: str) -> SpanRows:
        rows = self.rows.get(kind)
        if rows is None:
            rows = self.rows[kind] = SpanRows(kind)
        return rows

    def _take_cpu(self, kind: str, rows: SpanRows, columns: EventColumns) -> None:
        rows.places.extend(map(self.places.__getitem__, zip(columns.pids, columns.tids, strict=True)))
        if kind == SpanKind.OPERATOR and not self.has_shapes:
            self.has_shapes = any(map(_tells_shapes, islice(columns.args, _SOME)))
        if kind == SpanKind.CALL:
            rows.joins.extend(map(_join, columns.args))
            self.pids.update(map(self._numbers.__getitem__, columns.pids))
        else:
            rows.joins.extend([-1] * len(columns.names))
        if kind == "operator":
            asks = [i for i, name in enumerate(columns.names) if name in (_ASKS, _ASKS.encode())]
            rows.note([len(rows.starts) + i for i in asks], arguments([columns.args[i] for i in asks]))

    def _take_gpu(self, kind: str, rows: SpanRows, columns: EventColumns) -> None:
        args = arguments(columns.args)
        devices, streams = ([_whole(one.get(key)) for one in args] for key in ("device", "stream"))
        for i, one in enumerate(args):  # of most rows the arguments tell, of the others the row they stand in
            if devices[i] < 0:
                devices[i] = max(0, self._in_name(columns.pids[i]))
            if streams[i] < 0 and "stream" not in one:
                streams[i] = self._in_name(columns.tids[i])
        rows.places.extend(self.places.number(("gpu", *pair)) for pair in zip(devices, streams, strict=True))
        rows.joins.extend(_whole(one.get("correlation"), least=1) for one in args)
        if kind in WITH_BYTES:
            rows.bytes.extend(_whole(one.get("bytes")) for one in args)
        elif kind == SpanKind.KERNEL:
            sizes = (axis for what in _SIZES for axis in zip(*(_three(one.get(what)) for one in args), strict=True))
            told = ([_whole(one.get(what)) for one in args] for what in _LAUNCH)
            for column, values in zip(rows.launches, (devices, streams, *sizes, *told), strict=True):
                column.extend(values)
            rows.note(range(len(rows.starts), len(rows.starts) + len(args)), args)

    def _in_name(self, written: Any) -> int:
        number = self._numbers[written]
        found = _IN_NAME.search(self._numbers.texts.get(number, ""))
        return int(found[1]) if found else number

    def _instants(self, columns: EventColumns) -> None:
        """Of moments only those at which memory was allocated or freed."""
        own = [i for i, name in enumerate(columns.names) if name in (_MEMORY, _MEMORY.encode())]
        for i, args in zip(own, arguments([columns.args[i] for i in own]), strict=True):
            on_cpu = args.get("Device Type") == _CPU
            place = self._numbers[columns.pids[i]] if on_cpu else max(0, _whole(args.get("Device Id")))
            samples = self.memory["cpu" if on_cpu else "gpu", place]
            samples[0].append(columns.starts[i])
            samples[-1].append(self.places[columns.pids[i], columns.tids[i]])
            for column, key in zip(samples[1:-1], MEMORY, strict=True):
                value = args.get(key)
                least = 1 - _MOST if key == _GROWTH else 0
                column.append(value if isinstance(value, int) and least <= value < _MOST else math.nan)

    def _counter(self, event: Event) -> None:
        """A sample of one or several numbers."""
        start, args = nanoseconds(event.get("ts")), event.get("args")
        if start is None or not isinstance(args, dict):
            self.odd += 1
            return
        title, pid = clean(str(event.get("name", ""))), self._number(event.get("pid"))
        found = _IN_NAME.search(self._numbers.texts.get(pid, "")) or _IN_NAME.search(title)
        place = ("gpu", int(found[1])) if found else ("cpu", pid)
        for key, value in args.items():
            name = title if key in ("value", title) else f"{title} {clean(key)}".strip()
            self.counters[place, name].append((start, _real(value)))

    def _named(self, event: Event) -> None:
        """The name of a process or of a thread; of several the last one."""
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        if isinstance(name, str) and name.strip():
            pid = self._number(event.get("pid"))
            if event.get("name") == "process_name":
                self.process_names[pid] = clean(name.strip())
            elif event.get("name") == "thread_name":
                self.thread_names[pid, self._number(event.get("tid"))] = clean(name.strip())

    def _number(self, written: object) -> int:
        return self._numbers[written if isinstance(written, int | str) else ""]

    def _half(self, event: Event) -> None:
        """A span that is written as its beginning and its end; of those that may overlap, each has an id."""
        start, phase = nanoseconds(event.get("ts")), str(event["ph"])
        if start is None:
            self.odd += 1
            return
        key: tuple[object, ...] = (self._number(event.get("pid")), self._number(event.get("tid")))
        if phase in "be":
            key = (*key[:1], str(event.get("cat")), str(event.get("id")), str(event.get("id2")))
        self._open[key].append((start, phase.upper(), event))

    def finish(self) -> None:
        """Join what is written in halves, and part what is told apart by name alone; no events may follow."""
        for columns in self._joined():
            self._take(columns)
        for kind, is_other, other in _BY_NAME:
            if kind in self.rows and any(map(is_other, self.rows[kind].names.by_text)):
                self.rows[kind].move(is_other, self._rows_of(other))

    def _joined(self) -> Iterator[EventColumns]:
        """Spans of beginnings and ends, those of one row within each other."""
        for halves in self._open.values():
            halves.sort(key=lambda half: half[0])
            begun: list[tuple[int, Event]] = []
            for start, phase, event in halves:
                if phase == "B":
                    begun.append((start, event))
                elif begun:
                    since, first = begun.pop()
                    yield EventColumns.of_one({**first, "ph": "X"}, since, start)
                else:
                    self.odd += 1
            self.odd += len(begun)


def _samples() -> tuple[array[Any], ...]:
    """Times, what is told of each, and on which thread."""
    return array("q"), *(array("d") for _ in MEMORY), array("q")


def arguments(written: Sequence[bytes | Mapping[str, Any] | None]) -> Sequence[Mapping[str, Any]]:
    """What events say beside their names and times; nothing where that cannot be read."""
    texts = [one or b"" for one in written if not isinstance(one, Mapping)]
    together = _objects(b"},{".join(texts)) if texts else []
    if len(together) != len(texts):
        together = [(_objects(text) or [{}])[0] for text in texts]
    read = iter(together)
    return [one if isinstance(one, Mapping) else next(read) for one in written]


def _objects(text: bytes) -> list[dict[str, Any]]:
    """The objects of what stands between the first and the last of their braces; none where it is no JSON."""
    try:
        return list(DECODER.decode(f"[{{{text.decode('utf-8', 'replace')}}}]"))
    except (ValueError, RecursionError):
        return []


def _tells_shapes(written: bytes | Mapping[str, Any] | None) -> bool:
    return b'"Input Dims"' in written if isinstance(written, bytes) else "Input Dims" in (written or ())


def _join(written: bytes | Mapping[str, Any] | None) -> int:
    if isinstance(written, bytes):
        found = _CORRELATION(written)
        return (int(found[1]) or -1) if found else -1
    return -1 if written is None else _whole(written.get("correlation"), least=1)


def _whole(value: object, least: int = 0) -> int:
    """A number that counts something; -1 where it is none."""
    return value if isinstance(value, int) and least <= value < _MOST else -1


def _plain(value: object) -> Value:
    return value if isinstance(value, int) else clean(str(value))


def _real(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _three(value: object) -> tuple[int, int, int]:
    """x, y and z of a grid or a block."""
    sizes = [_whole(size) for size in value] if isinstance(value, list) else []
    x, y, z = (sizes + [-1] * 3)[:3]
    return x, y, z
