"""The ranges that hold most of a GPU's idle time, with all that is called in them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import idle_pieces
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.ranges import asking_threads
from llmtop.frozen import frozen
from llmtop.model import SpanKind
from llmtop.text import range_name
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

_HOLDS = 0.5
"""Of the idle time."""
_ALL = 0.8
"""Ranges that last for so much of the capture hold whatever there is. Ours."""
_MOST = 0.9
"""Of the time of all ranges of a name. Ours."""
_FEW = 0.25
"""Of the ranges of a name, in which is most of their time: others are over at once. Ours."""
_KINDS = (SpanKind.NVTX, SpanKind.OPERATOR)


@frozen
class IdleHolder:
    """Ranges of one name on threads that launch, in ns; those within each other count once.

    Attributes:
        kind: Of what.
        spans: How many.
        open_ns: How long any was open.
        slowest: Of how few of them most of their time is (`_MOST`).
        idle_ns: How long the GPU had nothing to do then, whatever the cause; `share` of all its idle time, 0 to 1.
    """

    name: str
    kind: SpanKind
    spans: int
    open_ns: int
    idle_ns: int
    share: float
    slowest: int

    @property
    def is_uneven(self) -> bool:
        """Whether most of the time is in few of them, as where something is done at first uses."""
        return self.slowest <= _FEW * self.spans

    def __str__(self) -> str:
        is_called = self.kind is SpanKind.OPERATOR
        times = "once" if self.spans == 1 else f"{count(self.spans)} times"
        few = f", most of that in {count(self.slowest)} of them" if self.is_uneven else ""
        return (
            f"within {self.name}, with all that it calls: {duration(self.idle_ns)}, {percent(100 * self.share)} of the "
            f"idle time; it was {'called' if is_called else 'open'} {times}, for {duration(self.open_ns)} in all{few} "
            "(nsys)"
        )


def idle_holder(trace: Trace, gpu: TrackId) -> IdleHolder | None:
    """The ranges or operators of one name that hold most of the idle time and last shortest; None where none do."""
    pieces = idle_pieces(trace).get(gpu)
    if pieces is None or not len(pieces.starts):
        return None
    idle = Cover.of(pieces.starts, pieces.ends)
    longest = _ALL * (trace.end_ns - trace.start_ns)
    found = []
    for (kind, name), (starts, ends) in _by_name(trace).items():
        if sum(ends) - sum(starts) >= _HOLDS * idle.total:
            cover = Cover.of(starts, ends)
            within = cover.overlap(idle)
            if within >= _HOLDS * idle.total and cover.total < longest:
                slowest, share = _slowest(starts, ends), within / idle.total
                found.append(IdleHolder(name, kind, len(starts), cover.total, within, share, slowest))
    return min(found, key=lambda one: (one.open_ns, one.name), default=None)


def _slowest(starts: array[int], ends: array[int]) -> int:
    """In how few of some spans most of their time is."""
    longest_first = sorted(map(sub, ends, starts), reverse=True)
    return 1 + bisect_left([*accumulate(longest_first)], _MOST * sum(longest_first))


def _by_name(trace: Trace) -> Mapping[tuple[SpanKind, str], tuple[array[int], array[int]]]:
    """When ranges and operators of each name began and ended, on the threads that call CUDA."""
    threads = frozenset(asking_threads(trace))
    found: dict[tuple[SpanKind, str], tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
    for kind in (kind for kind in _KINDS if kind in trace.spans):
        for name, start, end in _spans(trace.spans[kind], threads):
            starts, ends = found[kind, name]
            starts.append(start)
            ends.append(end)
    return found


def _spans(table: SpanTable, threads: frozenset[TrackId]) -> Iterator[tuple[str, int, int]]:
    names = [range_name(name) for name in table.names]
    is_own = [track in threads for track in table.tracks]
    for name, track, start, end in zip(table.name_id, table.track_id, table.start_ns, table.end_ns, strict=True):
        if is_own[track]:
            yield names[name], start, end
