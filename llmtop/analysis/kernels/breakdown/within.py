"""When ranges of one name were open, on the GPUs and on the threads: what the rows of a breakdown are cut to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids, whats
from llmtop.analysis.kernels.nvtx_ranges import names_like, range_shares
from llmtop.analysis.timeline.ranges import TimeWindow, begun_on, demands, ranges_by_thread, windows
from llmtop.model import TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.timeline.ranges import Demand
    from llmtop.model import Trace, TrackId

Stretches: TypeAlias = "Sequence[tuple[int, int]]"
"""From when to when, in order, apart from each other; in ns on the clock of the trace."""
_NAMED = 8
"""Ranges that are named where there is none by the name that was asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeTimes:
    """When ranges were open: on each GPU, from when all before was done to when all that they asked for was; by thread.

    Attributes:
        name: As it was asked for.
    """

    trace: Trace
    name: str
    on_gpus: Mapping[TrackId, Stretches]
    on_threads: Mapping[TrackId, Stretches]

    def cut(self, window: TimeWindow) -> list[TimeWindow]:
        """The parts of a stretch of time in which they were open; what was asked for in them stands with the first."""
        gpus: dict[tuple[tuple[int, int], ...], list[TrackId]] = defaultdict(list)
        for gpu in window.gpus:
            own = self.on_gpus.get(ids.gpu_of(gpu), ())
            gpus[tuple(common(own, window.start_ns, window.end_ns))].append(gpu)
        cut = [
            TimeWindow(window.name, window.thread, tuple(alike), start, end, start, start, *_none(window))
            for pieces, alike in gpus.items()
            for start, end in pieces
        ]
        if cut:
            cut[0] = self._asked(window, cut)
        return cut

    def _asked(self, window: TimeWindow, cut: Sequence[TimeWindow]) -> TimeWindow:
        first = cut[0]
        if ids.kind(window.thread) is TrackKind.THREAD:
            demand, opened = demands(self.trace).of(window.thread), merged(self._open_for(window.thread))
            pieces = list(common(opened, window.cpu_start_ns, window.cpu_end_ns))
        else:
            demand, pieces = _begun(self.trace, window.gpus[0]), [(one.start_ns, one.end_ns) for one in cut]
        open_ns = sum(end - start for start, end in pieces)
        first = replace(first, cpu_end_ns=first.cpu_start_ns + open_ns)
        if window.kernels is None:
            return first
        asked = [demand.within(*piece) for piece in pieces]
        kernels, copied, launches = (sum(one[i] for one in asked) for i in range(3))
        return replace(first, kernels=kernels, copied=copied, launches=launches)

    def _open_for(self, thread: TrackId) -> Iterator[tuple[int, int]]:
        """When they were open on a thread, or on one that it works for."""
        for one in (thread, *demands(self.trace).claims.around(thread, None)):
            yield from self.on_threads.get(one, ())

    @property
    def start_ns(self) -> int:
        """When the first began."""
        return min(start for start, _ in self._every)

    @property
    def end_ns(self) -> int:
        """When the last ended, on its thread and on the GPUs."""
        return max(end for _, end in self._every)

    @property
    def _every(self) -> Iterator[tuple[int, int]]:
        return chain(*self.on_threads.values(), *self.on_gpus.values())

    def on_thread(self, thread: TrackId) -> Stretches:
        """When calls of a thread were made in one of them."""
        return merged(self._open_for(thread))


def _none(window: TimeWindow) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if window.kernels is None else (0, 0, 0)


@lru_cache(maxsize=8)
def _begun(trace: Trace, owner: TrackId) -> Demand:
    return begun_on(trace, owner)


@lru_cache(maxsize=2)
def range_times(trace: Trace, wanted: str) -> RangeTimes | Unknown:
    """When ranges of this name, or with it in their names (`names_like`), were open; why that is not known."""
    by_thread = ranges_by_thread(trace)
    if not by_thread:
        return trace.why_missing(whats.NVTX) or Unknown("the capture has no ranges", "add --trace=nvtx")
    names = names_like({one.name for ranges in by_thread.values() for one in ranges}, wanted)
    chosen = {thread: [one for one in ranges if one.name in names] for thread, ranges in by_thread.items()}
    if not any(chosen.values()):
        there = ", ".join(share.name for share in range_shares(trace)[:_NAMED])
        return Unknown(f'no range is called "{wanted}"', f"there are: {there}" if there else "")
    on_gpus: dict[TrackId, list[tuple[int, int]]] = defaultdict(list)
    for one in windows(trace, (range_ for ranges in chosen.values() for range_ in ranges)):
        for gpu in one.gpus:
            on_gpus[gpu].append((one.start_ns, one.end_ns))
    on_threads = {thread: merged((one.start_ns, one.end_ns) for one in own) for thread, own in chosen.items() if own}
    return RangeTimes(trace, wanted, {gpu: merged(own) for gpu, own in on_gpus.items()}, on_threads)


def merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of time, those that overlap or touch as one.

    >>> merged([(5, 9), (0, 2), (8, 12), (12, 13)])
    [(0, 2), (5, 13)]
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def common(stretches: Stretches, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What of these lies between two moments.

    >>> list(common([(0, 10), (20, 30), (40, 50)], 5, 41))
    [(5, 10), (20, 30), (40, 41)]
    """
    first = bisect_right(stretches, start, key=lambda one: one[1])
    for since, until in stretches[first:]:
        if since >= end:
            return
        yield max(since, start), min(until, end)
