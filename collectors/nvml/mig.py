"""The instances that a GPU in MIG mode is cut into. NVML measures them through GPM alone.

Seen are instances with a compute instance in them: NVML lists no others to an ordinary user, and GPM has no data of
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmtop import ids, whats
from llmtop.collectors.nvml.device import Device
from llmtop.collectors.nvml.errors import explain
from llmtop.collectors.nvml.gpm import GpmTrack
from llmtop.collectors.nvml.readings import read_memory
from llmtop.facts import GpuFact, GpuInstanceFact
from llmtop.model import Fact, Missing, Track, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.collectors.base import Clock
    from llmtop.collectors.nvml.poll import NvmlPoll

_NONE_SEEN = Unknown(
    "MIG is on, but no instance with a compute instance is visible",
    "sudo nvidia-smi mig -lgi -lci; create one: sudo nvidia-smi mig -cgi PROFILE -C",
)


@dataclass(slots=True)
class _Instance:
    """One GPU instance: how it is asked, and its GPM while the GPU answers."""

    track: Track
    device: Device
    gpm: GpmTrack | None


class MigInstances:
    """The MIG instances of one GPU, by the number of their GPU instance.

    Raises:
        GpuDownError: From every method but `close`, when the GPU does not answer any more.
    """

    def __init__(self, gpu: TrackId, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._instances: dict[int, _Instance] = {}
        self._missing: tuple[Missing, ...] = ()

    @property
    def tracks(self) -> tuple[Track, ...]:
        """Of the instances that are there."""
        return tuple(instance.track for instance in self._instances.values())

    def renew(self, news: NvmlPoll, gpu: Device, *, is_mig: bool) -> None:
        """Look which instances there are: an administrator can make and remove them at any time."""
        self._missing = ()
        found = self._find(gpu) if is_mig else {}
        for number in [number for number in self._instances if number not in found]:
            self._free(self._instances[number])
            news.forget(self._instances.pop(number).track.id)
        for number, devices in found.items():
            track = _track(self._gpu, number, devices)
            known = self._instances.get(number)
            if known is None or known.gpm is None or known.track.facts[GpuFact.UUID] != track.facts[GpuFact.UUID]:
                if known is not None:  # another instance under the old number
                    self._free(known)
                    news.gap_all(track.id)
                gpm = GpmTrack(gpu, track.id, self._clock, number)
                self._instances[number] = _Instance(track, devices[0], gpm)
            else:
                known.track, known.device = track, devices[0]

    def take(self, news: NvmlPoll) -> None:
        """End the GPM windows."""
        for instance in self._instances.values():
            if instance.gpm is not None:
                instance.gpm.take(news)

    def read(self, news: NvmlPoll) -> None:
        """Read what is measured of each."""
        news.missing.extend(self._missing)
        for instance in self._instances.values():
            read_memory(news, instance.track.id, instance.device)
            if instance.gpm is not None:
                instance.gpm.read(news)

    def close(self) -> None:
        """Give the driver its samples back; the next `renew` begins anew."""
        for instance in self._instances.values():
            self._free(instance)

    def _free(self, instance: _Instance) -> None:
        if instance.gpm is not None:
            instance.gpm.free()
            instance.gpm = None

    def _find(self, gpu: Device) -> dict[int, list[Device]]:
        """The MIG devices by GPU instance; a GPU instance may hold several compute instances."""
        found: dict[int, list[Device]] = {}
        try:
            for handle in gpu.ask(_handles):
                device = Device(gpu.nvml, handle)
                number = int(device.ask(lambda nvml, mig: nvml.nvmlDeviceGetGpuInstanceId(mig)))
                found.setdefault(number, []).append(device)
        except gpu.error as error:
            self._missing = (Missing(whats.facet(self._gpu, whats.Facet.INSTANCES), explain(error)),)
        else:
            self._missing = () if found else (Missing(whats.facet(self._gpu, whats.Facet.INSTANCES), _NONE_SEEN),)
        return found


def _handles(nvml: Any, handle: Any) -> list[Any]:
    """The MIG devices of a GPU; the numbers they are asked by have holes."""
    found: list[Any] = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
            continue
    return found


def _track(gpu: TrackId, number: int, devices: list[Device]) -> Track:
    device = devices[0]
    name = device.fact(lambda nvml, mig: nvml.nvmlDeviceGetName(mig))
    title = f"MIG {number}" if isinstance(name, Unknown) else str(name)
    facts: dict[str, Fact] = {
        GpuInstanceFact.NUMBER: number,
        GpuInstanceFact.COMPUTE_INSTANCES: len(devices),
        GpuFact.NAME: name,
        GpuFact.UUID: device.fact(lambda nvml, mig: nvml.nvmlDeviceGetUUID(mig)),
        GpuInstanceFact.PROFILE: title.rpartition("MIG ")[2] if not isinstance(name, Unknown) else name,
        GpuFact.MEMORY_TOTAL: device.fact(lambda nvml, mig: nvml.nvmlDeviceGetMemoryInfo(mig).total),
        GpuFact.SM_COUNT: device.fact(lambda nvml, mig: nvml.nvmlDeviceGetAttributes_v2(mig).multiprocessorCount),
    }
    return Track(ids.gpu_instance(gpu, number), TrackKind.GPU_INSTANCE, title, gpu, facts)
