"""GPM: activity of the pipes and the memory of one GPU, from the driver, without privileges and beside any profiler.

A GPM value is an average over the window between two driver samples. What the driver does not say with a return code:
a window that is too short (seen at 20 ms on an H100, driver 580) reads DRAM as NaN and *everything else as 0.0 with
"success"*, a false idle. So windows have a least length, and one without a DRAM value is dropped whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.capability import FIRST_OF
from llmtop.collectors.nvml import cycles
from llmtop.collectors.nvml.errors import explain, explain_code
from llmtop.collectors.nvml.facts import sm_count
from llmtop.collectors.nvml.readings import field as nvml_field
from llmtop.frozen import frozen
from llmtop.model import Metric, Missing, TrackId, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.collectors.base import Clock
    from llmtop.collectors.nvml.device import Device
    from llmtop.collectors.nvml.poll import NvmlPoll

SOURCE = "GPM"
MIN_WINDOW_NS = 100_000_000
"""nvml.h asks for more than 100 ms between samples: the driver refreshes no faster."""
_MIB = 1 << 20
_HIGHEST_PERCENT = 105.0
"""Rounding takes a busy pipe a little over 100; what is far over it is not a measurement."""

_NEEDS_HOPPER = Unknown(
    "GPM needs a Hopper or newer GPU",
    "on older ones start the server with its own FLOP counters (vLLM: --enable-mfu-metrics)",
)
_HAS_NONE = Unknown("this GPU has no GPM", "the server's own FLOP counters (vLLM: --enable-mfu-metrics)")
WAITING = Unknown("the first GPM window is not over yet", "wait for the next poll", UnknownKind.PASSING)
_TOO_SHORT = Unknown("GPM had no DRAM value for this window, so nothing in it counts", "poll less often")
_NOT_A_NUMBER = Unknown("GPM had no value for this window")


@frozen
class _GpmSource:
    """Which GPM metric feeds ours, and what turns its unit into ours."""

    gpm_id: int
    metric: Metric
    scale: float = 1.0


_DRAM_ID = 10
# Ids as in nvml.h (NVML_GPM_METRIC_*). PCIe and NVLink come in MiB/s.
_SOURCES = (
    _GpmSource(1, v.GPU_ACTIVE),
    _GpmSource(2, v.GPU_SM),
    _GpmSource(3, v.GPU_OCCUPANCY),
    _GpmSource(4, v.GPU_INTEGER),
    _GpmSource(5, v.GPU_TENSOR),
    _GpmSource(6, v.GPU_TENSOR_DFMA),
    _GpmSource(7, v.GPU_TENSOR_HMMA),
    _GpmSource(9, v.GPU_TENSOR_IMMA),
    _GpmSource(_DRAM_ID, v.GPU_DRAM),
    _GpmSource(11, v.GPU_FP64),
    _GpmSource(12, v.GPU_FP32),
    _GpmSource(13, v.GPU_FP16),
    _GpmSource(20, v.GPU_PCIE_TX, _MIB),
    _GpmSource(21, v.GPU_PCIE_RX, _MIB),
    _GpmSource(60, v.GPU_NVLINK_RX, _MIB),
    _GpmSource(61, v.GPU_NVLINK_TX, _MIB),
)
_C2C_SOURCES = (_GpmSource(100, v.GPU_C2C_TX, _MIB), _GpmSource(101, v.GPU_C2C_RX, _MIB))
_C2C_LINK_COUNT = 170
"""NVML_FI_DEV_C2C_LINK_COUNT: not supported where GPU and CPU are not of one package."""
METRICS = (*(source.metric for source in (*_SOURCES, *_C2C_SOURCES)), v.GPU_SM_CLOCK_TRUE)
CLOCK_SOURCE = "GPM raw cycles"


@dataclass(slots=True)
class Window:
    """What one window gave: values in the metrics' own units, and why others have none."""

    values: dict[Metric, float] = field(default_factory=dict)
    missing: dict[Metric, Unknown] = field(default_factory=dict)


def why_not(nvml: Any, handle: Any) -> Unknown | None:
    """Why a GPU has no GPM, None if it has: the driver's word, never judged by the GPU's name.

    Raises:
        NVMLError: The GPU did not answer.
    """
    try:
        supported = nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        supported = False
    if supported:
        return None
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError_NotSupported:
        return _NEEDS_HOPPER
    return _NEEDS_HOPPER if (major, minor) < FIRST_OF["Hopper"] else _HAS_NONE


def _sources(nvml: Any, handle: Any) -> tuple[_GpmSource, ...]:
    try:
        has_c2c = nvml_field(nvml, handle, _C2C_LINK_COUNT) > 0
    except nvml.NVMLError:
        has_c2c = False
    return (*_SOURCES, *_C2C_SOURCES) if has_c2c else _SOURCES


class GpmSampler:
    """The driver samples of one GPU: the end of one window is the start of the next.

    `take` and `read` are apart so that the windows of all GPUs start and end together.

    Args:
        instance: The GPU instance to sample, of a GPU in MIG mode; None for all of the GPU.
        sms: How many SMs the GPU has, to tell their clock; None where that is not known.

    Raises:
        NVMLError: From every method, as the driver gives it.
    """

    def __init__(
        self, nvml: Any, handle: Any, clock: Clock, instance: int | None = None, sms: int | None = None
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._clock = clock
        self._sources = _sources(nvml, handle)
        self._base, self._fresh = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._cycles = None if instance is not None else _Cycles(self._base, self._fresh, sms)
        self._base_ns: int | None = None
        self._fresh_ns: int | None = None
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(self._sources)
        for slot, source in zip(self._request.metrics, self._sources, strict=False):
            slot.metricId = source.gpm_id

    def take(self) -> None:
        """End the window here, unless it would be too short: then it goes on."""
        now_ns = self._clock()
        if self._base_ns is not None and now_ns - self._base_ns < MIN_WINDOW_NS:
            return
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, self._fresh)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, self._fresh)
        self._fresh_ns = now_ns

    def read(self, nvml_mhz: float | Unknown) -> Window | Unknown | None:
        """The window that `take` ended: its values, or why it has none; None while it goes on.

        Args:
            nvml_mhz: The SMs' clock as NVML has just told it.
        """
        if self._fresh_ns is None:
            return None
        is_first = self._base_ns is None
        try:
            if is_first:
                return WAITING
            self._request.sample1, self._request.sample2 = self._base, self._fresh
            metrics = self._nvml.nvmlGpmMetricsGet(self._request).metrics
            window = _window(metrics, self._sources)
            if self._cycles is not None and isinstance(window, Window):
                self._add_clock(window, self._cycles, metrics, nvml_mhz)
            return window
        finally:
            self._base, self._fresh = self._fresh, self._base
            self._base_ns, self._fresh_ns = self._fresh_ns, None

    def _add_clock(self, window: Window, counted: _Cycles, metrics: Any, nvml_mhz: float | Unknown) -> None:
        if isinstance(nvml_mhz, Unknown):
            window.missing[v.GPU_SM_CLOCK_TRUE] = nvml_mhz
            return
        percents = [
            slot.value
            for slot, source in zip(metrics, self._sources, strict=False)
            if slot.nvmlReturn == 0 and source.metric.unit == "%"
        ]
        mhz = counted.mhz(self._base, self._fresh, percents, nvml_mhz=nvml_mhz, taken_ns=self._fresh_ns or 0)
        if isinstance(mhz, Unknown):
            window.missing[v.GPU_SM_CLOCK_TRUE] = mhz
        else:
            window.values[v.GPU_SM_CLOCK_TRUE] = mhz

    def free(self) -> None:
        """Give the driver its samples back."""
        for sample in (self._base, self._fresh):
            self._nvml.nvmlGpmSampleFree(sample)


class _Cycles:
    """The SMs' clock out of two samples that take turns."""

    def __init__(self, base: Any, fresh: Any, sms: int | None) -> None:
        raw = cycles.raw_samples(base, fresh)
        self._raw = {} if raw is None else {id(base): raw[0], id(fresh): raw[1]}
        self._clock = cycles.SmClock(sms) if sms else None

    def mhz(self, base: Any, fresh: Any, percents: list[float], *, nvml_mhz: float, taken_ns: int) -> float | Unknown:
        """Over the window between them, or why it cannot be told."""
        if self._clock is None:
            return cycles.NO_SMS
        if not self._raw:
            return cycles.NO_SIZE
        first, second = self._raw[id(base)], self._raw[id(fresh)]
        return self._clock.window(first, second, percents, nvml_mhz=nvml_mhz, taken_ns=taken_ns)


class GpmTrack:
    """GPM of one track: samples it where the driver can, and says why where it cannot.

    Args:
        device: The GPU's, also for an instance of it.
        track: Where the readings go.

    Raises:
        GpuDownError: From every method but `free`, when the GPU does not answer any more.
    """

    def __init__(self, device: Device, track: TrackId, clock: Clock, instance: int | None = None) -> None:
        self._device = device
        self._track = track
        self._sampler: GpmSampler | None = None
        self._missing: tuple[Missing, ...] = ()
        try:
            self.why_not: Unknown | None = device.ask(why_not)
            if self.why_not is None:
                sms = None if instance is not None else device.fact(sm_count)
                known = sms if isinstance(sms, int) else None
                self._sampler = device.ask(lambda nvml, handle: GpmSampler(nvml, handle, clock, instance, known))
        except device.error as error:
            self.why_not = explain(error)
        self._say(self.why_not or WAITING)

    def take(self, news: NvmlPoll) -> None:
        """End the window; first on all GPUs, so that windows agree."""
        if self._sampler is not None:
            self._step(news, self._sampler.take)

    def read(self, news: NvmlPoll) -> None:
        """Read the window that `take` ended."""
        sampler, clock = self._sampler, news.told(self._track, v.GPU_SM_CLOCK)
        window = None if sampler is None else self._step(news, lambda: sampler.read(clock))
        if isinstance(window, Unknown):
            self._lose_window(news, window)
        elif window is not None:
            self._use_window(news, window)
        news.missing.extend(self._missing)

    def free(self) -> None:
        """Give the driver its samples back."""
        if self._sampler is None:
            return
        sampler, self._sampler = self._sampler, None
        try:
            sampler.free()
        except self._device.error:
            return  # the driver is gone, and its samples with it

    def _step(self, news: NvmlPoll, step: Callable[[], Window | Unknown | None]) -> Window | Unknown | None:
        """One call of the sampler; its failure is a window without values."""
        try:
            result: Window | Unknown | None = self._device.ask(lambda *_: step())
        except self._device.error as error:
            self._lose_window(news, explain(error))
            return None
        return result

    def _say(self, why: Unknown) -> None:
        self._missing = (Missing(whats.facet(self._track, whats.Facet.GPM), why),)

    def _lose_window(self, news: NvmlPoll, why: Unknown) -> None:
        self._say(why)
        for metric in METRICS:
            news.gap(self._track, metric, SOURCE)

    def _use_window(self, news: NvmlPoll, window: Window) -> None:
        for metric, value in window.values.items():
            news.read(self._track, metric, value, CLOCK_SOURCE if metric is v.GPU_SM_CLOCK_TRUE else SOURCE)
        for metric in window.missing:
            news.gap(self._track, metric, SOURCE)
        self._missing = tuple(
            Missing(whats.reading(self._track, metric), why) for metric, why in window.missing.items()
        )


def _window(metrics: Any, sources: tuple[_GpmSource, ...] = _SOURCES) -> Window | Unknown:
    window = Window()
    for slot, source in zip(metrics, sources, strict=False):
        value = _value(slot.nvmlReturn, slot.value, source)
        if not isinstance(value, Unknown):
            window.values[source.metric] = value
        elif source.gpm_id == _DRAM_ID and value is _NOT_A_NUMBER:
            return _TOO_SHORT
        else:
            window.missing[source.metric] = value
    return window


def _value(code: int, value: float, source: _GpmSource) -> float | Unknown:
    if code != 0:
        return explain_code(code)
    if not math.isfinite(value):
        return _NOT_A_NUMBER
    if not math.isfinite(value * source.scale) or value < 0 or (source.metric.unit == "%" and value > _HIGHEST_PERCENT):
        return Unknown(f"GPM gave {value:g} {source.metric.unit}, which cannot be")
    return value * source.scale
