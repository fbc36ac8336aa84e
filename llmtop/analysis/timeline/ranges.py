"""Ranges of a timeline as stretches of time on its CPU and its GPUs together.

A thread runs ahead of its GPUs: what it asks for in a range may run long after it. So a range lasts from the moment at
which all that had been asked for before it is done until all that was asked for by its end is: `done_by` of its two
ends. Ranges that follow each other then share no time, those within another lie within it, and where the GPU waits for
the thread it is the range itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress, count
from operator import and_, xor
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.timeline.claims import Claim, Claims
from llmtop.columns import differences, first_rows, in_order, reaches, rows_by_key
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, GPU_WORK, SpanKind
from llmtop.text import range_name

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

"""Kinds of spans that ask for GPU work."""


@frozen
class Demand:
    """What some threads asked their GPUs for, in columns by when they did.

    Attributes:
        gpus: Those that they gave work to.
        asked: When the call began that asked for each work.
        done: When all that had been asked for up to and including it had ended.
        kernels, copied: How many kernels, and bytes of copies, those before it are; one more than works.
        gpu_ns, calls: Likewise the time of these works, and how many calls asked for them.
        launches: When their launch calls began.
    """

    gpus: tuple[TrackId, ...]
    asked: array[int]
    done: array[int]
    kernels: array[int]
    copied: array[int]
    gpu_ns: array[int]
    calls: array[int]
    launches: array[int]

    def done_by(self, t_ns: int) -> int:
        """When all was done that had been asked for before this moment; the moment itself where it was by then."""
        i = bisect_left(self.asked, t_ns)
        return max(t_ns, self.done[i - 1]) if i else t_ns

    def within(self, start: int, end: int) -> tuple[int, int, int]:
        """Kernels and bytes of copies that were asked for from one moment until before another, and launch calls."""
        first, last = bisect_left(self.asked, start), bisect_left(self.asked, end)
        launches = bisect_left(self.launches, end) - bisect_left(self.launches, start)
        return self.kernels[last] - self.kernels[first], self.copied[last] - self.copied[first], launches

    def work_within(self, start: int, end: int) -> tuple[int, int]:
        """The time of all works that were asked for then, in ns, and how many calls asked for them."""
        first, last = bisect_left(self.asked, start), bisect_left(self.asked, end)
        return self.gpu_ns[last] - self.gpu_ns[first], self.calls[last] - self.calls[first]


@frozen
class TimeWindow:
    """A stretch of time that belongs to a range or a step.

    Attributes:
        name: The range's, in full.
        thread: Whose range it is; of work that nobody marked the stream.
        gpus: Whose time it is.
        start_ns, end_ns: On CPU and GPU together, as the module says.
        cpu_start_ns, cpu_end_ns: Of the range itself; equal to the others where the CPU tells nothing.
        kernels, copied, launches: Asked for in it: kernels, bytes of copies, launch calls; None where the capture
            has no calls to tell.
    """

    name: str
    thread: TrackId
    gpus: tuple[TrackId, ...]
    start_ns: int
    end_ns: int
    cpu_start_ns: int
    cpu_end_ns: int
    kernels: int | None
    copied: int | None
    launches: int | None

    @property
    def wall_ns(self) -> int:
        """How long it lasted."""
        return self.end_ns - self.start_ns


class _Asked:
    """The works of one kind that some calls of one kind asked for, in columns.

    Attributes:
        works, calls: The two kinds.
        rows, by: Of each work its row, and that of its call.
        gpus: On which each is, by their number.
    """

    def __init__(self, works: SpanTable, calls: SpanTable, left: bytearray, gpus: Sequence[TrackId]) -> None:
        """`left` has a 1 for each work that no other call asked for; those of these calls are crossed out."""
        found = rows_by_key(calls.correlation, works.correlation)
        chosen = bytes(map(and_, map((-1).__lt__, found), left))
        left[:] = bytearray(map(xor, left, chosen))
        numbers = [gpus.index(ids.gpu_of(track)) for track in works.tracks]
        self.works, self.calls = works, calls
        self.rows, self.by = array("q", compress(count(), chosen)), array("q", compress(found, chosen))
        self.gpus = array("q", map(numbers.__getitem__, compress(works.track_id, chosen)))


def asking_threads(trace: Trace) -> tuple[TrackId, ...]:
    """The threads that make calls which ask for GPU work."""
    calls = (trace.spans[kind] for kind in API_CALLS if kind in trace.spans)
    return tuple(dict.fromkeys(track for table in calls for track in table.tracks))


class Demands:
    """Who asked for what in a trace: all work whose call is in it, in columns by when that call began.

    Attributes:
        threads: Those that make such calls.
        disputed: How many calls could lie in ranges of several threads, none of which works for another.
    """

    def __init__(self, trace: Trace) -> None:
        calls = [trace.spans[kind] for kind in API_CALLS if kind in trace.spans]
        works = [trace.spans[kind] for kind in GPU_WORK if kind in trace.spans]
        self.threads = asking_threads(trace)
        self._gpus = tuple(dict.fromkeys(ids.gpu_of(track) for table in works for track in table.tracks))
        self._streams = tuple(dict.fromkeys(track for table in works for track in table.tracks))
        self._asks = list(self._joined(works, calls))
        given = {table.kind: array("q", [-1]) * len(table) for table in calls}
        for one in self._asks:
            for row, gpu in zip(one.by, one.gpus, strict=True):
                given[one.calls.kind][row] = gpu
            del one.gpus
        self._fed = self._feeding(calls, given)
        self.claims, self.disputed = Claims(trace.spans.get(SpanKind.NVTX), self._fed), 0
        self._numbers: dict[Claim, int] = {}
        self._claimed = {table.kind: self._claims_of(table, given[table.kind]) for table in calls}
        columns = [array("q") for _ in range(5)]
        for one in self._asks:
            self._add(columns, one, given[one.calls.kind])
        self._asked, self._claim, self._ended, self._bytes, self._ns = in_order(columns)
        self._launches = [
            (table.start_ns, self._claimed[table.kind]) for table in calls if table.kind == SpanKind.LAUNCH
        ]
        self._made: dict[TrackId, Demand] = {}

    def _joined(self, works: Iterable[SpanTable], calls: Sequence[SpanTable]) -> Iterator[_Asked]:
        for table in works:
            left = bytearray(b"\1") * len(table)
            for asking in calls:
                yield _Asked(table, asking, left, self._gpus)

    def _feeding(
        self, calls: Iterable[SpanTable], given: Mapping[str, array[int]]
    ) -> Mapping[TrackId, Collection[TrackId]]:
        """The GPUs that each thread gave work to."""
        fed: dict[TrackId, set[TrackId]] = defaultdict(set)
        for table in calls:
            for track, gpu in set(zip(table.track_id, given[table.kind], strict=True)):
                if gpu >= 0:
                    fed[table.tracks[track]].add(self._gpus[gpu])
        return fed

    def _claims_of(self, calls: SpanTable, given: array[int]) -> array[int]:
        """Of each call the number of its claim; of a thread that works for no other all have the same."""
        gpus: list[TrackId | None] = [*self._gpus, None]
        alone: dict[tuple[int, int], int] = {}
        for track, gpu in set(zip(calls.track_id, given, strict=True)):
            if not self.claims.around(calls.tracks[track], gpus[gpu]):
                alone[track, gpu] = self._number((calls.tracks[track],))
        found = array("q")
        for track, gpu, start in zip(calls.track_id, given, calls.start_ns, strict=True):
            number = alone.get((track, gpu))
            if number is None:
                claim, is_disputed = self.claims.of(calls.tracks[track], gpus[gpu], start)
                self.disputed += is_disputed
                number = self._number(claim)
            found.append(number)
        return found

    def _number(self, claim: Claim) -> int:
        return self._numbers.setdefault(claim, len(self._numbers))

    def _add(self, columns: Sequence[array[int]], asked: _Asked, given: array[int]) -> None:
        """Add works; whole columns at a time, as there are millions. Of each call the first one is told apart.

        In the last two bits of the claim's number stand whether it is a kernel, and whether the first of its call.
        """
        works, calls = asked.works, asked.calls
        is_kernel, (_, moved) = works.kind == SpanKind.KERNEL, _kernels_and_bytes(works)
        firsts = bytearray(len(works))
        for call, row in zip(asked.by, asked.rows, strict=True):
            if given[call] >= 0:
                given[call], firsts[row] = -1, 1
        made = (
            map(calls.start_ns.__getitem__, asked.by),
            (
                self._claimed[calls.kind][call] << 2 | is_kernel << 1 | firsts[row]
                for row, call in zip(asked.rows, asked.by, strict=True)
            ),
            map(works.end_ns.__getitem__, asked.rows),
            map(moved.__getitem__, asked.rows),
            map(differences(works.end_ns, works.start_ns).__getitem__, asked.rows),
        )
        for column, values in zip(columns, made, strict=True):
            column.extend(values)

    def ranges_around(self, kind: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Of the works of a kind that lie in any range: the row, and the rows of its ranges, the outermost first."""
        names, marked = tuple(self._numbers), self.claims.marked
        threads = [[marked[one] for one in claim if one in marked] for claim in names]
        for asked in self._asks:
            if asked.works.kind == kind:
                claimed, starts = self._claimed[asked.calls.kind], asked.calls.start_ns
                for row, call in zip(asked.rows, asked.by, strict=True):
                    around = [i for one in threads[claimed[call]] for i in one.at(starts[call])]
                    if around:
                        yield row, tuple(around)

    def of(self, thread: TrackId) -> Demand:
        """What a thread asked for, and those that work for it (`claims`)."""
        if thread not in self._made:
            self._made[thread] = self._of(thread)
        return self._made[thread]

    def _of(self, thread: TrackId) -> Demand:
        numbers = {number for claim, number in self._numbers.items() if thread in claim}
        packed, *columns = self._columns_of(numbers)
        asked, ended, moved, ns = columns
        launches = sorted(
            chain.from_iterable(compress(starts, map(numbers.__contains__, own)) for starts, own in self._launches)
        )
        kernels, firsts = array("i", (one >> 1 & 1 for one in packed)), array("i", (one & 1 for one in packed))
        sums = _sums(kernels), _sums(moved), _sums(ns), _sums(firsts)
        return Demand(self._gpus_for(thread), asked, reaches(ended), *sums, array("q", launches))

    def _columns_of(self, numbers: Collection[int]) -> Sequence[array[int]]:
        """The packed claims of the works with these, and all else of them; as they are where that is all works."""
        columns = (self._claim, self._asked, self._ended, self._bytes, self._ns)
        if len(numbers) == len(self._numbers):
            return columns
        chosen = bytes((one >> 2) in numbers for one in self._claim)
        return [array("q", compress(column, chosen)) for column in columns]

    def _gpus_for(self, thread: TrackId) -> tuple[TrackId, ...]:
        """The GPUs that a thread gave work to; else those that work for it, else those of its process."""
        helping = (self._fed.get(claim[-1], ()) for claim in self._numbers if thread in claim)
        fed = {*self._fed.get(thread, ())} or {*chain.from_iterable(helping)}
        return tuple(gpu for gpu in self._gpus if gpu in fed) or self._gpus_of_process(ids.process_of(thread))

    def _gpus_of_process(self, process: TrackId) -> tuple[TrackId, ...]:
        """The GPUs that a process had work on, whoever asked for it; all GPUs where nothing tells."""
        own = (ids.gpu_of(track) for track in self._streams if ids.process_of(track) == process)
        return tuple(dict.fromkeys(own)) or self._gpus


def begun_on(trace: Trace, owner: TrackId) -> Demand:
    """The works of a GPU, or of a stream, by when they began on it, as if they had been asked for then.

    A launch counts where its first work began.
    """
    columns = [array("q") for _ in range(5)]
    for table in (trace.spans[kind] for kind in GPU_WORK if kind in trace.spans):
        is_of_it = [owner in (track, ids.gpu_of(track)) for track in table.tracks]
        chosen = bytes(map(is_of_it.__getitem__, table.track_id))
        parts = (table.start_ns, table.end_ns, *_kernels_and_bytes(table), table.correlation)
        for column, values in zip(columns, parts, strict=True):
            column.extend(compress(values, chosen))
    starts, ends, kernels, copied, joins = in_order(columns)
    firsts = sorted(first_rows(joins).values())
    is_first = array("q", bytes(8 * len(starts)))
    for row in firsts:
        is_first[row] = 1
    sums = _sums(kernels), _sums(copied), _sums(differences(ends, starts)), _sums(is_first)
    return Demand((owner,), starts, reaches(ends), *sums, array("q", map(starts.__getitem__, firsts)))


def _kernels_and_bytes(works: SpanTable) -> tuple[array[int], array[int]]:
    """For each work of one kind, whether it is a kernel, and how many bytes it copies, as far as that is known."""
    if works.kind == SpanKind.MEMCPY:
        moved = array("q", (int(amount) if amount == amount else 0 for amount in works.amount))
    else:
        moved = array("q", [0]) * len(works)
    return array("q", [int(works.kind == SpanKind.KERNEL)]) * len(works), moved


def _sums(column: array[int]) -> array[int]:
    """Of all before each row, and of all; as wide as the column is."""
    return array(column.typecode, accumulate(column, initial=0))


@lru_cache(maxsize=2)
def demands(trace: Trace) -> Demands:
    """Those of the newest traces are kept: tables of steps and of ranges ask for the same ones."""
    return Demands(trace)


@frozen
class Range:
    """A range as its thread marked it."""

    name: str
    thread: TrackId
    start_ns: int
    end_ns: int


def ranges_by_thread(trace: Trace) -> Mapping[TrackId, list[Range]]:
    """NVTX ranges of each thread, by when they began; of those that began together the longest first."""
    spans = trace.spans.get(SpanKind.NVTX)
    found: dict[TrackId, list[Range]] = {}
    if spans is None:
        return found
    for thread, rows in _by_track(spans).items():
        made = [Range(spans.names[spans.name_id[i]], thread, spans.start_ns[i], spans.end_ns[i]) for i in rows]
        found[thread] = sorted(made, key=lambda one: (one.start_ns, -one.end_ns))
    return found


def outermost(ranges: Iterable[Range]) -> Iterator[Range]:
    """Those that do not begin within one before, of ranges by when they began."""
    until: int | None = None
    for one in ranges:
        if until is None or one.start_ns >= until:
            until = one.end_ns
            yield one


def windows(trace: Trace, ranges: Iterable[Range]) -> list[TimeWindow]:
    """What each of these ranges of a trace lasts on CPU and GPU together; see the module."""
    every = demands(trace)
    made = []
    for one in ranges:
        demand = every.of(one.thread)
        kernels, copied, launches = demand.within(one.start_ns, one.end_ns)
        known = bool(every.threads)
        made.append(
            TimeWindow(
                one.name, one.thread, demand.gpus, demand.done_by(one.start_ns), demand.done_by(one.end_ns),
                one.start_ns, one.end_ns, *((kernels, copied, launches) if known else (None, None, None)),
            )
        )  # fmt: skip
    return made


def windows_by_name(trace: Trace, *, each: bool = False) -> Mapping[str, list[TimeWindow]]:
    """The windows of all NVTX ranges by name: without numbers and addresses, unless each is wanted.

    A range within another of the same name on the same thread is left out: its time is in that one.
    """
    by_thread = ranges_by_thread(trace)
    found: dict[str, list[TimeWindow]] = defaultdict(list)
    for ranges in by_thread.values():
        by_name: dict[str, list[Range]] = defaultdict(list)
        for one in ranges:
            by_name[one.name if each else range_name(one.name)].append(one)
        for name, same in by_name.items():
            found[name] += windows(trace, outermost(same))
    return found


def _by_track(spans: SpanTable) -> Mapping[TrackId, list[int]]:
    found: dict[TrackId, list[int]] = defaultdict(list)
    for i, track in enumerate(spans.track_id):
        found[spans.tracks[track]].append(i)
    return found
