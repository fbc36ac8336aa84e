"""The account itself: every nanosecond in which a GPU of a timeline had nothing to do, under one cause.

Between two works the thread counts that launched the second: until it has asked for that work, the GPU waits for the
thread; from then on the work waits on the GPU's side. The work that a graph's launch adds after its first is the
GPU's own affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from llmtop import whats
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import LAUNCH_GAP_NS, Facet, HostThread, Label
from llmtop.analysis.timeline.launches import Host, Launch
from llmtop.analysis.timeline.sums import (
    DARK,
    GRAPHS_UNTRACED,
    INSIDE,
    LOST,
    MIGRATION,
    NOT_LAUNCHED,
    NOT_TRACED,
    QUEUED,
    START_NS,
    UNTOUCHED,
    Flags,
    IdlePieces,
    IdleSums,
    PieceRecorder,
    Sum,
    waiting,
)
from llmtop.analysis.timeline.work import GpuWork, busy_over_time, work_by_gpu
from llmtop.columns import is_long
from llmtop.frozen import frozen
from llmtop.model import MIGRATED, Missing, Trace, TrackId, Unknown

STEPS = 60
"""Of the picture of a GPU's time: what a line of 80 columns has room for."""
_TOLD = 5
"""Functions and ranges that are kept of a part."""
BEFORE, AFTER = "before its first work", "after its last work"
_BEFORE: Label = (Cause.NO_WORK, BEFORE)


@frozen
class IdlePart:
    """Idle time of one GPU that has one cause.

    Attributes:
        name: Of the call, the OS call or the NVTX range; empty where there is none.
        ns: All of it; `longest_ns` is that of the gap with most of it, `gaps` how many gaps have any.
        drained_by: The kind of call under which the GPU had run dry as these gaps began; None where it just ended
            what it had.
        is_short: Whether the gaps are as short as a launch explains (`LAUNCH_GAP_NS`).
        before_graph: Whether what came next was the first work of a graph launch.
        is_start: Whether it is the time before the GPU's first work: it comes once, whatever the program does.
        functions: Where CPU samples in this time stood, the most frequent first, with their number.
        ranges: Of calls, the time by the innermost NVTX range in which they were made, the longest first.
    """

    cause: Cause
    name: str
    ns: int
    gaps: int
    longest_ns: int
    drained_by: Cause | None = None
    is_short: bool = False
    before_graph: bool = False
    is_start: bool = False
    functions: tuple[tuple[str, int], ...] = ()
    ranges: tuple[tuple[str, int], ...] = ()


@frozen
class GpuAccount:
    """The time of one GPU, in ns: `busy_ns` and its parts together are all of the capture.

    Attributes:
        gpu: The id of its track.
        start_ns, end_ns: The capture's.
        first_ns, last_ns: When its first work began and its last one ended.
        busy_ns: With at least one kernel, copy or graph running.
        works: Kernels, copies and graphs; `graph_works` of them were launched as nodes of `graph_launches` graphs.
        parts: The largest first.
        short, short_ns: Gaps of at most `LAUNCH_GAP_NS`, and their time.
        late_ns: Of the short gaps the part whose work was launched after they had begun.
        joined_ns: Of the short gaps the part whose launch is in the capture, so that late or not is known.
        busy_over_time: The share of each of `STEPS` equal parts of the capture in which it had work, 0 to 1.
    """

    gpu: TrackId
    start_ns: int
    end_ns: int
    first_ns: int
    last_ns: int
    busy_ns: int
    works: int
    graph_works: int
    graph_launches: int
    parts: tuple[IdlePart, ...]
    short: int
    short_ns: int
    late_ns: int
    joined_ns: int
    busy_over_time: tuple[float, ...]

    @property
    def idle_ns(self) -> int:
        """All time without work, before the first and after the last included."""
        return self.end_ns - self.start_ns - self.busy_ns

    @property
    def pause_ns(self) -> int:
        """The gaps between works that are longer than a launch explains."""
        return self.last_ns - self.first_ns - self.busy_ns - self.short_ns


@frozen
class IdleAccount:
    """All GPUs, and why parts of their idle time could not be told."""

    gpus: tuple[GpuAccount, ...]
    unknown: tuple[Missing, ...] = ()


@lru_cache(maxsize=2)
def idle_account(trace: Trace) -> IdleAccount:
    """The account of every GPU of a timeline; of none where the trace has no work on one.

    Kept for the newest traces: rules, reports and panes ask for the same one.
    """
    work = work_by_gpu(trace)
    if not work:
        return IdleAccount(())
    start, end = _bounds(trace, work)
    host = host_of(trace)
    gpus = tuple(_gpu(gpu, own, host, start, end) for gpu, own in work.items())
    names = {part.name for gpu in gpus for part in gpu.parts if part.cause is Cause.UNKNOWN}
    return IdleAccount(gpus, tuple(missing for missing in _reasons(trace) if missing.what in names))


def _outside(trace: Trace) -> Label:
    """What is outside of all calls is a thread's own code only where OS calls would show."""
    sees_waits = any(trace.why_missing(what) is None for what in (whats.OS_CALLS, whats.CPU_SCHEDULING))
    return (Cause.OWN_CODE, "") if sees_waits else (Cause.UNKNOWN, NOT_TRACED)


def _reasons(trace: Trace) -> Iterator[Missing]:
    """Why idle time is not told, by the name that its part has."""
    before = Unknown("launched before the capture began, or rows are lost", "start the capture a step earlier")
    yield Missing(whats.told(NOT_LAUNCHED), trace.why_missing(whats.CUDA_CALLS) or before)
    os_calls = trace.why_missing(whats.OS_CALLS)
    graphs = trace.why_missing(whats.KERNELS_IN_GRAPHS)
    if graphs is not None:
        yield Missing(whats.told(GRAPHS_UNTRACED), graphs)
    if os_calls is not None:
        yield Missing(
            whats.told(NOT_TRACED), Unknown("its own code, or an OS call: these were not traced", os_calls.remedy)
        )


def _part(label: Label, added: Sum, flags: Flags) -> IdlePart:
    told = tuple(tuple(sorted(counted.items(), key=_most)[:_TOLD]) for counted in (added.functions, added.ranges))
    return IdlePart(
        *label, added.ns, added.gaps, added.longest_ns, **flags._asdict(), functions=told[0], ranges=told[1]
    )


def _most(counted: tuple[str, int]) -> tuple[int, str]:
    name, count = counted
    return -count, name


def _parts(sums: IdleSums) -> tuple[IdlePart, ...]:
    """The largest first; equal ones in the same order each time."""
    parts = (
        _part(label, added, flags)
        for flags, by_label in sums.by_flags.items()
        for label, added in by_label.items()
        if added.ns
    )
    return tuple(sorted(parts, key=_largest))


def _largest(part: IdlePart) -> tuple[object, ...]:
    return -part.ns, part.cause, part.name, part.drained_by or "", part.is_short, part.before_graph, part.is_start


@lru_cache(maxsize=1)
def idle_pieces(trace: Trace) -> Mapping[TrackId, IdlePieces]:
    """The idle time that `idle_account` adds up, piece by piece: what the account of a stretch of time is made of."""
    work = work_by_gpu(trace)
    if not work:
        return {}
    start, end = _bounds(trace, work)
    host = host_of(trace)
    return {gpu: _pieces(own, host, start, end) for gpu, own in work.items()}


@lru_cache(maxsize=1)
def host_of(trace: Trace) -> Host:
    """The CPU side of a timeline, as the account looks at it; kept for the newest trace, as the work is."""
    return Host(trace, _outside(trace))


def gap_pieces(work: GpuWork, host: Host, graphs: Mapping[int, int], i: int, bounds: tuple[int, int]) -> IdlePieces:
    """The pieces of the one gap before work `i`; 0, or one past the last, stands for what is around all of them.

    Args:
        work: Of the GPU.
        host: `host_of` the trace.
        graphs: When the first work of each graph launch began (`graph_works`).
        i: The work.
        bounds: From when to when the capture is.
    """
    recorder = PieceRecorder()
    sums = IdleSums(recorder)
    if 0 < i < len(work):
        _add(sums, work, host, graphs, i)
    else:
        _add_outer(sums, work, host, *bounds)
    return recorder.pieces()


def _bounds(trace: Trace, work: Mapping[TrackId, GpuWork]) -> tuple[int, int]:
    start = min(trace.start_ns, *(own.starts[0] for own in work.values()))
    return start, max(trace.end_ns, *(own.reach[-1] for own in work.values()))


def _pieces(work: GpuWork, host: Host, start: int, end: int) -> IdlePieces:
    recorder = PieceRecorder()
    _, graphs = graph_works(work, host.graphs)
    _add_all(IdleSums(recorder), work, host, graphs, start, end)
    return recorder.pieces()


def _gpu(gpu: TrackId, work: GpuWork, host: Host, start: int, end: int) -> GpuAccount:
    sums, works, graphs = IdleSums(), *graph_works(work, host.graphs)
    _add_all(sums, work, host, graphs, start, end)
    first, last = work.starts[0], work.reach[-1]
    busy = last - first - sums.between_ns
    return GpuAccount(
        gpu, start, end, first, last, busy, len(work), works, len(graphs), _parts(sums),
        sums.short, sums.short_ns, sums.late_ns, sums.joined_ns, busy_over_time(work, start, end, STEPS),
    )  # fmt: skip


def _add_all(sums: IdleSums, work: GpuWork, host: Host, graphs: Mapping[int, int], start: int, end: int) -> None:
    """Add the gaps between works, and the time before the first and after the last."""
    gaps = work.gaps()
    if is_long(len(work)):
        from llmtop.analysis.timeline.bulk import add_gaps

        gaps = add_gaps(sums, work, host, graphs)
    for i in gaps:
        _add(sums, work, host, graphs, i)
    _add_outer(sums, work, host, start, end)


def _add(sums: IdleSums, work: GpuWork, host: Host, graphs: Mapping[int, int], i: int) -> None:
    """Add the gap before a work."""
    since, until = work.reach[i - 1], work.starts[i]
    launch = host.launch(work.joins[i])
    sums.count(until - since, since, None if launch is None else launch[1])
    whole = Flags(None, until - since <= LAUNCH_GAP_NS)
    if _is_inside(work, i, launch, graphs):
        sums.add(whole, INSIDE, since, until, i)
    elif launch is None:
        moved = MIGRATION if whole.is_short else UNTOUCHED
        sums.add(whole, moved if work.joins[i] == MIGRATED else LOST, since, until, i)
    else:
        dark = host.dark_from(work, i, launch)
        sums.add(whole, DARK, dark, until, i)
        _add_gap(sums, launch, since, dark, i)


def _add_outer(sums: IdleSums, work: GpuWork, host: Host, start: int, end: int) -> None:
    """Add the time before the first and after the last work: there was none, or a graph that was not traced.

    The thread that launched the first work may have been at something before, and that work may not have started.
    """
    first, last = work.starts[0], work.reach[-1]
    opens, closes = host.launch(work.joins[0]), host.launch(work.joins[-1])
    before = opens[0].untraced_graph(start, opens[1]) if opens is not None else None
    after = closes[0].untraced_graph(closes[1], end) if closes is not None else None
    lit_until, dark_from = first if before is None else min(before, first), end if after is None else max(after, last)
    outer, before_first = Flags(), Flags(is_start=True)
    if opens is None:
        sums.add(before_first, _BEFORE, start, lit_until, len(work))
    else:
        thread, asked = opens[0], min(max(opens[1], start), lit_until)
        _add_pieces(sums, before_first, thread, thread.pieces_before(start, asked, _BEFORE), len(work))
        sums.add(before_first, QUEUED if lit_until - asked > START_NS else _BEFORE, asked, lit_until, len(work))
    sums.add(outer, (Cause.NO_WORK, AFTER), last, dark_from, len(work))
    sums.add(before_first, DARK, lit_until, first, len(work))
    sums.add(outer, DARK, dark_from, end, len(work))


def graph_works(work: GpuWork, graphs: frozenset[int]) -> tuple[int, dict[int, int]]:
    """How many works graph launches brought, and when the first of each launch began, by its join key."""
    began: dict[int, int] = {}
    works = 0
    if graphs:
        for join, start in zip(work.joins, work.starts, strict=True):
            if join in graphs:
                works += 1
                began.setdefault(join, start)
    return works, began


def _is_inside(work: GpuWork, i: int, launch: Launch | None, graphs: Mapping[int, int]) -> bool:
    """Whether a work is one of a graph that has begun: then no thread has to ask for it.

    Without the call, works that share its id show it: nothing but a graph launches several.
    """
    join = work.joins[i]
    if launch is None:
        return join >= 0 and work.joins[i - 1] == join
    return graphs.get(join, work.starts[i]) < work.starts[i]


def _add_gap(sums: IdleSums, launch: Launch, since: int, until: int, gap: int) -> None:
    """Split a gap at the moment its work had been asked for."""
    thread, returned, is_graph = launch
    asked = min(max(returned, since), until)
    drained_by = thread.drained_by(since) if asked > since else None
    flags = Flags(drained_by, until - since <= LAUNCH_GAP_NS, is_graph)
    if asked > since:
        _add_pieces(sums, flags, thread, thread.pieces(since, asked), gap)
    if until > asked:
        sums.add(flags, waiting(until - asked, was_queued=asked == since), asked, until, gap)


def _add_pieces(sums: IdleSums, flags: Flags, thread: HostThread, pieces: Iterable[Facet], gap: int) -> None:
    """Add what a thread did, with where own code stood and in which ranges calls were made."""
    added = sums.by_flags[flags]
    for label, start, end in pieces:
        sums.add(flags, label, start, end, gap)
        if label[0] is not Cause.OWN_CODE:
            if thread.ranges is not None and (name := thread.range_at(start)):
                added[label].ranges[name] += end - start
        elif thread.functions:
            added[label].functions.update(thread.functions_in(start, end))
