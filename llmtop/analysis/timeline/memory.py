"""Memory over time of what allocated and gave back: how much is held, at most when, by whom, and whether it grows.

What the events tell and what was there before them are kept apart. Where a tool told the level itself (PyTorch's
allocator), that is the curve; else it is the sum of what is known to be held, and more may have been there before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.steps import find_steps
from llmtop.columns import places_of
from llmtop.frozen import frozen
from llmtop.model import (
    FROM_BEFORE,
    GIVING_BACK_LOST,
    NOT_GIVEN_BACK,
    TORCH_ALLOCATED,
    TORCH_GROWN,
    TORCH_RESERVED,
    SpanKind,
    Unknown,
)
from llmtop.text import range_name

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

_CALLS = (SpanKind.CALL, SpanKind.LAUNCH, SpanKind.BRIEF_CALL, SpanKind.ALLOCATOR)
_TOLD = (TORCH_ALLOCATED.name, TORCH_GROWN.name)
_ENDS = (FROM_BEFORE, NOT_GIVEN_BACK, GIVING_BACK_LOST)
_STEP_MARK = "ProfilerStep#"
_FEWEST_STEPS = 6
"""After the first one, which may warm up: fewer that grow may do so by chance."""
_LEAST_GROWTH = 0.01
"""Of the peak, over all steps."""
_LEAST_GROWN = 1 << 18
"""Bytes over all steps: less is no leak that anybody would look for. Ours."""
NOT_TOLD = "not told"
BEFORE = "from before the capture"
OUTSIDE = "outside ranges and operators"
_NO_EVENTS = Unknown(
    "nothing tells of memory that was got or given back",
    "nsys profile --cuda-memory-usage=true; torch.profiler.profile(profile_memory=True)",
)
_NO_ADDRESSES = Unknown("the events have no addresses: who held what is not known", "profile with a newer PyTorch")


@frozen
class MemoryOwner:
    """All memory that one range or operator got, or that was there before.

    Attributes:
        at_peak, held: Bytes held and allocations living when the pool held most; the largest of these is `largest`.
        count, total: All that it got in the capture.
        kept, kept_count: Of that, what was not given back until the last event.
    """

    name: str
    at_peak: int
    held: int
    largest: int
    count: int
    total: int
    kept: int
    kept_count: int


@frozen
class Growth:
    """Memory that is more after each step than after the one before.

    Attributes:
        steps: How many steps it grew over.
        per_step: Median bytes that a step adds.
        total: From the first to the last of them.
        owners: Who got what is still held, by the steps, the most first: names with bytes.
    """

    steps: int
    per_step: float
    total: float
    owners: tuple[tuple[str, int], ...]


@frozen
class MemoryPool:
    """One kind of memory on one device, of one process where that is told.

    Attributes:
        times, levels: Bytes held from each moment on at which that changes.
        told: Whether the tool told the levels; else they are those of known events, and more may have been held.
        before: Bytes that were there before the first event, in as far as that is known.
        untold: Of these and at the peak, bytes of which no event tells; 0 where all is told by events.
        reserved: The most that the allocator had reserved of the device; None where it does not say.
        owners: The one with the most at the peak first; unknown where events have no addresses.
        lost: Allocations whose giving back is not in the file although their address was got once more.
    """

    track: TrackId
    name: str
    times: array[int]
    levels: array[float]
    told: bool
    before: float
    untold: float
    reserved: float | None
    owners: tuple[MemoryOwner, ...] | Unknown
    lost: int
    growth: Growth | None = None

    @property
    def peak(self) -> float:
        """The most that was held at once, in bytes."""
        return max(self.levels)

    @property
    def peak_ns(self) -> int:
        """When that was first so."""
        return self.times[self.levels.index(self.peak)]

    def at(self, t_ns: int) -> float:
        """What was held at a moment; before the first event what was there before."""
        return _at(self.times, self.levels, t_ns, self.before)

    def over_time(self, start: int, end: int, steps: int) -> list[float]:
        """The most that was held in each of so many equal parts of a time."""
        edges = [start + (end - start) * i // steps for i in range(steps + 1)]
        rows = [bisect_right(self.times, edge) for edge in edges]
        return [max([self.at(edges[i]), *self.levels[rows[i] : rows[i + 1]]]) for i in range(steps)]


def has_memory(trace: Trace) -> bool:
    """Whether there is any, without reading what is read late."""
    return SpanKind.ALLOCATION in trace.spans or any(name in _TOLD for _, name in trace.series)


@lru_cache(maxsize=2)
def memory_pools(trace: Trace) -> tuple[MemoryPool, ...] | Unknown:
    """What each device and process held, the one with the highest peak first."""
    spans = trace.spans.get(SpanKind.ALLOCATION)
    pools = [] if spans is None else [_of_events(trace, *one) for one in _by_pool(spans).items()]
    known = {pool.track for pool in pools if pool.told}
    for (track, name), series in trace.series.items():
        if name in _TOLD and track not in known and any(True for _ in series.known):
            pools.append(_of_series(trace, track, name))
    return tuple(sorted(pools, key=lambda pool: -pool.peak)) or _NO_EVENTS


@frozen
class _Holding:
    """An allocation; `is_before` and `is_kept` where an end of it is not in the capture."""

    start: int
    end: int
    bytes: int
    join: int
    is_before: bool
    is_kept: bool
    is_lost: bool


def _by_pool(spans: SpanTable) -> Mapping[tuple[TrackId, str], list[_Holding]]:
    found: dict[tuple[TrackId, str], list[_Holding]] = defaultdict(list)
    bare = [_bare(name) for name in spans.names]
    ends = [[name.endswith(end) for end in _ENDS] for name in spans.names]
    columns = (spans.name_id, spans.track_id, spans.start_ns, spans.end_ns, spans.amount, spans.correlation)
    for name, track, start, end, size, join in zip(*columns, strict=True):
        found[spans.tracks[track], bare[name]].append(_Holding(start, end, int(size), join, *ends[name]))
    return found


def _bare(name: str) -> str:
    return next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), name)


def _of_events(trace: Trace, of: tuple[TrackId, str], held: Sequence[_Holding]) -> MemoryPool:
    track, name = of
    times, levels = _levels(held)
    before, is_told = float(sum(one.bytes for one in held if one.is_before)), False
    series = trace.series.get((track, TORCH_ALLOCATED.name))
    if series is not None and (samples := list(series.known)):
        first_ns = samples[0][0]
        got = _at(times, levels, first_ns, before) - before
        before, is_told = max(0.0, (series.at(first_ns) or 0.0) - got), True
        times, levels = array("q", (t for t, _ in samples)), array("d", (level for _, level in samples))
    peak = max(levels)
    names = _names_by_join(trace, held)
    owners = _owners(held, names, times[levels.index(peak)])
    pool = MemoryPool(
        track, name, times, levels, is_told, before, max(0.0, peak - sum(one.at_peak for one in owners)),
        _reserved(trace, track), owners, sum(one.is_lost for one in held),
    )  # fmt: skip
    return replace(pool, growth=_growth(trace, pool, held, names))


def _of_series(trace: Trace, track: TrackId, name: str) -> MemoryPool:
    """Where events have no addresses. More that is given back than was got had been held before."""
    series = trace.series[track, name]
    samples = list(series.known)
    before = max(0.0, -min(level for _, level in samples))
    times, levels = array("q", (t for t, _ in samples)), array("d", (before + level for _, level in samples))
    pool = MemoryPool(
        track, series.metric.title, times, levels, name == TORCH_ALLOCATED.name, before, max(levels),
        _reserved(trace, track), _NO_ADDRESSES, 0,
    )  # fmt: skip
    return replace(pool, growth=_growth(trace, pool, (), {}))


def _reserved(trace: Trace, track: TrackId) -> float | None:
    series = trace.series.get((track, TORCH_RESERVED.name))
    return None if series is None else max((value for _, value in series.known), default=None)


def _levels(held: Iterable[_Holding]) -> tuple[array[int], array[float]]:
    """How much is held from each moment on; what is given back at a moment is gone before what is got at it."""
    changes: dict[int, int] = defaultdict(int)
    before = 0
    for one in held:
        if one.is_before:
            before += one.bytes
        else:
            changes[one.start] += one.bytes
        changes[one.end] -= 0 if one.is_kept else one.bytes
    times = sorted(changes)
    return array("q", times), array("d", islice(accumulate(map(changes.__getitem__, times), initial=before), 1, None))


def _at(times: array[int], levels: array[float], t_ns: int, before: float) -> float:
    i = bisect_right(times, t_ns) - 1
    return levels[i] if i >= 0 else before


# -- who asked for it -------------------------------------------------------------------------------------------------


def _owners(held: Iterable[_Holding], names: Mapping[int, str], peak_ns: int) -> tuple[MemoryOwner, ...]:
    by_name: dict[str, list[_Holding]] = defaultdict(list)
    for one in held:
        by_name[BEFORE if one.is_before else names.get(one.join, NOT_TOLD)].append(one)
    owners = [_owner(name, own, peak_ns) for name, own in by_name.items()]
    return tuple(sorted(owners, key=lambda one: (-one.at_peak, -one.total)))


def _owner(name: str, own: Sequence[_Holding], peak_ns: int) -> MemoryOwner:
    living = [one.bytes for one in own if one.start <= peak_ns and (one.is_kept or peak_ns < one.end)]
    kept = [one.bytes for one in own if one.is_kept]
    largest = max(living, default=0)
    return MemoryOwner(
        name, sum(living), len(living), largest, len(own), sum(one.bytes for one in own), sum(kept), len(kept)
    )


def together(owners: Sequence[MemoryOwner], name: str) -> MemoryOwner:
    """All of them as one."""
    columns = ((one.at_peak, one.held, one.count, one.total, one.kept, one.kept_count) for one in owners)
    at_peak, held, *rest = map(sum, zip(*columns, strict=True))
    return MemoryOwner(name, at_peak, held, max(one.largest for one in owners), *rest)


def _names_by_join(trace: Trace, held: Iterable[_Holding]) -> Mapping[int, str]:
    """By join key: the innermost NVTX range and the outermost operator in which the memory was asked for."""
    wanted = {one.join for one in held if one.join >= 0}
    asked: dict[TrackId, list[tuple[int, int]]] = defaultdict(list)
    for kind in _CALLS:
        for spans in (trace.spans.get(kind), trace.more_spans.get(kind)):
            if spans is not None:
                for track, start, join in zip(spans.track_id, spans.start_ns, spans.correlation, strict=True):
                    if join in wanted:
                        asked[spans.tracks[track]].append((start, join))
    found: dict[int, str] = {}
    for thread, moments in asked.items():
        moments.sort()
        ranges = _open_at(trace.spans.get(SpanKind.NVTX), thread, moments)
        operators = _open_at(trace.spans.get(SpanKind.OPERATOR), thread, moments)
        for (_, join), around, within in zip(moments, ranges, operators, strict=True):
            marked = [range_name(name) for name in around[-1:] if not (within and name.startswith(_STEP_MARK))]
            found[join] = ": ".join([*marked, *within[:1]]) or OUTSIDE
    return found


def _open_at(spans: SpanTable | None, thread: TrackId, moments: Sequence[tuple[int, int]]) -> Iterator[Sequence[str]]:
    """The names of a thread's spans that are open at each of some rising moments, the outermost first."""
    if spans is None or thread not in spans.tracks:
        yield from ([] for _ in moments)
        return
    rows = iter(places_of(spans.track_id, spans.tracks.index(thread)))
    following = next(rows, None)
    opened: list[int] = []
    for t_ns, _ in moments:
        while following is not None and spans.start_ns[following] <= t_ns:
            opened = [row for row in opened if spans.end_ns[row] > spans.start_ns[following]]
            opened.append(following)
            following = next(rows, None)
        opened = [row for row in opened if spans.end_ns[row] >= t_ns]
        yield [spans.names[spans.name_id[row]] for row in opened]


# -- growth -----------------------------------------------------------------------------------------------------------


def _growth(trace: Trace, pool: MemoryPool, held: Sequence[_Holding], names: Mapping[int, str]) -> Growth | None:
    """None where it does not grow with every step, or steps are few or not known."""
    steps = find_steps(trace)
    ends = [] if isinstance(steps, Unknown) else sorted({one.cpu_end_ns for one in steps.windows})[1:]
    ends = [t_ns for t_ns in ends if pool.times[0] <= t_ns]
    if len(ends) <= _FEWEST_STEPS:
        return None
    added = [after - before for before, after in pairwise(map(pool.at, ends))]
    if min(added) <= 0 or sum(added) < max(_LEAST_GROWN, _LEAST_GROWTH * pool.peak):
        return None
    by_name: dict[str, int] = defaultdict(int)
    for one in held:
        if ends[0] < one.start <= ends[-1] and (one.is_kept or one.end > ends[-1]):
            by_name[names.get(one.join, NOT_TOLD)] += one.bytes
    owners = sorted(by_name.items(), key=lambda one: -one[1])
    return Growth(len(added), median(added), sum(added), tuple(owners))
