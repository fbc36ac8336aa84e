"""The account itself: every nanosecond in which a GPU of a timeline had nothing to do, under one cause.

Between two works the thread counts that launched the second: until it has asked for that work, the GPU waits for the
thread; from then on the work waits on the GPU's side. The work that a graph's launch adds after its first is the
GPU's own affair.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import le
from typing import TypeAlias

from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import (
    KERNELS_IN_GRAPHS,
    LAUNCH_GAP_NS,
    HostThread,
    Label,
    host_threads,
    is_graph_launch,
)
from llmtop.analysis.timeline.work import Work, busy_over_time, work_by_gpu
from llmtop.model import Missing, SpanTable, Trace, TrackId, Unknown

START_NS = 20_000
"""Within this time after its launch a work starts on a GPU that is idle: a slow launch (Machine Learning Systems,
Performance Engineering). One that takes longer waits for something else."""
STEPS = 60
"""Of the picture of a GPU's time: what a line of 80 columns has room for."""
NOT_LAUNCHED = "its launch is not in the capture"
NOT_TRACED = "outside CUDA calls"
GRAPHS_UNTRACED = "after graph launches whose work is not in the capture"
_TOLD = 5
"""Functions and ranges that are kept of a part."""
_INSIDE, _LOST, _DARK = (Cause.GRAPH, ""), (Cause.UNKNOWN, NOT_LAUNCHED), (Cause.UNKNOWN, GRAPHS_UNTRACED)
_LATENCY, _TURNAROUND, _QUEUED = (Cause.LATENCY, ""), (Cause.TURNAROUND, ""), (Cause.QUEUED, "")
BEFORE, AFTER = "before its first work", "after its last work"


@dataclass(frozen=True, slots=True)
class IdlePart:
    """Idle time of one GPU that has one cause.

    Attributes:
        name: Of the call, the OS call or the NVTX range; empty where there is none.
        ns: All of it; `longest_ns` is that of the gap with most of it, `gaps` how many gaps have any.
        drained_by: The kind of call under which the GPU had run dry as these gaps began; None where it just ended
            what it had.
        is_short: Whether the gaps are as short as a launch explains (`LAUNCH_GAP_NS`).
        before_graph: Whether what came next was the first work of a graph launch.
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
    functions: tuple[tuple[str, int], ...] = ()
    ranges: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuIdle:
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


@dataclass(frozen=True, slots=True)
class IdleAccount:
    """All GPUs, and why parts of their idle time could not be told."""

    gpus: tuple[GpuIdle, ...]
    unknown: tuple[Missing, ...] = ()


@lru_cache(maxsize=2)
def idle_account(trace: Trace) -> IdleAccount:
    """The account of every GPU of a timeline; of none where the trace has no work on one.

    Kept for the newest traces: rules, reports and panes ask for the same one.
    """
    work = work_by_gpu(trace)
    if not work:
        return IdleAccount(())
    start = min(trace.start_ns, *(own.starts[0] for own in work.values()))
    end = max(trace.end_ns, *(own.reach[-1] for own in work.values()))
    host = _Host(trace)
    gpus = tuple(_gpu(gpu, own, host, start, end) for gpu, own in work.items())
    names = {part.name for gpu in gpus for part in gpu.parts if part.cause is Cause.UNKNOWN}
    return IdleAccount(gpus, tuple(missing for missing in _reasons(trace) if missing.what in names))


_Launch: TypeAlias = tuple[HostThread, int, bool]
"""A call that gave a GPU work: its thread, when it returned, and whether it launched a graph. A plain tuple: there is
one for every gap."""


class _Calls:
    """Calls of one kind, found by join key; sorted columns, as a dictionary of a million calls takes 200 MB."""

    def __init__(self, spans: SpanTable, threads: Mapping[str, HostThread]) -> None:
        self._joins: Sequence[int] = spans.correlation
        self._rows: Sequence[int] = range(len(spans))
        if not all(map(le, self._joins, islice(self._joins, 1, None))):
            self._rows = array("q", sorted(self._rows, key=self._joins.__getitem__))
            self._joins = array("q", map(spans.correlation.__getitem__, self._rows))
        self._spans = spans
        self._by_track = [threads[track] for track in spans.tracks]
        self._are_graphs = [is_graph_launch(name) for name in spans.names]

    def find(self, join: int) -> _Launch | None:
        """The call with this key."""
        i = bisect_left(self._joins, join)
        if i == len(self._joins) or self._joins[i] != join:
            return None
        row, spans = self._rows[i], self._spans
        return self._by_track[spans.track_id[row]], spans.end_ns[row], self._are_graphs[spans.name_id[row]]


class _Host:
    """The CPU side: the calls that gave GPUs work, and the join keys of graph launches."""

    def __init__(self, trace: Trace) -> None:
        threads = host_threads(trace, _outside(trace))
        self._calls = [_Calls(trace.spans[kind], threads) for kind in ("launch", "call") if kind in trace.spans]
        self.graphs = frozenset(_graphs(trace))

    def launch(self, join: int) -> _Launch | None:
        """The call that launched what has this join key; None where it is not in the capture."""
        if join >= 0:
            for calls in self._calls:
                found = calls.find(join)
                if found is not None:
                    return found
        return None

    def dark_from(self, work: Work, i: int, launch: _Launch) -> int:
        """From when on a GPU may have run an untraced graph before this work; when the work began, if never.

        Graphs run in the order of launches: after the work before this one and before this one.
        """
        thread, returned, _ = launch
        since, until = work.reach[i - 1], work.starts[i]
        if not thread.untraced_ns:
            return until
        before = self.launch(work.joins[i - 1])
        launched = thread.untraced_graph(before[1] if before is not None and before[0] is thread else since, returned)
        return until if launched is None else min(max(launched, since), until)


def _graphs(trace: Trace) -> Iterator[int]:
    """The join keys of graph launches."""
    spans = trace.spans.get("launch")
    if spans is not None and any(map(is_graph_launch, spans.names)):
        for join, name in zip(spans.correlation, spans.name_id, strict=True):
            if join >= 0 and is_graph_launch(spans.names[name]):
                yield join


def _outside(trace: Trace) -> Label:
    """What is outside of all calls is a thread's own code only where OS calls would show."""
    sees_waits = any(trace.why_missing(what) is None for what in ("OS calls", "CPU scheduling"))
    return (Cause.OWN_CODE, "") if sees_waits else (Cause.UNKNOWN, NOT_TRACED)


def _reasons(trace: Trace) -> Iterator[Missing]:
    """Why idle time is not told, by the name that its part has."""
    before = Unknown("launched before the capture began, or rows are lost", "start the capture a step earlier")
    yield Missing(NOT_LAUNCHED, trace.why_missing("CUDA calls") or before)
    os_calls = trace.why_missing("OS calls")
    graphs = trace.why_missing(KERNELS_IN_GRAPHS)
    if graphs is not None:
        yield Missing(GRAPHS_UNTRACED, graphs)
    if os_calls is not None:
        yield Missing(NOT_TRACED, Unknown("its own code, or an OS call: these were not traced", os_calls.remedy))


@dataclass(slots=True)
class _Sum:
    """What is added up under one cause and name."""

    ns: int = 0
    gaps: int = 0
    longest_ns: int = 0
    last_gap: int = -1
    in_gap_ns: int = 0
    functions: Counter[str] = field(default_factory=Counter)
    ranges: Counter[str] = field(default_factory=Counter)

    def add(self, ns: int, gap: int) -> None:
        self.ns += ns
        if gap == self.last_gap:
            ns += self.in_gap_ns
        else:
            self.gaps += 1
            self.last_gap = gap
        self.in_gap_ns = ns
        if ns > self.longest_ns:
            self.longest_ns = ns


_Flags: TypeAlias = tuple[Cause | None, bool, bool]
"""What all parts of a gap share: `drained_by`, `is_short` and `before_graph` of `IdlePart`."""


class _Sums:
    """The parts of one GPU's idle time as they are added up."""

    def __init__(self) -> None:
        self.by_flags: dict[_Flags, dict[Label, _Sum]] = defaultdict(lambda: defaultdict(_Sum))
        self.short = self.short_ns = self.late_ns = self.joined_ns = 0

    def count(self, length: int, since: int, launch: _Launch | None) -> None:
        """Count a gap as a whole."""
        if length > LAUNCH_GAP_NS:
            return
        self.short += 1
        self.short_ns += length
        if launch is not None:
            self.joined_ns += length
            self.late_ns += length if launch[1] > since else 0

    def parts(self) -> tuple[IdlePart, ...]:
        """The largest first."""
        parts = (
            _part(label, added, flags)
            for flags, sums in self.by_flags.items()
            for label, added in sums.items()
            if added.ns
        )
        return tuple(sorted(parts, key=lambda part: -part.ns))


def _part(label: Label, added: _Sum, flags: _Flags) -> IdlePart:
    drained_by, is_short, before_graph = flags
    told = (tuple(counter.most_common(_TOLD)) for counter in (added.functions, added.ranges))
    return IdlePart(*label, added.ns, added.gaps, added.longest_ns, drained_by, is_short, before_graph, *told)


def _gpu(gpu: TrackId, work: Work, host: _Host, start: int, end: int) -> GpuIdle:
    sums, idle = _Sums(), 0
    graph_works = _graph_works(work, host.graphs)
    graphs = dict(reversed(graph_works))  # when the first of each began
    for i in work.gaps():
        since, until = work.reach[i - 1], work.starts[i]
        length = until - since
        idle += length
        launch = host.launch(work.joins[i])
        sums.count(length, since, launch)
        is_short = length <= LAUNCH_GAP_NS
        if _is_inside(work, i, launch, graphs):
            sums.by_flags[None, is_short, False][_INSIDE].add(length, i)
        elif launch is None:
            sums.by_flags[None, is_short, False][_LOST].add(length, i)
        else:
            dark = host.dark_from(work, i, launch)
            sums.by_flags[None, is_short, False][_DARK].add(until - dark, i)
            _add_gap(sums, launch, since, dark, i)
    first, last = work.starts[0], work.reach[-1]
    _add_outer(sums, work, host, start, end)
    busy = last - first - idle
    return GpuIdle(
        gpu, start, end, first, last, busy, len(work), len(graph_works), len(graphs), sums.parts(),
        sums.short, sums.short_ns, sums.late_ns, sums.joined_ns, busy_over_time(work, start, end, STEPS),
    )  # fmt: skip


def _add_outer(sums: _Sums, work: Work, host: _Host, start: int, end: int) -> None:
    """Add the time before the first and after the last work: there was none, or a graph that was not traced."""
    first, last = work.starts[0], work.reach[-1]
    opens, closes = host.launch(work.joins[0]), host.launch(work.joins[-1])
    before = opens[0].untraced_graph(start, opens[1]) if opens is not None else None
    after = closes[0].untraced_graph(closes[1], end) if closes is not None else None
    lit_until, dark_from = first if before is None else min(before, first), end if after is None else max(after, last)
    outer = sums.by_flags[None, False, False]
    outer[Cause.NO_WORK, BEFORE].add(lit_until - start, len(work))
    outer[Cause.NO_WORK, AFTER].add(dark_from - last, len(work))
    outer[_DARK].add(first - lit_until + end - dark_from, len(work))


def _graph_works(work: Work, graphs: frozenset[int]) -> list[tuple[int, int]]:
    """The works that graph launches brought: their join key and when they began."""
    if not graphs:
        return []
    return [(join, start) for join, start in zip(work.joins, work.starts, strict=True) if join in graphs]


def _is_inside(work: Work, i: int, launch: _Launch | None, graphs: dict[int, int]) -> bool:
    """Whether a work is one of a graph that has begun: then no thread has to ask for it.

    Without the call, works that share its id show it: nothing but a graph launches several.
    """
    join = work.joins[i]
    if launch is None:
        return join >= 0 and work.joins[i - 1] == join
    return graphs.get(join, work.starts[i]) < work.starts[i]


def _add_gap(sums: _Sums, launch: _Launch, since: int, until: int, gap: int) -> None:
    """Split a gap at the moment its work had been asked for."""
    thread, returned, is_graph = launch
    asked = min(max(returned, since), until)
    drained_by = thread.drained_by(since) if asked > since else None
    added = sums.by_flags[drained_by, until - since <= LAUNCH_GAP_NS, is_graph]
    if asked > since:
        for label, start, end in thread.pieces(since, asked):
            added[label].add(end - start, gap)
            if label[0] is not Cause.OWN_CODE:
                if thread.ranges is not None and (name := thread.range_at(start)):
                    added[label].ranges[name] += end - start
            elif thread.functions:
                added[label].functions.update(thread.functions_in(start, end))
    if until > asked:
        added[_waiting(until - asked, was_queued=asked == since)].add(until - asked, gap)


def _waiting(ns: int, *, was_queued: bool) -> Label:
    """Why work that has been asked for does not run: in the first moments the GPU only takes it up."""
    if ns > START_NS:
        return _QUEUED
    return _TURNAROUND if was_queued else _LATENCY
