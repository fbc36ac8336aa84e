"""GPU activity from a DCGM exporter, for GPUs without GPM: profiling counters of Volta to Ada, over Prometheus.

Only GPUs that NVML knows and that have no GPM are read, by UUID: two sources of one number would mix. Where NVML cannot
be had at all (a container without the driver's library) the exporter's own index and clocks serve.

DCGM marks what it has no value for by enormous numbers; those, and shares above 100 %, are unknown. The exporter renews
its numbers every 30 s unless told otherwise (its option -c, in ms).
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.gpus import gpus_now
from llmtop.collectors.metrics_http import Fetch, Fetcher
from llmtop.collectors.metrics_text import ExposedSample, Exposition, TextReader, key
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import LIVE, NS_PER_S, Metric, Missing, Reading, Source, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock, Collector
    from llmtop.model import Fact

DEFAULT_URL = "http://127.0.0.1:9400/metrics"
URL_VARIABLE = "LLMTOP_DCGM_URL"
SOURCE = "DCGM"
RETRY_NS = 30 * NS_PER_S
"""Between looks for an exporter that is not there, and for GPUs that NVML does not have."""
_MIB = float(1 << 20)
_FIRST_BLANK = 2.0**47
"""DCGM_FP64_BLANK, 140737488355328.0, and the integer ones near 2**63 stand above all that is measured."""
_INT32_BLANKS = range(0x7FFFFFF0, 0x80000000)
"""DCGM_INT32_BLANK and its neighbours (not found, not supported, not permissioned)."""


@frozen
class _ExportedField:
    """What an exporter's number is for us: the metric, what turns its unit into ours, and the most it can be."""

    metric: Metric
    scale: float = 1.0
    most: float = _FIRST_BLANK


def _ratio(metric: Metric) -> _ExportedField:
    return _ExportedField(metric, 100.0, 1.0)


PROFILING = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _ratio(v.GPU_ACTIVE),
    "DCGM_FI_PROF_SM_ACTIVE": _ratio(v.GPU_SM),
    "DCGM_FI_PROF_SM_OCCUPANCY": _ratio(v.GPU_OCCUPANCY),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": _ratio(v.GPU_INTEGER),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _ratio(v.GPU_TENSOR),
    "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": _ratio(v.GPU_TENSOR_HMMA),
    "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": _ratio(v.GPU_TENSOR_IMMA),
    "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": _ratio(v.GPU_TENSOR_DFMA),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": _ratio(v.GPU_FP64),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _ratio(v.GPU_FP32),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": _ratio(v.GPU_FP16),
    "DCGM_FI_PROF_DRAM_ACTIVE": _ratio(v.GPU_DRAM),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _ExportedField(v.GPU_PCIE_TX),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _ExportedField(v.GPU_PCIE_RX),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _ExportedField(v.GPU_NVLINK_TX),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _ExportedField(v.GPU_NVLINK_RX),
}
"""Shares are 0 to 1, traffic is bytes per second (dcgm-exporter's list of counters)."""
DEVICE = {
    "DCGM_FI_DEV_SM_CLOCK": _ExportedField(v.GPU_SM_CLOCK, most=10_000),
    "DCGM_FI_DEV_MEM_CLOCK": _ExportedField(v.GPU_MEMORY_CLOCK, most=50_000),
    "DCGM_FI_DEV_GPU_TEMP": _ExportedField(v.GPU_TEMPERATURE, most=200),
    "DCGM_FI_DEV_POWER_USAGE": _ExportedField(v.GPU_POWER, most=10_000),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _ExportedField(v.GPU_ENERGY, 1e-3),
    "DCGM_FI_DEV_FB_USED": _ExportedField(v.GPU_MEMORY_USED, _MIB, 1e8),
    "DCGM_FI_DEV_GPU_UTIL": _ExportedField(v.GPU_UTIL, most=100),
}
"""Clocks in MHz, energy in mJ, memory in MiB. Read only where NVML cannot be: NVML's own are fresher."""
_NEEDED = ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")


@frozen
class KnownGpu:
    """What NVML knows of a GPU."""

    index: int
    has_gpm: bool


GpusByUuid = Mapping[str, KnownGpu]


class DcgmCollector:
    """Polls an exporter while a GPU here needs it.

    Args:
        url: Where the exporter is; by default what the environment says, else the exporter's own default.
        fetch: Gets a page; the tests' own, or HTTP.
        known_gpus: What NVML has, by UUID; None where NVML cannot be had.
    """

    name = "dcgm"
    owns = Source(name, (TrackKind.GPU,), metrics=tuple(field.metric for field in PROFILING.values()))
    period_s = 1.0

    def __init__(
        self,
        url: str | None = None,
        clock: Clock = time.monotonic_ns,
        fetch: Fetch | None = None,
        known_gpus: Callable[[], GpusByUuid | None] | None = None,
    ) -> None:
        given = url or os.environ.get(URL_VARIABLE)
        self._url = given or DEFAULT_URL
        self._is_asked_for = given is not None
        self._clock = clock
        self._fetcher = Fetcher(os.getpid())
        self._fetch: Fetch = fetch or self._fetcher
        self._ask_nvml = known_gpus or gpus_of_nvml
        self._gpus: GpusByUuid | None = None
        self._asked_ns: int | None = None
        self._reader = TextReader({key(name) for name in (*PROFILING, *DEVICE)})
        self._not_before_ns = 0
        self._missing: tuple[Missing, ...] = ()
        self._shown: set[tuple[TrackId, Metric]] = set()
        """What the last good page gave, so that a lost exporter leaves gaps and no old values."""

    def missing(self) -> Unknown | None:
        parts = urlsplit(self._url)
        if parts.scheme != "http" or not parts.hostname:
            return Unknown(
                f"{URL_VARIABLE} is not an http:// address: {clean(self._url)}", f"export {URL_VARIABLE}={DEFAULT_URL}"
            )
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fetcher.close()

    @property
    def rests_until_ns(self) -> int:
        return self._not_before_ns

    def poll(self) -> Trace:
        now = self._clock()
        if now < self._not_before_ns:
            return self._trace(now)
        self._look_at_gpus(now)
        if not self._is_needed():
            self._not_before_ns = now + RETRY_NS
            self._missing = ()
            return self._trace(now)
        page = self._page()
        if isinstance(page, Unknown):
            self._not_before_ns = now + RETRY_NS
            # Without an NVIDIA GPU or a wish for it, an exporter that is not there is nobody's loss.
            self._missing = (Missing(whats.source(self.name), page),) if self._is_asked_for or self._gpus else ()
            return self._trace(now, self._gaps(now, set()))
        return self._read(page, self._clock())

    def look(self) -> str | Unknown:
        """What an exporter is worth here, in words."""
        self._look_at_gpus(self._clock())
        if not self._gpus and not self._is_asked_for:
            return "not needed: there is no NVIDIA GPU" if self._gpus is None else "not needed: no GPU answers"
        if not self._is_needed():
            return "not needed: GPM reads every GPU here"
        page = self._page()
        return page if isinstance(page, Unknown) else f"answers at {clean(self._url)}"

    def _trace(
        self, now: int, readings: tuple[Reading, ...] = (), tracks: Mapping[TrackId, Track] | None = None
    ) -> Trace:
        return Trace(LIVE, now, now, tracks=tracks or {}, readings=readings, missing=self._missing)

    def _look_at_gpus(self, now: int) -> None:
        """Ask until NVML has GPUs, then never again: what kind they are does not change."""
        if self._asked_ns is None or (not self._gpus and now - self._asked_ns >= RETRY_NS):
            self._gpus, self._asked_ns = self._ask_nvml(), now

    def _is_needed(self) -> bool:
        return self._gpus is None or any(not gpu.has_gpm for gpu in self._gpus.values())

    def _page(self) -> Exposition | Unknown:
        remedy = f"start dcgm-exporter here, or export {URL_VARIABLE}=http://HOST:PORT/metrics"
        try:
            page = self._fetch(self._url)
        except (OSError, http.client.HTTPException) as error:
            return Unknown(f"no DCGM exporter answers at {clean(self._url)} ({type(error).__name__})", remedy)
        if page.status != 200 or page.is_cut:
            return Unknown(f"{clean(self._url)} answers with status {page.status}", remedy)
        exposition = self._reader.read(page.body.decode("utf-8", "replace"))
        return exposition or Unknown(f"{clean(self._url)} has none of DCGM's numbers", remedy)

    def _read(self, page: Exposition, now: int) -> Trace:
        wanted = PROFILING if self._gpus is not None else PROFILING | DEVICE
        values: dict[tuple[TrackId, Metric], float | None] = {}
        tracks: dict[TrackId, Track] = {}
        for name, field in wanted.items():
            for sample in page.samples.get(key(name), ()):
                gpu = self._gpu(sample)
                if gpu is not None:
                    values[gpu, field.metric] = _value(sample.value, field)
                    if self._gpus is None:
                        tracks[gpu] = _track(gpu, sample)
        self._missing = tuple(self._why_incomplete(page, {gpu for gpu, _ in values}))
        readings = tuple(Reading(gpu, metric, now, value, SOURCE) for (gpu, metric), value in values.items())
        gaps = self._gaps(now, set(values))
        self._shown = set(values)
        return self._trace(now, (*readings, *gaps), tracks)

    def _gaps(self, now: int, still: set[tuple[TrackId, Metric]]) -> tuple[Reading, ...]:
        """A gap for all that was read before and is not any more."""
        gone, self._shown = self._shown - still, self._shown & still
        return tuple(Reading(gpu, metric, now, None, SOURCE) for gpu, metric in sorted(gone, key=str))

    def _gpu(self, sample: ExposedSample) -> TrackId | None:
        """The track of a sample; None for one that is not of a whole GPU, or of one that is not ours to read here."""
        if sample.labels.get("GPU_I_ID"):
            return None
        if self._gpus is None:
            number = sample.labels.get("gpu", "")
            return ids.gpu(int(number)) if number.isascii() and number.isdigit() and len(number) < 5 else None
        known = self._gpus.get(sample.labels.get("UUID", ""))
        return None if known is None or known.has_gpm else ids.gpu(known.index)

    def _why_incomplete(self, page: Exposition, read: set[TrackId]) -> list[Missing]:
        if not read:
            why = Unknown(f"the exporter at {clean(self._url)} has other GPUs than this machine", "see its UUID labels")
            return [Missing(whats.source(self.name), why)]
        return [
            Missing(
                whats.reading(gpu, PROFILING[name].metric),
                Unknown(f"the DCGM exporter does not export {name}", "add it to the exporter's list of counters (-f)"),
            )
            for name in _NEEDED
            if key(name) not in page.samples
            for gpu in sorted(read)
        ]


def _value(value: float | None, field: _ExportedField) -> float | None:
    if value is None or not 0 <= value <= field.most or value >= _FIRST_BLANK or value in _INT32_BLANKS:
        return None
    return value * field.scale


def _track(gpu: TrackId, sample: ExposedSample) -> Track:
    name = sample.labels.get("modelName", "") or gpu
    facts: dict[str, Fact] = {
        GpuFact.INDEX: ids.gpu_index(gpu),
        GpuFact.NAME: name,
        GpuFact.UUID: sample.labels.get("UUID", ""),
    }
    return Track(gpu, TrackKind.GPU, name, facts=facts)


def gpus_of_nvml() -> GpusByUuid | None:
    """The GPUs that NVML has, or None without it, and where it hangs."""
    tracks = gpus_now()
    if tracks is None:
        return None
    known = {track.facts.get(GpuFact.UUID): track.facts for track in tracks}
    return {
        uuid: KnownGpu(index, facts.get(GpuFact.GPM) == "supported")
        for uuid, facts in known.items()
        if isinstance(uuid, str) and isinstance(index := facts.get(GpuFact.INDEX), int)
    }


def checks() -> tuple[DoctorCheck, ...]:
    """For `llmtop doctor`: whether an exporter is needed here, and whether it answers."""
    collector = DcgmCollector()
    why = collector.missing()
    if why is not None:
        return (DoctorCheck("DCGM exporter", why),)
    with collector:
        return (DoctorCheck("DCGM exporter", collector.look()),)


def collector() -> Collector:
    """For the registry."""
    return DcgmCollector()
