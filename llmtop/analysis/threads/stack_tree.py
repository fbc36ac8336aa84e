"""The stacks of a file as one tree, whatever they count: samples, times, bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from llmtop import whats
from llmtop.analysis.threads.flames import FlameView
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.model import Trace, Unknown
from llmtop.units import quantity

_NONE = Unknown("this file has no stacks")


@dataclass(slots=True)
class _Frame:
    """A frame that is still being summed up."""

    name: str
    total: float = 0.0
    own: float = 0.0
    below: dict[str, _Frame] = field(default_factory=dict)


def why_no_stacks(trace: Trace) -> Unknown | None:
    """Why a file has no stacks to show; None where it has some."""
    return None if trace.stacks else trace.why_missing(whats.STACKS) or _NONE


def stack_tree(trace: Trace) -> StackTree | Unknown:
    """All stacks merged from the root on, below the threads that they are of, where a file tells these.

    Stacks of several units do not add up: only those of the most frequent one are in it.
    """
    if why := why_no_stacks(trace):
        return why
    unit = Counter(stack.unit for stack in trace.stacks).most_common(1)[0][0]
    root = _Frame("all")
    made = [root]
    for stack in trace.stacks:
        if stack.unit != unit:
            continue
        thread = trace.tracks.get(stack.track)
        frame = root
        frame.total += stack.weight
        for name in (*([thread.name] if thread is not None else []), *stack.frames):
            known = frame.below.get(name)
            if known is None:
                known = frame.below[name] = _Frame(name)
                made.append(known)
            frame = known
            frame.total += stack.weight
        frame.own += stack.weight
    return StackTree(_frozen(made), unit, None if root.total else Unknown("the stacks of this file weigh nothing"))


def stack_flame(trace: Trace) -> FlameView | Unknown:
    """The flame of a file's stacks, or why there is none."""
    tree = stack_tree(trace)
    if isinstance(tree, Unknown) or tree.why_not is not None:
        return tree if isinstance(tree, Unknown) else tree.why_not or _NONE
    return FlameView(tree, (quantity(tree.root.total, tree.unit),), has_states=False)


def _frozen(made: list[_Frame]) -> StackNode:
    """The first of the frames with all below it, the heaviest first; those above come before those below.

    Not by recursion: stacks have a thousand frames.
    """
    nodes: dict[int, StackNode] = {}
    for frame in reversed(made):
        below = sorted((nodes.pop(id(one)) for one in frame.below.values()), key=lambda node: -node.total)
        kind = NodeKind.FRAME if nodes or frame is not made[0] else NodeKind.ROOT
        nodes[id(frame)] = StackNode(frame.name, kind, frame.total, frame.own, tuple(below))
    return nodes[id(made[0])]
