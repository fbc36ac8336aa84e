"""The live roofline of one GPU, or of all that a server uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.series.readings import target_gpus, why_kind_missing, why_no_gpu
from llmtop.analysis.views import RooflineView
from llmtop.model import TrackId, TrackKind, Unknown
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.panes.view import Place
from llmtop.tui.render.roofline import draw_roofline

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look

ALL_GPUS: Final = TrackId("all")
"""Stands for the server's GPUs together."""


class RooflinePane(Pane[RooflineView]):
    """FLOP per byte against FLOP/s, now and over the last minute.

    `gpu` is a track, `ALL_GPUS`, or None for the first of the server's GPUs.
    """

    title = "Roofline"
    place = Place(1, "top", needs_gpu=True)
    least_ns = CALM_NS

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.gpu: TrackId | None = None

    def choose_gpu(self, gpu: TrackId | None) -> None:
        """Show another GPU, or all of them, from the next trace on."""
        self.gpu = gpu
        self._stale = True

    def view(self, trace: Trace) -> RooflineView | Unknown:
        gpus = target_gpus(trace, self.context.target)
        if not gpus:
            return why_no_gpu(trace) or why_kind_missing(trace, TrackKind.GPU)
        if self.gpu == ALL_GPUS:
            return server_roofline(trace, self.context.target)
        is_there = self.gpu is not None and self.gpu in trace.tracks
        return server_roofline(trace, self.context.target, self.gpu if is_there else gpus[0].id)

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_roofline(view, width, height, look)

    def subtitle(self, view: RooflineView) -> Content:
        return Content(short_gpu_name(view.title))


VIEW: Final = RooflinePane
