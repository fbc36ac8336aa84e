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
from llmtop.collectors.nvml_errors import explain_code
from llmtop.model import Metric, Unknown

if TYPE_CHECKING:
    from types import ModuleType

    from llmtop.collectors.base import Clock

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
WAITING = Unknown("the first GPM window is not over yet", "wait for the next poll")
_TOO_SHORT = Unknown("GPM had no DRAM value for this window, so nothing in it counts", "poll less often")
_NOT_A_NUMBER = Unknown("GPM had no value for this window")


@dataclass(frozen=True, slots=True)
class _Source:
    """Which GPM metric feeds ours, and what turns its unit into ours."""

    gpm_id: int
    metric: Metric
    scale: float = 1.0


_DRAM_ID = 10
# Ids as in nvml.h (NVML_GPM_METRIC_*). PCIe and NVLink come in MiB/s.
_SOURCES = (
    _Source(2, v.GPU_SM),
    _Source(3, v.GPU_OCCUPANCY),
    _Source(4, v.GPU_INTEGER),
    _Source(5, v.GPU_TENSOR),
    _Source(6, v.GPU_TENSOR_DFMA),
    _Source(7, v.GPU_TENSOR_HMMA),
    _Source(9, v.GPU_TENSOR_IMMA),
    _Source(_DRAM_ID, v.GPU_DRAM),
    _Source(11, v.GPU_FP64),
    _Source(12, v.GPU_FP32),
    _Source(13, v.GPU_FP16),
    _Source(20, v.GPU_PCIE_TX, _MIB),
    _Source(21, v.GPU_PCIE_RX, _MIB),
    _Source(60, v.GPU_NVLINK_RX, _MIB),
    _Source(61, v.GPU_NVLINK_TX, _MIB),
)
METRICS = tuple(source.metric for source in _SOURCES)


@dataclass(slots=True)
class Window:
    """What one window gave: values in the metrics' own units, and why others have none."""

    values: dict[Metric, float] = field(default_factory=dict)
    missing: dict[Metric, Unknown] = field(default_factory=dict)


def why_not(nvml: ModuleType, device: Any) -> Unknown | None:
    """Why a GPU has no GPM, None if it has: the driver's word, never judged by the GPU's name.

    Raises:
        NVMLError: The GPU did not answer.
    """
    try:
        supported = nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        return _NEEDS_HOPPER
    return None if supported else _NEEDS_HOPPER


class GpmSampler:
    """The driver samples of one GPU: the end of one window is the start of the next.

    `take` and `read` are apart so that the windows of all GPUs start and end together.

    Raises:
        NVMLError: From every method, as the driver gives it.
    """

    def __init__(self, nvml: ModuleType, device: Any, clock: Clock) -> None:
        self._nvml = nvml
        self._device = device
        self._clock = clock
        self._base, self._fresh = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._base_ns: int | None = None
        self._fresh_ns: int | None = None
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(_SOURCES)
        for slot, source in zip(self._request.metrics, _SOURCES, strict=False):
            slot.metricId = source.gpm_id

    def take(self) -> None:
        """End the window here, unless it would be too short: then it goes on."""
        now_ns = self._clock()
        if self._base_ns is not None and now_ns - self._base_ns < MIN_WINDOW_NS:
            return
        self._nvml.nvmlGpmSampleGet(self._device, self._fresh)
        self._fresh_ns = now_ns

    def read(self) -> Window | Unknown | None:
        """The window that `take` ended: its values, or why it has none; None while it goes on."""
        if self._fresh_ns is None:
            return None
        is_first = self._base_ns is None
        try:
            if is_first:
                return WAITING
            self._request.sample1, self._request.sample2 = self._base, self._fresh
            return _window(self._nvml.nvmlGpmMetricsGet(self._request).metrics)
        finally:
            self._base, self._fresh = self._fresh, self._base
            self._base_ns, self._fresh_ns = self._fresh_ns, None

    def free(self) -> None:
        """Give the driver its samples back."""
        for sample in (self._base, self._fresh):
            self._nvml.nvmlGpmSampleFree(sample)


def _window(metrics: Any) -> Window | Unknown:
    window = Window()
    for slot, source in zip(metrics, _SOURCES, strict=False):
        value = _value(slot.nvmlReturn, slot.value, source)
        if not isinstance(value, Unknown):
            window.values[source.metric] = value
        elif source.gpm_id == _DRAM_ID and value is _NOT_A_NUMBER:
            return _TOO_SHORT
        else:
            window.missing[source.metric] = value
    return window


def _value(code: int, value: float, source: _Source) -> float | Unknown:
    if code != 0:
        return explain_code(code)
    if not math.isfinite(value):
        return _NOT_A_NUMBER
    if value < 0 or (source.metric.unit == "%" and value > _HIGHEST_PERCENT):
        return Unknown(f"GPM gave {value:g} {source.metric.unit}, which cannot be")
    return value * source.scale
