"""CPU and GPU on one time axis: what the chip did, what the server delivered, and whether its engine got a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.readings import (
    gpu_tracks,
    history,
    rate_history,
    server_track,
    source,
    why_absent,
    why_kind_missing,
)
from llmtop.analysis.threads import engine_thread
from llmtop.analysis.views import Lane, LaneMark, Lanes
from llmtop.model import NS_PER_S, Metric, Trace, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_NS = 60 * NS_PER_S
RUN_QUEUE_TOP = 25.0
"""Top of the run-queue lane in %: on a scale to 100 the few per cent that already hurt would not show."""


def lanes_view(trace: Trace, gpu: str | None = None, window_ns: int = WINDOW_NS, *, has_server: bool = True) -> Lanes:
    """The lanes of one GPU (a track id; the first where None), of the server, and of its engine thread.

    Without a server under observation (`has_server` False) there are only those of the GPU.
    """
    start_ns = trace.end_ns - window_ns
    lanes = tuple(_gpu_lanes(trace, gpu, window_ns))
    if has_server:
        lanes = (*lanes, *_server_lanes(trace, window_ns), *_engine_lanes(trace, window_ns))
    marks = (mark for mark in trace.marks if start_ns <= mark.t_ns <= trace.end_ns)
    return Lanes(start_ns, trace.end_ns, lanes, tuple(LaneMark(m.t_ns, m.text, m.severity.value) for m in marks))


def _gpu_lanes(trace: Trace, gpu: str | None, window_ns: int) -> Iterator[Lane]:
    tracks = gpu_tracks(trace)
    track = gpu or (tracks[0].id if tracks else None)
    for metric in (v.GPU_DRAM, v.GPU_TENSOR, v.GPU_SM):
        if track is None:
            yield _absent(metric.title, "%", why_kind_missing(trace, TrackKind.GPU))
        else:
            title = metric.title if len(tracks) < 2 else f"{metric.title} {track.replace(':', '')}"
            yield _gauge_lane(trace, track, metric, title, window_ns, high=100.0)


def _server_lanes(trace: Trace, window_ns: int) -> Iterator[Lane]:
    track = server_track(trace)
    if track is None:
        why = why_kind_missing(trace, TrackKind.SERVER)
        yield _absent("tokens", "tok/s", why)
        yield _absent("waiting", "requests", why)
        return
    samples = rate_history(trace, track.id, v.SERVER_OUTPUT_TOKENS, window_ns)
    why_not = None if samples else why_absent(trace, track.id, v.SERVER_OUTPUT_TOKENS)
    yield Lane("tokens", "tok/s", source(trace, track.id, v.SERVER_OUTPUT_TOKENS), samples, why_not=why_not)
    yield _gauge_lane(trace, track.id, v.SERVER_WAITING, "waiting", window_ns)


def _engine_lanes(trace: Trace, window_ns: int) -> Iterator[Lane]:
    engine = engine_thread(trace)
    for title, metric, high in (
        ("engine CPU", v.THREAD_ON_CPU, 100.0),
        ("engine run-q", v.THREAD_RUN_QUEUE, RUN_QUEUE_TOP),
    ):
        if isinstance(engine, Unknown):
            yield _absent(title, "%", engine)
            continue
        track = f"thread:{engine.pid}/{engine.tid}"
        # ns of CPU time per second of wall time, as a percentage of one core
        samples = tuple(
            (t, None if rate is None else rate * 100 / NS_PER_S)
            for t, rate in rate_history(trace, track, metric, window_ns)
        )
        yield Lane(title, "%", source(trace, track, metric), samples, high=high)


def _gauge_lane(
    trace: Trace, track: str, metric: Metric, title: str, window_ns: int, high: float | None = None
) -> Lane:
    samples = history(trace, track, metric, window_ns)
    why_not = None if any(value is not None for _, value in samples) else why_absent(trace, track, metric)
    return Lane(title, metric.unit, source(trace, track, metric), samples, high=high, why_not=why_not)


def _absent(title: str, unit: str, why: Unknown) -> Lane:
    return Lane(title, unit, "", (), why_not=why)
