"""What is known of one span: what launched it or what it launched, how long that took, and the ranges around it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.timeline.collectives import collectives, speed_text
from llmtop.analysis.timeline.rows import ALL_API_CALLS, kind_title
from llmtop.analysis.timeline.work import gpu_title
from llmtop.columns import is_long, places_of
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, SpanKind, TrackKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.timeline.spans import TraceTimeline
    from llmtop.model import SpanTable, Trace, TrackId

Dims = tuple[int, int, int]
_ON_GPUS = frozenset({TrackKind.STREAM, TrackKind.GPU_PROCESS, TrackKind.GPU_INSTANCE})


@frozen
class SpanFacts:
    """One span, in full. Times are ns on the capture's clock.

    Attributes:
        what: "kernel", "NVTX range" ...
        track: What it ran on, by name.
        correlation: What joins it to its launch or its work; -1 where there is nothing.
        bytes: Moved or filled; None of others.
        grid, block: Of a kernel.
        launch_ns: Of work on a GPU, from the begin of the call that launched it to its own (launch latency).
        queue_ns: From the end of that call to its begin, where that is positive (queue time, as nsys has it).
        partner: The code of the launch, or of the first work that was launched; None where there is none.
        partners: How many works a call launched.
        ranges: Ranges that it lies in, or of work that its launch lies in (`claims`), the outermost first.
        told: What else is recorded of it, in sentences: what it sends to other ranks and how fast, category, payload.
    """

    code: int
    what: str
    name: str
    track: str
    start_ns: int
    end_ns: int
    correlation: int = -1
    bytes: float | None = None
    grid: Dims | None = None
    block: Dims | None = None
    launch_ns: int | None = None
    queue_ns: int | None = None
    partner: int | None = None
    partners: int = 0
    ranges: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def duration_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


def span_facts(timeline: TraceTimeline, code: int) -> SpanFacts:
    """All that is known of a span."""
    spans, row = timeline.span(code)
    track, amount = spans.tracks[spans.track_id[row]], spans.amount[row]
    partners = partners_of(timeline, code)
    is_work = spans.kind in GPU_WORK
    called = timeline.times(partners[0]) if partners and is_work else None
    start, end = timeline.times(code)
    grid, block = _shape(timeline, spans, row)
    return SpanFacts(
        code=code,
        what=timeline.trace.origin.range_term if spans.kind == SpanKind.NVTX else kind_title(spans.kind),
        name=timeline.name(code)[1],
        track=track_name(timeline.trace, track),
        start_ns=start,
        end_ns=end,
        correlation=spans.correlation[row],
        bytes=amount if amount == amount else None,
        grid=grid,
        block=block,
        launch_ns=None if called is None else start - called[0],
        queue_ns=None if called is None or start <= called[1] else start - called[1],
        partner=partners[0] if partners else None,
        partners=0 if is_work else len(partners),
        ranges=_ranges_around(timeline, partners[0] if is_work and partners else code),
        told=tuple(_told(timeline, spans, row)),
    )


def _told(timeline: TraceTimeline, spans: SpanTable, row: int) -> Iterator[str]:
    sent = collectives(timeline.trace).get(row) if spans.kind == SpanKind.KERNEL else None
    if sent is not None:
        yield f"{sent.title}: {speed_text(sent, [spans.end_ns[row] - spans.start_ns[row]])}"
    if row in spans.notes:
        yield "; ".join(f"{key}: {value}" for key, value in spans.notes[row].items())


def partners_of(timeline: TraceTimeline, code: int) -> tuple[int, ...]:
    """The launch of a work, or all works of a launch by their begin; () where nothing joins them."""
    spans, row = timeline.span(code)
    join = spans.correlation[row]
    others = ALL_API_CALLS if spans.kind in GPU_WORK else GPU_WORK if spans.kind in ALL_API_CALLS else ()
    if join < 0:
        return ()
    found = [
        timeline.code(kind, other)
        for kind in others
        if kind in timeline.tables
        for other in places_of(timeline.tables[kind].correlation, join)
    ]
    return tuple(sorted(found, key=timeline.times))


def first_launched(timeline: TraceTimeline, code: int) -> int | None:
    """The first work on a GPU that the thread of a range or an operator launched within it."""
    spans, row = timeline.span(code)
    kinds = [kind for kind in timeline.tables if kind in ALL_API_CALLS and kind != spans.kind]
    calls = timeline.begun(kinds, spans.tracks[spans.track_id[row]], *timeline.times(code))
    works = (partners[0] for call in sorted(calls, key=timeline.times) if (partners := partners_of(timeline, call)))
    return next(works, None)


def track_name(trace: Trace, track: TrackId) -> str:
    """A thread with its process, a stream with its GPU: of several each has a name of its own."""
    known = trace.tracks.get(track)
    name = str(track) if known is None else known.name
    if ids.kind(track) in _ON_GPUS:
        return f"{gpu_title(ids.gpu_of(track))} {name}"
    above = trace.tracks.get(known.parent) if known is not None and known.parent is not None else None
    return name if above is None else f"{name} of {above.name}"


def _shape(timeline: TraceTimeline, spans: SpanTable, row: int) -> tuple[Dims | None, Dims | None]:
    """Grid and block, where the kernel table has the same launch in the same row."""
    kernels = timeline.trace.kernels
    if spans.kind != SpanKind.KERNEL or kernels is None or len(kernels) != len(spans):
        return None, None
    if kernels.start_ns[row] != spans.start_ns[row]:
        return None, None
    (gx, gy, gz), (bx, by, bz) = kernels.grid, kernels.block
    grid, block = (gx[row], gy[row], gz[row]), (bx[row], by[row], bz[row])
    return grid if min(grid) > 0 else None, block if min(block) > 0 else None


def _ranges_around(timeline: TraceTimeline, code: int) -> tuple[str, ...]:
    """The ranges that it lies in (`claims`), the outermost first; until that is known those of its own thread."""
    ranges = timeline.tables.get(SpanKind.NVTX)
    own, own_row = timeline.span(code)
    if ranges is None:
        return ()
    track, at = own.tracks[own.track_id[own_row]], timeline.times(code)[0]
    if timeline.claims is not None:
        marked = timeline.claims.marked
        claim, _ = timeline.claims.of(track, _gpu_of(timeline, code), at)
        rows = [row for thread in claim if thread in marked for row in marked[thread].at(at)]
    else:
        rows = _open_at(ranges, ranges.tracks.index(track), at) if track in ranges.tracks else []
    is_itself = own is ranges
    return tuple(ranges.names[ranges.name_id[row]] for row in rows if not (is_itself and row >= own_row))


def _gpu_of(timeline: TraceTimeline, code: int) -> TrackId | None:
    """The GPU that a call gave work to; None of what gave none."""
    for work in partners_of(timeline, code):
        spans, row = timeline.span(work)
        return ids.gpu_of(spans.tracks[spans.track_id[row]])
    return None


def _open_at(spans: SpanTable, track: int, t_ns: int) -> list[int]:
    """The rows of a track's spans that are open at a moment, the first to begin first."""
    if not is_long(len(spans)):
        rows = zip(spans.start_ns, spans.end_ns, spans.track_id, strict=True)
        return [row for row, (start, end, own) in enumerate(rows) if start <= t_ns < end and own == track]
    import numpy as np

    starts, ends, tracks = map(np.asarray, (spans.start_ns, spans.end_ns, spans.track_id))
    begun = int(np.searchsorted(starts, t_ns, side="right"))
    found: list[int] = np.flatnonzero((ends[:begun] > t_ns) & (tracks[:begun] == track)).tolist()
    return found


# -- between two moments ---------------------------------------------------------------------------------------


@frozen
class Between:
    """What happened from one moment to another.

    Attributes:
        kernels: How many began in this time, on all GPUs.
        busy: Of each GPU whose work is prepared its name and the share of this time in which it worked, 0 to 1.
    """

    start_ns: int
    end_ns: int
    kernels: int
    busy: tuple[tuple[str, float], ...]


def between(timeline: TraceTimeline, one_ns: int, other_ns: int) -> Between:
    """What two marks are for."""
    start, end = min(one_ns, other_ns), max(one_ns, other_ns)
    kernels = timeline.tables.get(SpanKind.KERNEL)
    begun = 0 if kernels is None else _begun(kernels, end) - _begun(kernels, start)
    lines = ((row.title, timeline.gpu_line(row.gpu)) for row in timeline.gpus if row.gpu is not None)
    length = max(1, end - start)
    busy = tuple((title, line.cover.within(start, end) / length) for title, line in lines if line is not None)
    return Between(start, end, begun, busy)


def _begun(spans: SpanTable, t_ns: int) -> int:
    """How many began before a moment."""
    return bisect_left(spans.start_ns, t_ns)
