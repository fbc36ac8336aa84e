"""Where the server's threads spend their time, as a tree of stacks: process, thread, state, functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids, whats
from llmtop.analysis.series.readings import told_why_unseen
from llmtop.analysis.threads.flames import Order, TreeContent
from llmtop.analysis.threads.python_frames import (
    IN_KERNEL,
    IN_PYTHON,
    StacksWithPython,
    is_python,
    join_python,
    python_only,
)
from llmtop.analysis.threads.stall_times import AWAKE, RUN_QUEUE, leading_thread, timed_stacks
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.facts import ProcessFact
from llmtop.frozen import frozen
from llmtop.model import Trace, TrackId, TrackKind, Unknown, UnknownKind
from llmtop.vocabulary import ON_CPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.model import Stack, Track

Level: TypeAlias = tuple[str, NodeKind]
"""Name and kind of a node."""
Levels: TypeAlias = "tuple[Level | str, ...]"
"""A stack from the root of the tree down: process, thread, state, and functions by their names."""
ENDED_THREADS = "threads that have ended"
"""Servers that start one for each request have hundreds within the window, whose names are not known any more."""
_PLUMBING = frozenset(
    {
        "[unknown]",
        "entry_SYSCALL_64_after_hwframe_[k]",
        "do_syscall_64_[k]",
        "el0t_64_sync_[k]",
        "el0t_64_sync_handler_[k]",
        "el0_svc_[k]",
        "do_el0_svc_[k]",
        "el0_svc_common.constprop.0_[k]",
        "invoke_syscall_[k]",
        *(
            f"{name} (threading.py){IN_PYTHON}"
            for name in ("Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run")
        ),
        *(f"{name} (threading.py){IN_PYTHON}" for name in ("_bootstrap", "_bootstrap_inner", "run")),
    }
)
"""Rows that tell nothing: how every system call and every Python thread begins (before 3.11 methods have no class), and
what has no name, of which code without frame pointers gives several that differ by chance."""
_STATE_KINDS = {ON_CPU: NodeKind.RUNNING, RUN_QUEUE: NodeKind.QUEUED}
_NONE = Unknown("no stacks have been taken yet", "wait for the first report of the probes", UnknownKind.PASSING)


@frozen
class StallTree(StackTree):
    """Stacks of a trace, merged.

    Attributes:
        end_ns: When they were summed up; 0 where they have no time of their own.
        python_share: The part of the time, 0 to 1, that has Python frames: all of them estimates.
        looks: How many looks at an interpreter the estimates rest on.
        folded: The same stacks by their levels from the root down.
        no_functions: Why states are all that is known, where no stacks tell what threads were in.
    """

    end_ns: int = 0
    python_share: float = 0.0
    looks: int = 0
    folded: Mapping[Levels, float] = field(default_factory=dict)
    no_functions: Unknown | None = None


def stall_tree(trace: Trace, wanted: TreeContent | Order = Order.BY_THREAD) -> StallTree:
    """The time of all threads merged by what they were in (`timed_stacks`); a frame's width is time over all threads.

    Threads of one name within a process are one frame: pools have dozens that do the same. Without anything that tells
    times, the looks at interpreters alone are merged. The thread that drives the engine stands first.
    """
    wanted = TreeContent(wanted) if isinstance(wanted, Order) else wanted
    merged = _merged(_StackSource(timed_stacks(trace), trace.tracks, leading_thread(trace)), wanted)
    why_not = None if merged.root.total else why_no_times(trace)
    has_functions = any(not is_python(stack) for stack in trace.stacks)
    return replace(
        merged,
        why_not=why_not,
        end_ns=trace.stacks_end_ns,
        no_functions=None if has_functions else why_no_times(trace),
    )


def why_no_times(trace: Trace) -> Unknown:
    """Why there are no stacks that tell times."""
    return told_why_unseen(trace, whats.STACKS, whats.ON_CPU_STACKS) or _NONE


@dataclass(frozen=True, slots=True, eq=False)
class _StackSource:
    """Stacks and the tracks that name their threads; a key by the identity of the stacks.

    Comparing hundreds of them would cost as much as merging them; names that change meanwhile wait for new stacks.
    `leader` is the thread that stands first.
    """

    stacks: Sequence[Stack]
    tracks: Mapping[TrackId, Track]
    leader: TrackId = ids.NONE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StackSource) and self.stacks is other.stacks

    def __hash__(self) -> int:
        return id(self.stacks)


@lru_cache(maxsize=8)
def _merged(source: _StackSource, wanted: TreeContent) -> StallTree:
    """The tree; kept, because stacks change less often than frames are drawn."""
    without, names = wanted.without, _FrameNames(source.tracks)
    kept = (one for one in source.stacks if one.track not in without or one.state in AWAKE or is_python(one))
    joined = _joined(tuple(kept), wanted)
    folded: dict[Levels, float] = {}
    for stack in joined.stacks:
        if _is_in(stack, wanted.order):
            levels = _levels(stack, wanted, names)
            folded[levels] = folded.get(levels, 0.0) + stack.weight
    unit = joined.stacks[0].unit if joined.stacks else "ns"
    wholes: dict[tuple[Level, Level], float] = {}
    for stack in source.stacks:
        if stack.unit == unit:
            thread = names.of(stack.track)
            wholes[thread] = wholes.get(thread, 0.0) + stack.weight
    common = _Common(frozenset(names.of(source.leader)) if source.leader else frozenset(), wholes)
    root = MergedNode("all", NodeKind.ROOT, 0, tuple(folded.items()), common)
    return StallTree(root, unit, None, python_share=joined.share, looks=joined.looks, folded=folded)


@frozen
class _Common:
    """What all frames of a tree know.

    Attributes:
        first: The process and the thread that stand before their wider siblings.
        wholes: All the time of each thread by its process and itself, with what is left out.
    """

    first: frozenset[Level]
    wholes: Mapping[tuple[Level, Level], float]


class MergedNode(StackNode):
    """A frame whose children are made when they are looked at: of 10,000 that a server has, few are ever seen.

    Args:
        depth: How many levels stand above those that tell its children apart.
        folded: The stacks that go through it.
        common: What all frames of the tree know.
        above: The frame above it.

    Attributes:
        thread: The name of the thread that it is a part of; empty where there is none.
        whole: All the time of that thread; 0 where there is none.
    """

    __slots__ = ("_common", "_depth", "_folded", "_made", "thread", "whole")

    thread: TrackId
    whole: float
    _common: _Common
    _depth: int
    _folded: Sequence[tuple[Levels, float]]
    _made: tuple[StackNode, ...] | None

    def __init__(
        self,
        name: str,
        kind: NodeKind,
        depth: int,
        folded: Sequence[tuple[Levels, float]],
        common: _Common,
        above: MergedNode | None = None,
    ) -> None:
        thread, whole = ("", 0.0) if above is None else (above.thread, above.whole)
        if above is not None and kind is NodeKind.THREAD:
            thread, whole = name, common.wholes.get(((above.name, above.kind), (name, kind)), 0.0)
        own = sum(weight for levels, weight in folded if len(levels) == depth)
        for field_name, value in (
            ("name", name),
            ("kind", kind),
            ("total", sum(weight for _, weight in folded)),
            ("own", own),
            ("_depth", depth),
            ("_common", common),
            ("_folded", folded),
            ("_made", None),
            ("thread", thread),
            ("whole", whole),
        ):
            object.__setattr__(self, field_name, value)

    @property
    def children(self) -> tuple[StackNode, ...]:
        """The one that leads, then the widest; equal ones by name, so that they keep their places."""
        made = self._made
        if made is None:
            made = tuple(sorted(self._parts(), key=self._rank))
            object.__setattr__(self, "_made", made)
        return made

    def _rank(self, child: StackNode) -> tuple[bool, float, str]:
        return (child.name, child.kind) not in self._common.first, -child.total, child.name

    def _parts(self) -> Iterator[MergedNode]:
        depth = self._depth
        parts: dict[Level | str, list[tuple[Levels, float]]] = {}
        for stack in self._folded:
            if len(stack[0]) > depth:
                parts.setdefault(stack[0][depth], []).append(stack)
        for level, folded in parts.items():
            name, kind = _level(level) if isinstance(level, str) else level
            yield MergedNode(name, kind, depth + 1, folded, self._common, self)


def _joined(stacks: Sequence[Stack], wanted: TreeContent) -> StacksWithPython:
    """Stacks of one unit, since times and numbers of samples do not add up: of time where there are any."""
    units = {stack.unit for stack in stacks if not is_python(stack)}
    if not units:
        return python_only(stacks, detail=wanted.detail) if wanted.python else StacksWithPython(())
    unit = "ns" if "ns" in units else min(units)
    if wanted.python:
        kept = (stack for stack in stacks if stack.unit == unit or is_python(stack))
        return join_python(kept, detail=wanted.detail)
    return StacksWithPython(tuple(stack for stack in stacks if stack.unit == unit and not is_python(stack)))


_NOBODY = (("process", NodeKind.PROCESS), ("thread", NodeKind.THREAD))


class _FrameNames:
    """What processes and threads are called on screen."""

    def __init__(self, tracks: Mapping[TrackId, Track]) -> None:
        self._tracks = tracks
        threads = (one for one in tracks.values() if one.kind is TrackKind.THREAD and not ids.is_first_thread(one.id))
        named = Counter((track.parent, track.name) for track in threads)
        self._crowds = {key: count for key, count in named.items() if count > 1}
        ends = (one for one in tracks.values() if one.kind is TrackKind.ENDED)
        self._ended = {ids.pid(one.id): one.name for one in ends}
        self._known: dict[TrackId, tuple[Level, Level]] = {}

    def of(self, thread: TrackId) -> tuple[Level, Level]:
        """The levels of a thread: its process and itself."""
        known = self._known.get(thread) if thread else _NOBODY
        if known is None:
            known = self._known[thread] = (
                (self.process(thread), NodeKind.PROCESS),
                (self.thread(thread), NodeKind.THREAD),
            )
        return known

    def process(self, thread: TrackId) -> str:
        """The process of a thread: its role or name, and its PID."""
        pid, track = ids.pid(thread), self._tracks.get(ids.process_of(thread))
        if track is None:
            return f"{self._ended.get(pid, 'process')} {pid}"
        role = track.facts.get(ProcessFact.ROLE, "")
        return f"{role if isinstance(role, str) and role else track.name} {pid}"

    def thread(self, thread: TrackId) -> str:
        """A thread's name; of a crowd of the same name with how many there are; ended ones of a process together."""
        track = self._tracks.get(thread)
        if track is None:
            is_known = ids.process_of(thread) in self._tracks or ids.pid(thread) in self._ended
            return ENDED_THREADS if is_known else f"thread {ids.thread_label(thread)}"
        count = None if ids.is_first_thread(thread) else self._crowds.get((track.parent, track.name))
        return f"{track.name} ×{count}" if count else track.name


def _is_in(stack: Stack, order: Order) -> bool:
    match order:
        case Order.WAITING:
            return stack.state != ON_CPU
        case Order.RUNNING:
            return stack.state == ON_CPU
        case _:
            return True


def _levels(stack: Stack, wanted: TreeContent, names: _FrameNames) -> Levels:
    """From the root down; functions by their names alone, whose kinds are told when they are seen."""
    state = (stack.state or "unknown state", _STATE_KINDS.get(stack.state, NodeKind.WAITING))
    process, thread = names.of(stack.track)
    frames = stack.frames
    if not wanted.detail and not _PLUMBING.isdisjoint(frames):
        frames = tuple(one for one in frames if one not in _PLUMBING) or frames[-1:]
    match wanted.order:
        case Order.BY_STATE:
            return (state, process, thread, *frames)
        case Order.RUNNING:
            return (process, thread, *frames)
        case Order.INVERTED:
            return (state, *reversed(frames))
        case _:
            return (process, thread, state, *frames)


def _level(frame: str) -> Level:
    if frame.endswith(IN_PYTHON):
        return frame[: -len(IN_PYTHON)], NodeKind.PYTHON
    return frame, NodeKind.KERNEL if frame.endswith(IN_KERNEL) else NodeKind.FRAME
