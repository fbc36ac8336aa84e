"""What frames of a server's threads say: colours by what they are, shares of their thread, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.threads.flame_diff import LEAST_POINTS, DiffNode
from llmtop.analysis.threads.stall_tree import MergedNode, StallTree
from llmtop.analysis.views import NodeKind
from llmtop.tui.render.flame import FrameWords, about_frame
from llmtop.tui.render.lines import in_room, line
from llmtop.units import counted, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.analysis.threads.flames import FlameView
    from llmtop.analysis.views import StackNode, StackTree
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look

_ROLES = {
    NodeKind.ROOT: "dim",
    NodeKind.PROCESS: "accent",
    NodeKind.THREAD: "series5",
    NodeKind.RUNNING: "good",
    NodeKind.QUEUED: "bad",
    NodeKind.WAITING: "stall2",
    NodeKind.PYTHON: "stall7",
    NodeKind.FRAME: "stall3",
    NodeKind.KERNEL: "stall8",
}
_GROWN = ((5.0, "stall1"), (1.0, "stall2"), (LEAST_POINTS, "stall3"))
_SHRUNK = ((5.0, "stall6"), (1.0, "stall5"), (LEAST_POINTS, "stall4"))
"""Colours by the size of a change in points, from the largest; the sign on the frame says the same."""
_NO_SHARE = frozenset({NodeKind.ROOT, NodeKind.PROCESS, NodeKind.THREAD})
"""What stands above states: all threads are observed for equally long, so shares would tell how many are shown."""
_ALL = 0.999


def words_of(tree: StackTree) -> FrameWords:
    """What the frames of a tree of threads say."""
    return FrameWords(role_of, label_of, lambda node: value_of(tree.root, node), lambda node: about(tree, node))


def role_of(node: StackNode) -> str:
    """The colour of a frame: by its kind, or by how its share has changed."""
    if not isinstance(node, DiffNode):
        return _ROLES.get(node.kind, "text")
    steps = _GROWN if node.change > 0 else _SHRUNK
    return next((role for least, role in steps if abs(node.change) >= least), "dim")


def label_of(node: StackNode) -> str:
    """The name of a frame; where moments are compared, behind its change in percentage points."""
    if not isinstance(node, DiffNode) or abs(node.change) < LEAST_POINTS:
        return node.name
    what = "new " if node.is_new else "gone " if node.is_gone else ""
    return f"{node.change:+.1f} {what}{node.name}"


def value_of(root: StackNode, node: StackNode) -> str:
    """Below a thread the share of that thread's time, as in the threads' pane. Changes say theirs in the label."""
    if isinstance(node, DiffNode) or node.kind in _NO_SHARE:
        return ""
    whole = (node.whole if isinstance(node, MergedNode) else 0.0) or root.total
    return percent(100 * node.total / whole)


def about(tree: StackTree, node: StackNode) -> Sequence[Part]:
    """What the last line says of a frame."""
    if not isinstance(node, DiffNode):
        return [*_about_time(tree, node), *_python_note(tree, node)]
    moved = f"{node.change:+.1f} points  " if abs(node.change) >= LEAST_POINTS else "no change  "
    what = "new, " if node.is_new else "gone, " if node.is_gone else ""
    return [(moved, "value"), (f"{what}{percent(node.before)} → {percent(node.now)}  ", "text"), (node.name, "text")]


def _about_time(tree: StackTree, node: StackNode) -> Sequence[Part]:
    if not isinstance(node, MergedNode) or not node.whole:
        return about_frame(tree, node)
    time = f"{quantity(node.total, tree.unit)}  {percent(100 * node.total / node.whole)} of {node.thread}"
    awake = ", the rest waiting for work" if node.kind is NodeKind.THREAD and node.total < node.whole * _ALL else ""
    return [(f"{time}{awake}  ", "value"), ("" if node.kind is NodeKind.THREAD else node.name, "text")]


def last_lines(view: FlameView, width: int, room: int, look: Look) -> list[Strip]:
    """Below the frames: the threads that take no width, then what of the picture is missing; wrapped as far as fits."""
    lines: list[list[Part]] = []
    if view.resting:
        lines.append([(f"{counted(view.resting, 'thread', 'wait')} for work ", "dim"), ("(a shows all)", "accent")])
    if view.lack is not None:
        what, why = view.lack
        lines.append([(f"{what}: ", "warn"), (str(why), "text")])
    return [line(parts, width, look) for parts in in_room(lines, width, room)][:room]


def _python_note(tree: StackTree, node: StackNode) -> Sequence[Part]:
    if not isinstance(tree, StallTree) or not tree.looks or tree.unit != "ns":
        return []
    if node.kind is NodeKind.ROOT:
        return [(f"  Python frames, estimated, in {percent(100 * tree.python_share)} of the time", "dim")]
    return [("  (estimate)", "dim")] if node.kind is NodeKind.PYTHON else []
