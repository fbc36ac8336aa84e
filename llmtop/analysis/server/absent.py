"""Parts that a server of its kind always has, and that are not there: they had ended before llmtop came.

What llmtop has not seen end can only be told by what is there: a front end that has answered and has no engine below
it, or ranks of which some numbers are missing. Tokens that move refute it, however the processes look: one rank that
is gone stops all of its engine, but not the engines of other data-parallel ranks.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import server_track
from llmtop.analysis.server.configuration import number
from llmtop.analysis.server.fault import Fault
from llmtop.analysis.server.processes import GONE, parts
from llmtop.analysis.server.tokens import moved_ns
from llmtop.facts import ProcessFact, ServerFact
from llmtop.model import Feature, TrackKind
from llmtop.settings import has_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.analysis.server.processes import ServerPart
    from llmtop.model import Trace

_NOT_TITLED = re.compile(r"spawn|fork|python|vllm|sglang|child|main", re.IGNORECASE)
"""A process of such a role may be anything that has not said what it is: an engine of a release without titles."""
_HELPERS = ("resource_tracker",)
_RANKS: Mapping[str, Feature] = {
    "DP": Feature.DATA_PARALLEL,
    "PP": Feature.PIPELINE_PARALLEL,
    "TP": Feature.TENSOR_PARALLEL,
}
_FEW = 0.5
"""Of those that are there."""
_RANK = re.compile(r"_?([DPTE]P)(\d+)")


def absent_faults(trace: Trace) -> Iterator[Fault]:
    """The engine, or ranks of it; only of a server that has answered, all of whose processes say what they are."""
    living = parts(trace)
    root = next((part for part in living if part.is_root), None)
    core = "" if root is None else str(root.track.facts.get(ProcessFact.CORE, ""))
    if root is None or not core or not _has_answered(trace) or _may_be_any(trace, root):
        return
    server = server_track(trace)
    version = None if server is None else server.facts.get(ServerFact.VERSION)
    if not has_version(str(root.track.facts.get(ProcessFact.CORE_SINCE, "")), version):
        return
    moved, states = moved_ns(trace), trace.get(root.track.id, v.PROCESS_STATE)
    is_at_work = moved is not None and (states is None or moved > states.times[0])
    known = {track.name for track in trace.tracks_of(TrackKind.ENDED)} | {part.role for part in living}
    if not any(role.startswith(core) for role in known):
        if is_at_work or _computes_itself(trace, root):
            return
        yield _fault(trace, "ENGINE MISSING", f"no {core}", f"{root.name} has no {core} below it", living)
    elif missing := [role for role in _missing_ranks(trace, known) if not is_at_work or "DP" in role]:
        has = f"{len(missing)} of its ranks are not there"
        yield _fault(trace, "RANK MISSING", ", ".join(missing[:3]), f"{has}: {', '.join(missing[:4])}", living)


def _computes_itself(trace: Trace, root: ServerPart) -> bool:
    """Whether the root holds memory of a GPU: front ends that leave the model to others have none."""
    return any(ids.process_of(track.id) == root.track.id for track in trace.tracks_of(TrackKind.GPU_PROCESS))


def _has_answered(trace: Trace) -> bool:
    """With metrics: a server that starts has no engine yet, and answers nothing."""
    endpoints = (trace.get(track.id, v.ENDPOINT_ANSWER) for track in trace.tracks_of(TrackKind.ENDPOINT))
    return any(
        value == v.EndpointAnswer.METRICS for series in endpoints if series is not None for _, value in series.known
    )


def _may_be_any(trace: Trace, root: ServerPart) -> bool:
    others = (track for track in trace.tracks_of(TrackKind.PROCESS) if track.id != root.track.id)
    roles = {
        str(track.facts.get(ProcessFact.ROLE, "")) for track in others if track.facts.get(ProcessFact.IS_PART) != 1
    }
    return any(role == root.role or (_NOT_TITLED.search(role) and role not in _HELPERS) for role in roles)


def _missing_ranks(trace: Trace, known: set[str]) -> list[str]:
    """Roles that are as those that are there, with a number that is not: Worker_TP2 of four."""
    missing: list[str] = []
    for pattern in {_RANK.sub(lambda match: match[0].replace(match[2], "#"), role) for role in known}:
        kinds = [kind for kind, _ in _RANK.findall(pattern.replace("#", "0"))]
        sizes = [_size(trace, kind) for kind in kinds]
        if kinds and all(sizes):
            every = [_numbered(pattern, numbers) for numbers in product(*(range(size) for size in sizes))]
            absent = [role for role in every if role not in known]
            # Two kinds of ranks need not be every pair: with data-parallel attention TP2 exists in DP1 only.
            are_pairs = len(kinds) == 1 or len(absent) <= _FEW * (len(every) - len(absent))
            missing += absent if are_pairs else []
    return sorted(missing)


def _size(trace: Trace, kind: str) -> int:
    """How many ranks there are of a kind; 0 where that is not known, as of experts, whose numbers follow the others."""
    told = number(trace, _RANKS[kind]) if kind in _RANKS else None
    return int(told) if told is not None else 0


def _numbered(pattern: str, numbers: Sequence[int]) -> str:
    for n in numbers:
        pattern = pattern.replace("#", str(n), 1)
    return pattern


def _fault(trace: Trace, state: str, subject: str, what: str, living: tuple[ServerPart, ...]) -> Fault:
    names = ", ".join(part.name for part in living[:4])
    return Fault(
        GONE,
        state,
        subject,
        f"{what}: gone before llmtop came. It answers for its metrics, and no token comes",
        (
            f"what is there of it: {names} (/proc)",
            "a server of this kind runs it in a process of its own (its command line; docs/servers.md)",
        ),
        "restart the server; its log says why it ended",
        "sudo dmesg -T | grep -iE 'oom|killed process|segfault|xid' | tail",
        trace.start_ns,
    )
