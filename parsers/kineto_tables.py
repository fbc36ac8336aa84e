"""What a trace holds, of its events sorted in: tables of spans and kernels, their tracks, series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from llmtop import ids
from llmtop.columns import in_order, indexed, lengths, shifted
from llmtop.frozen import frozen
from llmtop.model import (
    TORCH_ALLOCATED,
    TORCH_GROWN,
    TORCH_RESERVED,
    Fact,
    KernelTable,
    Metric,
    Series,
    SpanKind,
    SpanTable,
    Track,
    TrackId,
    TrackKind,
)
from llmtop.parsers.allocations import SUFFIXES, Ends, MemoryEvent, allocations, columns_of
from llmtop.parsers.kineto_spans import WITH_BYTES, EventSorter, SpanRows
from llmtop.text import base_name

SOURCE: Final = "PyTorch profiler"
_ASKED = ("get memory", "give memory back")
_FIRST_JOIN = 1 << 40
"""Above the ids that join calls to what they asked for, which have 32 bits; below what joined traces have keys for."""
_HOST_ALONE = frozenset({SpanKind.PYTHON, SpanKind.OVERHEAD, SpanKind.SYNC})
"""Kinds of spans that say nothing of how long the capture is: they last from before to behind."""


@frozen
class Gpu:
    """What a trace says of a GPU; an empty name where it has none."""

    name: str
    facts: Mapping[str, Fact]


class Tables:
    """The parts of a trace, in ns since its first event.

    Attributes:
        zero_ns: When that was, on the clock of the file.
        start_ns, end_ns: Of GPU work, calls, operators and ranges.
        odd_releases: How many events gave back what was not held.
    """

    def __init__(self, events: EventSorter, gpus: Mapping[int, Gpu]) -> None:
        self._events = events
        self._gpus = gpus
        events.finish()
        self._places = list(events.places.all)
        self._pid = max(events.pids, key=events.pids.__getitem__, default=self._any_pid())
        self.tracks: dict[TrackId, Track] = {}
        rows = {kind: of_kind for kind, of_kind in events.rows.items() if len(of_kind.starts)}
        self.zero_ns = min((min(of_kind.starts) for of_kind in rows.values()), default=0)
        self.kernels = NO_KERNELS
        self.odd_releases = 0
        self.spans = {kind: self._table(events.rows.pop(kind)) for kind in rows}
        lasting = [table for kind, table in self.spans.items() if kind not in _HOST_ALONE] or [*self.spans.values()]
        memory = {table.kind: table for table in self._allocations()}
        asked = memory.pop(SpanKind.ALLOCATOR, None)
        self.more_spans = {} if asked is None else {asked.kind: asked}
        self.spans |= memory
        self.start_ns = min((table.start_ns[0] for table in lasting), default=0)
        self.end_ns = max((max(table.end_ns) for table in lasting), default=0)
        self.series = {(one.track, one.metric.name): one for one in (*self._memory(), *self._counters()) if len(one)}

    def _any_pid(self) -> int:
        return next((first for kind, first, _ in self._places if kind == "cpu"), 0)

    def _table(self, rows: SpanRows) -> SpanTable:
        """The spans of a kind in order; of kernels their launches too."""
        kind, texts = rows.kind, list(rows.names.by_text)
        starts, ends, name_ids, places, joins, *more = in_order(rows.columns)
        noted = more.pop() if rows.notes else ()
        notes = {row: rows.notes[number] for row, number in enumerate(noted) if number >= 0}
        names, name_id = indexed(name_ids, texts.__getitem__)
        tracks, track_id = indexed(places, self._track)
        start_ns, end_ns = (shifted(column, -self.zero_ns) for column in (starts, ends))
        if kind == SpanKind.KERNEL:
            device, stream, gx, gy, gz, bx, by, bz, registers, shared, occupancy = more
            self.kernels = KernelTable(
                names, tuple(map(base_name, names)), name_id, (gx, gy, gz), (bx, by, bz),
                start_ns, lengths(start_ns, end_ns), device, stream, None, registers, shared, occupancy,
            )  # fmt: skip
        nan = float("nan")
        amount = array("d", [nan]) * len(start_ns)
        if kind in WITH_BYTES:
            amount = array("d", (value if value >= 0 else nan for value in more[0]))
        return SpanTable(kind, names, tracks, name_id, track_id, start_ns, end_ns, joins, amount, notes)

    def _track(self, number: int) -> TrackId:
        """The track of a place, made with those above it when it is first met."""
        kind, first, second = self._places[number]
        if kind == "gpu":
            return self._stream(first, second)
        parent = self._process(first)
        track = ids.thread(first, second)
        default = self._events.texts.get(second, f"thread {second}" if first >= 0 else "on some thread")
        return self._add(track, TrackKind.THREAD, self._events.thread_names.get((first, second), default), parent)

    def _process(self, pid: int) -> TrackId:
        if pid < 0:  # so Kineto writes its own cost, where it does not know on which thread that was
            return self._add(ids.process(pid), TrackKind.PROCESS, "profiler")
        name = self._events.process_names.get(pid)
        title = self._events.texts.get(pid) or (f"{name} {pid}" if name else f"process {pid}")
        return self._add(ids.process(pid), TrackKind.PROCESS, title)

    def _stream(self, device: int, stream: int) -> TrackId:
        """A stream, or its GPU for what is of all of its streams."""
        gpu = self._gpu(device)
        if stream < 0:
            return gpu
        track = ids.stream(gpu, self._pid, stream)
        return self._add(track, TrackKind.STREAM, f"stream {stream}", gpu)

    def _gpu(self, device: int) -> TrackId:
        known = self._gpus.get(device, Gpu("", {}))
        return self._add(ids.gpu(device), TrackKind.GPU, known.name or f"GPU {device}", facts=known.facts)

    def _add(
        self,
        track: TrackId,
        kind: TrackKind,
        name: str,
        parent: TrackId | None = None,
        facts: Mapping[str, Fact] = MappingProxyType({}),
    ) -> TrackId:
        if track not in self.tracks:
            self.tracks[track] = Track(track, kind, name, parent, facts)
        return track

    def _memory(self) -> Iterator[Series]:
        """What PyTorch's allocators held after each allocation, by device; the one of the CPU reserves nothing."""
        for (kind, number), (times, allocated, reserved, grown, *_) in self._events.memory.items():
            track = self._gpu(number) if kind == "gpu" else self._process(number)
            order = sorted(range(len(times)), key=times.__getitem__)
            at = array("q", (times[i] - self.zero_ns for i in order))
            told = [(TORCH_ALLOCATED, allocated), *([(TORCH_RESERVED, reserved)] if kind == "gpu" else [])]
            columns = [(metric, array("d", map(values.__getitem__, order))) for metric, values in told]
            if all(map(math.isnan, allocated)):
                steps = (0.0 if math.isnan(grown[i]) else grown[i] for i in order)
                columns = [(TORCH_GROWN, array("d", accumulate(steps)))]
            for metric, values in columns:
                yield Series(track, metric, SOURCE, at, values, 0, len(at))

    def _allocations(self) -> Iterator[SpanTable]:
        """What was held, in as far as addresses are told, and when which thread asked for it; nothing of CPUs alone."""
        rows = sorted(self._asked(), key=lambda row: row[0])
        if not rows:
            return
        times, keys, addresses, sizes, places = map(list, zip(*rows, strict=True))
        joins = range(_FIRST_JOIN, _FIRST_JOIN + len(rows))
        events = [
            MemoryEvent(t_ns, key, address, abs(size), 0, size < 0, join)
            for t_ns, key, address, size, join in zip(times, keys, addresses, sizes, joins, strict=True)
        ]
        yield self._held(events)
        starts, names = array("q", times), array("q", (event.is_release for event in events))
        tracks, track_id = indexed(array("q", places), self._track)
        amount = array("d", map(abs, sizes))
        yield SpanTable(SpanKind.ALLOCATOR, _ASKED, tracks, names, track_id, starts, starts, array("q", joins), amount)

    def _asked(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Of each event its time, whose memory it is, its address, its bytes (below 0 given back), and the thread."""
        for (kind, number), (times, _, _, sizes, addresses, places) in self._events.memory.items():
            key = number if kind == "gpu" else ~number
            for t_ns, size, address, place in zip(times, sizes, addresses, places, strict=True):
                if size and not (math.isnan(size) or math.isnan(address)):
                    yield t_ns - self.zero_ns, key, int(address), int(size), place

    def _held(self, events: Sequence[MemoryEvent]) -> SpanTable:
        held, self.odd_releases = allocations(events)
        start, end, name, key, join, sizes = columns_of(held)
        names, name_id = indexed(name, lambda key: f"PyTorch's memory{SUFFIXES[Ends(key)]}")
        tracks, track_id = indexed(key, lambda key: self._gpu(key) if key >= 0 else self._process(~key))
        return SpanTable(SpanKind.ALLOCATION, names, tracks, name_id, track_id, start, end, join, array("d", sizes))

    def _counters(self) -> Iterator[Series]:
        """Numbers that the writer drew over time, whatever they count."""
        for ((kind, number), title), samples in self._events.counters.items():
            track = self._gpu(number) if kind == "gpu" else self._process(number)
            ordered = sorted((start - self.zero_ns, value) for start, value in samples if value is not None)
            yield Series.of(track, Metric(f"counter.{title}", "1", title=title), "counter in the file", [*ordered])


_NOTHING: array[int] = array("q")
NO_KERNELS: Final = KernelTable(
    (), (), _NOTHING, (_NOTHING,) * 3, (_NOTHING,) * 3, _NOTHING, array("d"), _NOTHING, _NOTHING
)
