"""Traces with a timeline, written as lists of spans, for tests of how they are shown."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.model import Metric, Origin, Series, SpanTable, Trace, Track, TrackId, TrackKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

US = 1_000
PID, MAIN, HELPER = 100, 100, 101
GPU = ids.gpu(0)
COMPUTE, COPIES = ids.stream(GPU, PID, 7), ids.stream(GPU, PID, 13)
THREAD, OTHER = ids.thread(PID, MAIN), ids.thread(PID, HELPER)
GEMM = "nvjet_tst_128x64_64x6_1x2_h_bz_coopA_TNN"
NORM = "void rmsnorm_kernel<float>(float*)"


@dataclass(frozen=True)
class Made:
    """One span; times in microseconds."""

    track: TrackId
    name: str
    start: float
    end: float
    join: int = -1
    bytes: float = float("nan")


def table(kind: str, spans: Sequence[Made]) -> SpanTable:
    spans = sorted(spans, key=lambda span: span.start)
    names, tracks = (tuple(dict.fromkeys(getattr(span, of) for span in spans)) for of in ("name", "track"))
    return SpanTable(
        kind,
        names,
        tracks,
        array("q", (names.index(span.name) for span in spans)),
        array("q", (tracks.index(span.track) for span in spans)),
        array("q", (round(span.start * US) for span in spans)),
        array("q", (round(span.end * US) for span in spans)),
        array("q", (span.join for span in spans)),
        array("d", (span.bytes for span in spans)),
    )


def trace_of(
    spans: Mapping[str, Sequence[Made]], *, end: float, start: float = 0, series: Iterable[Series] = ()
) -> Trace:
    """A trace of these spans by kind, with the tracks that they are on."""
    tables = {kind: table(kind, made) for kind, made in spans.items()}
    return Trace(
        Origin("made-up"),
        round(start * US),
        round(end * US),
        tracks={track.id: track for spans in tables.values() for one in spans.tracks for track in _tracks(one)},
        spans=tables,
        series={(one.track, one.metric.name): one for one in series},
    )


def _tracks(track: TrackId) -> Iterable[Track]:
    if ids.kind(track) is TrackKind.STREAM:
        number = track.rpartition(":")[2]
        return (
            Track(ids.gpu_of(track), TrackKind.GPU, "NVIDIA H100"),
            Track(track, TrackKind.STREAM, f"stream {number}", ids.gpu_of(track)),
        )
    if ids.kind(track) is TrackKind.GPU_PROCESS:
        return (Track(track, TrackKind.GPU_PROCESS, f"process {ids.pid(track)}", ids.gpu_of(track)),)
    process = ids.process_of(track)
    return (
        Track(process, TrackKind.PROCESS, f"process {ids.pid(track)}"),
        Track(track, TrackKind.THREAD, f"thread {ids.tid(track)}", process),
    )


SM = Metric("gpu.sm", "%", title="SM active")


def scene() -> Trace:
    """100 µs: three launches and their kernels on one stream, a copy on another, ranges, a thread that sleeps."""
    launches = [Made(THREAD, "cudaLaunchKernel", at, at + 4, join) for join, at in enumerate((10, 20, 60))]
    kernels = [
        Made(COMPUTE, GEMM, 16, 28, 0),
        Made(COMPUTE, NORM, 28, 32, 1),
        Made(COMPUTE, GEMM, 70, 90, 2),
    ]
    ranges = [
        Made(THREAD, "step 1", 5, 50),
        Made(THREAD, "forward", 8, 40),
        Made(THREAD, "step 2", 55, 95),
        Made(THREAD, "nccl:allReduce", 56, 58),
    ]
    return trace_of(
        {
            "kernel": kernels,
            "memcpy": [Made(COPIES, "copy HtoD", 40, 45, 7, bytes=4096.0)],
            "launch": launches,
            "call": [
                Made(THREAD, "cudaStreamSynchronize", 34, 36),
                Made(THREAD, "cudaMemcpyAsync", 38, 42, 7),
            ],
            "nvtx": ranges,
            "os": [Made(OTHER, "nanosleep", 0, 100)],
        },
        end=100,
        series=[Series.of(GPU, SM, "nsys", [(0, 10.0), (50 * US, 90.0), (90 * US, None)])],
    )
