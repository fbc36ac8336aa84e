"""The numbers that NVML gives of a GPU, one call each, and which of them are none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from llmtop import procfs
from llmtop import vocabulary as v
from llmtop.capability import WITHOUT_MEMORY
from llmtop.collectors.nvml.device import NOT_SAID, SENTINELS
from llmtop.collectors.nvml.errors import NOT_SUPPORTED, code_of, explain, explain_code
from llmtop.frozen import frozen
from llmtop.model import TrackId, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from llmtop.collectors.nvml.device import Device
    from llmtop.collectors.nvml.poll import NvmlPoll
    from llmtop.model import Metric

IN_MIG = Unknown("NVML does not report it for a GPU in MIG mode", "GPM metrics, where the GPU has them, still count")
_HIGHEST = {"%": 100.0, "W": 1e5, "MHz": 1e5, "°C": 200.0, "lanes": 64.0}
"""Above these a value is not a measurement: no GPU comes near them."""
_LOWEST = {"1": 1.0, "lanes": 1.0}
"""A link of no generation or width is an answer that the driver does not have."""


@frozen
class Getter:
    """An NVML call that gives one number, and what turns its unit into the metric's."""

    metric: Metric
    call: Callable[[Any, Any], float]
    scale: float = 1.0


def field(nvml: Any, handle: Any, field_id: int) -> float:
    """One of NVML's field values, NVML_FI_*.

    Raises:
        NVMLError: The driver has no such field, or no value for it.
    """
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [field_id])
    if answer.nvmlReturn != 0:
        raise nvml.NVMLError(answer.nvmlReturn)
    return _field_value(answer)


def _field_value(answer: Any) -> float:
    by_type = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # in the order of NVML_VALUE_TYPE_*
    value: float = getattr(answer.value, by_type[answer.valueType])
    return value


def _field(metric: Metric, field_id: int) -> Getter:
    return Getter(metric, lambda nvml, handle: field(nvml, handle, field_id))


def _memory_used(nvml: Any, handle: Any) -> float:
    """Bytes without what the driver reserves for itself, as nvidia-smi counts; older drivers only have it with."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except nvml.NVMLError_FunctionNotFound:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float(memory.used) if memory.used <= memory.total else math.nan


def _clock_reasons(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError_FunctionNotFound:  # the name before driver 535
        return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _temperature(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    except nvml.NVMLError_FunctionNotFound:  # deprecated since NVML 13, and to go in a later one
        return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))


def nvlink_states(nvml: Any, handle: Any) -> list[bool]:
    """For each NVLink that the GPU has, whether it is up.

    Raises:
        NVMLError: The GPU has none.
    """
    states: list[bool] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
            if not states:
                raise
            break
    return states


def _throttled(reason: v.ThrottleReason, field_id: int) -> Getter:
    return _field(v.labelled(v.GPU_THROTTLED, reason), field_id)


FAST = (
    Getter(v.GPU_UTIL, lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
    Getter(v.GPU_SM_CLOCK, lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
    Getter(v.GPU_MEMORY_CLOCK, lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
    Getter(v.GPU_POWER, lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3),
    Getter(v.GPU_CLOCK_REASONS, _clock_reasons),
)
"""Each costs 1 to 8 µs (measured on an H100). PCIe throughput is not among them: that call blocks for 20 ms."""
COSTLY = (Getter(v.GPU_ENERGY, lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), 1e-3),)
"""3 ms of CPU time a call on an H200 (driver 580)."""
SLOW = (
    Getter(v.GPU_TEMPERATURE, _temperature),
    _field(v.GPU_TEMPERATURE_MEMORY, 82),
    Getter(v.GPU_POWER_LIMIT, lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 1e-3),
    _field(v.GPU_ECC_CORRECTED, 3),
    _field(v.GPU_ECC_UNCORRECTED, 4),
    _field(v.GPU_ROWS_CORRECTED, 142),
    _field(v.GPU_ROWS_UNCORRECTED, 143),
    Getter(v.GPU_PCIE_GENERATION, lambda nvml, handle: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    Getter(v.GPU_PCIE_WIDTH, lambda nvml, handle: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    _field(v.GPU_PCIE_REPLAYS, 94),
    _throttled(v.ThrottleReason.POWER_CAP, 74),
    _throttled(v.ThrottleReason.SYNC_BOOST, 76),
    _throttled(v.ThrottleReason.SOFTWARE_THERMAL, 269),
    _throttled(v.ThrottleReason.HARDWARE_THERMAL, 270),
    _throttled(v.ThrottleReason.POWER_BRAKE, 271),
)
"""Up to 0.6 ms each on an H100 (270 and 271), 1.5 ms together. The fields are asked one by one because driver 580
answers 270 and 271 without a type when they are asked with others."""
_NVLINK_ERRORS = {161: "replay", 162: "recovery", 163: "crc"}
"""By field of NVML_FI_DEV_NVLINK_ERROR_DL_*."""
_NOT_ALL_KINDS = Unknown("the driver does not report every kind of NVLink error")


def read_numbers(
    news: NvmlPoll, track: TrackId, device: Device, getters: Iterable[Getter], *, is_mig: bool = False
) -> None:
    """Read what some getters give; each that gives nothing costs only itself.

    Raises:
        GpuDownError: The GPU does not answer any more.
    """
    for getter in getters:
        try:
            value = device.ask(getter.call)
        except device.error as error:
            why = IN_MIG if is_mig and code_of(error) == NOT_SUPPORTED else explain(error)
            news.lacks(track, getter.metric, why)
            continue
        number = _number(getter, value)
        if number is None:
            news.lacks(track, getter.metric, NOT_SAID)
        else:
            news.read(track, getter.metric, number)


def read_nvlink_errors(news: NvmlPoll, track: TrackId, device: Device, links: int) -> None:
    """Read what went wrong on all links together, in one call: of 18 links on an H200 it takes 8 ms.

    Raises:
        GpuDownError: The GPU does not answer any more.
    """
    wanted = [(field_id, link) for link in range(links) for field_id in _NVLINK_ERRORS]
    try:
        answers = device.ask(lambda nvml, handle: nvml.nvmlDeviceGetFieldValues(handle, wanted))
    except device.error as error:
        for metric in (v.GPU_NVLINK_ERRORS, *(v.labelled(v.GPU_NVLINK_ERRORS, k) for k in _NVLINK_ERRORS.values())):
            news.lacks(track, metric, explain(error))
        return
    total = 0.0
    for field_id, kind in _NVLINK_ERRORS.items():
        metric = v.labelled(v.GPU_NVLINK_ERRORS, kind)
        mine = [answer for answer in answers if answer.fieldId == field_id]
        failure = next((answer.nvmlReturn for answer in mine if answer.nvmlReturn != 0), None)
        if failure is None:
            count = sum(_field_value(answer) for answer in mine)
            news.read(track, metric, count)
            total += count
        else:
            news.lacks(track, metric, explain_code(failure))
            total = math.nan
    if math.isnan(total):
        news.lacks(track, v.GPU_NVLINK_ERRORS, _NOT_ALL_KINDS)
    else:
        news.read(track, v.GPU_NVLINK_ERRORS, total)


SHARED_MEMORY = "/proc/meminfo: the machine's memory is the GPU's"


@frozen
class SharedMemory:
    """The machine's memory in bytes: all of it, and what of it no program can have."""

    total: int
    used: int


def shared_memory(device: Device) -> SharedMemory | None:
    """Of a GPU that has no memory of its own; None of another, and where the kernel does not tell."""
    try:
        capability = device.ask(lambda nvml, handle: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    except device.error:
        return None
    if tuple(capability) not in WITHOUT_MEMORY:
        return None
    lines = (line.split() for line in (procfs.read_text("/proc/meminfo") or "").splitlines())
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
    total, available = kib.get("MemTotal"), kib.get("MemAvailable")
    return None if total is None or available is None else SharedMemory(total << 10, (total - available) << 10)


def read_memory(news: NvmlPoll, track: TrackId, device: Device) -> None:
    """Read the memory in use, which every GPU can tell: where it cannot, it is down.

    Raises:
        GpuDownError: The GPU does not answer any more.
    """
    try:
        used = device.ask(_memory_used, is_probe=True)
    except device.error as error:
        shared = shared_memory(device) if code_of(error) == NOT_SUPPORTED else None
        if shared is None:
            news.lacks(track, v.GPU_MEMORY_USED, explain(error))
        else:
            news.read(track, v.GPU_MEMORY_USED, float(shared.used), SHARED_MEMORY)
        return
    if math.isnan(used):
        news.lacks(track, v.GPU_MEMORY_USED, NOT_SAID)
    else:
        news.read(track, v.GPU_MEMORY_USED, used)


def _number(getter: Getter, value: float) -> float | None:
    """The value in the metric's unit; None where it cannot be one."""
    if value in SENTINELS or not math.isfinite(value):
        return None
    number = value * getter.scale
    unit = getter.metric.unit
    return number if _LOWEST.get(unit, 0.0) <= number <= _HIGHEST.get(unit, math.inf) else None
