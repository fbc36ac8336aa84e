"""The GPUs as a pane shows them: activity, memory, power, clocks, links, and who uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus import clock_reasons
from llmtop.analysis.readings import gpu_tracks, history, latest, source, why_kind_missing
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.model import NS_PER_S, Fact, Metric, Trace, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.views import Cell

HISTORY_NS = 120 * NS_PER_S
"""For one GPU; several have a line each, which has no room for graphs."""
Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number now, and how it went."""

    title: str
    value: float | Unknown
    unit: str
    source: str
    history: Values = ()


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU; `memory` in bytes."""

    pid: int
    name: str
    memory: float | Unknown


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU.

    Attributes:
        activity: SM, DRAM and tensor activity in % of the window; the NVML duty cycle alone where there is no GPM.
        why_no_activity: Why there is no more than the duty cycle.
        limits: What holds the clock down, in words; empty when nothing does.
    """

    track: str
    index: int
    name: str
    activity: tuple[Gauge, ...]
    why_no_activity: Unknown | None
    memory_used: float | Unknown
    memory_total: Fact
    power: float | Unknown
    power_limit: float | Unknown
    sm_clock: float | Unknown
    temperature: float | Unknown
    limits: tuple[str, ...] | Unknown
    links: tuple[Gauge, ...]
    processes: tuple[GpuProcess, ...]


def gpu_rows(trace: Trace) -> tuple[GpuRow, ...] | Unknown:
    """All GPUs by index, or why none is seen."""
    tracks = gpu_tracks(trace)
    window_ns = HISTORY_NS if len(tracks) == 1 else 0
    return tuple(_row(trace, t, window_ns) for t in tracks) if tracks else why_kind_missing(trace, TrackKind.GPU)


def gpu_processes(trace: Trace, gpu: str) -> tuple[GpuProcess, ...]:
    """The processes with memory on a GPU, the largest first."""
    tracks = (track for track in trace.tracks_of(TrackKind.GPU_PROCESS) if track.id.startswith(f"{gpu}/"))
    found = [
        GpuProcess(int(track.id.rpartition(":")[2]), track.name, latest(trace, track.id, v.GPU_PROCESS_MEMORY))
        for track in tracks
    ]
    return tuple(sorted(found, key=lambda one: (isinstance(one.memory, Unknown), -_or_zero(one.memory), one.pid)))


def gpus_table(rows: tuple[GpuRow, ...]) -> RowTable:
    """One row a GPU, then one for each of its processes, for the zoomed pane."""
    columns = (
        Column("gpu", "GPU", width=6),
        Column("name", "name"),
        Column("sm", "SM", "%", width=6, help="share of time with a warp on an SM, averaged over SMs (GPM)"),
        Column("dram", "DRAM", "%", width=6, help="DRAM interface activity (GPM)"),
        Column("tensor", "tensor", "%", width=6, help="tensor pipe activity (GPM)"),
        Column("memory", "memory", "bytes", width=9),
        Column("power", "power", "W", width=7, shrink=1),
        Column("clock", "SM clock", "MHz", width=9, shrink=2),
        Column("temperature", "temp", "°C", width=7, shrink=4),
        Column("limits", "clock held down by", width=20, shrink=3),
    )
    cells: list[tuple[Cell, ...]] = []
    keys: list[str] = []
    for row in rows:
        cells.append(_gpu_cells(row))
        keys.append(row.track)
        for one in row.processes:
            cells.append((f"  {one.pid}", one.name, None, None, None, one.memory, None, None, None, None))
            keys.append(f"{row.track}/{one.pid}")
    return RowTable(columns, tuple(cells), tuple(keys))


def _gpu_cells(row: GpuRow) -> tuple[Cell, ...]:
    by_title = {gauge.title: gauge.value for gauge in row.activity}
    why = row.why_no_activity or Unknown("not read yet")
    sm, dram, tensor = (by_title.get(metric.title, why) for metric in (v.GPU_SM, v.GPU_DRAM, v.GPU_TENSOR))
    limits: Cell = row.limits if isinstance(row.limits, Unknown) else ", ".join(row.limits)
    return (
        *(f"{row.index}", row.name, sm, dram, tensor, row.memory_used),
        *(row.power, row.sm_clock, row.temperature, limits),
    )


def _row(trace: Trace, track: Track, window_ns: int) -> GpuRow:
    def now(metric: Metric) -> float | Unknown:
        return latest(trace, track.id, metric)

    activity, why = _activity(trace, track.id, window_ns)
    mask = now(v.GPU_CLOCK_REASONS)
    return GpuRow(
        track=track.id,
        index=int(track.id.removeprefix("gpu:")),
        name=track.name,
        activity=activity,
        why_no_activity=why,
        memory_used=now(v.GPU_MEMORY_USED),
        memory_total=track.facts.get("memory_total", Unknown("the driver does not tell")),
        power=now(v.GPU_POWER),
        power_limit=now(v.GPU_POWER_LIMIT),
        sm_clock=now(v.GPU_SM_CLOCK),
        temperature=now(v.GPU_TEMPERATURE),
        limits=mask if isinstance(mask, Unknown) else clock_reasons(int(mask)),
        links=tuple(_gauge(trace, track.id, m, 0) for m in _LINKS if (trace.get(track.id, m) is not None)),
        processes=gpu_processes(trace, track.id),
    )


_LINKS = (v.GPU_PCIE_RX, v.GPU_PCIE_TX, v.GPU_NVLINK_RX, v.GPU_NVLINK_TX)


def _activity(trace: Trace, gpu: str, window_ns: int) -> tuple[tuple[Gauge, ...], Unknown | None]:
    gpm = tuple(_gauge(trace, gpu, metric, window_ns) for metric in (v.GPU_SM, v.GPU_DRAM, v.GPU_TENSOR))
    why = next((gauge.value for gauge in gpm if isinstance(gauge.value, Unknown)), None)
    if all(isinstance(gauge.value, Unknown) for gauge in gpm):
        return (_gauge(trace, gpu, v.GPU_UTIL, window_ns),), why
    return gpm, why


def _gauge(trace: Trace, gpu: str, metric: Metric, window_ns: int) -> Gauge:
    values = tuple(value for _, value in history(trace, gpu, metric, window_ns)) if window_ns else ()
    return Gauge(metric.title, latest(trace, gpu, metric), metric.unit, source(trace, gpu, metric), values)


def _or_zero(value: float | Unknown) -> float:
    return 0.0 if isinstance(value, Unknown) else value
