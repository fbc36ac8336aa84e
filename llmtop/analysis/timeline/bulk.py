"""The idle account of many gaps at once: what `account` does with one, in columns. Loads NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import DRAINING, LAUNCH_GAP_NS, HostThread, Label, Layer
from llmtop.analysis.timeline.sums import (
    INSIDE,
    LATENCY,
    LOST,
    MIGRATION,
    QUEUED,
    START_NS,
    TURNAROUND,
    UNTOUCHED,
    Flags,
    IdleSums,
)
from llmtop.frozen import frozen
from llmtop.model import MIGRATED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from llmtop.analysis.timeline.launches import Host
    from llmtop.analysis.timeline.work import GpuWork

    Column = NDArray[np.int64]
    Which = NDArray[np.bool_]

_PART = 100_000
"""Gaps that are taken apart at once: they come in some four pieces each."""
_DRAINED: tuple[Cause | None, ...] = (None, *sorted(DRAINING))


def add_gaps(sums: IdleSums, work: GpuWork, host: Host, graphs: Mapping[int, int]) -> Sequence[int]:
    """Add the gaps of a GPU; returns those that have to be looked at one by one, by the work that follows.

    Args:
        sums: What they are added to.
        work: Of the GPU.
        host: Who launched it.
        graphs: When the first work of each graph launch began, by its join key.
    """
    starts, reach, joins = (np.asarray(column, np.int64) for column in (work.starts, work.reach, work.joins))
    rows = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    threads = _threads(host)
    left: list[int] = []
    for first in range(0, len(rows), _PART):
        part = rows[first : first + _PART]
        gaps = _Gaps(reach[part - 1], starts[part], *_launches(host, threads, joins[part]))
        is_dark = np.isin(gaps.thread, [i for i, one in enumerate(threads) if one.thread.untraced_ns])
        left += part[is_dark].tolist()
        lit = gaps.only(~is_dark)
        _count(sums, lit)
        inside = _inside(lit, joins[part][~is_dark], joins[part - 1][~is_dark], graphs)
        _add_whole(sums, lit.only(inside), INSIDE)
        lost, moved = ~inside & (lit.thread < 0), joins[part][~is_dark] == MIGRATED
        _add_whole(sums, lit.only(lost & ~moved), LOST)
        _add_whole(sums, lit.only(lost & moved & (lit.length <= LAUNCH_GAP_NS)), MIGRATION)
        _add_whole(sums, lit.only(lost & moved & (lit.length > LAUNCH_GAP_NS)), UNTOUCHED)
        for i, thread in enumerate(threads):
            if (own := ~inside & (lit.thread == i)).any():
                _add_parts(sums, lit.only(own), thread)
    return left


@frozen
class _Gaps:
    """Gaps in columns.

    Attributes:
        since, until: From when to when.
        thread: The number of the one that launched what follows; -1 where that is not known.
        returned, is_graph: When that call returned, and whether it launched a graph.
    """

    since: Column
    until: Column
    thread: Column
    returned: Column
    is_graph: Which

    def only(self, chosen: Which) -> _Gaps:
        since, until, thread, returned = (
            column[chosen] for column in (self.since, self.until, self.thread, self.returned)
        )
        return _Gaps(since, until, thread, returned, self.is_graph[chosen])

    @property
    def length(self) -> Column:
        return self.until - self.since


def _launches(host: Host, threads: Sequence[_ThreadColumns], joins: Column) -> tuple[Column, Column, Which]:
    """By join key: the number of the thread, when the call returned, whether it launched a graph."""
    number = {id(one.thread): i for i, one in enumerate(threads)}
    thread, returned = np.full(len(joins), -1), np.zeros(len(joins), np.int64)
    is_graph = np.zeros(len(joins), bool)
    for calls in host.calls:
        keys, rows = np.asarray(calls.joins, np.int64), np.asarray(calls.rows, np.int64)
        if not len(keys):
            continue
        at = np.minimum(np.searchsorted(keys, joins), len(keys) - 1)
        found = np.flatnonzero((keys[at] == joins) & (joins >= 0) & (thread < 0))
        row, spans = rows[at[found]], calls.spans
        thread[found] = np.array([number[id(one)] for one in calls.by_track])[np.asarray(spans.track_id)[row]]
        returned[found] = np.asarray(spans.end_ns)[row]
        is_graph[found] = np.array(calls.are_graphs)[np.asarray(spans.name_id)[row]]
    return thread, returned, is_graph


def _inside(gaps: _Gaps, joins: Column, before: Column, graphs: Mapping[int, int]) -> Which:
    """Whether each gap lies within a graph that has begun."""
    inside: Which = (gaps.thread < 0) & (joins >= 0) & (joins == before)
    if graphs:
        keys = np.array(sorted(graphs))
        began = np.array([graphs[key] for key in keys.tolist()])
        at = np.minimum(np.searchsorted(keys, joins), len(keys) - 1)
        inside |= (gaps.thread >= 0) & (keys[at] == joins) & (began[at] < gaps.until)
    return inside


def _count(sums: IdleSums, gaps: _Gaps) -> None:
    """Count gaps as wholes."""
    sums.between_ns += int(gaps.length.sum())
    short = gaps.only(gaps.length <= LAUNCH_GAP_NS)
    joined = short.only(short.thread >= 0)
    sums.short += len(short.since)
    sums.short_ns += int(short.length.sum())
    sums.joined_ns += int(joined.length.sum())
    sums.late_ns += int(joined.length[joined.returned > joined.since].sum())


def _add_whole(sums: IdleSums, gaps: _Gaps, label: Label) -> None:
    """Add gaps that have one cause."""
    if sums.recorder is not None:
        numbers = np.full(len(gaps.since), sums.recorder.number(label), np.int32)
        sums.recorder.add_columns(gaps.since.tobytes(), gaps.until.tobytes(), numbers.tobytes())
    for is_short in (False, True):
        lengths = gaps.length[(gaps.length <= LAUNCH_GAP_NS) == is_short]
        if len(lengths):
            sums.by_flags[Flags(None, is_short)][label].add_gaps(int(lengths.sum()), len(lengths), int(lengths.max()))


class _SpanColumns:
    """A layer in NumPy's columns, its labels as numbers."""

    def __init__(self, layer: Layer, numbers: dict[Label, int]) -> None:
        self.starts, self.ends = np.asarray(layer.starts, np.int64), np.asarray(layer.ends, np.int64)
        by_id = dict(zip(map(id, layer.labels), layer.labels, strict=True))
        number_by_id = {key: numbers.setdefault(label, len(numbers)) for key, label in by_id.items()}
        self.labels = np.fromiter(map(number_by_id.__getitem__, map(id, layer.labels)), np.int64, len(layer))

    def cut(self, free: _Pieces) -> tuple[_Pieces, _Pieces]:
        """What lies in the free stretches, and what remains free."""
        first = np.searchsorted(self.ends, free.starts, "right")
        counts = np.maximum(np.searchsorted(self.starts, free.ends, "left") - first, 0)
        of, spans = _expanded(first, counts)
        starts, ends = (np.maximum(self.starts[spans], free.starts[of]), np.minimum(self.ends[spans], free.ends[of]))
        found = _Pieces(self.labels[spans], starts, ends, free.gaps[of])
        # Before, between and after them: as many stretches as there are spans, and one more for each free stretch.
        places = np.arange(len(of)) + of
        edges = np.cumsum(counts + 1) - 1
        since, until = np.empty(len(of) + len(counts), np.int64), np.empty(len(of) + len(counts), np.int64)
        since[places + 1], until[places] = ends, starts
        since[edges - counts], until[edges] = free.starts, free.ends
        gaps = np.repeat(free.gaps, counts + 1)
        return found.filled(), _Pieces(np.full(len(since), -1), since, until, gaps).filled()

    def at(self, moments: Column) -> Column:
        """The label of what spans each moment, its end included and its start not; -1 of none."""
        return self._label(np.searchsorted(self.starts, moments, "left") - 1, moments)

    def open_at(self, moments: Column) -> Column:
        """The same with the start included and the end not."""
        return self._label(np.searchsorted(self.starts, moments, "right") - 1, moments + 1)

    def _label(self, rows: Column, until: Column) -> Column:
        if not len(self.starts):
            return np.full(len(rows), -1)
        return np.where((rows >= 0) & (self.ends[rows] >= until), self.labels[rows], -1)


def _expanded(first: Column, counts: Column) -> tuple[Column, Column]:
    """Of stretches of `counts` rows from `first` on: of which stretch each row is, and which row."""
    of = np.repeat(np.arange(len(counts)), counts)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of]


@frozen
class _Pieces:
    """Pieces of gaps in columns: labels by number, from when to when, of which gap."""

    labels: Column
    starts: Column
    ends: Column
    gaps: Column

    def only(self, chosen: Which) -> _Pieces:
        return _Pieces(self.labels[chosen], self.starts[chosen], self.ends[chosen], self.gaps[chosen])

    def filled(self) -> _Pieces:
        """Those that last."""
        return self.only(self.ends > self.starts)


@dataclass(slots=True)
class _ThreadColumns:
    """A thread's layers in columns; `numbers` has all labels that its time may get."""

    thread: HostThread
    numbers: dict[Label, int]
    waits: _SpanColumns | None
    layers: list[_SpanColumns]
    ranges: _SpanColumns | None
    code: _SpanColumns | None
    sampled: Column

    def pieces(self, gaps: _Gaps, asked: Column) -> Iterator[_Pieces]:
        """What it did from when the gaps began until their work had been asked for."""
        asks = np.flatnonzero(asked > gaps.since)
        free = _Pieces(np.full(len(asks), -1), gaps.since[asks], asked[asks], asks)
        for layer in (*self.layers, *([self.code] if self.code is not None else [])):
            found, free = layer.cut(free)
            yield found
        outside = self.numbers.setdefault(self.thread.outside, len(self.numbers))
        yield _Pieces(np.full(len(free.gaps), outside), free.starts, free.ends, free.gaps)

    def drained(self, gaps: _Gaps, asked: Column) -> Column:
        """The place in `_DRAINED` of the call under which the GPU had run dry."""
        if self.waits is None:
            return np.zeros(len(asked), np.int64)
        causes = [_DRAINED.index(cause) if cause in DRAINING else 0 for cause, _ in self.numbers]
        labels = self.waits.at(gaps.since)
        return np.where((asked > gaps.since) & (labels >= 0), np.array([*causes, 0])[labels], 0)

    def functions(self, pieces: _Pieces) -> Iterator[tuple[int, Sequence[str]]]:
        """Which of the pieces were sampled, and where the thread stood."""
        first = np.searchsorted(self.sampled, pieces.starts, "left")
        last = np.searchsorted(self.sampled, pieces.ends, "right")
        for i in np.flatnonzero(last > first).tolist():
            yield i, self.thread.functions[first[i] : last[i]]


def _threads(host: Host) -> list[_ThreadColumns]:
    """All threads that launch, in columns."""
    return [_in_columns(thread) for thread in {id(one): one for calls in host.calls for one in calls.by_track}.values()]


def _in_columns(thread: HostThread) -> _ThreadColumns:
    numbers: dict[Label, int] = {}
    layers = [_SpanColumns(layer, numbers) for layer in thread.layers]
    waits, ranges, code = (
        None if one is None else _SpanColumns(one, numbers) for one in (thread.waits, thread.ranges, thread.code)
    )
    return _ThreadColumns(thread, numbers, waits, layers, ranges, code, np.asarray(thread.sampled_ns, np.int64))


def _add_parts(sums: IdleSums, gaps: _Gaps, thread: _ThreadColumns) -> None:
    """Split gaps at the moments their works had been asked for, and the time before by what the thread did."""
    asked = np.minimum(np.maximum(gaps.returned, gaps.since), gaps.until)
    flags = (thread.drained(gaps, asked) * 2 + (gaps.length <= LAUNCH_GAP_NS)) * 2 + gaps.is_graph
    told = _together([*thread.pieces(gaps, asked)])
    pieces = _together([told, _waiting(gaps, asked, thread.numbers)])
    labels = list(thread.numbers)
    if sums.recorder is not None:
        numbers = np.array([sums.recorder.number(label) for label in labels])[pieces.labels]
        order = np.argsort(pieces.starts)
        in_order = pieces.starts[order], pieces.ends[order], numbers[order].astype(np.int32)
        sums.recorder.add_columns(*(column.tobytes() for column in in_order))
    places = [(_flags(code), label) for code in range(4 * len(_DRAINED)) for label in labels]
    keys = flags[pieces.gaps] * len(labels) + pieces.labels
    in_gap, ns, _, _ = _summed(keys * len(asked) + pieces.gaps, pieces.ends - pieces.starts)
    for key, total, count, longest in _rows(_summed(in_gap // len(asked), ns)):
        common, label = places[key]
        sums.by_flags[common][label].add_gaps(total, count, longest)
    _add_details(sums, thread, told, places, keys[: len(told.gaps)])


def _add_details(
    sums: IdleSums, thread: _ThreadColumns, told: _Pieces, places: Sequence[tuple[Flags, Label]], keys: Column
) -> None:
    """Add where own code stood, and within which ranges calls were made."""
    labels = list(thread.numbers)
    is_own = np.array([cause is Cause.OWN_CODE for cause, _ in labels])[told.labels]
    own_keys = keys[is_own]
    for i, functions in thread.functions(told.only(is_own)):
        common, label = places[own_keys[i]]
        sums.by_flags[common][label].functions.update(functions)
    if thread.ranges is None:
        return
    calls = told.only(~is_own)
    ranges = thread.ranges.open_at(calls.starts)
    in_one = ranges >= 0
    both = keys[~is_own][in_one] * len(labels) + ranges[in_one]
    for key, total, _, _ in _rows(_summed(both, (calls.ends - calls.starts)[in_one])):
        common, label = places[key // len(labels)]
        if name := labels[key % len(labels)][1]:
            sums.by_flags[common][label].ranges[name] += total


def _flags(code: int) -> Flags:
    return Flags(_DRAINED[code >> 2], bool(code & 2), bool(code & 1))


def _waiting(gaps: _Gaps, asked: Column, numbers: dict[Label, int]) -> _Pieces:
    """The rest of gaps whose work had been asked for: see `sums.waiting`."""
    queued, turnaround, latency = (numbers.setdefault(label, len(numbers)) for label in (QUEUED, TURNAROUND, LATENCY))
    soon = np.where(asked == gaps.since, turnaround, latency)
    labels = np.where(gaps.until - asked > START_NS, queued, soon)
    return _Pieces(labels, asked, gaps.until, np.arange(len(asked))).filled()


def _together(parts: Sequence[_Pieces]) -> _Pieces:
    columns = zip(*((part.labels, part.starts, part.ends, part.gaps) for part in parts), strict=True)
    return _Pieces(*map(np.concatenate, columns))


def _summed(keys: Column, values: Column) -> tuple[Column, Column, Column, Column]:
    """By key, rising: its sum, how many values it has, and the highest."""
    if not len(keys):
        return keys, values, keys, values
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    begins = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
    counts = np.diff(np.append(begins, len(keys)))
    return keys[begins], np.add.reduceat(values, begins), counts, np.maximum.reduceat(values, begins)


def _rows(columns: Sequence[Column]) -> Iterator[tuple[int, ...]]:
    """Rows of plain integers."""
    return zip(*(column.tolist() for column in columns), strict=True)
