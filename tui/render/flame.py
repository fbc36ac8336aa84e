"""Merged stacks as an icicle: the root on top, the width of a frame its share, what it calls below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from llmtop.analysis.views import StackNode, StackTree
from llmtop.tui.render.lines import blank, explain, fill, line, pad, spelled
from llmtop.tui.render.look import Look
from llmtop.units import percent, quantity

Path: TypeAlias = tuple[int, ...]
"""A frame by its way from the root: the index among the children at each step."""

_REVERSE = Style(reverse=True)
_FOOT_ROWS = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that is wide enough to see: cells [start, stop) of the row of its depth."""

    path: Path
    node: StackNode
    start: int
    stop: int


def node_at(root: StackNode, path: Path) -> StackNode:
    """The frame that a path leads to.

    Raises:
        IndexError: No frame is there.
    """
    for index in path:
        root = root.children[index]
    return root


def place_frames(root: StackNode, width: int, depth: int, zoom: Path = ()) -> list[list[Frame]]:
    """The frames to draw, by row: the frame at `zoom` over the whole width, what holds it above, the rest below it.

    Nothing below a frame of less than a cell is visited: the cost is that of what is seen, not of the tree.
    """
    rows: list[list[Frame]] = [
        [Frame(zoom[:step], node_at(root, zoom[:step]), 0, width)] for step in range(min(len(zoom) + 1, depth))
    ]
    if len(rows) == len(zoom) + 1:
        rows += [[] for _ in range(depth - len(rows))]
        _place_children(rows, rows[len(zoom)][0], len(zoom) + 1)
    return rows


def _place_children(rows: list[list[Frame]], parent: Frame, depth: int) -> None:
    if depth >= len(rows) or parent.node.total <= 0:
        return
    width, before = parent.stop - parent.start, 0.0
    for i, child in enumerate(parent.node.children):
        after = before + child.total
        first = parent.start + round(width * (before / parent.node.total))
        last = parent.start + min(width, round(width * (after / parent.node.total)))
        before = after
        if last > first:
            frame = Frame((*parent.path, i), child, first, last)
            rows[depth].append(frame)
            _place_children(rows, frame, depth + 1)


def draw_flame(
    tree: StackTree,
    width: int,
    height: int,
    look: Look,
    *,
    selected: Path = (),
    zoom: Path = (),
    role_of: Callable[[StackNode], str] = lambda node: "accent",
) -> list[Strip]:
    """The icicle in `width` x `height` cells; the last line says what the selected frame is."""
    if tree.why_not is not None or tree.root.total <= 0:
        why = tree.why_not
        return explain(why, width, height, look) if why is not None else [blank(width, look)] * height
    rows = place_frames(tree.root, width, max(1, height - _FOOT_ROWS), zoom)
    strips = [_row(row, width, look, selected, role_of) for row in rows if row]
    return [*fill(strips, width, height - _FOOT_ROWS, look), _about(tree, selected, width, look)]


def _row(frames: list[Frame], width: int, look: Look, selected: Path, role_of: Callable[[StackNode], str]) -> Strip:
    segments: list[Segment] = []
    at = 0
    for frame in frames:
        if frame.start > at:
            segments.append(Segment(" " * (frame.start - at), look.style("text")))
        is_selected = frame.path == selected
        style = look.style("cursor") if is_selected else look.style(role_of(frame.node)) + _REVERSE
        # The first cell is an edge, so that neighbours of one colour, or of none, stay apart.
        text = pad(look.glyphs.edge + spelled(frame.node.name, look), frame.stop - frame.start, look)
        segments.append(Segment(text, style))
        at = frame.stop
    if at < width:
        segments.append(Segment(" " * (width - at), look.style("text")))
    return Strip(segments, width)


def _about(tree: StackTree, selected: Path, width: int, look: Look) -> Strip:
    node = node_at(tree.root, selected)
    share = percent(100 * node.total / tree.root.total)
    total = "" if tree.unit == "%" else f"{quantity(node.total, tree.unit)}  "
    own = f"  own {percent(100 * node.own / tree.root.total)}" if node.own and node.children else ""
    return line([(f"{total}{share}{own}  ", "value"), (node.name, "text")], width, look)


# -- moving ----------------------------------------------------------------------------------------------------


def step_down(root: StackNode, path: Path) -> Path:
    """The widest frame below, or the same where there is none."""
    children = node_at(root, path).children
    return (*path, max(range(len(children)), key=lambda i: children[i].total)) if children else path


def step_aside(root: StackNode, path: Path, step: int) -> Path:
    """The frame left or right with the same parent, or the same at the edge."""
    if not path:
        return path
    count = len(node_at(root, path[:-1]).children)
    return (*path[:-1], max(0, min(count - 1, path[-1] + step)))
