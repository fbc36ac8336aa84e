"""NVIDIA GPUs through NVML, GPM included; everything in the one thread that polls, because a driver call can hang.

Tracks "gpu:<index>" carry the facts index, name, uuid, pci_bus_id, minor, driver, memory_total (bytes), bus_width_bits,
max_memory_mhz, max_sm_mhz, compute_capability ("9.0"), sm_count, mig ("enabled"/"disabled"), gpm ("supported"),
pcie_max_generation, pcie_max_width, nvlinks (how many it has), ecc ("enabled"/"disabled"), row_remapping ("none",
"pending", "failed") and recovery_action ("none", "reset the GPU" ...).
Tracks "gpu:<index>/mig:<number>" are MIG instances; `llmtop.vocabulary` lists what they carry.
Tracks "gpu:<index>/process:<host pid>" are processes on a GPU, with the facts pid, kind, mig (the instances it is in)
and container_pid (its PID in its own namespace where that is another; Unknown where a host PID means nothing here).
Marks are of the kinds "gpu-lost", "gpu-back", "xid" and "gpu-event".

Read-only: no call here changes the state of a GPU.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from llmtop import procfs
from llmtop.collectors.base import Check
from llmtop.collectors.kernel_log import KernelLog
from llmtop.collectors.nvml_errors import explain
from llmtop.collectors.nvml_events import Events
from llmtop.collectors.nvml_gpu import Gpu
from llmtop.collectors.nvml_news import Due, News, Pace
from llmtop.model import NS_PER_S, Metric, Missing, Trace, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType, TracebackType

    from llmtop.collectors.base import Clock

SLOW_NS = 5 * NS_PER_S
"""How often slow values are read, and a lost or a new GPU is looked for."""
COSTLY_NS, COSTLY_FIRST_NS = 5 * NS_PER_S, NS_PER_S
"""How often energy and shares are read; the second time comes soon, so that a short look has a rate too."""
LINKS_NS = 10 * NS_PER_S
"""How often errors of NVLinks are read: 8 ms of CPU time for 18 links."""
_LONG_POLL_NS = 3 * NS_PER_S
"""After a poll that hung for so long slow values are due at once: what they were is over (`llmtop.session`)."""
_NO_PYNVML = Unknown("the Python module pynvml is not installed", "pip install nvidia-ml-py")
_NO_GPU = Unknown("the driver sees no GPU", "nvidia-smi -L; a container needs `docker run --gpus all`")


class NvmlCollector:
    """Polls every GPU of the machine.

    Args:
        clock: Where time is read.
        nvml: A module like pynvml; by default pynvml itself, imported when it is first needed.
        proc: Where /proc is.
        kernel_log: Where the driver's messages are read.
    """

    name = "nvml"
    period_s = 0.12
    """A GPM window needs 100 ms, and polls jitter."""

    def __init__(
        self,
        clock: Clock = time.monotonic_ns,
        nvml: ModuleType | None = None,
        *,
        proc: Path = procfs.PROC,
        kernel_log: KernelLog | None = None,
    ) -> None:
        self._clock = clock
        self._nvml: Any = nvml
        self._proc = proc
        self._is_open = False
        self._gpus: list[Gpu] = []
        self._alive: dict[tuple[str, str], Metric] = {}
        self._slow, self._links = Pace(SLOW_NS), Pace(LINKS_NS)
        self._costly = Pace(COSTLY_NS, COSTLY_FIRST_NS)
        self._events = Events(kernel_log or KernelLog())
        self._why_not: Unknown | None = None

    def missing(self) -> Unknown | None:
        """Why there is nothing to poll; where there is something, NVML stays open for `__enter__`."""
        why = self._open() or self._why_no_gpu()
        if why is not None:
            self._close()
        return why

    def __enter__(self) -> Self:
        self._events.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._events.close()

    def poll(self) -> Trace:
        """One look at every GPU; GPM windows end at the same moment on all of them."""
        news = News(self._clock(), self._alive)
        due = Due(*(pace.is_due(news.t_ns) for pace in (self._slow, self._costly, self._links)))
        if due.slow:
            self._why_not = self._renew(news)
        for gpu in self._gpus:
            gpu.take_gpm(news)
        for gpu in self._gpus:
            gpu.read(news, due)
        self._events.read(news, self._gpus)
        if self._why_not is not None:
            news.missing.append(Missing(self.name, self._why_not))
        if self._clock() - news.t_ns > _LONG_POLL_NS:
            for pace in (self._slow, self._costly, self._links):
                pace.hurry()
        return news.trace({track.id: track for gpu in self._gpus for track in gpu.tracks})

    def _renew(self, news: News) -> Unknown | None:
        """Look for GPUs that were lost or are new; why none can be looked for."""
        if any(gpu.was_up for gpu in self._gpus) and not any(gpu.is_up for gpu in self._gpus):
            self._close()  # a driver that was reloaded, or a GPU that was reset, answers only to a new NVML
        why = self._open() or self._count_gpus()
        lost = [gpu for gpu in self._gpus if not gpu.is_up]
        for gpu in lost:
            if why is not None:
                gpu.why_down = why
            elif gpu.find(news):
                self._events.watch(self._nvml, gpu)
        return why

    def _count_gpus(self) -> Unknown | None:
        """Give every GPU that the driver counts a row of its own."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            return explain(error)
        self._gpus += [Gpu(self._nvml, i, self._clock, self._proc) for i in range(len(self._gpus), count)]
        return None

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
        self._events.forget()
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # the driver went first


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
        Check("Kernel log (process behind an XID)", trace.why_missing("kernel_log") or "readable"),
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
