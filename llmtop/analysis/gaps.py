"""When a GPU of a captured timeline had nothing to do, and whether the CPU was late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from llmtop.model import SpanTable, Trace

GPU_WORK = ("kernel", "memcpy", "memset", "graph")
"""Kinds of spans that keep a GPU busy. A graph traced as a whole is one of them: its inside is not idle."""
LAUNCH_GAP_NS = 200_000
"""The longest idle time that can be the cost of a launch: ten times the 20 µs of a slow one (Machine Learning
Systems, Performance Engineering). A longer one is a pause: no request, a synchronisation, Python."""

_Work = tuple[int, int, int]
"""Start, end, join key."""


@dataclass(slots=True)
class GpuGaps:
    """The idle time of one GPU between its first and last work, in ns.

    Attributes:
        busy_ns: Time with at least one kernel, copy or graph running.
        short_ns: Idle time in gaps of at most `LAUNCH_GAP_NS`; `short` is their number.
        long_ns: Idle time in longer gaps.
        late_ns: The part of `short_ns` in gaps whose next work the CPU had not launched when the last one ended.
        joined_ns: The part of `short_ns` for which the launch is in the capture, so that late or not is known.
    """

    gpu: str
    busy_ns: int = 0
    short_ns: int = 0
    short: int = 0
    long_ns: int = 0
    late_ns: int = 0
    joined_ns: int = 0
    works: int = 0

    @property
    def short_share(self) -> float:
        """Short gaps as a share of the time in which the GPU was meant to work: busy and short gaps."""
        total = self.busy_ns + self.short_ns
        return self.short_ns / total if total else 0.0


def gpu_gaps(trace: Trace) -> tuple[GpuGaps, ...]:
    """The gaps of each GPU of a timeline, the GPU with the most short ones first."""
    launched = _launch_ends(trace.spans.get("launch"))
    measured = [_measured(gpu, sorted(work), launched) for gpu, work in _work_by_gpu(trace).items()]
    return tuple(sorted(measured, key=lambda gaps: -gaps.short_ns))


def _launch_ends(launches: SpanTable | None) -> dict[int, int]:
    """When the call returned that launched what has this join key."""
    return {} if launches is None else dict(zip(launches.correlation, launches.end_ns, strict=True))


def _work_by_gpu(trace: Trace) -> dict[str, list[_Work]]:
    work: dict[str, list[_Work]] = defaultdict(list)
    for kind in GPU_WORK:
        if (spans := trace.spans.get(kind)) is not None:
            gpu_by_track = [track.split("/")[0] for track in spans.tracks]
            for track, start, end, join in _columns(spans):
                work[gpu_by_track[track]].append((start, end, join))
    return work


def _columns(spans: SpanTable) -> Iterator[tuple[int, int, int, int]]:
    return zip(spans.track_id, spans.start_ns, spans.end_ns, spans.correlation, strict=True)


def _measured(gpu: str, work: list[_Work], launched: dict[int, int]) -> GpuGaps:
    gaps = GpuGaps(gpu, works=len(work))
    idle_since = work[0][0]
    for start, end, join in work:
        if start > idle_since:
            _count(gaps, start - idle_since, launched.get(join), idle_since)
        gaps.busy_ns += max(0, end - max(start, idle_since))
        idle_since = max(idle_since, end)
    return gaps


def _count(gaps: GpuGaps, length: int, launch_end: int | None, idle_since: int) -> None:
    if length > LAUNCH_GAP_NS:
        gaps.long_ns += length
        return
    gaps.short += 1
    gaps.short_ns += length
    if launch_end is not None:
        gaps.joined_ns += length
        gaps.late_ns += length if launch_end > idle_since else 0
