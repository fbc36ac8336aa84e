"""Faults as they happen: NVML's events, and what the kernel log says of the same, each told once."""

from __future__ import annotations

from ctypes import c_void_p, cast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmtop import ids, whats
from llmtop.collectors.kernel_log import KernelLog, XidLine, pci_address, xid_line
from llmtop.collectors.nvml.errors import TIMEOUT, code_of, explain
from llmtop.collectors.xid import xid
from llmtop.facts import GpuFact
from llmtop.model import NS_PER_S, Mark, MarkKind, Missing, Severity, Unknown, XidReport
from llmtop.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.collectors.nvml.gpu import NvmlGpu
    from llmtop.collectors.nvml.poll import NvmlPoll
    from llmtop.model import TrackId

_MOST_EVENTS = 100
"""Taken per poll; a storm of them goes on with the next one."""
_SAME_NS = 5 * NS_PER_S
"""The event and the kernel's message of one fault are never further apart (under 2 s on an H100)."""
_DETAIL_WIDTH = 100
"""Characters that are told of what the kernel's log says of an event."""
_NO_INSTANCE = 0xFFFFFFFF
_XID_EVENT = 0x8
_OTHER_EVENTS = {
    0x2: ("double-bit ECC error: memory cannot be corrected", Severity.ERROR),
    0x200: ("storm of single-bit ECC errors", Severity.WARNING),
    0x400: ("a memory row is to be replaced by a spare", Severity.WARNING),
    0x800: ("a faulty memory row could not be replaced", Severity.ERROR),
    0x1000: ("poisoned data was used; one program is affected", Severity.WARNING),
    0x2000: ("poisoned data was used; every program is at risk", Severity.ERROR),
    0x4000: ("the GPU cannot be used any more", Severity.ERROR),
    0x8000: ("the driver asks for another recovery action", Severity.WARNING),
}
"""NVML's nvmlEventType* that are faults."""


@dataclass(slots=True)
class _Fault:
    """What one poll learned of one XID of one GPU, from either source."""

    events: int = 0
    process: str = ""
    detail: str = ""

    def add(self, line: XidLine) -> None:
        """The kernel writes several lines of one fault: the first says most, a later one names the process."""
        self.process = self.process or line.process
        self.detail = self.detail or line.detail

    def words(self) -> str:
        """Whom it hit, in the driver's own words, and how often."""
        said = "; ".join(part for part in (self.process, shorten(self.detail, _DETAIL_WIDTH)) if part)
        return f"{f' ({said})' if said else ''}{f', {self.events} times' if self.events > 1 else ''}"


class NvmlEvents:
    """Watches GPUs for faults.

    Args:
        kernel_log: Where the driver's messages are read; opened and closed with the rest.
    """

    def __init__(self, kernel_log: KernelLog) -> None:
        self._log = kernel_log
        self._nvml: Any = None
        self._set: Any = None
        self._why_not: dict[TrackId, Unknown] = {}
        self._told: dict[tuple[TrackId, int], tuple[int, bool]] = {}

    def open(self) -> None:
        """Begin with the kernel log; GPUs are added by `watch`."""
        self._log.open()

    def close(self) -> None:
        """Let go of both sources."""
        self._log.close()
        self.forget()

    def forget(self) -> None:
        """Let go of NVML's events: they end with the NVML session."""
        if self._set is None:
            return
        events, self._set = self._set, None
        try:
            self._nvml.nvmlEventSetFree(events)
        except self._nvml.NVMLError:
            return  # the driver went first

    def watch(self, nvml: Any, gpu: NvmlGpu) -> None:
        """Ask for a GPU's faults; those of before are not told."""
        self._nvml = nvml
        self._why_not.pop(gpu.track.id, None)
        try:
            if self._set is None:
                self._set = nvml.nvmlEventSetCreate()
            wanted = _XID_EVENT | sum(_OTHER_EVENTS)
            types = wanted & nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            nvml.nvmlDeviceRegisterEvents(gpu.handle, types, self._set)
        except nvml.NVMLError as error:
            self._why_not[gpu.track.id] = explain(error)

    def read(self, news: NvmlPoll, gpus: Sequence[NvmlGpu]) -> None:
        """Add a mark for every fault since the last look."""
        faults: dict[tuple[TrackId, int], _Fault] = {}
        for event in self._events(news):
            self._take(news, event, gpus, faults)
        for line in filter(None, map(xid_line, self._log.messages())):
            faults.setdefault((_by_pci(gpus, line), line.code), _Fault()).add(line)
        news.marks.extend(self._marks(news.t_ns, faults))
        news.missing.extend(Missing(whats.facet(track, whats.Facet.XID), why) for track, why in self._why_not.items())
        if self._log.why_not is not None:
            news.missing.append(Missing(whats.KERNEL_LOG, self._log.why_not))

    def _events(self, news: NvmlPoll) -> Iterable[Any]:
        for _ in range(_MOST_EVENTS if self._set is not None else 0):
            try:
                yield self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if code_of(error) != TIMEOUT:
                    news.missing.append(Missing(whats.ANY_XID, explain(error)))
                return

    def _take(
        self, news: NvmlPoll, event: Any, gpus: Sequence[NvmlGpu], faults: dict[tuple[TrackId, int], _Fault]
    ) -> None:
        track = _by_handle(gpus, event.device)
        if event.eventType == _XID_EVENT:
            code = int(event.eventData)
            faults.setdefault((track, code), _Fault()).events += 1
        elif event.eventType in _OTHER_EVENTS:
            words, severity = _OTHER_EVENTS[event.eventType]
            news.marks.append(Mark(news.t_ns, MarkKind.GPU_EVENT, _of_instance(track, event), words, severity))

    def _marks(self, t_ns: int, faults: dict[tuple[TrackId, int], _Fault]) -> Iterable[Mark]:
        for (track, code), fault in faults.items():
            told, is_event = self._told.get((track, code)), fault.events > 0
            if told is not None and told[1] != is_event and t_ns - told[0] < _SAME_NS:
                continue  # the other source told it already
            self._told[track, code] = (t_ns, is_event)
            said, known = fault.words(), xid(code)
            report = XidReport(code, f"{known.meaning}{said}", known.action.value)
            yield Mark(t_ns, MarkKind.XID, track, f"{known}{said}", known.severity, about=report)


def _by_handle(gpus: Sequence[NvmlGpu], handle: Any) -> TrackId:
    address = _address(handle)
    return next((gpu.track.id for gpu in gpus if address is not None and _address(gpu.handle) == address), ids.SOME_GPU)


def _by_pci(gpus: Sequence[NvmlGpu], line: XidLine) -> TrackId:
    addresses = ((gpu.track.id, pci_address(str(gpu.track.facts.get(GpuFact.PCI_BUS_ID, "")))) for gpu in gpus)
    return next((track for track, address in addresses if address == line.pci), ids.SOME_GPU)


def _of_instance(track: TrackId, event: Any) -> TrackId:
    return track if event.gpuInstanceId == _NO_INSTANCE else ids.gpu_instance(track, event.gpuInstanceId)


def _address(handle: Any) -> int | None:
    return cast(handle, c_void_p).value if handle is not None else None
