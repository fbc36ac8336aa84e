"""Where the server's threads spend their time, as a tree of stacks: process, thread, state, functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.views import StackNode, StackTree
from llmtop.model import Trace, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from llmtop.model import Stack

ON_CPU = "on-cpu"
"""The state of stacks that were seen running; all others are waits."""
IN_KERNEL = "_[k]"
"""Behind the names of the kernel's functions."""
Level: TypeAlias = tuple[str, str]
"""Name and kind of a node."""
_NONE = Unknown("no stacks have been taken yet", "sudo llmtop --attach PID")


class Order(Enum):
    """What stands above what, and which stacks are in it. The value says so on the screen."""

    BY_THREAD = "process, thread, state, functions"
    BY_STATE = "state, process, thread, functions"
    WAITING = "waits only: process, thread, state, functions"
    RUNNING = "on the CPU only: process, thread, functions"
    INVERTED = "state, then functions from the innermost"


@dataclass(slots=True)
class _Building:
    """A node while stacks are merged into it."""

    name: str
    kind: str
    total: float = 0.0
    own: float = 0.0
    children: dict[tuple[str, str], _Building] = field(default_factory=dict)


def stall_tree(trace: Trace, order: Order = Order.BY_THREAD) -> StackTree:
    """All stacks of a trace merged; the width of a frame is time over all threads.

    Threads of one name within a process are one frame: pools have dozens that do the same.
    """
    root, unit = _merged(_Source(trace.stacks, trace), order)
    why = None if root.total else (trace.why_missing("on-CPU stacks", "ebpf.shed", "ebpf") or _NONE)
    return StackTree(root, unit, why)


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Stacks and the trace that names their threads; a key by the identity of the stacks.

    Comparing hundreds of them would cost as much as merging them; names that change meanwhile wait for new stacks.
    """

    stacks: tuple[Stack, ...]
    trace: Trace

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self.stacks is other.stacks

    def __hash__(self) -> int:
        return id(self.stacks)


@lru_cache(maxsize=4)
def _merged(source: _Source, order: Order) -> tuple[StackNode, str]:
    """The tree and its unit; kept, because stacks change less often than frames are drawn."""
    root = _Building("all", "root")
    units = {stack.unit for stack in source.stacks}
    if len(units) > 1:
        raise ValueError(f"stacks of different units cannot be merged: {sorted(units)}")
    names = _Names(source.trace)
    for stack in source.stacks:
        if _is_in(stack, order):
            _merge(root, stack.weight, _levels(stack, order, names))
    return _frozen(root), next(iter(units), "ns")


class _Names:
    """What processes and threads are called on screen."""

    def __init__(self, trace: Trace) -> None:
        self._tracks = trace.tracks
        named = Counter((track.parent, track.name) for track in trace.tracks_of(TrackKind.THREAD))
        self._crowds = {key: count for key, count in named.items() if count > 1}
        self._known: dict[str, tuple[Level, Level]] = {}

    def of(self, thread: str) -> tuple[Level, Level]:
        """The levels of a thread: its process and itself."""
        known = self._known.get(thread)
        if known is None:
            known = self._known[thread] = ((self.process(thread), "process"), (self.thread(thread), "thread"))
        return known

    def process(self, thread: str) -> str:
        """The process of a thread: its role or name, and its PID."""
        pid = thread.removeprefix("thread:").partition("/")[0]
        track = self._tracks.get(f"process:{pid}")
        if track is None:
            return f"process {pid}"
        role = track.facts.get("role", "")
        return f"{role if isinstance(role, str) and role else track.name} {pid}"

    def thread(self, thread: str) -> str:
        """A thread's name; of a crowd of the same name with how many there are."""
        track = self._tracks.get(thread)
        if track is None:
            return f"thread {thread.partition('/')[2]}"
        count = self._crowds.get((track.parent, track.name))
        return f"{track.name} ×{count}" if count else track.name


def _is_in(stack: Stack, order: Order) -> bool:
    match order:
        case Order.WAITING:
            return stack.state != ON_CPU
        case Order.RUNNING:
            return stack.state == ON_CPU
        case _:
            return True


def _levels(stack: Stack, order: Order, names: _Names) -> Iterator[Level]:
    """(name, kind) from the root down."""
    state = (stack.state or "unknown state", "running" if stack.state == ON_CPU else "waiting")
    process, thread = names.of(stack.track)
    frames = [(frame, "kernel" if frame.endswith(IN_KERNEL) else "frame") for frame in stack.frames]
    match order:
        case Order.BY_STATE:
            yield from (state, process, thread, *frames)
        case Order.RUNNING:
            yield from (process, thread, *frames)
        case Order.INVERTED:
            yield from (state, *reversed(frames))
        case _:
            yield from (process, thread, state, *frames)


def _merge(root: _Building, weight: float, levels: Iterator[Level]) -> None:
    node = root
    node.total += weight
    for level in levels:
        child = node.children.get(level)
        if child is None:
            child = node.children[level] = _Building(*level)
        child.total += weight
        node = child
    node.own += weight


def _frozen(node: _Building) -> StackNode:
    """The node with its children, the widest first; equal ones by name, so that they keep their places."""
    children: Collection[_Building] = node.children.values()
    if len(children) > 1:
        children = sorted(children, key=lambda child: (-child.total, child.name))
    return StackNode(node.name, node.kind, node.total, node.own, tuple(map(_frozen, children)))
