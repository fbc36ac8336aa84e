"""Merged stacks as an icicle: the root on top, the width of a frame its share, what it calls below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.frozen import frozen
from llmtop.tui.render.lines import Part, blank, explain, fill, line, pad, spelled, width_of
from llmtop.tui.render.look import Look
from llmtop.units import percent, quantity

Path: TypeAlias = tuple[int, ...]
"""A frame by its way from the root: the index among the children at each step."""
Names: TypeAlias = tuple[tuple[str, str], ...]
"""A frame by the (name, kind) of each step from the root: places change from frame to frame, names do not."""

_REVERSE = Style(reverse=True, dim=False)
"""Faint letters on a bright ground could not be read."""
_UNDERLINED = Style(underline=True)
"""Without colours the cursor would differ from other frames by its weight alone."""
_FOOT_ROWS = 1
_GAP = 3
"""Cells between a name and its value, and behind that."""
_MOST_CRUMBS = 4
"""All, a process, a thread and its state."""
_CELL = 1 - 1e-9
"""The least width of a frame, in cells, but for what arithmetic loses."""


@frozen
class FlameCells:
    """A frame that is wide enough to see: cells [start, stop) of the row of its depth.

    Attributes:
        hidden: For what stands in place of the children that are narrower than a cell: their indices.
    """

    path: Path
    node: StackNode
    start: int
    stop: int
    hidden: frozenset[int] = frozenset()

    def holds(self, path: Path) -> bool:
        """Whether a cursor at `path` is shown here: on the frame, or on or below one of those it stands for."""
        if not self.hidden:
            return self.path == path
        depth = len(self.path)
        return path[:depth] == self.path and len(path) > depth and path[depth] in self.hidden


def node_at(root: StackNode, path: Path) -> StackNode:
    """The frame that a path leads to.

    Raises:
        IndexError: No frame is there.
    """
    for index in path:
        root = root.children[index]
    return root


def place_frames(root: StackNode, width: int, depth: int, zoom: Path = ()) -> list[list[FlameCells]]:
    """The frames to draw, by row: the frame at `zoom` over the whole width, what holds it above, the rest below it.

    Children of less than a cell stand together in one frame that counts them, right of the wider ones. Nothing
    below them is visited: the cost is that of what is seen, not of the tree.
    """
    rows: list[list[FlameCells]] = [
        [FlameCells(zoom[:step], node_at(root, zoom[:step]), 0, width)] for step in range(min(len(zoom) + 1, depth))
    ]
    if len(rows) == len(zoom) + 1:
        rows += [[] for _ in range(depth - len(rows))]
        for row, below in pairwise(rows[len(zoom) :]):
            for frame in row:
                if not frame.hidden and frame.node.total > 0:
                    below += _children_of(frame)
    return rows


def _children_of(parent: FlameCells) -> Iterator[FlameCells]:
    width, total = parent.stop - parent.start, parent.node.total
    hidden: list[int] = []
    before = hidden_total = 0.0
    for i, child in enumerate(parent.node.children):
        if width * (child.total / total) < _CELL:
            if child.total > 0:
                hidden.append(i)
                hidden_total += child.total
            continue
        after = before + child.total
        yield FlameCells((*parent.path, i), child, _cell(parent, before), _cell(parent, after))
        before = after
    first, last = _cell(parent, before), _cell(parent, before + hidden_total)
    if hidden and last > first:
        together = StackNode(f"+{len(hidden)} narrower", NodeKind.NARROWER, hidden_total, hidden_total)
        yield FlameCells(parent.path, together, first, last, frozenset(hidden))


def _cell(parent: FlameCells, before: float) -> int:
    """Where a child begins that has `before` left of it: a half goes up, so that what is a cell wide never vanishes."""
    width = parent.stop - parent.start
    return parent.start + min(width, int(width * (before / parent.node.total) + 0.5))


@frozen
class FrameWords:
    """What frames say: their colour's role, their name, what stands behind it, and what the last line tells of one."""

    role_of: Callable[[StackNode], str] = lambda node: "accent"
    label_of: Callable[[StackNode], str] = lambda node: node.name
    value_of: Callable[[StackNode], str] = lambda node: ""
    about: Callable[[StackNode], Sequence[Part]] | None = None


def draw_flame(
    tree: StackTree,
    width: int,
    height: int,
    look: Look,
    *,
    selected: Path = (),
    zoom: Path = (),
    role_of: Callable[[StackNode], str] = lambda node: "accent",
    label_of: Callable[[StackNode], str] = lambda node: node.name,
    value_of: Callable[[StackNode], str] = lambda node: "",
    about: Callable[[StackNode], Sequence[Part]] | None = None,
) -> list[Strip]:
    """The icicle in `width` x `height` cells; the last line says what the selected frame is.

    Where not all rows fit, those above that have one frame over the whole width become one, and the others scroll
    with the cursor (`selected`). `label_of` gives what stands on a frame, `value_of` what stands behind it where
    there is room; `about` what the last line says of the selected one, by default its total, share, own share and
    name.
    """
    if tree.why_not is not None or tree.root.total <= 0:
        why = tree.why_not
        return explain(why, width, height, look) if why is not None else [blank(width, look)] * height
    count = max(1, height - _FOOT_ROWS)
    drawn = _Drawn(look, selected, role_of, label_of, value_of)
    rows = place_frames(tree.root, width, count + max(_MOST_CRUMBS, len(zoom)) + 1, zoom)
    crumbs = _crumbs(rows, width, count, zoom)
    body = count - bool(crumbs)
    above = max(0, len(selected) + 1 - len(crumbs) - body)
    first = len(crumbs) + above
    if len(rows) <= first + body:
        rows = place_frames(tree.root, width, first + body + 1, zoom)
    strips = [drawn.crumbs(crumbs, width)] if crumbs else []
    strips += [drawn.row(row, width) for row in rows[first : first + body] if row]
    said = about(node_at(tree.root, selected)) if about else about_frame(tree, node_at(tree.root, selected))
    foot = _foot(said, above=above, is_more_below=bool(rows[first + body]), width=width, look=look)
    return [*fill(strips, width, height - _FOOT_ROWS, look), foot]


def _crumbs(rows: list[list[FlameCells]], width: int, count: int, zoom: Path) -> list[FlameCells]:
    """The frames that are drawn as one row: none where all rows fit, or where nothing would be gained."""
    if not rows[count]:
        return []
    whole = takewhile(lambda row: len(row) == 1 and row[0].stop - row[0].start == width and not row[0].hidden, rows)
    found = [row[0] for row in whole][: len(zoom) or _MOST_CRUMBS]
    return found if len(found) > 1 else []


@frozen
class _Drawn:
    """What all rows of one drawing have in common."""

    look: Look
    selected: Path
    role_of: Callable[[StackNode], str]
    label_of: Callable[[StackNode], str]
    value_of: Callable[[StackNode], str]

    def row(self, frames: list[FlameCells], width: int) -> Strip:
        """One row of frames."""
        segments: list[Segment] = []
        blank_style = self.look.style("text")
        at = 0
        for frame in frames:
            if frame.start > at:
                segments.append(Segment(" " * (frame.start - at), blank_style))
            segments.append(Segment(self._text(frame), self._style(frame)))
            at = frame.stop
        if at < width:
            segments.append(Segment(" " * (width - at), blank_style))
        return Strip(segments, width)

    def crumbs(self, frames: list[FlameCells], width: int) -> Strip:
        """Frames of the whole width in one row; where they do not fit the innermost stay."""
        texts = [self.look.glyphs.edge + spelled(self.label_of(frame.node), self.look) for frame in frames]
        skipped = 0
        while skipped < len(texts) - 1 and sum(width_of(text) + 1 for text in texts[skipped:]) > width:
            skipped += 1
        segments, left = [], width
        for frame, text in zip(frames[skipped:], texts[skipped:], strict=True):
            shown = pad(text, left if frame is frames[-1] else width_of(text) + 1, self.look)
            segments.append(Segment(shown, self._style(frame)))
            left -= width_of(shown)
        return Strip(segments, width)

    def _text(self, frame: FlameCells) -> str:
        # The first cell is an edge, so that neighbours of one colour, or of none, stay apart.
        edge, room = self.look.glyphs.edge, frame.stop - frame.start - 1
        if not room:
            return edge
        name = spelled(frame.node.name if frame.hidden else self.label_of(frame.node), self.look)
        value = "" if frame.hidden else self.value_of(frame.node)
        if value and width_of(name) + len(value) + _GAP <= room:
            return f"{edge}{pad(name, room - len(value) - 1, self.look)}{value} "
        return edge + pad(name, room, self.look)

    def _style(self, frame: FlameCells) -> Style:
        if frame.holds(self.selected):
            return self.look.style("cursor") + _UNDERLINED
        return self.look.style("dim" if frame.hidden else self.role_of(frame.node)) + _REVERSE


def _foot(said: Sequence[Part], *, above: int, is_more_below: bool, width: int, look: Look) -> Strip:
    """The last line, with what the rows do not show at its right end."""
    more = f" {look.glyphs.up}{above}" if above else ""
    more += f" {look.glyphs.down} deeper" if is_more_below else ""
    room = max(0, width - width_of(more))
    return Strip.join([line(said, room, look), line([(more, "dim")], width - room, look)])


def about_frame(tree: StackTree, node: StackNode) -> Sequence[Part]:
    """Total, share, own share and name of a frame."""
    share = percent(100 * node.total / tree.root.total)
    total = "" if tree.unit == "%" else f"{quantity(node.total, tree.unit)}  "
    own = f"  own {percent(100 * node.own / tree.root.total)}" if node.own and node.children else ""
    return [(f"{total}{share}{own}  ", "value"), (node.name, "text")]


# -- moving ----------------------------------------------------------------------------------------------------


def step_down(root: StackNode, path: Path) -> Path:
    """The first frame below, or the same where there is none."""
    return (*path, 0) if node_at(root, path).children else path


def step_aside(root: StackNode, path: Path, step: int) -> Path:
    """The frame left or right with the same parent, or the same at the edge."""
    if not path:
        return path
    count = len(node_at(root, path[:-1]).children)
    return (*path[:-1], max(0, min(count - 1, path[-1] + step)))


def step_to_end(root: StackNode, path: Path) -> Path:
    """The end of the heaviest stack below a frame."""
    node, below = node_at(root, path), []
    while node.children:
        node = node.children[0]
        below.append(0)
    return (*path, *below)


# -- frames by their names -------------------------------------------------------------------------------------


def path_of(root: StackNode, names: Names) -> Path:
    """The way to a frame of these names, as far as there is one in this tree."""
    path: list[int] = []
    for name in names:
        index = next((i for i, child in enumerate(root.children) if (child.name, child.kind) == name), None)
        if index is None:
            break
        path.append(index)
        root = root.children[index]
    return tuple(path)


def names_of(root: StackNode, path: Path) -> Names:
    """The names on the way to a frame."""
    names = []
    for index in path:
        root = root.children[index]
        names.append((root.name, root.kind))
    return tuple(names)


def found_share(root: StackNode, text: str) -> float:
    """The share of time in stacks with a frame of this name, each counted once; 0 to 1."""
    wanted = text.casefold()
    found, waiting = 0.0, [root]
    while waiting:
        node = waiting.pop()
        if wanted in node.name.casefold():
            found += node.total
        else:
            waiting += node.children
    return found / root.total if root.total else 0.0
