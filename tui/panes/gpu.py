"""The GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.analysis.gpu_view import GpuRow, gpu_rows
from llmtop.analysis.live_summary import short_gpu_name
from llmtop.model import Unknown
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.gpu import draw_gpus

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


class GpuPane(Pane[tuple[GpuRow, ...]]):
    """Activity, memory, power, clocks and processes of all GPUs."""

    number = 3
    title = "GPU"

    def view(self, trace: Trace) -> tuple[GpuRow, ...] | Unknown:
        return gpu_rows(trace)

    def draw(self, view: tuple[GpuRow, ...], width: int, height: int, look: Look) -> list[Strip]:
        return draw_gpus(view, width, height, look)

    def subtitle(self, view: tuple[GpuRow, ...]) -> Content:
        sources = {gauge.source for row in view for gauge in row.activity if gauge.source}
        name = short_gpu_name(view[0].name)
        name = name if len(view) == 1 else f"{len(view)} x {name}"
        return Content("  ".join([name, *sorted(sources)]))
