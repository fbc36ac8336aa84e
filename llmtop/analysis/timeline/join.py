"""Files of several ranks as one trace, on one clock. What no view asks for of it is not read of any of them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import TypeAlias, TypeVar, overload

from llmtop import ids
from llmtop.analysis.timeline.clock_words import clock_text
from llmtop.analysis.timeline.work import gpus_at_work
from llmtop.columns import chained, in_order, lengths, narrow, on_clock, picked, replaced, shifted
from llmtop.lazy import LazyDictionary, LazyMapping, LazySequence, renumbered
from llmtop.model import (
    ClockBasis,
    ClockFit,
    Fact,
    Issue,
    KernelTable,
    Missing,
    Origin,
    RankPart,
    Series,
    SpanKind,
    SpanTable,
    Stack,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    Value,
)
from llmtop.text import listed

_T = TypeVar("_T")
"""The kind whose `correlation` is a row of the kernels."""


def joined(
    traces: Sequence[Trace],
    names: Sequence[str],
    clocks: Sequence[ClockFit | Unknown],
    path: str,
    issues: Sequence[Issue] = (),
) -> Trace:
    """One trace of several timelines.

    Args:
        traces: Of one run; their spans go over into the new trace, and are no longer theirs.
        names: What to call each: "rank 3".
        clocks: Of each how its clock becomes that of the first.
        path: What the whole is called.
        issues: What is wrong with the whole: a rank that is not there.
    """
    placed = _from_zero(traces, [_placed(traces[0], *pair) for pair in zip(traces, clocks, strict=True)])
    told = enumerate(zip(traces, names, placed, strict=True))
    parts = [_Part(trace, name, clock, i, len(traces)) for i, (trace, name, clock) in told]
    spans, kernel_spans, rows = _spans(parts, traces)
    more = _Spans(parts, [trace.more_spans for trace in traces])
    tables = [trace.kernels for trace in traces if trace.kernels is not None]
    return Trace(
        origin=_origin(traces, path, _facts(names, clocks)),
        start_ns=min(part.moment(trace.start_ns) for trace, part in zip(traces, parts, strict=True)),
        end_ns=max(part.moment(trace.end_ns) for trace, part in zip(traces, parts, strict=True)),
        tracks=JoinedTracks(parts),
        series=_series(parts),
        spans=spans,
        more_spans=LazyMapping({}, {kind: partial(more.table, kind) for kind in more.kinds}),
        stacks=LazySequence(partial(_stacks, parts)) if any(part.stacks for part in parts) else (),
        kernels=tables[0] if kernel_spans is None else _kernels(parts, tables, kernel_spans, rows),
        issues=JoinedIssues(parts, issues),
        missing=tuple(_missing(traces, names)),
        parts=tuple(
            RankPart(part.name, trace.origin, part.gpus, clock)
            for part, trace, clock in zip(parts, traces, clocks, strict=True)
        ),
    )


def _placed(first: Trace, trace: Trace, clock: ClockFit | Unknown) -> ClockFit:
    """A file whose clock is not known begins with the first one."""
    if isinstance(clock, ClockFit):
        return clock
    return ClockFit(ClockBasis.FIRST, first.start_ns - trace.start_ns)


def _from_zero(traces: Sequence[Trace], clocks: Sequence[ClockFit]) -> list[ClockFit]:
    """So that no moment of a capture is before 0."""
    earliest = min(trace.start_ns + clock.offset_ns for trace, clock in zip(traces, clocks, strict=True))
    return [replace(clock, offset_ns=clock.offset_ns - min(0, earliest)) for clock in clocks]


class _Part:
    """What one file adds: its tracks, moments and join keys as they are in the whole."""

    def __init__(self, trace: Trace, name: str, clock: ClockFit, place: int, of: int) -> None:
        gpus = gpus_at_work(trace)
        self.name = name
        self.tracks, self.series, self.stacks, self.issues = trace.tracks, trace.series, trace.stacks, trace.issues
        self._clock = clock
        self._only = next(iter(gpus)) if len(gpus) == 1 else ids.NONE
        self._place, self._of = place, of
        self.gpus = tuple(sorted(map(self.track, gpus)))

    def track(self, track: TrackId) -> TrackId:
        """Its id in the whole."""
        return ids.of_rank(track, self.name, is_only_gpu=ids.gpu_of(track) == self._only) if track else track

    def moment(self, t_ns: int) -> int:
        """When something was on the clock of the whole."""
        return self.moments(array("q", [t_ns]))[0]

    def moments(self, column: array[int]) -> array[int]:
        """The same of many."""
        return on_clock(column, self._clock.offset_ns, self._clock.drift, self._clock.since_ns)

    def joins(self, column: array[int]) -> array[int]:
        """Join keys that no other file has; those below 0 stay what they are."""
        highest = (1 << 62) // self._of
        return array("q", (one * self._of + self._place if 0 <= one < highest else min(one, -1) for one in column))

    def whole_track(self, track: Track) -> Track:
        """A track as it is in the whole; processes and threads, which have no GPU above them, with the rank's name."""
        is_named = track.kind in (TrackKind.PROCESS, TrackKind.THREAD)
        name = f"{self.name}: {track.name}" if is_named else track.name
        parent = None if track.parent is None else self.track(track.parent)
        return Track(self.track(track.id), track.kind, name, parent, track.facts)


class JoinedTracks(Mapping[TrackId, Track]):
    """The tracks of all files; those of what is read later join then."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self._known: dict[TrackId, Track] = {}
        self._number: int | None = None

    def _now(self) -> dict[TrackId, Track]:
        number = sum(len(part.tracks) for part in self._parts)
        if number != self._number:
            every = (part.whole_track(track) for part in self._parts for track in [*part.tracks.values()])
            self._known = {track.id: track for track in every}
            self._number = number
        return self._known

    def __getitem__(self, track: TrackId) -> Track:
        return self._now()[track]

    def __iter__(self) -> Iterator[TrackId]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


class JoinedIssues(Sequence[Issue]):
    """What is wrong with any of the files, as far as that is known by now."""

    def __init__(self, parts: Sequence[_Part], of_whole: Sequence[Issue]) -> None:
        self._parts = parts
        self._of_whole = tuple(of_whole)

    def _now(self) -> list[Issue]:
        named = (replace(one, message=f"{part.name}: {one.message}") for part in self._parts for one in part.issues)
        return [*self._of_whole, *named]

    def __len__(self) -> int:
        return len(self._of_whole) + sum(len(part.issues) for part in self._parts)

    @overload
    def __getitem__(self, at: int) -> Issue: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Issue]: ...
    def __getitem__(self, at: int | slice) -> Issue | Sequence[Issue]:
        return self._now()[at]


# -- spans and kernels ------------------------------------------------------------------------------------------------


_Joins: TypeAlias = "Callable[[_Part, array[int]], array[int]]"
"""The join keys of the whole, of those of a file."""


def _stacked(tables: Sequence[tuple[_Part, SpanTable]], joins: _Joins) -> tuple[SpanTable, array[int]]:
    """Spans of one kind of all files by when they began; and which row of all, one after the other, each was."""
    moments = [(part.moments(table.start_ns), part.moments(table.end_ns)) for part, table in tables]
    names, name_ids = _numbered([(table.names, table.name_id) for _, table in tables])
    tracks, track_ids = _numbered([(tuple(map(part.track, table.tracks)), table.track_id) for part, table in tables])
    columns = [
        chained(starts for starts, _ in moments),
        chained(ends for _, ends in moments),
        name_ids,
        track_ids,
        chained(joins(part, table.correlation) for part, table in tables),
        array("q", b"".join(table.amount.tobytes() for _, table in tables)),  # as they are, whatever they mean
    ]
    *ordered, amounts, rows = in_order([*columns, array("q", range(len(columns[0])))])
    starts, ends, name_ids, track_ids, keys = ordered
    amount = array("d", amounts.tobytes())
    notes = renumbered(_notes([table for _, table in tables]), rows)
    return SpanTable(tables[0][1].kind, names, tracks, name_ids, track_ids, starts, ends, keys, amount, notes), rows


def _notes(tables: Sequence[SpanTable]) -> Mapping[int, Mapping[str, Value]]:
    """What is recorded of some spans of all files, one after the other."""
    firsts = list(accumulate(map(len, tables), initial=0))
    noted = [(first, table.notes) for first, table in zip(firsts, tables, strict=False) if table.notes]
    if not noted:
        return {}
    return LazyDictionary(lambda: {first + row: note for first, notes in noted for row, note in notes.items()})


def _numbered(parts: Sequence[tuple[Sequence[_T], array[int]]]) -> tuple[tuple[_T, ...], array[int]]:
    """Columns of numbers that index texts, one after the other, with one number for each text."""
    numbers: dict[_T, int] = {}
    columns = []
    for texts, column in parts:
        own = {i: numbers.setdefault(text, len(numbers)) for i, text in enumerate(texts)}
        columns.append(replaced(column, own) if len(column) else column)
    return tuple(numbers), narrow(chained(columns))


class _Spans:
    """Reads a kind of spans of all files when it is asked for; no file keeps them."""

    def __init__(self, parts: Sequence[_Part], files: Sequence[Mapping[str, SpanTable]]) -> None:
        lazy = (one if isinstance(one, LazyMapping) else LazyMapping(one, {}) for one in files)
        self._files = list(zip(parts, lazy, strict=True))
        self.kinds = tuple(dict.fromkeys(chain.from_iterable(files)))

    def table(self, kind: str) -> SpanTable:
        """The spans of a kind that some file has."""
        return self.with_rows(kind)[0]

    def with_rows(self, kind: str) -> tuple[SpanTable, array[int]]:
        """The same, and which row of those of all files, one after the other, each of them was."""
        return _stacked([(part, file.take(kind)) for part, file in self._files if kind in file], _Part.joins)

    def captured(self, places: array[int], firsts: Mapping[_Part, int]) -> SpanTable:
        """Calls that put kernels into graphs, whose keys are rows of kernels.

        Args:
            places: Where each kernel of all files, one after the other, stands in the whole.
            firsts: Where those of a file begin there.
        """
        tables = [(part, file.take(SpanKind.CAPTURED)) for part, file in self._files if SpanKind.CAPTURED in file]
        return _stacked(tables, lambda part, rows: picked(places, shifted(rows, firsts[part])))[0]


def _spans(
    parts: Sequence[_Part], traces: Sequence[Trace]
) -> tuple[LazyMapping[str, SpanTable], SpanTable | None, array[int]]:
    """The spans of all; those of kernels, and which row each of them was."""
    spans = _Spans(parts, [trace.spans for trace in traces])
    readers = {kind: partial(spans.table, kind) for kind in spans.kinds}
    if SpanKind.KERNEL not in readers:
        return LazyMapping({}, readers), None, array("q")
    sizes = [len(trace.kernels or ()) for trace in traces]
    kernels, rows = spans.with_rows(SpanKind.KERNEL)
    del readers[SpanKind.KERNEL]
    _, places = in_order([rows, array("q", range(len(rows)))])
    if SpanKind.CAPTURED in readers:
        firsts = dict(zip(parts, accumulate(sizes, initial=0), strict=False))
        readers[SpanKind.CAPTURED] = partial(spans.captured, places, firsts)
    return LazyMapping({SpanKind.KERNEL: kernels}, readers), kernels, rows


def _kernels(parts: Sequence[_Part], tables: Sequence[KernelTable], spans: SpanTable, rows: array[int]) -> KernelTable:
    """The kernels of all, in the order of their spans, whose columns they share.

    GPUs are numbered from 0 on, as each file numbers its own.
    """
    functions = {name: of for table in tables for name, of in zip(table.names, table.functions, strict=True)}
    gpus = [sorted(set(table.device)) for table in tables]
    known = [([(part.name, gpu) for gpu in own], own) for part, own in zip(parts, gpus, strict=True)]
    numbers = {key: i for i, key in enumerate(key for keys, _ in known for key in keys)}
    devices = (
        replaced(table.device, {gpu: numbers[key] for key, gpu in zip(*pair, strict=True)})
        if len(table)
        else array("q")
        for table, pair in zip(tables, known, strict=True)
    )

    def taken(columns: Iterable[array[int]]) -> array[int]:
        return picked(narrow(chained(columns)), rows)

    def sizes(of: Callable[[KernelTable], tuple[array[int], ...]]) -> tuple[array[int], array[int], array[int]]:
        x, y, z = (taken(of(table)[axis] for table in tables) for axis in range(3))
        return x, y, z

    is_estimated = all(len(table.estimated_occupancy) == len(table) for table in tables)
    is_sized = all(len(table.registers) == len(table) for table in tables)
    return KernelTable(
        spans.names,
        tuple(functions[name] for name in spans.names),
        spans.name_id,
        sizes(lambda table: table.grid),
        sizes(lambda table: table.block),
        spans.start_ns,
        lengths(spans.start_ns, spans.end_ns),
        taken(devices),
        taken(table.stream for table in tables),
        None,
        taken(table.registers for table in tables) if is_sized else array("q"),
        taken(table.shared_bytes for table in tables) if is_sized else array("q"),
        taken(table.estimated_occupancy for table in tables) if is_estimated else array("q"),
    )


# -- all else ---------------------------------------------------------------------------------------------------------


def _series(parts: Sequence[_Part]) -> LazyMapping[tuple[TrackId, str], Series]:
    readers = {
        (part.track(track), metric): partial(_one_series, part, (track, metric))
        for part in parts
        for track, metric in part.series
    }
    return LazyMapping({}, readers)


def _one_series(part: _Part, key: tuple[TrackId, str]) -> Series:
    own = part.series[key]
    times = part.moments(own.times)
    return Series(part.track(own.track), own.metric, own.source, times, own.values, 0, len(times))


def _stacks(parts: Sequence[_Part]) -> list[Stack]:
    return [replace(stack, track=part.track(stack.track)) for part in parts for stack in part.stacks]


def _missing(traces: Sequence[Trace], names: Sequence[str]) -> Iterator[Missing]:
    """What any of them lacks: once where all do, else with those that do."""
    lacking: dict[Missing, list[str]] = {}
    for trace, name in zip(traces, names, strict=True):
        for one in trace.missing:
            lacking.setdefault(one, []).append(name)
    for one, those in lacking.items():
        why = one.why if len(those) == len(traces) else replace(one.why, reason=f"{listed(those)}: {one.why.reason}")
        yield replace(one, why=why)


def _facts(names: Sequence[str], clocks: Sequence[ClockFit | Unknown]) -> dict[str, Fact]:
    """Which files they are, and how their clocks were brought together."""
    told: dict[str, Fact] = {"ranks": f"{len(names)} files on one clock, that of {names[0]}: {listed(names)}"}
    others = list(zip(names, clocks, strict=True))[1:]
    return told | {f"clock of {name}": clock_text(clock) for name, clock in others}


def _origin(traces: Sequence[Trace], path: str, facts: Mapping[str, Fact]) -> Origin:
    """What all files say alike; the GPUs of all."""
    first = traces[0].origin
    alike = set.intersection(*(set(trace.origin.facts.items()) for trace in traces))
    gpus = Counter[str]()
    for models in (trace.origin.gpu for trace in traces):
        for text in filter(None, models.split(", ")):
            number, is_several, name = text.partition("x ")
            several = is_several and number.isdecimal()
            gpus[name if several else text] += int(number) if several else 1
    return replace(
        first,
        path=path,
        gpu=", ".join(name if number == 1 else f"{number}x {name}" for name, number in gpus.items()),
        facts={**facts, **{key: value for key, value in first.facts.items() if (key, value) in alike}},
        rank=None,
    )
