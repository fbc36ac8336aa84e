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
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, compress
from operator import and_, xor
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.timeline.work import GPU_WORK
from llmtop.columns import first_rows, in_order, reaches, rows_by_key
from llmtop.text import range_name

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

CALLS = ("launch", "call")
"""Kinds of spans that ask for GPU work."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What some threads asked their GPUs for, in columns by when they did.

    Attributes:
        gpus: Those that they gave work to.
        asked: When the call began that asked for each work.
        done: When all that had been asked for up to and including it had ended.
        kernels, copied: How many kernels, and bytes of copies, those before it are; one more than works.
        launches: When their launch calls began.
    """

    gpus: tuple[TrackId, ...]
    asked: array[int]
    done: array[int]
    kernels: array[int]
    copied: array[int]
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


@dataclass(frozen=True, slots=True)
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


class Demands:
    """Who asked for what in a trace: all work whose call is in it, in columns by when that call began."""

    def __init__(self, trace: Trace) -> None:
        calls = [trace.spans[kind] for kind in CALLS if kind in trace.spans]
        works = [trace.spans[kind] for kind in GPU_WORK if kind in trace.spans]
        self.threads = tuple(dict.fromkeys(track for table in calls for track in table.tracks))
        self._gpus = tuple(dict.fromkeys(ids.gpu_of(track) for table in works for track in table.tracks))
        self._streams = tuple(dict.fromkeys(track for table in works for track in table.tracks))
        columns = [array("q") for _ in range(6)]
        for table in works:
            self._add(columns, table, calls)
        self._asked, self._thread, self._gpu, self._ended, self._is_kernel, self._bytes = in_order(columns)
        self._launches = {
            thread: array("q", (table.start_ns[i] for i in rows))
            for table in calls
            if table.kind == "launch"
            for thread, rows in _by_track(table).items()
        }

    def _add(self, columns: Sequence[array[int]], works: SpanTable, calls: Sequence[SpanTable]) -> None:
        """Add the works of one kind that some call asked for; whole columns at a time, as there are millions."""
        gpus = [self._gpus.index(ids.gpu_of(track)) for track in works.tracks]
        left = bytearray(b"\1") * len(works)
        for table in calls:
            rows = rows_by_key(table.correlation, works.correlation)
            is_of_it = bytes(map(and_, map((-1).__lt__, rows), left))
            left = bytearray(map(xor, left, is_of_it))
            rows = array("q", compress(rows, is_of_it))
            threads = [self.threads.index(track) for track in table.tracks]
            kernels, moved = _kernels_and_bytes(works)
            made = (
                map(table.start_ns.__getitem__, rows),
                map(threads.__getitem__, map(table.track_id.__getitem__, rows)),
                map(gpus.__getitem__, compress(works.track_id, is_of_it)),
                compress(works.end_ns, is_of_it),
                compress(kernels, is_of_it),
                compress(moved, is_of_it),
            )
            for column, values in zip(columns, made, strict=True):
                column.extend(values)

    def of(self, thread: TrackId, marking: Collection[TrackId]) -> Demand:
        """What a thread asked for, and those threads of its process that mark no ranges themselves.

        Backward passes are launched by a thread of PyTorch's own, while the one that marked them waits.

        Args:
            thread: The one that marks the ranges.
            marking: All that mark any.
        """
        process = ids.process_of(thread)
        group = {one for one in self.threads if ids.process_of(one) == process and one not in marking} | {thread}
        gpus = self._gpus_of({thread}) or self._gpus_of(group) or self._gpus_of_process(process)
        numbers = {self.threads.index(one) for one in group if one in self.threads}
        on = {self._gpus.index(gpu) for gpu in gpus}
        chosen = [t in numbers and g in on for t, g in zip(self._thread, self._gpu, strict=True)]
        asked, ended, kernels, moved = (
            array("q", compress(column, chosen)) for column in (self._asked, self._ended, self._is_kernel, self._bytes)
        )
        launches = sorted(chain.from_iterable(self._launches.get(one, ()) for one in group))
        return Demand(gpus, asked, reaches(ended), _sums(kernels), _sums(moved), array("q", launches))

    def _gpus_of(self, threads: Collection[TrackId]) -> tuple[TrackId, ...]:
        """The GPUs that these threads gave work to."""
        numbers = {self.threads.index(one) for one in threads if one in self.threads}
        on = {g for t, g in zip(self._thread, self._gpu, strict=True) if t in numbers}
        return tuple(self._gpus[g] for g in sorted(on))

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
    return Demand(
        (owner,), starts, reaches(ends), _sums(kernels), _sums(copied), array("q", map(starts.__getitem__, firsts))
    )


def _kernels_and_bytes(works: SpanTable) -> tuple[array[int], array[int]]:
    """For each work of one kind, whether it is a kernel, and how many bytes it copies, as far as that is known."""
    if works.kind == "memcpy":
        moved = array("q", (int(amount) if amount == amount else 0 for amount in works.amount))
    else:
        moved = array("q", [0]) * len(works)
    return array("q", [int(works.kind == "kernel")]) * len(works), moved


def _sums(column: array[int]) -> array[int]:
    """Of all before each row, and of all."""
    return array("q", accumulate(column, initial=0))


@lru_cache(maxsize=2)
def demands(trace: Trace) -> Demands:
    """Those of the newest traces are kept: tables of steps and of ranges ask for the same ones."""
    return Demands(trace)


@dataclass(frozen=True, slots=True)
class Range:
    """A range as its thread marked it."""

    name: str
    thread: TrackId
    start_ns: int
    end_ns: int


def ranges_by_thread(trace: Trace) -> Mapping[TrackId, list[Range]]:
    """NVTX ranges of each thread, by when they began; of those that began together the longest first."""
    spans = trace.spans.get("nvtx")
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


def windows(trace: Trace, ranges: Iterable[Range], marking: Collection[TrackId]) -> list[TimeWindow]:
    """What each range lasts on CPU and GPU together; see the module.

    Args:
        trace: Whose ranges they are.
        ranges: Any of them.
        marking: The threads that mark such ranges.
    """
    every, by_thread = demands(trace), dict[str, Demand]()
    made = []
    for one in ranges:
        demand = by_thread.get(one.thread)
        if demand is None:
            demand = by_thread[one.thread] = every.of(one.thread, marking)
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
            found[name] += windows(trace, outermost(same), by_thread.keys())
    return found


def _by_track(spans: SpanTable) -> Mapping[TrackId, list[int]]:
    found: dict[TrackId, list[int]] = defaultdict(list)
    for i, track in enumerate(spans.track_id):
        found[spans.tracks[track]].append(i)
    return found
