"""NVIDIA GPUs through NVML, GPM included. Every call of the driver can hang: one that does costs its GPU alone.

Loading the library can hang too, and takes the whole process with it: `llmtop.collectors.gpus` has this run in another.

Tracks "gpu:<index>" carry the facts index, name, uuid, pci_bus_id, minor, driver, memory_total (bytes), bus_width_bits,
max_memory_mhz, max_sm_mhz, compute_capability ("9.0"), sm_count, mig ("enabled"/"disabled"), gpm ("supported"),
pcie_max_generation, pcie_max_width, nvlinks (how many it has), ecc ("enabled"/"disabled"), row_remapping ("none",
"pending", "failed") and recovery_action ("none", "reset the GPU" ...).
Tracks "gpu:<index>/mig:<number>" are MIG instances; `llmtop.vocabulary` lists what they carry.
Tracks "gpu:<index>/process:<host pid>" are processes on a GPU, with the facts pid, kind, mig (the instances it is in)
and container_pid (its PID in its own namespace where that is another; Unknown where a host PID means nothing here).
Marks are of the kinds GPU_LOST, GPU_BACK, GPU_HUNG, XID and GPU_EVENT.

Read-only: no call here changes the state of a GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from llmtop import procfs, remedies, whats
from llmtop.collectors.kernel_log import KernelLog
from llmtop.collectors.nvml.calls import TimedCalls, wait
from llmtop.collectors.nvml.errors import explain
from llmtop.collectors.nvml.events import NvmlEvents
from llmtop.collectors.nvml.gpu import NvmlGpu
from llmtop.collectors.nvml.poll import Due, DueTimer, NvmlPoll
from llmtop.collectors.nvml.sides import HUNG_NS, NAME, OWNS, PERIOD_S, hung
from llmtop.model import NS_PER_S, Mark, MarkKind, Missing, Severity, Trace, Track, TrackId, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType, TracebackType

    from llmtop.collectors.base import Clock
    from llmtop.collectors.nvml.calls import Call, Wait
    from llmtop.model import Metric

SLOW_NS = 5 * NS_PER_S
"""How often slow values are read, and a lost or a new GPU is looked for."""
COSTLY_NS, COSTLY_FIRST_NS = 5 * NS_PER_S, NS_PER_S
"""How often energy and shares are read; the second time comes soon, so that a short look has a rate too."""
LINKS_NS = 10 * NS_PER_S
"""How often errors of NVLinks are read: 8 ms of CPU time for 18 links."""
_PATIENCE_S = 0.4
"""A call that takes longer goes on beside the others: GPM of a busy GPU takes 9 ms, all links' errors 8."""
_POLL_S = 0.8
"""And all that do not return may cost a poll so much together."""
_LEAST_PATIENCE_S = 0.05
"""However late a poll is already, an answer is waited for so long."""
_OPEN_S = 1.5
"""nvmlInit takes some 100 ms, and seconds where nothing keeps the driver loaded (no persistence mode)."""
_NO_GPU = Unknown("the driver sees no GPU", "nvidia-smi -L; a container needs `docker run --gpus all`")


@dataclass(slots=True)
class _GpuSlot:
    """A GPU, and what is known of it while it may hang.

    Attributes:
        alive: (track, metric) pairs with a value; of this GPU alone, because a call that hangs may still change it.
        tracks: As they were when it answered last.
        call: The call that has not returned.
        news: What that call brings, and is lost when it hangs.
    """

    gpu: NvmlGpu
    alive: dict[tuple[TrackId, str], Metric] = field(default_factory=dict)
    tracks: tuple[Track, ...] = ()
    call: Call | None = None
    news: NvmlPoll | None = None
    is_closed: bool = False

    def close(self) -> None:
        """Free what the driver holds for it, now or as soon as its call returns."""
        self.is_closed = self.call is not None
        if self.call is None:
            self.gpu.close()


class NvmlCollector:
    """Polls every GPU of the machine.

    Args:
        clock: Where time is read.
        nvml: A module like pynvml; by default pynvml itself, imported when it is first needed.
        proc: Where /proc is.
        kernel_log: Where the driver's messages are read.
        wait: Waits for a call that may hang.
    """

    name = NAME
    owns = OWNS
    period_s = PERIOD_S

    def __init__(
        self,
        clock: Clock = time.monotonic_ns,
        nvml: ModuleType | None = None,
        *,
        proc: Path = procfs.PROC,
        kernel_log: KernelLog | None = None,
        wait: Wait = wait,
    ) -> None:
        self._clock = clock
        self._nvml: Any = nvml
        self._proc = proc
        self._is_open = False
        self._places: list[_GpuSlot] = []
        self._calls = TimedCalls(wait)
        self._library: Call | None = None
        """A call that is of no GPU and has not returned: opening, counting, closing."""
        self._faults: Call | None = None
        self._slow, self._links = DueTimer(SLOW_NS), DueTimer(LINKS_NS)
        self._costly = DueTimer(COSTLY_NS, COSTLY_FIRST_NS)
        self._events = NvmlEvents(kernel_log or KernelLog())
        self._why_not: Unknown | None = None
        self._late_s = 0.0
        """What calls that did not return have cost this poll."""

    def missing(self) -> Unknown | None:
        """Why there is nothing to poll; where there is something, NVML stays open for `__enter__`.

        None too where opening hangs: polls then say so, and go on when it returns.
        """
        self._late_s = 0.0
        self._library = self._calls.make(self._look_for_gpus, self._clock(), _OPEN_S)
        if self._library is None and self._why_not is not None:
            self._close()
            self._calls.close()
        return None if self._library is not None else self._why_not

    def __enter__(self) -> Self:
        self._events.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        for place in self._places:
            if place.call is not None and place.call.is_over(max(0.0, deadline_s - time.monotonic())):
                place.call = None
        self._library_call(self._close)
        self._events.close()
        self._calls.close()

    def poll(self) -> Trace:
        """One look at every GPU; GPM windows end at the same moment on all of them."""
        self._late_s = 0.0
        news = NvmlPoll(self._clock(), {})
        due = Due(*(pace.is_due(news.t_ns) for pace in (self._slow, self._costly, self._links)))
        self._await_library(news)
        if due.slow and self._library is None:
            self._renew(news)
        for place in self._places:
            self._await(place, news)
        for place in self._places:
            self._begin(place, news)
        for place in self._places:
            self._finish(place, news, due)
        self._read_faults(news)
        if self._why_not is not None:
            news.missing.append(Missing(whats.source(self.name), self._why_not))
        return news.trace({track.id: track for place in self._places for track in place.tracks})

    # The calls of one GPU

    def _begin(self, place: _GpuSlot, news: NvmlPoll) -> None:
        """End its GPM window; first on all GPUs, so that windows agree."""
        if place.call is None:
            mine = NvmlPoll(news.t_ns, place.alive)
            self._call(place, mine, lambda: place.gpu.take_gpm(mine))

    def _finish(self, place: _GpuSlot, news: NvmlPoll, due: Due) -> None:
        """Read everything that is due, and add it to the poll's; or say since when it hangs."""
        mine = place.news
        if place.call is None and mine is not None:
            self._call(place, mine, lambda: place.gpu.read(mine, due))
        if place.call is None and mine is not None:
            self._take(place, mine, news)
        elif place.call is not None and place.call.is_told:
            news.missing.append(Missing(whats.track(place.gpu.track.id), self._why_hung(place.call, news.t_ns)))

    def _call(self, place: _GpuSlot, mine: NvmlPoll, step: Callable[[], None]) -> None:
        def step_and_close() -> None:
            step()
            if place.is_closed:
                place.gpu.close()

        place.news = mine
        place.call = self._make(step_and_close)

    def _take(self, place: _GpuSlot, mine: NvmlPoll, news: NvmlPoll) -> None:
        """What it brought in time."""
        news.add(mine)
        place.news, place.tracks = None, place.gpu.tracks

    def _await(self, place: _GpuSlot, news: NvmlPoll) -> None:
        """Look after a call that has not returned: what comes late still counts, until it is said to hang."""
        call = place.call
        if call is None:
            return
        if call.is_over():
            place.call = None
            if call.is_told:
                self._come_back(place, call, news)
            elif place.news is not None:
                self._take(place, place.news, news)
        elif not call.is_told and news.t_ns - call.start_ns >= HUNG_NS:
            call.is_told = True
            self._give_up(place, call, news)

    def _give_up(self, place: _GpuSlot, call: Call, news: NvmlPoll) -> None:
        """End its lines: what it said last is not "now" any more."""
        mine = NvmlPoll(news.t_ns, dict(place.alive))
        mine.gap_all(place.gpu.track.id)
        why = self._why_hung(call, news.t_ns)
        gpu = place.gpu
        hung = Mark(news.t_ns, MarkKind.GPU_HUNG, gpu.track.id, why.reason, Severity.ERROR, f"{gpu.title}:")
        mine.marks.append(hung)
        news.add(mine)

    def _come_back(self, place: _GpuSlot, call: Call, news: NvmlPoll) -> None:
        """Begin afresh: what the call brought is of no certain time."""
        place.news, place.alive, place.is_closed = None, {}, False
        place.gpu.refresh()
        said = f"answers again after {_seconds(call, news.t_ns)}"
        news.marks.append(Mark(news.t_ns, MarkKind.GPU_BACK, place.gpu.track.id, said, subject=place.gpu.title))

    @staticmethod
    def _why_hung(call: Call, now_ns: int) -> Unknown:
        return hung(f"{call.function()} has not returned for {_seconds(call, now_ns)}")

    # Calls of no GPU

    def _make(self, step: Callable[[], None]) -> Call | None:
        """Make a call, and wait for it as long as the others of this poll have left."""
        now_ns = self._clock()
        patience_s = min(_PATIENCE_S, max(_LEAST_PATIENCE_S, _POLL_S - self._late_s))
        call = self._calls.make(step, now_ns, patience_s)
        if call is not None:
            self._late_s += patience_s
        return call

    def _library_call(self, step: Callable[[], None]) -> bool:
        """Whether it has returned; no other is made until it has."""
        if self._library is None:
            self._library = self._make(step)
        return self._library is None

    def _await_library(self, news: NvmlPoll) -> None:
        call = self._library
        if call is None:
            return
        if not call.is_over():
            self._why_not = self._why_hung(call, news.t_ns)
            return
        self._library, self._why_not = None, None
        for pace in (self._slow, self._costly, self._links):
            pace.hurry()
        self._renew(news)

    def _read_faults(self, news: NvmlPoll) -> None:
        """NVML's events and the kernel log."""
        if self._faults is not None and not self._faults.is_over():
            why = self._why_hung(self._faults, news.t_ns)
            news.missing.append(Missing(whats.ANY_XID, why))
            return
        mine = NvmlPoll(news.t_ns, {})
        self._faults = self._make(lambda: self._events.read(mine, [place.gpu for place in self._places]))
        if self._faults is None:
            news.add(mine)

    def _renew(self, news: NvmlPoll) -> None:
        """Look for GPUs that were lost or are new; `_why_not` says why none can be looked for."""
        gpus = [place.gpu for place in self._places if place.call is None]
        if any(gpu.was_up for gpu in gpus) and not any(place.gpu.is_up or place.call for place in self._places):
            self._library_call(self._close)  # a driver that was reloaded, or a GPU that was reset, needs a new NVML
        if not self._library_call(self._look_for_gpus):
            return
        for place in self._places:
            if place.call is None and not place.gpu.is_up:
                self._find(place, news)

    def _find(self, place: _GpuSlot, news: NvmlPoll) -> None:
        if self._why_not is not None and self._why_not is not _NO_GPU:
            place.gpu.why_down = self._why_not
            return
        mine = NvmlPoll(news.t_ns, place.alive)

        def find() -> None:
            if place.gpu.find(mine):
                self._events.watch(self._nvml, place.gpu)

        self._call(place, mine, find)
        if place.call is None:
            self._take(place, mine, news)

    def _look_for_gpus(self) -> None:
        """Give every GPU that the driver counts a place of its own."""
        self._why_not = self._open()
        if self._why_not is not None:
            return
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._why_not = explain(error)
            return
        new = range(len(self._places), count)
        gpus = [NvmlGpu(self._nvml, index, self._clock, self._proc) for index in new]
        self._places += [_GpuSlot(gpu, tracks=(gpu.track,)) for gpu in gpus]
        self._why_not = None if count or self._places else _NO_GPU

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
            return Unknown("the Python module pynvml is not installed", remedies.install("nvidia-ml-py"))
        except self._nvml.NVMLError as error:
            return explain(error)
        self._is_open = True
        return None

    def _close(self) -> None:
        for place in self._places:
            place.close()
        if not self._is_open or any(place.call is not None for place in self._places):
            return  # a call that is under way still needs the library: it ends with the process
        self._is_open = False
        self._events.forget()
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # the driver went first


def _seconds(call: Call, now_ns: int) -> str:
    return f"{(now_ns - call.start_ns) / NS_PER_S:.0f} s"
