"""The steps of a server's engine, as probes see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.server.steps_view import StepsView, steps_heatmap, steps_view
from llmtop.tui.panes.base import CALM_NS
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.view import HeatSource, Place
from llmtop.tui.render.engine_steps import engine_steps_lines

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace, Unknown
    from llmtop.tui.render.look import Look


class EngineStepsPane(LinesPane[StepsView]):
    """How long steps take, the newest of them, and why some are slow; `h` shows them over time."""

    title = "Engine steps"
    is_of_reports = False
    of_files = frozenset(("next_page",))
    place = Place(10, "body", suits=lambda _: False, heatmap=HeatSource("of engine steps", steps_heatmap))
    least_ns = CALM_NS

    def view(self, trace: Trace) -> StepsView | Unknown:
        return steps_view(trace) if self.context.is_of_a_server else NO_TARGET

    def lines(self, view: StepsView, width: int, look: Look) -> list[Strip]:
        return engine_steps_lines(view, width, look)

    def subtitle(self, view: StepsView) -> Content:
        return super().subtitle(view) or Content(f"{view.loop.source}, {view.loop.found}")


VIEW: Final = EngineStepsPane
