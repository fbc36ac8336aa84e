"""Where the time of steps, ranges, streams and GPUs went: at work and idle by cause, which together are all of it."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.timeline.cover import Cover
from llmtop.columns import alike, picked
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, SpanKind, TrackId

if TYPE_CHECKING:
    from llmtop.analysis.timeline.host import Label
    from llmtop.analysis.timeline.ranges import TimeWindow
    from llmtop.analysis.timeline.sums import IdlePieces
    from llmtop.model import SpanTable, Trace


@frozen
class TimeAccount:
    """Where time of one or more GPUs went, in ns: `busy_ns` and `idle` together are `gpu_ns`.

    Of a stream `gpu_ns` is its own time, and `idle` is empty: that it had no work has no cause of its own.

    Attributes:
        wall_ns: Of all stretches of time that it is of, added up.
        gpu_ns: The same for each GPU.
        busy_ns: With at least one kernel, copy or graph running.
        idle: By cause and name of the call, OS call or range, the largest first.
        families: With at least one kernel of each family running, the longest first; side by side they count each.
        communication_ns: With at least one kernel running that communicates with other GPUs; `exposed_ns` is the part
            in which no other kernel runs.
        kernels, copied, launches: As `TimeWindow` has them, added up.
    """

    wall_ns: int
    gpu_ns: int
    busy_ns: int
    idle: tuple[tuple[Label, int], ...]
    families: tuple[tuple[KernelFamily, int], ...]
    communication_ns: int
    exposed_ns: int
    kernels: int | None
    copied: int | None
    launches: int | None

    @property
    def idle_ns(self) -> int:
        """All of it that is not busy."""
        return self.gpu_ns - self.busy_ns


@frozen
class WorkTime:
    """What covers the time of one GPU, or of one stream.

    Attributes:
        busy: All of its work.
        kernels: All of its kernels; `computing` those that do not communicate; `families` those of each family.
    """

    busy: Cover
    kernels: Cover
    computing: Cover
    families: Mapping[KernelFamily, Cover]

    def exposed(self, start: int, end: int) -> int:
        """Communication beside which nothing is computed: what kernels cover, less what those that compute do."""
        return self.kernels.within(start, end) - self.computing.within(start, end)


@lru_cache(maxsize=2)
def gpu_times(trace: Trace) -> Mapping[TrackId, WorkTime]:
    """Of every GPU that had work, by its track."""
    return _times(trace, ids.gpu_of)


@lru_cache(maxsize=2)
def stream_times(trace: Trace) -> Mapping[TrackId, WorkTime]:
    """Of every stream that had work, by its track."""
    return _times(trace, TrackId)


def _times(trace: Trace, owner: Callable[[str], TrackId]) -> Mapping[TrackId, WorkTime]:
    parts: dict[TrackId, list[tuple[KernelFamily | None, Cover]]] = defaultdict(list)
    for kind in GPU_WORK:
        if (spans := trace.spans.get(kind)) is not None:
            for track, family, cover in _parts(spans, owner):
                parts[track].append((family, cover))
    return {track: _work_time(own) for track, own in parts.items()}


def _parts(spans: SpanTable, owner: Callable[[str], TrackId]) -> Iterator[tuple[TrackId, KernelFamily | None, Cover]]:
    """What the spans of each owner cover; of kernels, those of each family."""
    families = [kernel_kind(name).family if spans.kind == SpanKind.KERNEL else None for name in spans.names]
    owners = [owner(track) for track in spans.tracks]
    found: dict[tuple[TrackId, KernelFamily | None], tuple[array[int], array[int]]] = {}
    for same in alike([spans.track_id, spans.name_id]) if len(spans) else ():
        key = owners[spans.track_id[same[0]]], families[spans.name_id[same[0]]]
        starts, ends = found.setdefault(key, (array("q"), array("q")))
        starts.extend(picked(spans.start_ns, same))
        ends.extend(picked(spans.end_ns, same))
    for own, family in list(found):
        yield own, family, Cover.of(*found.pop((own, family)))


def _work_time(parts: Sequence[tuple[KernelFamily | None, Cover]]) -> WorkTime:
    families = {family: cover for family, cover in parts if family is not None}
    others = [cover for family, cover in parts if family is None]
    every = Cover.union(families.values())
    computing = [cover for family, cover in families.items() if family is not KernelFamily.COMMUNICATION]
    return WorkTime(
        Cover.union([every, *others]) if others else every,
        every,
        Cover.union(computing) if len(computing) < len(families) else every,
        families,
    )


def account_of(
    windows: Sequence[TimeWindow], times: Mapping[TrackId, WorkTime], pieces: Mapping[TrackId, IdlePieces] | None = None
) -> TimeAccount:
    """The account of stretches of time together; those that overlap count each.

    Args:
        windows: The stretches.
        times: What covers the time of the GPUs, or streams, that they are of.
        pieces: Their idle time; None where its causes are not told, as of streams.
    """
    sums: Counter[str] = Counter()
    idle: Counter[Label] = Counter()
    families: Counter[KernelFamily] = Counter()
    for one in windows:
        for gpu in one.gpus:
            start, end, time = one.start_ns, one.end_ns, times[gpu]
            sums["gpu"] += end - start
            sums["busy"] += time.busy.within(start, end)
            sums["exposed"] += time.exposed(start, end)
            idle.update(pieces[gpu].within(start, end) if pieces is not None else {})
            families.update({family: ns for family, cover in time.families.items() if (ns := cover.within(start, end))})
    return TimeAccount(
        wall_ns=sum(one.wall_ns for one in windows),
        gpu_ns=sums["gpu"],
        busy_ns=sums["busy"],
        idle=tuple(sorted(idle.items(), key=lambda part: (-part[1], part[0]))),
        families=tuple(sorted(families.items(), key=lambda part: (-part[1], part[0]))),
        communication_ns=families[KernelFamily.COMMUNICATION],
        exposed_ns=sums["exposed"],
        kernels=_together(one.kernels for one in windows),
        copied=_together(one.copied for one in windows),
        launches=_together(one.launches for one in windows),
    )


def _together(counts: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    total = 0
    for one in counts:
        if one is None:
            return None
        total += one
    return total
