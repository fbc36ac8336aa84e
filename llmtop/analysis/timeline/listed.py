"""CUDA calls, copies, OS calls and allocations of a timeline by name: how many, how long, how large, at what cost."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.steps import find_steps
from llmtop.analysis.timeline.work import work_by_gpu
from llmtop.columns import alike, chained, differences, limited, picked, rows_by_key, spread
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, NS_PER_S, SpanKind, Unknown

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace


class Listed(StrEnum):
    """What stands in one table."""

    API = "api"
    COPY = "copy"
    OS = "os"
    ALLOCATION = "allocation"


@frozen
class Statistics:
    """Of all numbers with one name, in ns or bytes; `deviation` is that of a sample, None of a single one."""

    count: int
    total: int
    mean: float
    median: float
    least: int
    most: int
    deviation: float | None

    @classmethod
    def of(cls, values: array[int]) -> Statistics:
        """Of one number at least."""
        total = sum(values)
        middle, deviation = spread(values)
        return cls(len(values), total, total / len(values), middle, min(values), max(values), deviation)


@frozen
class ListedRow:
    """All calls, copies or allocations of one name.

    Attributes:
        kind: The kind of span that most are of: "call" also of launches.
        times: How long they last; of an allocation how long it was held.
        sizes: Bytes of those that say; None where none does.
        threads: How many threads or streams they are on.
        wall: Share of the capture's time of these threads, 0 to 1; None of what is on no thread.
        launched: Of calls, how many gave a GPU work that is in the capture. None of all else, as in what follows.
        idle_ns: Of calls, how long any of them lasted while no GPU had work, within the capture.
        small: Of copies, how many have less than `SMALL` bytes.
        in_steps: Of allocations and the calls that make them, how many begin in a step that is not the first.
        held: Of copies of pageable memory, how many asynchronous calls returned only when their copy had ended.
    """

    kind: str
    name: str
    times: Statistics
    sizes: Statistics | None = None
    threads: int = 1
    wall: float | None = None
    launched: int | Unknown | None = None
    idle_ns: int | Unknown | None = None
    small: int | None = None
    held: int | Unknown | None = None
    in_steps: int | Unknown | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes over the time, of what moves them."""
        if self.sizes is None or not self.times.total or self.kind == SpanKind.ALLOCATION:
            return None
        return self.sizes.total * NS_PER_S / self.times.total


SMALL = 64 << 10
"""Bytes below which a copy's time is mostly that of asking for it (CUDA C++ Programming Guide: a host-to-device copy of
64 KB or less is sent along with its command)."""
_KINDS: Mapping[Listed, Sequence[str]] = {
    Listed.API: (SpanKind.LAUNCH, SpanKind.CALL, SpanKind.BRIEF_CALL),
    Listed.COPY: (SpanKind.MEMCPY, SpanKind.MEMSET),
    Listed.OS: (SpanKind.OS, SpanKind.OTHER_OS),
    Listed.ALLOCATION: (SpanKind.ALLOCATION, SpanKind.CALL, SpanKind.BRIEF_CALL),
}
_ABSENT: Mapping[Listed, Unknown] = {
    Listed.API: Unknown("the capture has no CUDA calls", "add --trace=cuda"),
    Listed.COPY: Unknown("the capture has no copies and no fills"),
    Listed.OS: Unknown("the capture has no calls of the operating system", "add --trace=osrt"),
    Listed.ALLOCATION: Unknown(
        "the capture tells of no memory that was got or given back",
        "nsys: --cuda-memory-usage=true; PyTorch: profile_memory=True",
    ),
}
_NO_WORK = Unknown("the capture has no work of any GPU", "add --trace=cuda")
_NOT_ASKING = Unknown("only threads that never call CUDA made it: no GPU waits for them by itself")
_NO_CALLS = Unknown("the capture has no CUDA calls that could have asked for it", "add --trace=cuda")
_MOST = (1 << 63) - 1
"""Above what any size is; a damaged file may say so all the same."""
_NO_TIMES = array("q"), array("q")
_ALLOCATING = (
    "Malloc", "MemAlloc", "Free", "MemCreate", "MemRelease", "MemMap", "MemUnmap", "HostAlloc", "HostRegister",
    "HostUnregister", "MemPool", "MemAddress",
)  # fmt: skip
"""Parts of the names of calls of CUDA and HIP that get memory or give it back."""


def listed(trace: Trace, what: Listed) -> tuple[ListedRow, ...] | Unknown:
    """The rows, those with the most time first, or why there are none."""
    of = _Of(trace)
    rows = sorted(_MAKERS[what](of), key=lambda row: -row.times.total)
    return tuple(rows) or _ABSENT[what]


def has_listed(trace: Trace, what: Listed) -> bool:
    """Whether there may be rows, without reading what is read late."""
    if what is Listed.ALLOCATION and SpanKind.ALLOCATION not in trace.spans:
        return any(map(_allocates, trace.spans[SpanKind.CALL].names if SpanKind.CALL in trace.spans else ()))
    return any(kind in spans for kind in _KINDS[what] for spans in (trace.spans, trace.more_spans))


def _allocates(name: str) -> bool:
    return any(part in name for part in _ALLOCATING)


@frozen
class _Alike:
    """Spans of one name, in columns: start, end, track, join."""

    kind: str
    name: str
    starts: array[int]
    ends: array[int]
    tracks: frozenset[str]
    joins: array[int]
    sizes: array[int]

    @property
    def lengths(self) -> array[int]:
        return differences(self.ends, self.starts)


class _Of:
    """A trace as rows are made of it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def groups(self, *kinds: str) -> Iterator[_Alike]:
        """The spans of these kinds by name; those of several kinds with one name together."""
        found: dict[str, list[_Alike]] = {}
        for spans in self.tables(*kinds):
            for rows in alike([spans.name_id]) if len(spans) else ():
                group = _group(spans, rows)
                found.setdefault(group.name, []).append(group)
        return map(_joined, found.values())

    def tables(self, *kinds: str) -> Iterator[SpanTable]:
        for kind in kinds:
            for spans in (self.trace.spans, self.trace.more_spans):
                if kind in spans:
                    yield spans[kind]

    def wall(self, group: _Alike) -> float | None:
        """What share of the capture's time their threads spend in them."""
        start, end = self.trace.start_ns, self.trace.end_ns
        within = sum(limited(group.ends, start, end)) - sum(limited(group.starts, start, end))
        length = (end - start) * len(group.tracks)
        return within / length if length > 0 else None


def _group(spans: SpanTable, rows: array[int]) -> _Alike:
    tracks = {spans.tracks[i] for i in set(picked(spans.track_id, rows))}
    joins = picked(spans.correlation, rows)
    starts, ends = (picked(column, rows) for column in (spans.start_ns, spans.end_ns))
    return _Alike(
        spans.kind, spans.names[spans.name_id[rows[0]]], starts, ends, frozenset(tracks), joins, _sizes_of(spans, rows)
    )


def _sizes_of(spans: SpanTable, rows: array[int]) -> array[int]:
    """Bytes of those that say; nothing of kinds that have none."""
    if spans.kind not in (SpanKind.MEMCPY, SpanKind.MEMSET, SpanKind.ALLOCATION):
        return array("q")
    amounts = (spans.amount[row] for row in rows)
    return array("q", (min(int(size), _MOST) for size in amounts if size == size))


def _joined(groups: Sequence[_Alike]) -> _Alike:
    first = groups[0]
    if len(groups) == 1:
        return first
    columns = [(one.starts, one.ends, one.joins, one.sizes) for one in groups]
    starts, ends, joins, sizes = (array("q", chain.from_iterable(parts)) for parts in zip(*columns, strict=True))
    tracks = frozenset(track for one in groups for track in one.tracks)
    return _Alike(first.kind, first.name, starts, ends, tracks, joins, sizes)


def _api(of: _Of) -> Iterator[ListedRow]:
    worked, idle = _joins(of.tables(*GPU_WORK)), _idle(of.trace)
    for group in of.groups(*_KINDS[Listed.API]):
        yield _call(of, group, worked, idle)


def _call(of: _Of, group: _Alike, worked: array[int], idle: Cover | Unknown) -> ListedRow:
    launched = sum(row >= 0 for row in rows_by_key(worked, group.joins)) if worked else _NO_WORK
    return ListedRow(
        SpanKind.CALL, group.name, Statistics.of(group.lengths), None, len(group.tracks), of.wall(group),
        launched=launched, idle_ns=_idle_in(group, idle),
    )  # fmt: skip


def _os(of: _Of) -> Iterator[ListedRow]:
    idle = _idle(of.trace)
    asking = {group.name: group for group in of.groups(SpanKind.OS)}
    for group in of.groups(*_KINDS[Listed.OS]):
        own = asking.get(group.name)
        yield ListedRow(
            SpanKind.OS, group.name, Statistics.of(group.lengths), None, len(group.tracks), of.wall(group),
            idle_ns=_NOT_ASKING if own is None else _idle_in(own, idle),
        )  # fmt: skip


def _copies(of: _Of) -> Iterator[ListedRow]:
    calls = _Calls.of(of.tables(*_KINDS[Listed.API]))
    for group in of.groups(*_KINDS[Listed.COPY]):
        yield ListedRow(
            group.kind, group.name, Statistics.of(group.lengths), _sizes(group), len(group.tracks),
            small=sum(size < SMALL for size in group.sizes) if group.sizes else None,
            held=calls.held(group) if "pageable" in group.name else None,
        )  # fmt: skip


def _allocations(of: _Of) -> Iterator[ListedRow]:
    steps = _later_steps(of.trace)
    for group in of.groups(SpanKind.ALLOCATION):
        times, sizes, got = Statistics.of(group.lengths), _sizes(group), _begun_in(group, steps)
        yield ListedRow(group.kind, group.name, times, sizes, len(group.tracks), in_steps=got)
    idle = _idle(of.trace)
    for group in of.groups(SpanKind.CALL, SpanKind.BRIEF_CALL):
        if _allocates(group.name):
            row = _call(of, group, array("q"), idle)
            yield replace(row, launched=None, in_steps=_begun_in(group, steps))


def _later_steps(trace: Trace) -> Cover | Unknown:
    """When the program was in a step, the first one left out: that may get what the others use."""
    steps = find_steps(trace)
    if isinstance(steps, Unknown):
        return steps
    later = sorted((one.cpu_start_ns, one.cpu_end_ns) for one in steps.windows)[1:]
    return Cover.of(*(array("q", column) for column in zip(*later, strict=True))) if later else Cover.of(*_NO_TIMES)


def _begun_in(group: _Alike, steps: Cover | Unknown) -> int | Unknown:
    if isinstance(steps, Unknown):
        return steps
    return sum(steps.within(start, start + 1) for start in group.starts)


def _sizes(group: _Alike) -> Statistics | None:
    return Statistics.of(group.sizes) if group.sizes else None


def _joins(tables: Iterable[SpanTable]) -> array[int]:
    return chained(spans.correlation for spans in tables)


def _idle(trace: Trace) -> Cover | Unknown:
    """When no GPU had work, between the capture's beginning and its end."""
    works = work_by_gpu(trace).values()
    if not works:
        return _NO_WORK
    busy = Cover.union(Cover.of(array("q", work.starts), array("q", work.ends)) for work in works)
    since = array("q", [trace.start_ns, *busy.closes])
    until = array("q", [*busy.begins, trace.end_ns])
    return Cover.of(*(limited(column, trace.start_ns, trace.end_ns) for column in (since, until)))


def _idle_in(group: _Alike, idle: Cover | Unknown) -> int | Unknown:
    return idle if isinstance(idle, Unknown) else Cover.of(group.starts, group.ends).overlap(idle)


@frozen
class _Calls:
    """The calls that can have asked for copies: their join keys, ends, and whether they are asynchronous by name."""

    joins: array[int]
    ends: array[int]
    are_async: array[int]

    @classmethod
    def of(cls, tables: Iterable[SpanTable]) -> _Calls:
        calls, are_async = list(tables), array("b")
        for spans in calls:
            by_name = ["Async" in name for name in spans.names]
            are_async.extend(map(by_name.__getitem__, spans.name_id))
        return cls(_joins(calls), chained(spans.end_ns for spans in calls), are_async)

    def held(self, group: _Alike) -> int | Unknown:
        """How many of these copies kept the asynchronous call that asked for them until they had ended."""
        if not self.joins:
            return _NO_CALLS
        rows = rows_by_key(self.joins, group.joins)
        pairs = zip(rows, group.ends, strict=True)
        return sum(row >= 0 and bool(self.are_async[row]) and self.ends[row] >= end for row, end in pairs)


_MAKERS: Mapping[Listed, Callable[[_Of], Iterator[ListedRow]]] = {
    Listed.API: _api,
    Listed.COPY: _copies,
    Listed.OS: _os,
    Listed.ALLOCATION: _allocations,
}
