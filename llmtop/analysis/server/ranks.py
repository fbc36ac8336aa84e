"""Ranks of a server that make one step together, each on GPUs of its own: tensor and expert parallelism.

DP and PP ranks do not keep step: each replica, and each pipeline stage, has work of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.facts import ProcessFact
from llmtop.model import TrackKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.model import Trace, Track, TrackId

_RANK = re.compile(r"_?(TP|EP)\d+")
"""What differs in the roles of processes that do the same steps together."""


def group_of(role: str) -> str:
    """The role without what tells the ranks of one step apart.

    >>> group_of("Worker_TP1"), group_of("Worker_PP0_TP1"), group_of("EngineCore")
    ('Worker', 'Worker_PP0', 'EngineCore')
    """
    return _RANK.sub("", role)


def keep_step(trace: Trace, gpus: Sequence[Track]) -> bool:
    """Whether these GPUs are those of one group of ranks, so that each waits for the last one in every layer."""
    roles = (str(one.facts.get(ProcessFact.ROLE, "")) for one in trace.tracks_of(TrackKind.PROCESS))
    ranks = Counter(group_of(role) for role in roles if _RANK.search(role))
    return len(gpus) > 1 and len(gpus) in ranks.values()


def gpus_of(trace: Trace, pid: int) -> Iterator[TrackId]:
    """The GPUs that a process holds memory on."""
    for track in trace.tracks_of(TrackKind.GPU_PROCESS):
        if ids.pid(track.id) == pid:
            yield track.parent or ids.gpu_of(track.id)
