"""The ranges that hold most of a GPU's idle time, with all that is called in them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import idle_pieces
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.ranges import asking_threads
from llmtop.frozen import frozen
from llmtop.model import SpanKind
from llmtop.text import range_name
from llmtop.units import counted, duration, percent

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

_HOLDS = 0.5
"""Of the idle time."""
_ALL = 0.8
"""Ranges that last for so much of the capture hold whatever there is. Ours."""
_KINDS = (SpanKind.NVTX, SpanKind.OPERATOR)


@frozen
class IdleHolder:
    """Ranges of one name on threads that launch, in ns; those within each other count once.

    Attributes:
        spans: How many.
        open_ns: How long any was open.
        idle_ns: How long the GPU had nothing to do then, whatever the cause; `share` of all its idle time, 0 to 1.
    """

    name: str
    spans: int
    open_ns: int
    idle_ns: int
    share: float

    def __str__(self) -> str:
        return (
            f"within {self.name}, with all that it calls: {duration(self.idle_ns)}, {percent(100 * self.share)} of the "
            f"idle time; it ran {counted(self.spans, 'time')}, {duration(self.open_ns)} together (nsys)"
        )


def idle_holder(trace: Trace, gpu: TrackId) -> IdleHolder | None:
    """The ranges or operators of one name that hold most of the idle time and last shortest; None where none do."""
    pieces = idle_pieces(trace).get(gpu)
    if pieces is None or not len(pieces.starts):
        return None
    idle = Cover.of(pieces.starts, pieces.ends)
    longest = _ALL * (trace.end_ns - trace.start_ns)
    found = []
    for name, (starts, ends) in _by_name(trace).items():
        if sum(ends) - sum(starts) >= _HOLDS * idle.total:
            cover = Cover.of(starts, ends)
            within = cover.overlap(idle)
            if within >= _HOLDS * idle.total and cover.total < longest:
                found.append(IdleHolder(name, len(starts), cover.total, within, within / idle.total))
    return min(found, key=lambda one: (one.open_ns, one.name), default=None)


def _by_name(trace: Trace) -> Mapping[str, tuple[array[int], array[int]]]:
    """When ranges and operators of each name began and ended, on the threads that call CUDA."""
    threads = frozenset(asking_threads(trace))
    found: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
    for table in (trace.spans[kind] for kind in _KINDS if kind in trace.spans):
        for name, start, end in _spans(table, threads):
            starts, ends = found[name]
            starts.append(start)
            ends.append(end)
    return found


def _spans(table: SpanTable, threads: frozenset[TrackId]) -> Iterator[tuple[str, int, int]]:
    names = [range_name(name) for name in table.names]
    is_own = [track in threads for track in table.tracks]
    for name, track, start, end in zip(table.name_id, table.track_id, table.start_ns, table.end_ns, strict=True):
        if is_own[track]:
            yield names[name], start, end
