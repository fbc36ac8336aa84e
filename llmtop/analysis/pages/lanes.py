"""CPU and GPU on one time axis: what the chip did, what the server delivered, and whether its engine got a CPU.

Where probes are attached there are more lanes: what the engine's thread slept in, its waits for the GPU, its launches,
and waits for the GIL.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import grid_of, on_grid, probe_steps, usual_distance, usual_step_ns
from llmtop.analysis.series.readings import (
    busy_metric,
    counter_increase,
    gpu_tracks,
    history,
    rate_history,
    server_track,
    source,
    told_why_absent,
    why_absent,
    why_kind_missing,
    why_no_gpu,
)
from llmtop.analysis.server.processes import watched
from llmtop.analysis.server.tokens import output_history
from llmtop.analysis.threads.probes import library_watch
from llmtop.analysis.threads.shares import Shares, ThreadRow, engine_thread
from llmtop.analysis.views import Lane, LaneKind, LaneMark, Lanes
from llmtop.model import NS_PER_S, PLAIN_ROLE, Metric, Trace, TrackId, TrackKind, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from llmtop.model import Series, SourceLane

WINDOW_NS = 60 * NS_PER_S
"""That lanes show, unless another is asked for."""
RUN_QUEUE_TOP = 25.0
"""Top of the run-queue lane in %, where all of it fits: on a scale to 100 the few per cent that already hurt would not
show. Above it the scale is that of other shares, so that a third never looks fuller than two thirds."""
_BEHIND = {
    "cgroup-throttled": (LaneKind.ENGINE_CPU,),
    "run-queue-starvation": (LaneKind.ENGINE_RUN_QUEUE,),
    "gil-bound": (LaneKind.GIL_WAITS, LaneKind.ENGINE_SLEEP),
    "api-bound": (LaneKind.ENGINE_SLEEP, LaneKind.ENGINE_CPU),
    "cpu-bound": (LaneKind.ENGINE_CPU,),
    "engine-starved": (LaneKind.ENGINE_SLEEP, LaneKind.ENGINE_CPU),
    "idle-polling": (LaneKind.ENGINE_CPU,),
    "kv-bound": (LaneKind.KV_CACHE,),
    "queue-growth": (LaneKind.WAITING,),
    "queue-standing": (LaneKind.WAITING,),
    "requests-held": (LaneKind.WAITING,),
    "process-stopped": (LaneKind.ENGINE_CPU,),
    "process-hung": (LaneKind.ENGINE_CPU,),
    "engine-hung": (LaneKind.ENGINE_CPU,),
    "gpu-bound": (LaneKind.BUSY,),
    "clocks-capped": (LaneKind.BUSY,),
    "straggler": (LaneKind.BUSY,),
    "memory-bound-decode": (LaneKind.DRAM,),
    "compute-bound": (LaneKind.TENSOR,),
    "launch-gaps": (LaneKind.LAUNCHES,),
}
"""By rule: the lanes that its verdict rests on, the best first."""

_NO_PROBES = Unknown(
    "its probes were taken off in this window: they would cost too much",
    "it is tried again by itself",
    UnknownKind.PASSING,
)
HOLD = 2.5
"""A sample stands for this many of the usual distances between samples; after that there is a gap."""


class LaneValue(NamedTuple):
    """What a lane shows at an instant; `age_ns` is how old the sample is that stands there, 0 where none does."""

    title: str
    value: float | Unknown
    unit: str
    age_ns: int


def lanes_at(lanes: Lanes, t_ns: int) -> tuple[LaneValue, ...]:
    """Every lane's value at one instant of the axis: the last sample until then, unless it stands no longer."""
    return tuple(LaneValue(lane.title, *_value_at(lane, t_ns)) for lane in lanes.lanes)


def _value_at(lane: Lane, t_ns: int) -> tuple[float | Unknown, str, int]:
    if lane.why_not is not None:
        return lane.why_not, lane.unit, 0
    place = bisect_right(lane.samples, t_ns, key=lambda sample: sample[0]) - 1
    if place < 0:
        return Unknown("not read yet at this moment"), lane.unit, 0
    t, value = lane.samples[place]
    if value is None:
        return Unknown("the source had no value at this moment"), lane.unit, 0
    usual_ns = usual_distance(sample[0] for sample in lane.samples) or NS_PER_S
    if t_ns - t > HOLD * usual_ns:
        return Unknown(f"not read for {(t_ns - t) / NS_PER_S:.0f} s at this moment"), lane.unit, 0
    return value, lane.unit, t_ns - t


def lanes_view(
    trace: Trace, gpu: TrackId | None = None, window_ns: int = WINDOW_NS, *, has_server: bool = True
) -> Lanes:
    """The lanes of one GPU (a track id; the first where None), of the server, and of its engine thread.

    Without a server under observation (`has_server` False) there are only those of the GPU.
    """
    start_ns = trace.end_ns - window_ns
    lanes = tuple(_gpu_lanes(trace, gpu, window_ns))
    if has_server:
        lanes = (*lanes, *_server_lanes(trace, window_ns), *_engine_lanes(trace, window_ns))
    lanes = (*lanes, *_lanes_of_sources(trace, gpu, window_ns))
    marks = (mark for mark in trace.marks if start_ns <= mark.t_ns <= trace.end_ns)
    return Lanes(start_ns, trace.end_ns, lanes, tuple(LaneMark(m.t_ns, m.text, m.severity.value) for m in marks))


def lane_behind(lanes: Lanes, rule: str) -> str:
    """The title of the lane that shows what a rule's finding is about; that of the tokens for all other rules.

    Empty without a rule.
    """
    drawn = [lane for lane in lanes.lanes if lane.why_not is None]
    wanted = (*_BEHIND.get(rule, ()), *((LaneKind.TOKENS,) if rule else ()))
    return next((lane.title for kind in wanted for lane in drawn if lane.kind is kind), "")


def _gpu_lanes(trace: Trace, gpu: TrackId | None, window_ns: int) -> Iterator[Lane]:
    unused = why_no_gpu(trace)
    tracks = gpu_tracks(trace) if unused is None else ()
    track = gpu or (tracks[0].id if tracks else None)
    for kind, metric, rank in (
        (LaneKind.DRAM, v.GPU_DRAM, 0),
        (LaneKind.TENSOR, v.GPU_TENSOR, 9),
        (LaneKind.BUSY, v.GPU_UTIL if track is None else busy_metric(trace, track), 3),
    ):
        if track is None:
            why = unused or why_kind_missing(trace, TrackKind.GPU)
            yield Lane(metric.title, "%", "", (), why_not=why, rank=rank, kind=kind)
        else:
            title = metric.title if len(tracks) < 2 else f"{metric.title} gpu{ids.gpu_label(track)}"
            lane = _gauge_lane(trace, track, metric, title, window_ns, high=100.0)
            yield replace(lane, rank=rank, kind=kind)


def _server_lanes(trace: Trace, window_ns: int) -> Iterator[Lane]:
    track = server_track(trace)
    if track is None:
        why = why_kind_missing(trace, TrackKind.SERVER)
        yield Lane("tokens", "tok/s", "", (), why_not=why, rank=1, kind=LaneKind.TOKENS)
        yield Lane("waiting", "requests", "", (), why_not=why, rank=4, kind=LaneKind.WAITING)
        return
    samples, where = output_history(trace, track.id, window_ns)
    why_not = None if samples else why_absent(trace, track.id, v.SERVER_OUTPUT_TOKENS)
    yield Lane("tokens", "tok/s", where, samples, why_not=why_not, rank=1, kind=LaneKind.TOKENS)
    waiting = _gauge_lane(trace, track.id, v.SERVER_WAITING, "waiting", window_ns)
    yield replace(waiting, rank=4, kind=LaneKind.WAITING)
    kv = _gauge_lane(trace, track.id, v.SERVER_KV_USAGE, "KV cache", window_ns, high=1.0)
    if kv.why_not is None:  # the server's own pane says why
        yield replace(kv, kind=LaneKind.KV_CACHE)


def _engine_lanes(trace: Trace, window_ns: int) -> Iterator[Lane]:
    engine = engine_thread(trace)
    busiest = PLAIN_ROLE if isinstance(engine, Unknown) else engine.role
    whose = "engine" if watched(trace) == "server" else busiest
    for kind, metric, high, rank in (
        (LaneKind.ENGINE_CPU, v.THREAD_ON_CPU, 100.0, 2),
        (LaneKind.ENGINE_RUN_QUEUE, v.THREAD_RUN_QUEUE, RUN_QUEUE_TOP, 5),
    ):
        title = kind.value.replace("engine", whose)
        if isinstance(engine, Unknown):
            yield Lane(title, "%", "", (), why_not=engine, rank=rank, kind=kind)
            continue
        track = ids.thread(engine.pid, engine.tid)
        # ns of CPU time per second of wall time, as a percentage of one core
        samples = tuple(
            (t, None if rate is None else rate * 100 / NS_PER_S)
            for t, rate in rate_history(trace, track, metric, window_ns)
        )
        highest = max((value for _, value in samples if value is not None), default=0.0)
        top = high if highest <= high else 100.0
        yield Lane(title, "%", source(trace, track, metric), samples, high=top, rank=rank, kind=kind)
    if not isinstance(engine, Unknown):
        yield from _probe_lanes(trace, engine, window_ns)


def _probe_lanes(trace: Trace, engine: ThreadRow, window_ns: int) -> Iterator[Lane]:
    """Lanes of what only probes see; none where there is nothing of it, because their absence has no news."""
    thread, process = ids.thread(engine.pid, engine.tid), ids.process(engine.pid)
    of_time = 100 / NS_PER_S  # ns a second as a percentage
    scheduler, calls = (trace.get(process, clock) for clock in (v.SCHEDULER_OBSERVED, v.SYSCALL_OBSERVED))
    library = library_watch(trace, process)
    in_sync = trace.get(thread, v.THREAD_CUDA_SYNC)
    cause = _longest_sleep(trace, engine, window_ns, but=() if in_sync is None else (v.ThreadCause.CUDA_SYNC,))
    asleep = trace.get(thread, v.labelled(v.THREAD_BLOCKED, cause))
    for rank, kind, unit, series, observed, scale in (
        (6, LaneKind.ENGINE_SLEEP, "%", asleep, scheduler, of_time),
        (7, LaneKind.CUDA_SYNC, "%", in_sync, library, of_time),
        (8, LaneKind.LAUNCHES, "/s", trace.get(thread, v.THREAD_LAUNCHES), library, 1.0),
        (99, LaneKind.GIL_WAITS, "/s", trace.get(process, v.PROCESS_GIL_WAITS), calls, 1.0),
    ):
        if series is not None and observed is not None:
            samples = _probe_samples(trace, series, observed, window_ns, scale)
            why_not = None if any(value is not None for _, value in samples) else _NO_PROBES
            high = 100.0 if unit == "%" else None
            where = source(trace, series.track, series.metric)
            title = f"in {cause}" if kind is LaneKind.ENGINE_SLEEP else kind.value
            yield Lane(title, unit, where, samples, high=high, why_not=why_not, rank=rank, kind=kind)


def _longest_sleep(trace: Trace, engine: ThreadRow, window_ns: int, but: Collection[str]) -> str:
    """What the thread slept in longest over the window, measured at each sleep; what has a lane of its own left out.

    Not of the last seconds: a lane that is another one each time is none.
    """
    if not isinstance(engine.shares, Shares) or not engine.shares.are_causes_exact:
        return ""
    thread = ids.thread(engine.pid, engine.tid)
    slept = {
        cause: counter_increase(trace, thread, v.labelled(v.THREAD_BLOCKED, cause), window_ns)
        for cause, _ in engine.shares.blocked
        if cause not in but
    }
    known = {cause: grown.amount for cause, grown in slept.items() if not isinstance(grown, Unknown)}
    return max(known, key=lambda cause: known[cause], default="")


def _probe_samples(
    trace: Trace, series: Series, observed: Series, window_ns: int, scale: float
) -> tuple[tuple[int, float | None], ...]:
    """A sample at each report of the probes: their counters have one only where they moved."""
    step_ns = usual_step_ns(observed) or NS_PER_S
    first_ns = observed.times[0] if len(observed) else trace.end_ns
    grid = grid_of(max(first_ns, trace.end_ns - window_ns), observed.last_t_ns or trace.end_ns, step_ns)
    cells = list(on_grid(probe_steps(series, observed, grid.start_ns, grid.end_ns), grid))
    if series.metric.unit == "ns":
        _put_back(cells)
    return tuple(
        (grid.start_ns + (i + 1) * step_ns, None if value is None else value * scale) for i, value in enumerate(cells)
    )


def _put_back(cells: list[float | None]) -> None:
    """Time in a cell beyond its length goes to those before it: a sleep is counted when it ends, and began there."""
    over = 0.0
    for i in range(len(cells) - 1, -1, -1):
        value = cells[i]
        if value is None:
            over = 0.0  # what was before the probes looked is nobody's
        else:
            cells[i], over = min(value + over, float(NS_PER_S)), max(0.0, value + over - NS_PER_S)


def _gauge_lane(
    trace: Trace, track: TrackId, metric: Metric, title: str, window_ns: int, high: float | None = None
) -> Lane:
    samples = history(trace, track, metric, window_ns)
    why_not = None if any(value is not None for _, value in samples) else why_absent(trace, track, metric)
    return Lane(title, metric.unit, source(trace, track, metric), samples, high=high, why_not=why_not)


def _lanes_of_sources(trace: Trace, gpu: TrackId | None, window_ns: int) -> Iterator[Lane]:
    """What collectors add of their own (`Source.lanes`)."""
    for one in (lane for owner in trace.sources.all for lane in owner.lanes):
        track = _track_of(trace, one.kind, gpu)
        if track is not None and one.metric.counter:
            yield _rate_lane(trace, track, one, window_ns)
        elif track is not None:
            yield _gauge_lane(trace, track, one.metric, one.metric.title, window_ns, one.high)
        else:
            why = told_why_absent(trace, ids.NONE, one.metric) or why_kind_missing(trace, one.kind)
            yield Lane(one.metric.title, one.metric.unit, "", (), why_not=why)


_ONLY_ONES: Mapping[TrackKind, TrackId] = {TrackKind.HOST: ids.HOST, TrackKind.SELF: ids.SELF}
"""Tracks of which there is one, whether or not any source has described it."""


def _track_of(trace: Trace, kind: TrackKind, gpu: TrackId | None) -> TrackId | None:
    """Whose line a lane shows: what stands beside it on screen, where there is such a one."""
    engine = engine_thread(trace)
    if kind is TrackKind.GPU and gpu is not None:
        return gpu
    if kind in (TrackKind.THREAD, TrackKind.PROCESS) and not isinstance(engine, Unknown):
        return engine.track if kind is TrackKind.THREAD else ids.process(engine.pid)
    return next((track.id for track in trace.tracks_of(kind)), _ONLY_ONES.get(kind))


def _rate_lane(trace: Trace, track: TrackId, lane: SourceLane, window_ns: int) -> Lane:
    """The growth of a counter per second; of one of time its share of the time in %."""
    metric, is_time = lane.metric, lane.metric.unit == "ns"
    scale, unit = (100 / NS_PER_S, "%") if is_time else (1.0, f"{metric.unit}/s")
    rates = rate_history(trace, track, metric, window_ns)
    samples = tuple((t_ns, None if rate is None else rate * scale) for t_ns, rate in rates)
    why_not = None if any(rate is not None for _, rate in rates) else why_absent(trace, track, metric)
    return Lane(metric.title, unit, source(trace, track, metric), samples, high=lane.high, why_not=why_not)
