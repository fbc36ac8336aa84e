"""Spans of a timeline as slices of a Perfetto trace, with arrows from what launched the work of a GPU to that work.

Tables are gone through once, in the order of their spans: beside their columns only what is open at the time is kept.
"""

from __future__ import annotations

import math
from functools import partial
from heapq import merge
from itertools import groupby, repeat
from operator import itemgetter, neg
from typing import TYPE_CHECKING, Final

from llmtop.analysis.timeline.rows import kind_of
from llmtop.cli.perfetto_packets import args
from llmtop.model import API_CALLS, GPU_WORK, SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from llmtop.cli.perfetto_packets import PacketWriter
    from llmtop.cli.perfetto_tracks import PerfettoTracks
    from llmtop.model import SpanTable, Trace, TrackId

_LINES: Final[Mapping[str, str]] = {
    **dict.fromkeys(GPU_WORK, ""),
    **dict.fromkeys((*API_CALLS, SpanKind.BRIEF_CALL), "CUDA API"),
    SpanKind.SYNC: "waits",
    SpanKind.GPU_RANGE: "ranges",
    SpanKind.PAGE_FAULT: "page faults",
    SpanKind.ALLOCATOR: "allocator",
    SpanKind.NVTX: "NVTX",
    SpanKind.MARK: "NVTX marks",
    SpanKind.OPERATOR: "operators",
    SpanKind.PYTHON: "Python",
    SpanKind.REGION: "libraries",
    SpanKind.OS: "OS runtime",
    SpanKind.ON_CPU: "on CPU",
    SpanKind.OFF_CPU: "off CPU",
    SpanKind.SAMPLE: "CPU samples",
    SpanKind.OVERHEAD: "profiler",
}
"""On which line of its track a span stands; "" is the track's own. A kind that is not here has a line by its name."""
_LEFT_OUT: Final = frozenset({SpanKind.ALLOCATION, SpanKind.CAPTURED})
"""Thousands of allocations are held at one time, and what is held stands in a counter; captured calls are calls once
more."""
_IN_FLOWS: Final = frozenset({*API_CALLS, *GPU_WORK})
"""What `SpanTable.correlation` is drawn as arrows of: a launch, and all that it has put on a GPU."""


class _Lines:
    """The slices of one line, on as many tracks as there are slices that overlap without being within each other."""

    def __init__(self, tracks: PerfettoTracks, id: TrackId, title: str, packets: PacketWriter) -> None:
        self._new = partial(tracks.line, id, title)
        self._packets = packets
        self._open: list[tuple[int, list[int]]] = []
        """Tracks, and the ends of what is open there, the innermost last."""

    def at(self, start_ns: int, end_ns: int) -> tuple[int, list[int]]:
        """The track of a slice that begins now, and what is open there."""
        for one in self._open:
            track, ends = one
            while ends and ends[-1] <= start_ns:
                self._packets.end(track, ends.pop())
            if not ends or end_ns <= ends[-1]:
                return one
        self._open.append((self._new(), []))
        return self._open[-1]

    def close(self) -> None:
        """End all that is open."""
        for track, ends in self._open:
            while ends:
                self._packets.end(track, ends.pop())


def has_spans(trace: Trace) -> bool:
    """Whether any are drawn."""
    return any(kind not in _LEFT_OUT for kind in (*trace.spans, *trace.more_spans))


def write_spans(trace: Trace, tracks: PerfettoTracks, packets: PacketWriter) -> None:
    """Write all spans but allocations, of which counters tell."""
    kinds: dict[str, list[SpanTable]] = {}
    for several in (trace.spans, trace.more_spans):
        for kind in several:
            if kind not in _LEFT_OUT:
                title = _LINES.get(kind_of(kind), kind)
                kinds.setdefault(title, []).append(several[kind])
    for title, tables in kinds.items():
        _write_lines(title, tables, tracks, packets)


def _write_lines(title: str, tables: list[SpanTable], tracks: PerfettoTracks, packets: PacketWriter) -> None:
    lines: dict[TrackId, _Lines] = {}
    flows = [table.kind in _IN_FLOWS for table in tables]
    for start_ns, minus_end_ns, number, row in merge(*(_in_order(i, table) for i, table in enumerate(tables))):
        table = tables[number]
        id = table.tracks[table.track_id[row]]
        if (of_track := lines.get(id)) is None:
            of_track = lines[id] = _Lines(tracks, id, title, packets)
        track, ends = of_track.at(start_ns, -minus_end_ns)
        name, flow = table.names[table.name_id[row]], table.correlation[row] + 1 if flows[number] else 0
        told = b"" if math.isnan(amount := table.amount[row]) else args({"bytes": amount})
        if start_ns == -minus_end_ns:
            packets.instant(track, start_ns, name, flow, told)
        else:
            packets.begin(track, start_ns, name, flow, told)
            ends.append(-minus_end_ns)
    for of_track in lines.values():
        of_track.close()


def _in_order(number: int, table: SpanTable) -> Iterator[tuple[int, int, int, int]]:
    """Start, negative end, the table's number and row of each span.

    Of those that begin together the longest is first, so that the others are within it.
    """
    spans = zip(table.start_ns, map(neg, table.end_ns), repeat(number), range(len(table)), strict=False)
    for _, together in groupby(spans, itemgetter(0)):
        yield from sorted(together)
