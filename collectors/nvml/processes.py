"""The processes on a GPU: their memory, their share of its time, and who they are.

NVML's faults are filtered here: shares of processes that do not run, over 100 %, or from samples that were seen before.
"""

from __future__ import annotations

from ctypes import byref, c_uint
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors.nvml.device import SENTINELS
from llmtop.collectors.nvml.errors import INSUFFICIENT_SIZE, NOT_FOUND, NOT_SUPPORTED, code_of, explain
from llmtop.collectors.nvml.readings import IN_MIG
from llmtop.collectors.privileges import FIRST_PID_NAMESPACE
from llmtop.facts import GpuProcessFact
from llmtop.model import NS_PER_S, Fact, Missing, Track, TrackId, TrackKind, Unknown, UnknownKind
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llmtop.collectors.nvml.device import Device
    from llmtop.collectors.nvml.poll import NvmlPoll

_GIVE_UP_NS = 30 * NS_PER_S
"""The driver's samples carry the wall clock; when that is set back, none would be new for as long."""
_NO_INSTANCE = 0xFFFFFFFF
_SPARE, _TRIES = 8, 3
"""Room for processes that come, and how often the list is asked for with more."""
_MEMORY_NOT_SAID = Unknown("the driver does not say how much GPU memory the process has")
_NO_NEW_SAMPLE = Unknown("NVML has no new sample of the process: idle, or too short to be seen")
_NO_SHARE_YET = Unknown("the first samples of the GPU's time are not in yet", "wait 2 s", UnknownKind.PASSING)


@dataclass(slots=True)
class _Use:
    """What a process has of a GPU; memory None where the driver does not say."""

    memory: int | None = 0
    kinds: set[str] = field(default_factory=set)
    instances: set[int] = field(default_factory=set)

    def add(self, kind: str, process: Any) -> None:
        """A process in several MIG instances is listed once for each, and those add up; in one list or both."""
        memory = None if process.usedGpuMemory in SENTINELS else process.usedGpuMemory
        if not self.kinds or kind in self.kinds:
            self.memory = None if memory is None or self.memory is None else self.memory + memory
        self.kinds.add(kind)
        if process.gpuInstanceId != _NO_INSTANCE:
            self.instances.add(process.gpuInstanceId)


class GpuProcesses:
    """The processes of one GPU.

    Args:
        gpu: The GPU's track.
        proc: Where /proc is.
    """

    def __init__(self, gpu: TrackId, proc: Path = procfs.PROC) -> None:
        self.tracks: dict[int, Track] = {}
        self._gpu = gpu
        self._proc = proc
        self._shares = _Shares()
        self._lists = {
            "compute": _RunningList("nvmlDeviceGetComputeRunningProcesses_v3"),
            "graphics": _RunningList("nvmlDeviceGetGraphicsRunningProcesses_v3"),
        }
        self._strangers: dict[int, Unknown] = {}

    def read(self, news: NvmlPoll, device: Device, *, shares: bool) -> None:
        """Look who is there; with `shares`, also who has how much of the GPU's time: that costs 2 ms on an H100.

        Raises:
            GpuDownError: The GPU does not answer any more.
        """
        try:
            uses = _uses(device, self._lists)
        except device.error as error:
            news.missing.append(Missing(whats.facet(self._gpu, whats.Facet.PROCESSES), explain(error)))
            return
        for pid in [pid for pid in self.tracks if pid not in uses]:
            news.forget(self.tracks.pop(pid).id)
            self._strangers.pop(pid, None)
        for pid, use in uses.items():
            if pid not in self.tracks:
                self.tracks[pid] = self._track(device, pid, use)
            self._read_memory(news, self.tracks[pid].id, use)
        if shares:
            self._shares.renew(news, device, self.tracks)
        self._shares.tell_missing(news, self.tracks)
        news.missing.extend(Missing(whats.track(self.tracks[pid].id), why) for pid, why in self._strangers.items())

    def _read_memory(self, news: NvmlPoll, track: TrackId, use: _Use) -> None:
        if use.memory is None:
            news.lacks(track, v.GPU_PROCESS_MEMORY, _MEMORY_NOT_SAID)
        else:
            news.read(track, v.GPU_PROCESS_MEMORY, use.memory)

    def _track(self, device: Device, pid: int, use: _Use) -> Track:
        facts: dict[str, Fact] = {
            GpuProcessFact.PID: pid,
            GpuProcessFact.KIND: " and ".join(sorted(use.kinds, reverse=True)),
        }
        if use.instances:
            facts[GpuProcessFact.INSTANCES] = ", ".join(str(instance) for instance in sorted(use.instances))
        inner = self._inner_pid(pid)
        if isinstance(inner, Unknown):
            self._strangers[pid] = facts[GpuProcessFact.CONTAINER_PID] = inner
        elif inner is not None and inner != pid:
            facts[GpuProcessFact.CONTAINER_PID] = inner
        return Track(ids.gpu_process(self._gpu, pid), TrackKind.GPU_PROCESS, _name(device, pid), self._gpu, facts)

    def _inner_pid(self, pid: int) -> int | Unknown | None:
        """The PID that the process has in its own PID namespace; None where it has ended, or is not ours to see.

        NVML speaks of the host's PIDs. In a container they are another process's, or nobody's.
        """
        namespace = procfs.read_link(f"{self._proc}/self/ns/pid")
        is_host = namespace in (None, FIRST_PID_NAMESPACE)
        if not is_host and not self._is_on_gpu(pid):
            reason = f"host PID {pid} is not visible in this PID namespace"
            return Unknown(reason, "run the container with --pid=host (Kubernetes: hostPID: true)")
        return procfs.innermost_pid(pid, self._proc)

    def _is_on_gpu(self, pid: int) -> bool:
        files = procfs.open_files(pid, self._proc)
        return files is not None and any(file.startswith("/dev/nvidia") for file in files)


class _Shares:
    """The shares of a GPU's time by process, from the driver's samples.

    The driver samples five times a second and gives each sample to one process (seen on an H100, driver 580): shares of
    processes that take turns settle over seconds.
    """

    def __init__(self) -> None:
        self._seen_us: int | None = None
        self._fresh_ns = 0
        self._why: dict[int, Unknown] = {}

    def tell_missing(self, news: NvmlPoll, tracks: dict[int, Track]) -> None:
        """Say why processes have no share."""
        for pid, track in tracks.items():
            if pid in self._why:
                news.lacks(track.id, v.GPU_PROCESS_SM, self._why[pid])

    def renew(self, news: NvmlPoll, device: Device, tracks: dict[int, Track]) -> None:
        """Read the shares since the last time."""
        is_first = self._seen_us is None
        try:
            samples = self._new_samples(news.t_ns, device)
        except device.error as error:
            why = IN_MIG if code_of(error) == NOT_SUPPORTED else explain(error)
            self._why = dict.fromkeys(tracks, why)
            return
        shares = {} if is_first else {one.pid: one.smUtil for one in samples if one.pid in tracks}
        self._why = dict.fromkeys(tracks, _NO_SHARE_YET if is_first else _NO_NEW_SAMPLE)
        for pid, share in shares.items():
            if share <= 100:
                news.read(tracks[pid].id, v.GPU_PROCESS_SM, share)
                del self._why[pid]
            else:
                self._why[pid] = Unknown(f"NVML gave {share} %, which cannot be")

    def _new_samples(self, now_ns: int, device: Device) -> list[Any]:
        """Samples that were not there at the last look, oldest first."""
        since = self._seen_us or 0
        try:
            found = device.ask(lambda nvml, handle: nvml.nvmlDeviceGetProcessUtilization(handle, since))
        except device.error as error:
            if code_of(error) not in (0, NOT_FOUND):  # 0: pynvml takes an empty list for an error
                raise
            found = []
        new = sorted((one for one in found if one.timeStamp > since), key=lambda one: int(one.timeStamp))
        if new:
            self._seen_us, self._fresh_ns = new[-1].timeStamp, now_ns
        elif self._seen_us is None:
            self._seen_us, self._fresh_ns = 0, now_ns
        elif now_ns - self._fresh_ns > _GIVE_UP_NS:
            self._seen_us = None
        return new


class _RunningList:
    """One of the driver's two lists of processes, asked once a look.

    pynvml asks twice: how many there are, and who. The driver goes through its clients each time.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self._room = _SPARE

    def read(self, nvml: Any, handle: Any) -> Sequence[Any]:
        """The processes, as c_nvmlProcessInfo_v3_t.

        Raises:
            NVMLError: As the driver gives it.
        """
        function = nvml._nvmlGetFunctionPointer(self._function)
        for _ in range(_TRIES):  # more may come between two calls
            found = (nvml.c_nvmlProcessInfo_v3_t * self._room)()
            count = c_uint(self._room)
            code = function(handle, byref(count), found)
            if code != INSUFFICIENT_SIZE:
                break
            self._room = count.value + _SPARE
        if code != 0:
            raise nvml.NVMLError(code)
        running: Sequence[Any] = found[: count.value]
        return running


def _uses(device: Device, lists: Mapping[str, _RunningList]) -> dict[int, _Use]:
    listed = {kind: device.ask(lists[kind].read) for kind in ("graphics", "compute")}
    uses: dict[int, _Use] = {}
    for kind, process in _labelled(compute=listed["compute"], graphics=listed["graphics"]):
        uses.setdefault(process.pid, _Use()).add(kind, process)
    return uses


def _labelled(**lists: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    return ((kind, process) for kind, processes in lists.items() for process in processes)


def _name(device: Device, pid: int) -> str:
    try:
        return clean(redact(device.ask(lambda nvml, _: nvml.nvmlSystemGetProcessName(pid)))) or f"pid {pid}"
    except (device.error, UnicodeDecodeError):
        return f"pid {pid}"  # of another container, or gone already
