"""Ranks of a server that make one step together, each on GPUs of its own: tensor and expert parallelism.

DP and PP ranks do not keep step: each replica, and each pipeline stage, has work of its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import latest
from llmtop.analysis.server.configuration import number
from llmtop.facts import ProcessFact
from llmtop.model import Feature, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Trace, Track, TrackId

_RANK = re.compile(r"_?(TP|EP)\d+|(rank|NCCL process) \d+")
"""What differs in the roles of processes that make each step together, of a server or of a job (`procfs.job_rank`)."""
_STAGE = re.compile(r"PP\d+")
_NEXT_TO_NONE = 0.1
"""Of the most memory that a process holds on any GPU: contexts take 0.5 GB, and ranks hold shares of alike size."""


def group_of(role: str) -> str:
    """The role without what tells the ranks of one step apart.

    >>> group_of("Worker_TP1"), group_of("Worker_PP0_TP1"), group_of("EngineCore")
    ('Worker', 'Worker_PP0', 'EngineCore')
    """
    return _RANK.sub("", role)


def ranks_in_step(trace: Trace) -> list[list[int]]:
    """PIDs of the processes that make each step together: two at least in each group.

    Roles without a number (shards of TGI, ranks of TensorRT-LLM) are ranks of one step where the server is set to
    tensor parallelism over as many; else they may be models, replicas or stages, which do not wait for each other.
    """
    members: defaultdict[str, dict[int, bool]] = defaultdict(dict)
    for one in trace.tracks_of(TrackKind.PROCESS):
        role = str(one.facts.get(ProcessFact.ROLE, ""))
        members[group_of(role)][ids.pid(one.id)] = _RANK.search(role) is not None
    set_to = number(trace, Feature.TENSOR_PARALLEL)
    return [list(some) for some in members.values() if len(some) > 1 and (all(some.values()) or len(some) == set_to)]


def in_step(trace: Trace, gpus: Sequence[Track]) -> list[list[Track]]:
    """The GPUs by who waits for whom in every layer: one with nobody else's stands alone.

    Where it is not told who holds which, as many GPUs as ranks in a group are taken for theirs.
    """
    groups = ranks_in_step(trace)
    of_gpu = {gpu: which for which, pids in enumerate(groups) for pid in pids for gpu in gpus_of(trace, pid)}
    if not of_gpu and any(len(pids) == len(gpus) for pids in groups):
        return [list(gpus)]
    found: defaultdict[object, list[Track]] = defaultdict(list)
    for gpu in gpus:
        found[of_gpu.get(gpu.id, gpu.id)].append(gpu)
    return list(found.values())


def peers(trace: Trace, gpus: Sequence[Track]) -> Sequence[Sequence[Track]]:
    """A server's GPUs in groups that have equally much to do.

    Pipeline stages are no peers: even with equal layers the first one waits for the last one to return a micro-batch,
    and may wait in a kernel (two H200s, vLLM with PP=2 and equal stages: GPU 0 busy 73 %, GPU 1 17 %).
    """
    stages: defaultdict[str, list[Track]] = defaultdict(list)
    holders = {gpu: one for one in trace.tracks_of(TrackKind.PROCESS) for gpu in gpus_of(trace, ids.pid(one.id))}
    for gpu in _of_one_model(trace, gpus):
        role = str(holders[gpu.id].facts.get(ProcessFact.ROLE, "")) if gpu.id in holders else ""
        stages["".join(_STAGE.findall(role))].append(gpu)
    return list(stages.values())


def _of_one_model(trace: Trace, gpus: Sequence[Track]) -> Sequence[Track]:
    """A server's GPUs if what runs on them is of one model, or replicas of one.

    There are none if several processes have one role without a number and are no ranks of a step: each of Ollama's
    runners has a model of its own, and requests for it or not.
    """
    ranks = {pid for some in ranks_in_step(trace) for pid in some}
    roles = Counter(
        role
        for one in trace.tracks_of(TrackKind.PROCESS)
        if (role := str(one.facts.get(ProcessFact.ROLE, ""))) and (pid := ids.pid(one.id)) not in ranks
        if gpus_of(trace, pid) and not any(map(str.isdigit, role))
    )
    return gpus if max(roles.values(), default=0) < 2 else ()


def gpus_of(trace: Trace, pid: int) -> list[TrackId]:
    """The GPUs that a process works on: those it holds memory on, but for where it holds next to none.

    A CUDA context that was made there by accident takes half a gigabyte, and does nothing.
    """
    held = {
        track.parent or ids.gpu_of(track.id): latest(trace, track.id, v.GPU_PROCESS_MEMORY)
        for track in trace.tracks_of(TrackKind.GPU_PROCESS)
        if ids.pid(track.id) == pid
    }
    most = max((size for size in held.values() if not isinstance(size, Unknown)), default=0.0)
    return [gpu for gpu, size in held.items() if isinstance(size, Unknown) or size >= most * _NEXT_TO_NONE]
