"""The kernels of a report on the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.absent import not_of_kernels
from llmtop.analysis.kernels.table import roofline_view
from llmtop.analysis.views import RooflineView
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import PagedPane
from llmtop.tui.render.roofline import draw_roofline

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class RooflineReportPane(PagedPane[RooflineView]):
    """A dot for each kernel, larger where more time goes; the cursor steps through them by weight."""

    number = 3
    title = "Roofline"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "kernel", key_display="← →", tooltip="The next heavier or lighter kernel"),
        Binding("right,l", "move(1)", "lighter", show=False, tooltip="The next heavier or lighter kernel"),
    ]

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return not_of_kernels(trace)

    def view(self, trace: Trace) -> RooflineView | Unknown:
        return roofline_view(trace)

    def subtitle(self, view: RooflineView) -> Content:
        place = f"  kernel {self.at + 1} of {len(view.points)}" if view.points else ""
        return Content(view.title + place)

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_roofline(view, width, height, look, selected=self.at if view.points else None)

    def count(self) -> int:
        return max(1, len(self._view.points)) if isinstance(self._view, RooflineView) else 1


VIEW: Final = RooflineReportPane
