"""What is done against what the GPU could do: of a server's GPUs, or of the kernels of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.pages.roofline import has_trail, roofline, why_no_roofline
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.views import RooflineView
from llmtop.model import Unknown
from llmtop.tui.panes.base import CALM_NS
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.panes.view import Place
from llmtop.tui.render.roofline import draw_roofline

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace, TrackId
    from llmtop.tui.render.look import Look


_LEAST_WITH_BUDGET = 16
"""Rows from which on the plot leaves half of them to the budget of a step."""


class RooflinePane(PagedPane[RooflineView]):
    """FLOP per byte against FLOP/s: a GPU now and over the last minute, or a dot for each kernel.

    Dots of kernels are larger where more time goes; the cursor steps through them by weight. `gpu` is as
    `analysis.pages.roofline` has it.
    """

    number = 3
    title = "Roofline"
    place = Place(1, "top", needs_gpu=True)
    least_ns = CALM_NS
    of_files = frozenset(("move", "page", "edge"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "kernel", key_display="← →", tooltip="The next heavier or lighter kernel"),
        Binding("right,l", "move(1)", "lighter", show=False, tooltip="The next heavier or lighter kernel"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.gpu: TrackId | None = None

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_roofline(trace)

    def choose_gpu(self, gpu: TrackId | None) -> None:
        self.gpu = gpu
        self._stale = True

    def view(self, trace: Trace) -> RooflineView | Unknown:
        return roofline(trace, self.context.target, self.gpu)

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        budget = self._budget(width, height, look)
        selected = self.at if self._is_choice(view) else None
        return [*draw_roofline(view, width, height - len(budget), look, selected=selected), *budget]

    def _budget(self, width: int, height: int, look: Look) -> list[Strip]:
        """Below the plot, with the screen to itself: where a step of the server's takes its time."""
        if not self.is_zoomed or self._trace is None or self.context.target is None or height < _LEAST_WITH_BUDGET:
            return []
        # Imported here: most screens never show it, and with it all come that is known of threads.
        from llmtop.analysis.pages.token_budget import token_budget
        from llmtop.tui.render.token_budget import draw_token_budget, why_no_token_budget

        found = told_of(self._trace, token_budget(self._trace, self.context.target))
        if isinstance(found, Unknown):
            return why_no_token_budget(found, width, look)
        return draw_token_budget(found, width, height // 2, look)

    def subtitle(self, view: RooflineView) -> Content:
        place = f"  kernel {self.at + 1} of {len(view.points)}" if self._is_choice(view) else ""
        return Content(view.title + place)

    def _is_choice(self, view: RooflineView) -> bool:
        return bool(view.points) and self._trace is not None and not has_trail(self._trace)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A trail has no points to step through."""
        if action in self.of_files and self._trace is not None and has_trail(self._trace):
            return False
        return super().check_action(action, parameters)

    def count(self) -> int:
        return max(1, len(self._view.points)) if isinstance(self._view, RooflineView) else 1


VIEW: Final = RooflinePane
