"""The stacks of a file as an icicle."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.threads.stack_tree import stack_tree, why_no_stacks
from llmtop.analysis.views import StackTree
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import PagedPane
from llmtop.tui.render.flame import Path, draw_flame, step_aside, step_down
from llmtop.units import number

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_PAGE = 10
"""Frames that a page goes."""


class StacksPane(PagedPane[StackTree]):
    """Where a program was, from the root of its stacks on: a frame is as wide as what was seen in it and below."""

    number = 8
    title = "Stacks"
    is_of_reports = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "aside(-1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("right,l", "aside(1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("enter", "zoom_in", "into", tooltip="Give the frame the whole width"),
        Binding("backspace,0,escape", "zoom_out", "out", show=False, tooltip="All of it again"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.path: Path = ()
        self.zoom: Path = ()

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_stacks(trace)

    def view(self, trace: Trace) -> StackTree | Unknown:
        tree = stack_tree(trace)
        return tree if isinstance(tree, Unknown) or tree.why_not is None else tree.why_not

    def subtitle(self, view: StackTree) -> Content:
        return Content(f"{number(view.root.total)} {view.unit}")

    def draw(self, view: StackTree, width: int, height: int, look: Look) -> list[Strip]:
        return draw_flame(view, width, height, look, selected=self.path, zoom=self.zoom)

    def count(self) -> int:
        return 1

    def action_move(self, step: int) -> None:
        """The frame below or above."""
        if isinstance(self._view, StackTree):
            self._select(step_down(self._view.root, self.path) if step > 0 else self.path[:-1])

    def action_page(self, step: int) -> None:
        """Some frames further down or up."""
        for _ in range(_PAGE):
            self.action_move(step)

    def action_edge(self, side: int) -> None:
        """The root, or the end of the heaviest stack below the frame."""
        path = () if side < 0 else self.path
        while side > 0 and isinstance(self._view, StackTree) and (below := step_down(self._view.root, path)) != path:
            path = below
        self._select(path)

    def action_aside(self, step: int) -> None:
        """The frame beside this one."""
        if isinstance(self._view, StackTree):
            self._select(step_aside(self._view.root, self.path, step))

    def action_zoom_in(self) -> None:
        """Give the selected frame the whole width."""
        self.zoom = self.path
        self.redraw()

    def action_zoom_out(self) -> None:
        """Show all of it again."""
        self.zoom = ()
        self.redraw()

    def _select(self, path: Path) -> None:
        """Put the cursor on a frame, and widen the zoom until it is on the screen."""
        self.path = path
        while self.path[: len(self.zoom)] != self.zoom:
            self.zoom = self.zoom[:-1]
        self.redraw()


VIEW: Final = StacksPane
