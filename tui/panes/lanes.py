"""CPU and GPU on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.analysis.lanes import WINDOW_NS, lanes_view
from llmtop.analysis.live_summary import target_gpus
from llmtop.analysis.views import Lanes
from llmtop.model import NS_PER_S
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.lanes import draw_lanes

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Target, Trace
    from llmtop.tui.render.look import Look


class LanesPane(Pane[Lanes]):
    """What the GPU did, what the server delivered, and whether its engine got a CPU, one above the other."""

    number = 6
    title = "CPU-GPU"

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="lanes")
        self.target = target
        self.gpu: str | None = None
        """A track; None for the first of the server's GPUs."""

    def view(self, trace: Trace) -> Lanes:
        gpus = target_gpus(trace, self.target)
        chosen = self.gpu if self.gpu in trace.tracks else gpus[0].id if gpus else None
        return lanes_view(trace, chosen, has_server=self.target is not None)

    def draw(self, view: Lanes, width: int, height: int, look: Look) -> list[Strip]:
        return draw_lanes(view, width, height, look)

    def subtitle(self, view: Lanes) -> Content:
        return Content(f"last {WINDOW_NS // NS_PER_S} s, one axis")
