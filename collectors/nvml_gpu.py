"""One GPU as NVML shows it: facts, readings, processes; lost and found again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llmtop import vocabulary as v
from llmtop.collectors import nvml_gpm
from llmtop.collectors.nvml_errors import GPU_DOWN, NOT_SUPPORTED, UNKNOWN_ERROR, code_of, explain
from llmtop.model import Fact, Mark, Metric, Missing, Severity, Track, TrackKind, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from llmtop.collectors.base import Clock
    from llmtop.collectors.nvml_news import News

_CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
"""FP32 lanes per SM by compute capability (CUDA C++ Programming Guide, arithmetic throughput); 128 on all others."""
_NOT_AVAILABLE = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""What some drivers leave in an answer that they do not have (NVML_VALUE_NOT_AVAILABLE)."""
_NOT_SAID = Unknown("the driver gives no value")
_IN_MIG = Unknown("NVML does not report it for a GPU in MIG mode", "GPM metrics, where the GPU has them, still count")
_MEMORY_NOT_SAID = Unknown("the driver does not say how much GPU memory the process has")


@dataclass(frozen=True, slots=True)
class _Getter:
    """An NVML call that gives one number, and what turns its unit into the metric's."""

    metric: Metric
    call: Callable[[ModuleType, Any], float]
    scale: float = 1.0


def _memory_used(nvml: ModuleType, device: Any) -> float:
    """Without what the driver reserves for itself, as nvidia-smi counts it; older drivers only have it with."""
    try:
        return float(nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2).used)
    except nvml.NVMLError_FunctionNotFound:
        return float(nvml.nvmlDeviceGetMemoryInfo(device).used)


def _clock_reasons(nvml: ModuleType, device: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
    except nvml.NVMLError_FunctionNotFound:  # the name before driver 535
        return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))


def _temperature(nvml: ModuleType, device: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
    except nvml.NVMLError_FunctionNotFound:  # deprecated since NVML 13, and to go in a later one
        return float(nvml.nvmlDeviceGetTemperatureV(device, nvml.NVML_TEMPERATURE_GPU))


_FAST = (
    _Getter(v.GPU_UTIL, lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu),
    _Getter(v.GPU_SM_CLOCK, lambda nvml, device: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
    _Getter(v.GPU_MEMORY_CLOCK, lambda nvml, device: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)),
    _Getter(v.GPU_POWER, lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device), 1e-3),
    _Getter(v.GPU_ENERGY, lambda nvml, device: nvml.nvmlDeviceGetTotalEnergyConsumption(device), 1e-3),
    _Getter(v.GPU_CLOCK_REASONS, _clock_reasons),
)
"""Each costs 1 to 8 µs (measured on an H100). PCIe throughput is not among them: that call blocks for 20 ms."""
_SLOW = (
    _Getter(v.GPU_TEMPERATURE, _temperature),
    _Getter(v.GPU_POWER_LIMIT, lambda nvml, device: nvml.nvmlDeviceGetEnforcedPowerLimit(device), 1e-3),
)


class GpuDownError(Exception):
    """The GPU does not answer any more."""

    def __init__(self, why: Unknown) -> None:
        super().__init__(why.reason)
        self.why = why


class Gpu:
    """One GPU by its index, which stays its own while it is lost.

    Everything here may raise nothing: a fault of the GPU or the driver ends up in the news.
    """

    def __init__(self, nvml: ModuleType, index: int, clock: Clock) -> None:
        self.index = index
        self.track = Track(f"gpu:{index}", TrackKind.GPU, f"GPU {index}")
        self.processes: dict[int, Track] = {}
        self.device: Any = None
        self.why_down: Unknown | None = Unknown("not looked at yet")
        self.was_up = False
        self._nvml = nvml
        self._clock = clock
        self._gpm: nvml_gpm.GpmSampler | None = None
        self._why_no_gpm: tuple[Missing, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether it answered last time."""
        return self.why_down is None

    def find(self, news: News) -> bool:
        """Look for it, or look whether it is back; True when it answers."""
        try:
            self.device = self._ask(lambda: self._nvml.nvmlDeviceGetHandleByIndex(self.index), is_probe=True)
            self._start_gpm()
            self._describe()
        except (self._nvml.NVMLError, GpuDownError) as error:
            self._go_down(news, error.why if isinstance(error, GpuDownError) else explain(error))
            return False
        if self.was_up:
            news.marks.append(Mark(news.t_ns, "gpu-back", self.track.id, f"GPU {self.index} answers again"))
        self.why_down, self.was_up = None, True
        return True

    def take_gpm(self, news: News) -> None:
        """End the GPM window; first on all GPUs, so that windows agree."""
        if self._gpm is not None and self.is_up:
            gpm = self._gpm
            self._guarded(news, lambda: self._gpm_step(news, gpm.take))

    def read(self, news: News, *, slow: bool) -> None:
        """Read everything that is due."""
        if self.is_up:
            self._guarded(news, lambda: self._read_all(news, slow=slow))
        if self.why_down is not None:
            news.missing.append(Missing(self.track.id, self.why_down))

    def close(self) -> None:
        """Free what the driver holds for us."""
        if self._gpm is not None:
            gpm, self._gpm = self._gpm, None
            try:
                gpm.free()
            except self._nvml.NVMLError:
                return  # the driver is gone, and its samples with it

    def _read_all(self, news: News, *, slow: bool) -> None:
        self._read_memory(news)
        for getter in (*_FAST, *_SLOW) if slow else _FAST:
            self._read_number(news, getter)
        if slow:
            self._describe_slow()
        self._read_processes(news)
        self._read_gpm(news)

    def _guarded(self, news: News, step: Callable[[], None]) -> None:
        try:
            step()
        except GpuDownError as error:
            self._go_down(news, error.why)

    def _ask(self, call: Callable[[], Any], *, is_probe: bool = False) -> Any:
        """Call NVML; a code that means the GPU is down raises GpuDownError, any other error passes through.

        "Unknown Error" means that only from a probe, a call that every GPU can answer.
        """
        try:
            return call()
        except self._nvml.NVMLError as error:
            code = code_of(error)
            if code in GPU_DOWN or (is_probe and code == UNKNOWN_ERROR):
                raise GpuDownError(explain(error)) from error
            raise

    def _go_down(self, news: News, why: Unknown) -> None:
        if self.why_down is None or (not self.was_up and why != self.why_down):
            text = f"GPU {self.index}: {why.reason}"
            news.marks.append(Mark(news.t_ns, "gpu-lost", self.track.id, text, Severity.ERROR))
        self.why_down = why
        news.gap_all(self.track.id)
        self.close()

    def _read_memory(self, news: News) -> None:
        try:
            used = self._ask(lambda: _memory_used(self._nvml, self.device), is_probe=True)
        except self._nvml.NVMLError as error:
            news.lacks(self.track.id, v.GPU_MEMORY_USED, explain(error))
        else:
            news.read(self.track.id, v.GPU_MEMORY_USED, used)

    def _read_number(self, news: News, getter: _Getter) -> None:
        try:
            value = self._ask(lambda: getter.call(self._nvml, self.device))
        except self._nvml.NVMLError as error:
            why = _IN_MIG if code_of(error) == NOT_SUPPORTED and self._is_mig else explain(error)
            news.lacks(self.track.id, getter.metric, why)
            return
        if value in _NOT_AVAILABLE or (getter.metric.unit == "%" and not 0 <= value <= 100):
            news.lacks(self.track.id, getter.metric, _NOT_SAID)
        else:
            news.read(self.track.id, getter.metric, value * getter.scale)

    @property
    def _is_mig(self) -> bool:
        return self.track.facts.get("mig") == "enabled"

    # GPM

    def _start_gpm(self) -> None:
        self.close()
        try:
            why = self._ask(lambda: nvml_gpm.why_not(self._nvml, self.device))
            if why is None:
                self._gpm = nvml_gpm.GpmSampler(self._nvml, self.device, self._clock)
        except self._nvml.NVMLError as error:
            why = explain(error)
        self._why_no_gpm = (Missing(f"{self.track.id}/gpm", why or nvml_gpm.WAITING),)

    def _gpm_step(self, news: News, step: Callable[[], Any]) -> Any:
        """One call of the sampler; its failure is a window without values."""
        try:
            return self._ask(step)
        except self._nvml.NVMLError as error:
            return self._lose_window(news, explain(error))

    def _read_gpm(self, news: News) -> None:
        if self._gpm is not None:
            window = self._gpm_step(news, self._gpm.read)
            if isinstance(window, Unknown):
                self._lose_window(news, window)
            elif window is not None:
                self._use_window(news, window)
        news.missing.extend(self._why_no_gpm)

    def _lose_window(self, news: News, why: Unknown) -> None:
        self._why_no_gpm = (Missing(f"{self.track.id}/gpm", why),)
        for metric in nvml_gpm.METRICS:
            news.gap(self.track.id, metric, nvml_gpm.SOURCE)

    def _use_window(self, news: News, window: nvml_gpm.Window) -> None:
        for metric, value in window.values.items():
            news.read(self.track.id, metric, value, nvml_gpm.SOURCE)
        for metric in window.missing:
            news.gap(self.track.id, metric, nvml_gpm.SOURCE)
        self._why_no_gpm = tuple(
            Missing(f"{self.track.id}/{metric.name}", why) for metric, why in window.missing.items()
        )

    # Processes

    def _read_processes(self, news: News) -> None:
        try:
            graphics = _by_pid(self._ask(lambda: self._nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(self.device)))
            compute = _by_pid(self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device)))
        except self._nvml.NVMLError as error:
            news.missing.append(Missing(f"{self.track.id}/processes", explain(error)))
            return
        memory = graphics | compute  # a process with both kinds of context is in both lists with the same memory
        for pid in [pid for pid in self.processes if pid not in memory]:
            news.forget(self.processes.pop(pid).id)
        for pid, used in memory.items():
            kinds = [kind for kind, pids in (("graphics", graphics), ("compute", compute)) if pid in pids]
            self._read_process(news, pid, " and ".join(kinds), used)

    def _read_process(self, news: News, pid: int, kind: str, used: int | None) -> None:
        track = self.processes.get(pid)
        if track is None:
            track = self.processes[pid] = Track(
                f"{self.track.id}/process:{pid}",
                TrackKind.GPU_PROCESS,
                self._process_name(pid),
                parent=self.track.id,
                facts={"pid": pid, "kind": kind},
            )
        if used is None:
            news.lacks(track.id, v.GPU_PROCESS_MEMORY, _MEMORY_NOT_SAID)
        else:
            news.read(track.id, v.GPU_PROCESS_MEMORY, used)

    def _process_name(self, pid: int) -> str:
        try:
            return clean(self._nvml.nvmlSystemGetProcessName(pid)) or f"pid {pid}"
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return f"pid {pid}"  # of another container, or gone already

    # Facts

    def _describe(self) -> None:
        nvml, device = self._nvml, self.device
        name = self._fact(lambda: nvml.nvmlDeviceGetName(device))
        facts: dict[str, Fact] = {
            "index": self.index,
            "name": name,
            "uuid": self._fact(lambda: nvml.nvmlDeviceGetUUID(device)),
            "pci_bus_id": self._fact(lambda: nvml.nvmlDeviceGetPciInfo(device).busId),
            "driver": self._fact(nvml.nvmlSystemGetDriverVersion),
            "memory_total": self._fact(lambda: nvml.nvmlDeviceGetMemoryInfo(device).total),
            "bus_width_bits": self._fact(lambda: nvml.nvmlDeviceGetMemoryBusWidth(device)),
            "compute_capability": self._fact(lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(device))),
            "sm_count": self._fact(lambda: _sm_count(nvml, device)),
            "gpm": "supported" if self._gpm is not None else self._why_no_gpm[0].why,
        }
        self.track = replace(self.track, name=self.track.name if isinstance(name, Unknown) else str(name), facts=facts)
        self._describe_slow()

    def _describe_slow(self) -> None:
        """Renew what an administrator can change while we look."""
        nvml, device = self._nvml, self.device
        changing: dict[str, Fact] = {
            "mig": self._fact(lambda: "enabled" if nvml.nvmlDeviceGetMigMode(device)[0] else "disabled"),
            "max_sm_mhz": self._fact(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)),
            "max_memory_mhz": self._fact(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_MEM)),
        }
        if any(self.track.facts.get(key) != value for key, value in changing.items()):
            self.track = replace(self.track, facts={**self.track.facts, **changing})

    def _fact(self, call: Callable[[], Any]) -> Fact:
        try:
            value = self._ask(call)
        except (self._nvml.NVMLError, UnicodeDecodeError) as error:
            return explain(error)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            return clean(value)
        return _NOT_SAID if value in _NOT_AVAILABLE else int(value)


def _sm_count(nvml: ModuleType, device: Any) -> int:
    cores = int(nvml.nvmlDeviceGetNumGpuCores(device))
    return cores // _CORES_PER_SM.get(nvml.nvmlDeviceGetCudaComputeCapability(device), 128)


def _by_pid(processes: Any) -> dict[int, int | None]:
    """Memory by host PID: a process in several MIG instances is listed once for each, and those add up."""
    memory: dict[int, int | None] = {}
    for process in processes:
        used = process.usedGpuMemory
        so_far = memory.get(process.pid, 0)
        memory[process.pid] = None if used is None or so_far is None else so_far + used
    return memory
