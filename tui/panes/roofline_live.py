"""The live roofline of one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.analysis.live_summary import header_dtype, short_gpu_name, target_gpus
from llmtop.analysis.readings import why_kind_missing
from llmtop.analysis.roofline_live import live_view
from llmtop.analysis.views import RooflineView
from llmtop.model import TrackKind, Unknown
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.roofline import draw_roofline

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Target, Trace
    from llmtop.tui.render.look import Look


class RooflinePane(Pane[RooflineView]):
    """FLOP per byte against FLOP/s, now and over the last minute.

    `gpu` counts through the server's GPUs.
    """

    number = 1
    title = "Roofline"

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="roofline")
        self.target = target
        self.gpu = 0

    def view(self, trace: Trace) -> RooflineView | Unknown:
        gpus = target_gpus(trace, self.target)
        if not gpus:
            return why_kind_missing(trace, TrackKind.GPU)
        return live_view(trace, gpus[self.gpu % len(gpus)].id, header_dtype(self.target))

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_roofline(view, width, height, look)

    def subtitle(self, view: RooflineView) -> Content:
        return Content(short_gpu_name(view.title))
