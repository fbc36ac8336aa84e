"""Where the server's threads wait and run, as an icicle of their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from llmtop.analysis.live_summary import NO_TARGET
from llmtop.analysis.stall_tree import Order, stall_tree
from llmtop.analysis.views import StackNode, StackTree
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.render.flame import Path, draw_flame, node_at, step_aside, step_down
from llmtop.units import percent

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

    from llmtop.model import Target, Trace, Unknown
    from llmtop.tui.render.look import Look

_ORDERS = tuple(Order)
_ROLES = {
    "root": "dim",
    "process": "accent",
    "thread": "series5",
    "running": "good",
    "waiting": "stall2",
    "frame": "stall3",
    "kernel": "stall7",
}
_FOUND, _NOT_FOUND = "selected", "dim"

Names = tuple[tuple[str, str], ...]
"""A frame by the (name, kind) of each step from the root: places change from frame to frame, names do not."""


class StallFlamePane(Pane[StackTree]):
    """The stacks of the last half minute. Arrows move, Enter zooms, `f` changes the order, `/` searches."""

    number = 5
    title = "Stall flame"
    least_ns = CALM_NS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False, tooltip="The frame above or below"),
        Binding("down,j", "move(1)", "down", show=False, tooltip="The frame above or below"),
        Binding("left,h", "aside(-1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("right,l", "aside(1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("enter", "zoom_in", "into", tooltip="Give the frame the whole width"),
        Binding("backspace,0", "zoom_out", "out", show=False, tooltip="All of it again"),
        Binding("f", "order", "order", tooltip="By thread, by state, waits only, on-CPU only, inverted"),
        Binding("slash", "search", "search", key_display="/", tooltip="Mark functions by a part of their name"),
    ]

    class Asked(Message):
        """Something is to be collected that is not collected unasked, or not any more."""

        def __init__(self, what: str, is_wanted: bool) -> None:
            super().__init__()
            self.what = what
            self.is_wanted = is_wanted

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="stall-flame")
        self.target = target
        self.order = Order.BY_THREAD
        self.search = ""
        self._is_searching = False
        self._selected: Names = ()
        self._zoom: Names = ()

    def view(self, trace: Trace) -> StackTree | Unknown:
        if self.target is None:
            return NO_TARGET
        tree = stall_tree(trace, self.order)
        return tree if tree.why_not is None else tree.why_not

    def draw(self, view: StackTree, width: int, height: int, look: Look) -> list[Strip]:
        selected, zoom = path_of(view.root, self._selected), path_of(view.root, self._zoom)
        return draw_flame(view, width, height, look, selected=selected, zoom=zoom, role_of=self._role)

    def subtitle(self, view: StackTree) -> Content:
        if not self.search and not self._is_searching:
            return Content(self.order.value)
        share = found_share(view.root, self.search) if self.search else 0.0
        cursor = "_" if self._is_searching else ""
        return Content(f"/{self.search}{cursor} {percent(100 * share)} of the time")

    @property
    def is_searching(self) -> bool:
        """Whether keys are text now."""
        return self._is_searching

    def _role(self, node: StackNode) -> str:
        if self.search:
            return _FOUND if self.search.casefold() in node.name.casefold() else _NOT_FOUND
        return _ROLES.get(node.kind, "text")

    @property
    def _root(self) -> StackNode | None:
        return self._view.root if isinstance(self._view, StackTree) else None

    # -- keys --------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """The frame above or below."""
        if (root := self._root) is not None:
            path = path_of(root, self._selected)
            self._select(root, step_down(root, path) if step > 0 else path[:-1])

    def action_aside(self, step: int) -> None:
        """The frame beside this one."""
        if (root := self._root) is not None:
            self._select(root, step_aside(root, path_of(root, self._selected), step))

    def _select(self, root: StackNode, path: Path) -> None:
        """Put the cursor on a frame, and widen the zoom until it is on the screen."""
        self._selected = names_of(root, path)
        while self._selected[: len(self._zoom)] != self._zoom:
            self._zoom = self._zoom[:-1]
        self.redraw()

    def action_zoom_in(self) -> None:
        """Give the selected frame the whole width."""
        self._zoom = self._selected
        self.redraw()

    def action_zoom_out(self) -> None:
        """Show all of it again, without marks."""
        self._zoom = ()
        self.search = ""
        self.redraw()

    def action_order(self) -> None:
        """Draw the next order of levels."""
        self.order = _ORDERS[(_ORDERS.index(self.order) + 1) % len(_ORDERS)]
        self._selected = self._zoom = ()
        if self._trace is not None:
            self.show(self._trace)

    def action_search(self) -> None:
        """Take what is typed, until Enter or Escape, as a part of names to mark."""
        self._is_searching, self.search = True, ""
        self.redraw()

    async def on_key(self, event: events.Key) -> None:
        """While searching, keys are text."""
        if not self._is_searching:
            return
        event.stop()
        event.prevent_default()
        if event.key in ("enter", "escape"):
            self._is_searching = False
            self.search = self.search if event.key == "enter" else ""
        elif event.key == "backspace":
            self.search = self.search[:-1]
        elif event.is_printable and event.character:
            self.search += event.character
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key of the pane does anything else while text is typed."""
        return not self._is_searching


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
    nodes = [node_at(root, path[: step + 1]) for step in range(len(path))]
    return tuple((node.name, node.kind) for node in nodes)


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
