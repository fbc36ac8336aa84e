"""Whose ranges a call lies in: one rule for all that asks which launches belong to a range.

A call lies in the ranges that are open on its own thread. PyTorch launches backward passes on a thread of its own while
the one that marked them waits: so it lies, around these, in those of the thread that its own works for. That is one of
its process that gives work to the same GPU, if to any, for a thread without ranges, or whose ranges all lie within
ranges of that other one ("nccl:all_reduce" within a step). Of several the one counts whose innermost range that is open
then began last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids
from llmtop.columns import in_order, places_among, rows_by_key
from llmtop.model import API_CALLS, GPU_WORK, SpanKind

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

Claim: TypeAlias = "tuple[TrackId, ...]"
"""The threads whose ranges a call lies in, as far as they are open then; the outermost first, its own last."""


class OpenRanges:
    """The ranges of one thread; `above` is of each the last begun that is open as it begins, -1 where none is."""

    def __init__(self, ranges: SpanTable, rows: Collection[int]) -> None:
        columns = [array("q", map(column.__getitem__, rows)) for column in (ranges.start_ns, ranges.end_ns)]
        inverse = array("q", (-end for end in columns[1]))
        self._starts, inverse, self._rows = in_order([columns[0], inverse, array("q", rows)])
        self._ends = array("q", (-end for end in inverse))
        self._above = array("q")
        stack: list[int] = []
        for i, start in enumerate(self._starts):
            stack = [one for one in stack if self._ends[one] > start]
            self._above.append(stack[-1] if stack else -1)
            stack.append(i)
        self._tops = array("q", (i for i, above in enumerate(self._above) if above < 0))
        self._top_starts = array("q", map(self._starts.__getitem__, self._tops))
        self._top_ends = array("q", map(self._ends.__getitem__, self._tops))
        self._bounds = array("q", sorted({*self._starts, *self._ends}))
        self.total_ns = sum(self._top_ends) - sum(self._top_starts)

    def _open(self, t_ns: int) -> Iterator[int]:
        """Those that are open at this moment, the last begun first; the begin of a range is in it, its end is not."""
        i = bisect_right(self._starts, t_ns) - 1
        while i >= 0:
            if self._ends[i] > t_ns:
                yield i
            i = self._above[i]

    def at(self, t_ns: int) -> list[int]:
        """The rows of those that are open at this moment, the first begun first."""
        return [self._rows[i] for i in self._open(t_ns)][::-1]

    def stretches(self, moments: array[int]) -> array[int]:
        """The number of the stretch that each moment lies in: within one the same ranges are open."""
        return places_among(self._bounds, moments)

    def begun(self, t_ns: int) -> int | None:
        """When the last one began that is open at this moment; None where none is."""
        return next((self._starts[i] for i in self._open(t_ns)), None)

    def lie_in(self, other: OpenRanges) -> bool:
        """Whether each outermost one lies within one outermost of the other thread, which has more of the time."""
        return self.total_ns < other.total_ns and all(map(other.holds, self._top_starts, self._top_ends))

    def holds(self, start: int, end: int) -> bool:
        """Whether this time lies within one outermost range."""
        i = bisect_right(self._top_starts, start) - 1
        return i >= 0 and self._top_ends[i] >= end


class Claims:
    """Whose ranges calls lie in, by the rule of this module."""

    def __init__(self, ranges: SpanTable | None, fed: Mapping[TrackId, Collection[TrackId]]) -> None:
        """`fed` has the GPUs that each thread gave work to."""
        self.marked = {} if ranges is None else _by_thread(ranges)
        self._fed = fed
        self._around: dict[tuple[TrackId, TrackId | None], Claim] = {}

    def around(self, thread: TrackId, gpu: TrackId | None) -> Claim:
        """The threads that this one may work for as it gives work to a GPU; None where that is not known."""
        key = thread, gpu
        if key not in self._around:
            self._around[key] = tuple(other for other in self.marked if self._works_for(thread, other, gpu))
        return self._around[key]

    def _works_for(self, thread: TrackId, other: TrackId, gpu: TrackId | None) -> bool:
        if other == thread or ids.process_of(other) != ids.process_of(thread):
            return False
        fed, own = self._fed.get(other), self.marked.get(thread)
        return (gpu is None or not fed or gpu in fed) and (own is None or own.lie_in(self.marked[other]))

    def of(self, thread: TrackId, gpu: TrackId | None, t_ns: int) -> tuple[Claim, bool]:
        """Whose ranges a call of this moment lies in, and whether others, that these do not lie in, had some open.

        Where no other thread has a range open, all that it may work for: the call lies in none of theirs.
        """
        others = self.around(thread, gpu)
        begun = [(at, -i, one) for i, one in enumerate(others) if (at := self.marked[one].begun(t_ns)) is not None]
        if not begun:
            return (*others, thread), False
        innermost = max(begun)[2]
        outer, is_disputed = self.of(innermost, gpu, t_ns)
        claim = (*outer, thread)
        return claim, is_disputed or any(one not in claim for _, _, one in begun)


def claims_of(trace: Trace) -> Claims:
    """Whose ranges the calls of a timeline lie in; of a long capture this goes through all its work."""
    fed: dict[TrackId, set[TrackId]] = defaultdict(set)
    works = [trace.spans[kind] for kind in GPU_WORK if kind in trace.spans]
    for calls in (trace.spans[kind] for kind in API_CALLS if kind in trace.spans):
        for work in works:
            rows = rows_by_key(calls.correlation, work.correlation)
            pairs = {(calls.track_id[row], on) for row, on in zip(rows, work.track_id, strict=True) if row >= 0}
            for thread, track in pairs:
                fed[calls.tracks[thread]].add(ids.gpu_of(work.tracks[track]))
    return Claims(trace.spans.get(SpanKind.NVTX), fed)


def _by_thread(ranges: SpanTable) -> dict[TrackId, OpenRanges]:
    rows: dict[int, list[int]] = {}
    for i, track in enumerate(ranges.track_id):
        rows.setdefault(track, []).append(i)
    return {ranges.tracks[track]: OpenRanges(ranges, own) for track, own in rows.items()}
