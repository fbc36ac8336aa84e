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
from itertools import chain, compress, count
from operator import and_, xor
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.timeline.claims import Claim, Claims
from llmtop.columns import (
    alike,
    are_first,
    chained,
    differences,
    first_rows,
    in_order,
    narrow,
    picked,
    put,
    reaches,
    rows_by_key,
    sums_before,
)
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
        self.rows, self.by = (narrow(array("q", compress(column, chosen))) for column in (count(), found))
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
            put(given[one.calls.kind], one.by, one.gpus)
            del one.gpus
        self._fed = self._feeding(calls, given)
        self.claims, self.disputed = Claims(trace.spans.get(SpanKind.NVTX), self._fed), 0
        self._numbers: dict[Claim, int] = {}
        self._claimed = {table.kind: self._claims_of(table, given[table.kind]) for table in calls}
        asked = [self._columns_of(one, given[one.calls.kind]) for one in self._asks]
        whole = in_order([chained(parts) for parts in zip(*asked, strict=True)] or [array("q")] * 7)
        self._asked, self._claim, *rest = whole
        self._work = [self._asked, *map(narrow, rest)]
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
        found = array("q", bytes(8 * len(calls)))
        for same in alike([calls.track_id, given]) if len(calls) else ():
            thread, gpu = calls.tracks[calls.track_id[same[0]]], gpus[given[same[0]]]
            if self.claims.around(thread, gpu):
                put(found, same, array("q", (self._claimed_at(thread, gpu, calls.start_ns[row]) for row in same)))
            else:
                put(found, same, array("q", [self._number((thread,))]) * len(same))
        return narrow(found)

    def _claimed_at(self, thread: TrackId, gpu: TrackId | None, t_ns: int) -> int:
        claim, is_disputed = self.claims.of(thread, gpu, t_ns)
        self.disputed += is_disputed
        return self._number(claim)

    def _number(self, claim: Claim) -> int:
        return self._numbers.setdefault(claim, len(self._numbers))

    def _columns_of(self, asked: _Asked, given: array[int]) -> Sequence[array[int]]:
        """Of works: when they were asked for, by whose claim, when they ended, and what is added up of them.

        Of each call the first one is told apart; `given` is -1 afterwards, as others may have asked for more.
        """
        works, calls = asked.works, asked.calls
        is_new = map((-1).__lt__, picked(given, asked.by))
        firsts = array("b", bytes(map(and_, are_first(asked.by), is_new)))
        put(given, asked.by, array("q", [-1]) * len(firsts))
        return (
            picked(calls.start_ns, asked.by),
            picked(self._claimed[calls.kind], asked.by),
            *(picked(column, asked.rows) for column in (works.end_ns, *_kernels_and_bytes(works))),
            picked(narrow(differences(works.end_ns, works.start_ns)), asked.rows),
            firsts,
        )

    def ranges_around(self, kind: str) -> Iterator[tuple[array[int], tuple[int, ...]]]:
        """Of the works of a kind that lie in any range: their rows, and those of the ranges, the outermost first.

        They are looked up once for all launches between two moments at which a range begins or ends.
        """
        marked = [[self.claims.marked[one] for one in claim if one in self.claims.marked] for claim in self._numbers]
        for asked in (one for one in self._asks if one.works.kind == kind):
            claimed = picked(self._claimed[asked.calls.kind], asked.by)
            asked_at = picked(asked.calls.start_ns, asked.by)
            for same in alike([claimed]) if claimed else ():
                threads, rows, moments = marked[claimed[same[0]]], picked(asked.rows, same), picked(asked_at, same)
                for together in alike([one.stretches(moments) for one in threads]) if threads else ():
                    if around := tuple(i for one in threads for i in one.at(moments[together[0]])):
                        yield picked(rows, together), around

    def of(self, thread: TrackId) -> Demand:
        """What a thread asked for, and those that work for it (`claims`)."""
        if thread not in self._made:
            self._made[thread] = self._of(thread)
        return self._made[thread]

    def _of(self, thread: TrackId) -> Demand:
        numbers = {number for claim, number in self._numbers.items() if thread in claim}
        asked, ended, *added = self._work_of(numbers)
        launches = self._launches_of(numbers)
        kernels, copied, ns, firsts = (narrow(sums_before(column)) for column in added)
        return Demand(self._gpus_for(thread), asked, reaches(ended), kernels, copied, ns, firsts, launches)

    def _work_of(self, numbers: Collection[int]) -> Sequence[array[int]]:
        """The columns of the works with these claims; as they are where that is all works."""
        if len(numbers) == len(self._numbers):
            return self._work
        chosen = bytes(map(numbers.__contains__, self._claim))
        return [array(column.typecode, compress(column, chosen)) for column in self._work]

    def _launches_of(self, numbers: Collection[int]) -> array[int]:
        """When the launch calls with these claims began; as they are where that is all calls."""
        if len(numbers) == len(self._numbers):
            began = [starts for starts, _ in self._launches]
        else:
            began = [array("q", compress(starts, map(numbers.__contains__, own))) for starts, own in self._launches]
        return in_order([chained(began)])[0]

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
    launches = array("q", map(starts.__getitem__, firsts))
    kernels, copied, ns, calls = map(sums_before, (kernels, copied, differences(ends, starts), is_first))
    return Demand((owner,), starts, reaches(ends), kernels, copied, ns, calls, launches)


def _kernels_and_bytes(works: SpanTable) -> tuple[array[int], array[int]]:
    """For each work of one kind, whether it is a kernel, and how many bytes it copies, as far as that is known."""
    if works.kind == SpanKind.MEMCPY:
        moved = array("q", (int(amount) if amount == amount else 0 for amount in works.amount))
    else:
        moved = array("b", [0]) * len(works)
    return array("b", [works.kind == SpanKind.KERNEL]) * len(works), moved


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
