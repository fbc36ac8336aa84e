"""The GPUs as a pane shows them: activity, memory, power, clocks, links, health, and who uses them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.gpus.health import HealthFact, health
from llmtop.analysis.gpus.stragglers import in_words, stragglers
from llmtop.analysis.roofline.efficiency import EfficiencyView, efficiency_view
from llmtop.analysis.series.readings import (
    BUSY,
    busy_metric,
    gpu_tracks,
    latest,
    source,
    target_gpus,
    told_why_lost,
    why_kind_missing,
)
from llmtop.analysis.server.ranks import peers
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.facts import GpuFact, GpuInstanceFact, GpuProcessFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Fact, Metric, Target, Trace, Track, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.views import Cell

HISTORY_NS = 120 * NS_PER_S
"""Of the small graphs."""
SLOW_PERIOD_NS = 2 * NS_PER_S
"""How often health, processes, stragglers and efficiency are worked out: means of many seconds, or what hardly moves,
which for eight GPUs cost more than all that moves with each reading."""
_MOST_SAMPLES, _FEW_SAMPLES = 120, 30
"""No graph of activity in the pane is wider, and no other one."""
_NOT_OF_INSTANCES = Unknown("power, clock and temperature are of the whole GPU")
_ACTIVITY = (v.GPU_DRAM, v.GPU_SM, v.GPU_TENSOR)
"""Beside how much of the time there is work; what decode is limited by comes first."""
_UNITS = (v.GPU_OCCUPANCY, v.GPU_FP32, v.GPU_FP16, v.GPU_FP64, v.GPU_INTEGER)
_LINKS = (v.GPU_PCIE_RX, v.GPU_PCIE_TX, v.GPU_NVLINK_RX, v.GPU_NVLINK_TX, v.GPU_C2C_RX, v.GPU_C2C_TX)
Values = tuple[float | None, ...]


@frozen
class Gauge:
    """A number now, and how it went."""

    title: str
    value: float | Unknown
    unit: str
    source: str
    history: Values = ()


@frozen
class GpuProcess:
    """A process on a GPU.

    Attributes:
        pid: As the host counts, which is what NVML tells.
        role: What it does for the server under observation; empty when it is none of its processes.
        memory: Bytes.
        sm: Share of time in which a kernel of it ran, in %.
        why_unseen: Why no more is known of it: it is in another PID namespace, say.
    """

    gpu: TrackId
    pid: int
    name: str
    role: str
    memory: float | Unknown
    sm: float | Unknown
    why_unseen: Unknown | None = None

    @property
    def title(self) -> str:
        """What to call it on a screen."""
        return self.role or self.name


@frozen
class GpuRow:
    """One GPU, or one MIG instance of one.

    Attributes:
        label: "0", or "0/3" for instance 3 of GPU 0.
        lost: Why it does not answer; everything else is then unknown.
        activity: How much of the window there was work, and DRAM, SM and tensor activity, in %; the first alone where
            there is no GPM.
        why_no_activity: Why there is no more than the first.
        units: Warps held of those that the SMs can hold, and the activity of other units, as far as they are read: for
            the zoomed pane.
        limits: What holds the clock down, in words; empty when nothing does.
        instances: Its MIG instances.
        straggler: How it departs from its peers; empty when it does not.
    """

    track: TrackId
    label: str
    name: str
    lost: Unknown | None
    activity: tuple[Gauge, ...]
    why_no_activity: Unknown | None
    memory: Gauge
    memory_total: Fact
    power: Gauge
    power_limit: float | Unknown
    sm_clock: Gauge
    true_clock: float | Unknown
    temperature: Gauge
    limits: tuple[str, ...] | Unknown
    links: tuple[Gauge, ...]
    units: tuple[Gauge, ...] = ()
    health: tuple[HealthFact, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    instances: tuple[GpuRow, ...] = ()
    straggler: str = ""


@frozen
class GpusView:
    """All GPUs, and what the server makes of those that it uses.

    Attributes:
        slow_ns: The moment that efficiency and, of each row, health, processes and straggler are of.
    """

    rows: tuple[GpuRow, ...]
    efficiency: EfficiencyView | None = None
    slow_ns: int = 0


def gpus_view(trace: Trace, target: Target | None, last: GpusView | None = None) -> GpusView | Unknown:
    """What the GPU pane shows; efficiency and stragglers only where there is a server.

    Args:
        trace: What the recorder holds.
        target: The server.
        last: The view before this one, of which what moves slowly is kept while it is younger than `SLOW_PERIOD_NS`.
    """
    quick = _quick_rows(trace)
    if isinstance(quick, Unknown):
        return quick
    if last is not None and 0 <= trace.end_ns - last.slow_ns < SLOW_PERIOD_NS and _tracks(last.rows) == _tracks(quick):
        return replace(last, rows=tuple(map(_with_slow_parts_of, quick, last.rows)))
    efficiency = None if target is None else efficiency_view(trace, target)
    return GpusView(_with_slow_parts(trace, target, quick), efficiency, trace.end_ns)


def _quick_rows(trace: Trace) -> tuple[GpuRow, ...] | Unknown:
    """The rows with what moves with each reading."""
    tracks = gpu_tracks(trace)
    if not tracks:
        return why_kind_missing(trace, TrackKind.GPU)
    instances = trace.tracks_of(TrackKind.GPU_INSTANCE)
    return tuple(
        replace(
            _row(trace, track),
            instances=tuple(_instance(trace, one) for one in instances if one.parent == track.id),
        )
        for track in tracks
    )


def _with_slow_parts(trace: Trace, target: Target | None, rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    departures = stragglers(trace, peers(trace, target_gpus(trace, target))) if target is not None else {}
    return tuple(
        replace(
            row,
            health=health(trace, trace.tracks[row.track]),
            processes=gpu_processes(trace, row.track, target),
            straggler=in_words(departures.get(row.track, ())),
        )
        for row in rows
    )


def _with_slow_parts_of(row: GpuRow, last: GpuRow) -> GpuRow:
    return replace(row, health=last.health, processes=last.processes, straggler=last.straggler)


def _tracks(rows: Sequence[GpuRow]) -> list[str]:
    return [row.track for row in rows]


def gpu_processes(trace: Trace, gpu: TrackId, target: Target | None = None) -> tuple[GpuProcess, ...]:
    """The processes with memory on a GPU, the largest first."""
    roles = {one.pid: one.role for one in target.processes} if target is not None else {}
    tracks = (track for track in trace.tracks_of(TrackKind.GPU_PROCESS) if ids.is_gpu_process(track.id, gpu))
    found = [_process(trace, track, gpu, roles) for track in tracks]
    return tuple(sorted(found, key=lambda one: (isinstance(one.memory, Unknown), -_or_zero(one.memory), one.pid)))


def gpu_processes_table(rows: Sequence[GpuRow]) -> RowTable:
    """The processes on all GPUs, for the zoomed pane."""
    columns = (
        Column("gpu", "GPU", width=4),
        Column("pid", "host pid", "1", width=9),
        Column("process", "process", help="what it does for the server, or else its name"),
        Column("name", "name", shrink=1),
        Column("memory", "GPU memory", "bytes", width=10),
        Column("sm", "SM share", "%", width=8, help="share of time in which a kernel of it ran (NVML), not of SMs"),
        Column("seen", "seen here", width=9, shrink=2),
    )
    found = [(row.label, one) for row in rows for one in row.processes]
    cells = tuple(_process_cells(label, one) for label, one in found)
    return RowTable(columns, cells, tuple((one.gpu, one.pid) for _, one in found))


def _process_cells(label: str, one: GpuProcess) -> tuple[Cell, ...]:
    seen: Cell = "yes" if one.why_unseen is None else one.why_unseen
    return (label, one.pid, one.title, one.name if one.role else None, one.memory, one.sm, seen)


def _process(trace: Trace, track: Track, gpu: TrackId, roles: dict[int, str]) -> GpuProcess:
    pid = ids.pid(track.id)
    inner = track.facts.get(GpuProcessFact.CONTAINER_PID)
    why_unseen = inner if isinstance(inner, Unknown) else None
    # A host PID that cannot be seen from here may be another process's number here.
    ours = None if why_unseen else trace.tracks.get(ids.process(pid))
    return GpuProcess(
        gpu=gpu,
        pid=pid,
        name=track.name,
        role=ours.name if ours is not None else "" if why_unseen else roles.get(pid, ""),
        memory=latest(trace, track.id, v.GPU_PROCESS_MEMORY),
        sm=latest(trace, track.id, v.GPU_PROCESS_SM),
        why_unseen=why_unseen,
    )


def _row(trace: Trace, track: Track) -> GpuRow:
    activity, why = _activity(trace, track.id)
    mask = latest(trace, track.id, v.GPU_CLOCK_REASONS)
    return GpuRow(
        track=track.id,
        label=ids.gpu_label(track.id),
        name=track.name,
        lost=told_why_lost(trace, track),
        activity=activity,
        why_no_activity=why,
        memory=_gauge(trace, track.id, v.GPU_MEMORY_USED),
        memory_total=track.facts.get(GpuFact.MEMORY_TOTAL, Unknown("the driver does not tell")),
        power=_gauge(trace, track.id, v.GPU_POWER),
        power_limit=latest(trace, track.id, v.GPU_POWER_LIMIT),
        sm_clock=_gauge(trace, track.id, v.GPU_SM_CLOCK),
        true_clock=latest(trace, track.id, v.GPU_SM_CLOCK_TRUE),
        temperature=_gauge(trace, track.id, v.GPU_TEMPERATURE),
        limits=mask if isinstance(mask, Unknown) else v.clock_reasons(int(mask)),
        links=tuple(_gauge(trace, track.id, metric) for metric in _LINKS if trace.get(track.id, metric) is not None),
        units=tuple(_gauge(trace, track.id, metric) for metric in _UNITS if trace.get(track.id, metric) is not None),
    )


def _instance(trace: Trace, track: Track) -> GpuRow:
    """A MIG instance: its share of the GPU has activity and memory of its own, and nothing else."""
    activity, why = _activity(trace, track.id)
    name = track.facts.get(GpuInstanceFact.PROFILE, track.name)
    return GpuRow(
        track=track.id,
        label=ids.gpu_label(track.id),
        name=track.name if isinstance(name, Unknown) else f"MIG {name}",
        lost=trace.why_missing(whats.track(track.id)),
        activity=activity,
        why_no_activity=why,
        memory=_gauge(trace, track.id, v.GPU_MEMORY_USED),
        memory_total=track.facts.get(GpuFact.MEMORY_TOTAL, Unknown("the driver does not tell")),
        power=_no_gauge(v.GPU_POWER),
        power_limit=_NOT_OF_INSTANCES,
        sm_clock=_no_gauge(v.GPU_SM_CLOCK),
        true_clock=_NOT_OF_INSTANCES,
        temperature=_no_gauge(v.GPU_TEMPERATURE),
        limits=_NOT_OF_INSTANCES,
        links=(),
    )


def _no_gauge(metric: Metric) -> Gauge:
    return Gauge(metric.title, _NOT_OF_INSTANCES, metric.unit, "")


def _activity(trace: Trace, track: TrackId) -> tuple[tuple[Gauge, ...], Unknown | None]:
    gpm = tuple(_gauge(trace, track, metric) for metric in _ACTIVITY)
    busy = _gauge(trace, track, busy_metric(trace, track))
    why = next((gauge.value for gauge in gpm if isinstance(gauge.value, Unknown)), None)
    are_unknown = all(isinstance(gauge.value, Unknown) for gauge in gpm)
    return ((busy,) if are_unknown and not isinstance(busy.value, Unknown) else (busy, *gpm)), why


def _gauge(trace: Trace, track: TrackId, metric: Metric) -> Gauge:
    return Gauge(
        metric.title,
        latest(trace, track, metric),
        metric.unit,
        source(trace, track, metric),
        _history(trace, track, metric, _MOST_SAMPLES if metric in (*BUSY, *_ACTIVITY) else _FEW_SAMPLES),
    )


def _history(trace: Trace, track: TrackId, metric: Metric, most: int) -> Values:
    """The newest samples for a graph."""
    series = trace.get(track, metric)
    return () if series is None else tuple(series.between(trace.end_ns - HISTORY_NS, trace.end_ns).newest(most).samples)


def _or_zero(value: float | Unknown) -> float:
    return 0.0 if isinstance(value, Unknown) else value
