"""NVIDIA GPUs through NVML, GPM included; everything in the one thread that polls, because a driver call can hang.

Tracks "gpu:<index>" carry the facts index, name, uuid, pci_bus_id, driver, memory_total (bytes), bus_width_bits,
max_memory_mhz, max_sm_mhz, compute_capability ("9.0"), sm_count, mig ("enabled"/"disabled") and gpm ("supported").
Tracks "gpu:<index>/process:<host pid>" are processes on a GPU, with the facts pid and kind.

Read-only: no call here changes the state of a GPU.
"""

from __future__ import annotations

import time
from ctypes import c_void_p, cast
from typing import TYPE_CHECKING, Any, Self

from llmtop.collectors.base import Check
from llmtop.collectors.nvml_errors import TIMEOUT, code_of, explain
from llmtop.collectors.nvml_gpu import Gpu
from llmtop.collectors.nvml_news import News
from llmtop.model import NS_PER_S, Mark, Metric, Missing, Severity, Trace, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from llmtop.collectors.base import Clock

SLOW_NS = 5 * NS_PER_S
"""How often slow values are read, and a lost GPU is looked for."""
_NO_PYNVML = Unknown("the Python module pynvml is not installed", "pip install nvidia-ml-py")
_NO_GPU = Unknown("the driver sees no GPU", "nvidia-smi -L; a container needs `docker run --gpus all`")
_MOST_EVENTS = 100
"""XIDs taken per poll; a storm of them goes on with the next one."""
# The common ones of NVIDIA's XID catalogue.
_XID_WORDS = {
    13: "graphics engine exception: a kernel went wrong",
    31: "memory page fault: a kernel touched what it must not",
    43: "GPU stopped processing: a kernel was ended",
    45: "work was cleaned up: its process was ended",
    48: "double-bit ECC error",
    63: "memory row remapped",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GPU firmware (GSP) does not answer",
    120: "GPU firmware (GSP) error",
}


class NvmlCollector:
    """Polls every GPU of the machine.

    Args:
        clock: Where time is read.
        nvml: A module like pynvml; by default pynvml itself, imported when it is first needed.
    """

    name = "nvml"
    period_s = 0.12
    """A GPM window needs 100 ms, and polls jitter."""

    def __init__(self, clock: Clock = time.monotonic_ns, nvml: ModuleType | None = None) -> None:
        self._clock = clock
        self._nvml: Any = nvml
        self._is_open = False
        self._gpus: list[Gpu] = []
        self._alive: dict[tuple[str, str], Metric] = {}
        self._slow_due_ns: int | None = None
        self._events: Any = None
        self._why_no_xids: dict[str, Unknown] = {}

    def missing(self) -> Unknown | None:
        """Why there is nothing to poll; where there is something, NVML stays open for `__enter__`."""
        why = self._open() or self._why_no_gpu()
        if why is not None:
            self._close()
        return why

    def __enter__(self) -> Self:
        if self._open() is None:
            self._gpus = [Gpu(self._nvml, index, self._clock) for index in range(self._nvml.nvmlDeviceGetCount())]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def poll(self) -> Trace:
        """One look at every GPU; GPM windows end at the same moment on all of them."""
        news = News(self._clock(), self._alive)
        is_slow = self._slow_due_ns is None or news.t_ns >= self._slow_due_ns
        if is_slow:
            self._slow_due_ns = news.t_ns + SLOW_NS
            self._find_lost(news)
        for gpu in self._gpus:
            gpu.take_gpm(news)
        for gpu in self._gpus:
            gpu.read(news, slow=is_slow)
        self._read_events(news)
        tracks = [track for gpu in self._gpus for track in (gpu.track, *gpu.processes.values())]
        return news.trace({track.id: track for track in tracks})

    def _find_lost(self, news: News) -> None:
        lost = [gpu for gpu in self._gpus if not gpu.is_up]
        if lost and all(gpu.was_up and not gpu.is_up for gpu in self._gpus):
            self._close()  # a driver that was reloaded, or a GPU that was reset, answers only to a new NVML
            why = self._open()
            if why is not None:
                for gpu in lost:
                    gpu.why_down = why
                return
        for gpu in lost:
            if gpu.find(news):
                self._watch(gpu)

    # Opening and closing

    def _open(self) -> Unknown | None:
        if self._is_open:
            return None
        try:
            if self._nvml is None:
                import pynvml

                self._nvml = pynvml
            self._nvml.nvmlInit()
        except ImportError:
            return _NO_PYNVML
        except self._nvml.NVMLError as error:
            return explain(error)
        self._is_open = True
        return None

    def _why_no_gpu(self) -> Unknown | None:
        try:
            return None if self._nvml.nvmlDeviceGetCount() else _NO_GPU
        except self._nvml.NVMLError as error:
            return explain(error)

    def _close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
        if not self._is_open:
            return
        self._is_open = False
        try:
            if self._events is not None:
                events, self._events = self._events, None
                self._nvml.nvmlEventSetFree(events)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # the driver went first

    # XID events

    def _watch(self, gpu: Gpu) -> None:
        """Ask for the GPU's XIDs; those of before are not told."""
        self._why_no_xids.pop(gpu.track.id, None)
        try:
            if self._events is None:
                self._events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(gpu.device, self._nvml.nvmlEventTypeXidCriticalError, self._events)
        except self._nvml.NVMLError as error:
            self._why_no_xids[gpu.track.id] = explain(error)

    def _read_events(self, news: News) -> None:
        news.missing.extend(Missing(f"{track}/xid", why) for track, why in self._why_no_xids.items())
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError as error:
                if code_of(error) != TIMEOUT:
                    news.missing.append(Missing("gpu/xid", explain(error)))
                return
            news.marks.append(self._xid_mark(news.t_ns, event))

    def _xid_mark(self, t_ns: int, event: Any) -> Mark:
        addresses = {_address(gpu.device): gpu.track.id for gpu in self._gpus}
        xid = int(event.eventData)
        words = _XID_WORDS.get(xid, "see NVIDIA's XID catalogue")
        return Mark(t_ns, "xid", addresses.get(_address(event.device), "gpu"), f"XID {xid}: {words}", Severity.ERROR)


def _address(handle: Any) -> int | None:
    return cast(handle, c_void_p).value if handle is not None else None


def checks(nvml: ModuleType | None = None) -> tuple[Check, ...]:
    """What `llmtop doctor` says of the GPUs here."""
    collector = NvmlCollector(nvml=nvml)
    why = collector.missing()
    if why is not None:
        return (Check("NVIDIA GPUs (NVML)", why),)
    with collector:
        trace = collector.poll()
    gpus = trace.tracks_of(TrackKind.GPU)
    return (
        *(Check(f"GPU {gpu.facts.get('index', gpu.id)}", trace.why_missing(gpu.id) or _describe(gpu)) for gpu in gpus),
        Check("GPM (live roofline)", _gpm_state(gpus)),
        Check("GPU processes", _first_reason(trace, "/processes") or "visible"),
        Check("XID events", _first_reason(trace, "/xid") or "watched"),
    )


def _describe(gpu: Track) -> str:
    mig = ", MIG" if gpu.facts.get("mig") == "enabled" else ""
    return f"{gpu.name}, driver {gpu.facts['driver']}{mig}"


def _gpm_state(gpus: tuple[Track, ...]) -> str | Unknown:
    states = [gpu.facts.get("gpm", Unknown("the GPU does not answer")) for gpu in gpus]
    reasons = [state for state in states if isinstance(state, Unknown)]
    if not reasons:
        return "supported"
    if len(reasons) == len(states):
        return reasons[0]
    return f"supported on {len(states) - len(reasons)} of {len(states)} GPUs; on the others: {reasons[0].reason}"


def _first_reason(trace: Trace, what: str) -> Unknown | None:
    return next((missing.why for missing in trace.missing if missing.what.endswith(what)), None)
