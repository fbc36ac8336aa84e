"""Another program computes on the server's GPU: each waits while the other has its turn."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import gpu_names, recent_mean, says
from llmtop.analysis.rules.signals import gpu_activity
from llmtop.analysis.series.readings import server_gpus, server_track
from llmtop.facts import GpuProcessFact
from llmtop.model import Finding, Severity, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.units import percent

id = "gpu-shared"
summary = "A process outside the server takes time of its GPU; without MPS they take turns."
source = "NVML, nvmlDeviceGetProcessUtilization; NVIDIA Multi-Process Service (time slices without it)"

_LEAST_PERCENT = 10.0
"""Of the GPU's time: every tenth step meets the other."""
_MPS = "nvidia-cuda-mps-server"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """One finding for each GPU of the server on which another process is known to compute, and the GPU works."""
    if server_track(trace) is None and not trace.tracks_of(TrackKind.PROCESS):
        return
    for gpu in server_gpus(trace):
        users = [one for one in trace.tracks_of(TrackKind.GPU_PROCESS) if one.parent == gpu.id]
        if not any(_is_ours(trace, one) for one in users):
            continue  # whose process is whose cannot be told
        others = [(share, one) for one in users if (share := _share(trace, one)) is not None and _is_other(trace, one)]
        if sum(share for share, _ in others) >= _LEAST_PERCENT:
            yield _finding(trace, gpu.id, others, any(_MPS in one.name for one in users))


def _finding(trace: Trace, gpu: TrackId, others: list[tuple[float, Track]], has_mps: bool) -> Finding:
    _, other = max(others, key=lambda pair: pair[0])
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    all_of_them = percent(sum(one for one, _ in others))
    activity = gpu_activity(trace)
    pid = ids.pid(other.id)
    if has_mps:
        how, action = "under MPS", "limit the other (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in its environment), or move it"
    else:
        how = "they take turns (no MPS)"
        action = "move the other to another GPU; or let both run at once, with MPS started before them, or with MIG"
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=gpu_names([gpu]),
        message=f"{gpu_names([gpu])} is shared: {other.name} (pid {pid}){more}, {all_of_them} of its time; {how}",
        evidence=(
            *(f"{one.name}: {says(trace, one.id, v.GPU_PROCESS_SM, part)}" for part, one in others),
            *(() if activity is None else (activity.text,)),
        ),
        action=action,
        next_command=f"nvidia-smi pmon -i {ids.gpu_index(gpu)} -s um -c 5",
        source=source,
    )


def _share(trace: Trace, process: Track) -> float | None:
    return recent_mean(trace, process.id, v.GPU_PROCESS_SM)


def _is_ours(trace: Trace, process: Track) -> bool:
    return any(isinstance(pid, int) and ids.process(pid) in trace.tracks for pid in _pids(process))


def _is_other(trace: Trace, process: Track) -> bool:
    # In another namespace it may be ours.
    is_stranger = isinstance(process.facts.get(GpuProcessFact.CONTAINER_PID), Unknown)
    return not (is_stranger or _is_ours(trace, process) or _MPS in process.name)


def _pids(process: Track) -> tuple[object, ...]:
    return ids.pid(process.id), process.facts.get(GpuProcessFact.CONTAINER_PID)
