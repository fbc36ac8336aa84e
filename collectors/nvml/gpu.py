"""One GPU as NVML shows it; lost and found again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors.numa import facts_near
from llmtop.collectors.nvml import readings
from llmtop.collectors.nvml.device import Device, GpuDownError
from llmtop.collectors.nvml.errors import INVALID_ARGUMENT, NOT_FOUND, code_of, explain
from llmtop.collectors.nvml.facts import changing_facts, lasting_facts, links_of
from llmtop.collectors.nvml.gpm import GpmTrack
from llmtop.collectors.nvml.mig import MigInstances
from llmtop.collectors.nvml.poll import Due, NvmlPoll
from llmtop.collectors.nvml.processes import GpuProcesses
from llmtop.facts import GpuFact
from llmtop.model import Mark, MarkKind, Missing, Severity, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from llmtop.collectors.base import Clock
    from llmtop.model import Fact

_NOT_LISTED = Unknown("the driver does not list this GPU any more", "nvidia-smi -L; dmesg | grep -i nvrm")


class NvmlGpu:
    """One GPU by its index, which stays its own while it is lost, whatever the driver counts then.

    Everything here may raise nothing: a fault of the GPU or the driver ends up in the news.
    """

    def __init__(self, nvml: Any, index: int, clock: Clock, proc: Path) -> None:
        self.index, self.title = index, f"GPU {index}"
        self.track = Track(ids.gpu(index), TrackKind.GPU, self.title, facts={GpuFact.INDEX: index})
        self.why_down: Unknown | None = Unknown("not looked at yet")
        self.was_up = False
        self._nvml = nvml
        self._clock = clock
        self._device: Device | None = None
        self._gpm: GpmTrack | None = None
        self._instances = MigInstances(self.track.id, clock)
        self._processes = GpuProcesses(self.track.id, proc)
        self._kept: dict[str, list[Missing]] = {}
        self._is_new = True

    @property
    def is_up(self) -> bool:
        """Whether it answered last time."""
        return self.why_down is None

    @property
    def handle(self) -> Any:
        """NVML's handle; None before it was found."""
        return None if self._device is None else self._device.handle

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The GPU, its MIG instances and its processes."""
        return (self.track, *self._instances.tracks, *self._processes.tracks.values())

    def find(self, news: NvmlPoll) -> bool:
        """Look for it, or look whether it is back; True when it answers."""
        self.close()
        try:
            self._device = self._look_up()
            self._gpm = GpmTrack(self._device, self.track.id, self._clock)
            self._describe(self._device, self._gpm)
        except (self._nvml.NVMLError, GpuDownError) as error:
            self._go_down(news, _why_not_found(error))
            return False
        if self.was_up:
            news.marks.append(Mark(news.t_ns, MarkKind.GPU_BACK, self.track.id, "answers again", subject=self.title))
        self.why_down, self.was_up, self._is_new = None, True, True
        return True

    def take_gpm(self, news: NvmlPoll) -> None:
        """End the GPM window; first on all GPUs, so that windows agree."""
        if self.is_up:
            self._guarded(news, lambda device: self._take_gpm(news))

    def read(self, news: NvmlPoll, due: Due) -> None:
        """Read everything that is due."""
        if self.is_up:
            all_due = Due(slow=True, costly=True, links=True) if self._is_new else due
            self._is_new = False
            self._guarded(news, lambda device: self._read(news, device, all_due))
        if self.why_down is not None:
            news.missing.append(Missing(whats.track(self.track.id), self.why_down))

    def refresh(self) -> None:
        """Have everything read at the next look: what was read last is of too long ago."""
        self._is_new = True

    def close(self) -> None:
        """Free what the driver holds for us."""
        self._instances.close()
        if self._gpm is not None:
            self._gpm.free()
            self._gpm = None

    def _look_up(self) -> Device:
        """By UUID as soon as it is known: when another GPU is gone, indices may have moved."""
        uuid = self.track.facts.get(GpuFact.UUID)
        probe = Device(self._nvml, None)
        if isinstance(uuid, str):
            handle = probe.ask(lambda nvml, _: nvml.nvmlDeviceGetHandleByUUID(uuid), is_probe=True)
        else:
            handle = probe.ask(lambda nvml, _: nvml.nvmlDeviceGetHandleByIndex(self.index), is_probe=True)
        return Device(self._nvml, handle)

    def _describe(self, device: Device, gpm: GpmTrack) -> None:
        lasting = lasting_facts(device)
        name = lasting[GpuFact.NAME]
        facts: dict[str, Fact] = {
            GpuFact.INDEX: self.index,
            **lasting,
            **facts_near(lasting[GpuFact.PCI_BUS_ID]),
            **changing_facts(device, links_of(device)),
            GpuFact.GPM: gpm.why_not or "supported",
        }
        self.track = replace(self.track, name=self.track.name if isinstance(name, Unknown) else str(name), facts=facts)

    def _take_gpm(self, news: NvmlPoll) -> None:
        if self._gpm is not None:
            self._gpm.take(news)
        self._instances.take(news)

    def _read(self, news: NvmlPoll, device: Device, due: Due) -> None:
        readings.read_memory(news, self.track.id, device)
        readings.read_numbers(news, self.track.id, device, readings.FAST, is_mig=self._is_mig)
        self._seldom(news, "slow", lambda: self._read_slow(news, device), is_due=due.slow)
        self._seldom(news, "costly", lambda: self._read_costly(news, device), is_due=due.costly)
        self._seldom(news, "links", lambda: self._read_link_errors(news, device), is_due=due.links)
        self._processes.read(news, device, shares=due.costly)
        if self._gpm is not None:
            self._gpm.read(news)
        self._instances.read(news)

    def _seldom(self, news: NvmlPoll, group: str, step: Callable[[], None], *, is_due: bool) -> None:
        """Take a step when it is due; why it gave no value is said with every poll until the next."""
        if is_due:
            said_before = len(news.missing)
            step()
            self._kept[group] = news.missing[said_before:]
        else:
            news.missing.extend(self._kept.get(group, ()))

    def _read_slow(self, news: NvmlPoll, device: Device) -> None:
        links = links_of(device)
        changing = changing_facts(device, links)
        if any(self.track.facts.get(key) != value for key, value in changing.items()):
            self.track = replace(self.track, facts={**self.track.facts, **changing})
        readings.read_numbers(news, self.track.id, device, readings.SLOW, is_mig=self._is_mig)
        if isinstance(links, Unknown):
            news.gap(self.track.id, v.GPU_NVLINK_ACTIVE)
        else:
            news.read(self.track.id, v.GPU_NVLINK_ACTIVE, sum(links))
        self._instances.renew(news, device, is_mig=self._is_mig)

    def _read_costly(self, news: NvmlPoll, device: Device) -> None:
        readings.read_numbers(news, self.track.id, device, readings.COSTLY, is_mig=self._is_mig)

    def _read_link_errors(self, news: NvmlPoll, device: Device) -> None:
        if self._links:
            readings.read_nvlink_errors(news, self.track.id, device, self._links)

    @property
    def _links(self) -> int:
        links = self.track.facts.get(GpuFact.NVLINKS)
        return links if isinstance(links, int) else 0

    @property
    def _is_mig(self) -> bool:
        return self.track.facts.get(GpuFact.MIG) == "enabled"

    def _guarded(self, news: NvmlPoll, step: Callable[[Device], None]) -> None:
        try:
            if self._device is not None:
                step(self._device)
        except GpuDownError as error:
            self._go_down(news, error.why)

    def _go_down(self, news: NvmlPoll, why: Unknown) -> None:
        if self.why_down is None or (not self.was_up and why != self.why_down):
            lost = Mark(news.t_ns, MarkKind.GPU_LOST, self.track.id, why.reason, Severity.ERROR, f"{self.title}:")
            news.marks.append(lost)
        self.why_down = why
        news.gap_all(self.track.id)
        self.close()


def _why_not_found(error: Exception) -> Unknown:
    if isinstance(error, GpuDownError):
        return error.why
    return _NOT_LISTED if code_of(error) in (INVALID_ARGUMENT, NOT_FOUND) else explain(error)
