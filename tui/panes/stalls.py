"""What the warps of each kernel wait for: as bars, or as an icicle from either side."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.source_tree import code_trees
from llmtop.analysis.kernels.stalls import StallBar, stall_tree
from llmtop.analysis.kernels.table import stall_bars
from llmtop.analysis.threads.folded import folded_tree
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown
from llmtop.tui.aside import analyse_on_thread
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.panes.report import KernelWanted
from llmtop.tui.render.bars import bar_rows, draw_stall_bars, reason_lines, reason_role
from llmtop.tui.render.flame import Path, draw_flame, step_aside, step_down
from llmtop.tui.screens.reasons import ReasonsScreen

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.aside import Analysed
    from llmtop.tui.contents import Contents
    from llmtop.tui.render.look import Look


_FLAME_HEIGHT = 7
"""Rows of an icicle of three levels; what is left is for what the reasons cost and mean."""

_ROLES = {NodeKind.KERNEL: "accent", NodeKind.FRAME: "series1"}
_READING_CODE = StackTree(StackNode("all", NodeKind.ROOT, 0.0, 0.0), "%", Unknown("reading the code of the kernels"))
_OF_TIMELINES = Unknown("a timeline has no stall counters", "Session has the command that collects them")


class Shape(Enum):
    """How the stalls are drawn."""

    BARS = "share of each kernel's waiting"
    KERNEL_FIRST = "share of all time: kernel, then reason"
    REASON_FIRST = "share of all time: reason, then kernel"
    CODE = "share of all time: kernel, file, line, instruction, reason"
    CODE_BY_REASON = "share of all time: reason, kernel, file, line, instruction"


_SHAPES = tuple(Shape)
_OF_CODE = (Shape.CODE, Shape.CODE_BY_REASON)


@frozen
class StallsView:
    """The bars, and the trees made of them; those of the code once they have been asked for."""

    trace: Trace
    bars: tuple[StallBar, ...]
    trees: dict[Shape, StackTree]

    def role_of(self, node: StackNode) -> str:
        """The role of a frame: a reason has the same one as in the bars."""
        if node.kind is NodeKind.REASON:
            return reason_role(node.name)
        return _ROLES.get(node.kind, "dim")


def stalls_view(trace: Trace, bars: tuple[StallBar, ...]) -> StallsView:
    """All that the pane draws of the bars."""
    trees = {
        Shape.KERNEL_FIRST: stall_tree(bars),
        Shape.REASON_FIRST: stall_tree(bars, reason_first=True),
    }
    return StallsView(trace, bars, trees)


class StallsPane(PagedPane[StallsView]):
    """A stacked bar for each kernel, the longest first; `f` turns it into an icicle over all kernels' time."""

    number = 2
    title = "Stalls"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "details", tooltip="Details of the row"),
        Binding("m", "meanings", "meanings", tooltip="What each reason means"),
        Binding("f", "shape", "flame", tooltip="Bars, or an icicle by kernel, by reason, or down to the code"),
        Binding("left,h", "aside(-1)", "aside", show=False, tooltip="In an icicle: the frame beside this one"),
        Binding("right,l", "aside(1)", "aside", show=False, tooltip="In an icicle: the frame beside this one"),
        Binding("escape,backspace,0", "out", "out", show=False, tooltip="In an icicle: all of it again"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shape = Shape.BARS
        self.path: Path = ()
        self.zoom: Path = ()
        self._top = 0

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return _OF_TIMELINES if trace.spans else not_of_kernels(trace)

    def view(self, trace: Trace) -> StallsView | Unknown:
        if why := no_kernels(trace):
            return why
        bars = stall_bars(trace)
        if not any(bar.shares for bar in bars):
            return bars[0].why_not or Unknown("no stalls were collected")
        return stalls_view(trace, bars)

    def subtitle(self, view: StallsView) -> Content:
        return Content(self.shape.value)

    def draw(self, view: StallsView, width: int, height: int, look: Look) -> list[Strip]:
        if self.shape in _OF_CODE:
            tree = view.trees.get(self.shape, _READING_CODE)
            return draw_flame(tree, width, height, look, selected=self.path, zoom=self.zoom, role_of=view.role_of)
        if self.shape is not Shape.BARS:
            tree = view.trees[self.shape]
            flame = min(height, _FLAME_HEIGHT) if height >= 2 * _FLAME_HEIGHT else height
            drawn = draw_flame(tree, width, flame, look, selected=self.path, zoom=self.zoom, role_of=view.role_of)
            return [*drawn, *reason_lines(view.trees[Shape.REASON_FIRST], width, look)][:height]
        rows = bar_rows(view.bars, width, height, look)
        self._top = min(max(self._top, self.at - rows + 1), self.at)
        return draw_stall_bars(view.bars, width, height, look, cursor=self.at, top=self._top)

    @property
    def _tree(self) -> StackTree | None:
        """The tree on the screen; None for bars."""
        return self._view.trees.get(self.shape) if isinstance(self._view, StallsView) else None

    def contents(self) -> Contents | Unknown:
        """In an icicle also its stacks, of the frame that has the whole width."""
        contents, tree = super().contents(), self._tree
        if tree is None or isinstance(contents, Unknown):
            return contents
        return replace(contents, folded=partial(folded_tree, tree.root, self.zoom))

    def count(self) -> int:
        return len(self._view.bars) if isinstance(self._view, StallsView) else 1

    def action_shape(self) -> None:
        """Draw in the next shape; of the code, which is read when it is first asked for."""
        self.shape = _SHAPES[(_SHAPES.index(self.shape) + 1) % len(_SHAPES)]
        self.path = self.zoom = ()
        if self.shape in _OF_CODE and isinstance(self._view, StallsView) and self.shape not in self._view.trees:
            analyse_on_thread(self, self._view, _read_code)
        self.redraw()

    def on_analysed(self, message: Analysed) -> None:
        message.prevent_default()  # Textual would call the base's too
        if not isinstance(message.of, StallsView):
            super().on_analysed(message)
        elif isinstance(message.result, Exception):
            self.fail(message.result)
        else:
            message.of.trees.update(message.result)
            self.redraw()

    def action_meanings(self) -> None:
        """List all reasons with what they mean."""
        self.app.push_screen(ReasonsScreen())

    def action_move(self, step: int) -> None:
        """The next kernel; in an icicle the frame above or below."""
        tree = self._tree
        if tree is None:
            super().action_move(step)
            return
        self.path = step_down(tree.root, self.path) if step > 0 else self.path[:-1]
        self._keep_in_zoom()

    def action_aside(self, step: int) -> None:
        """In an icicle: the frame beside this one."""
        tree = self._tree
        if tree is not None:
            self.path = step_aside(tree.root, self.path, step)
            self._keep_in_zoom()

    def action_out(self) -> None:
        """In an icicle: show all of it again."""
        self.zoom = ()
        self.redraw()

    def _keep_in_zoom(self) -> None:
        """Widen the zoom to what holds the selected frame: it must be on the screen."""
        while self.path[: len(self.zoom)] != self.zoom:
            self.zoom = self.zoom[:-1]
        self.redraw()

    def action_choose(self) -> None:
        """Ask the screen for the kernel's details; in an icicle zoom into the frame."""
        if self._tree is not None:
            self.zoom = self.path
            self.redraw()
        elif isinstance(self._view, StallsView):
            self.post_message(KernelWanted(self._view.bars[self.at].launch))


def _read_code(view: StallsView) -> dict[Shape, StackTree]:
    return dict(zip(_OF_CODE, code_trees(view.trace, view.bars), strict=True))


VIEW: Final = StallsPane
