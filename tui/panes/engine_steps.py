"""The steps of a server's engine, as probes see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.server.counted_steps import CountedSteps, counted_steps
from llmtop.analysis.server.steps_view import StepsView, steps_heatmap, steps_view
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.panes.base import CALM_NS
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.view import HeatSource, Place
from llmtop.tui.render.counted_steps import counted_steps_lines
from llmtop.tui.render.engine_steps import engine_steps_lines

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


@frozen
class WithoutProbes:
    """Steps as the server counts them, and why no single one is known."""

    counted: CountedSteps
    why_not_single: Unknown


class EngineStepsPane(LinesPane["StepsView | WithoutProbes"]):
    """How long steps take, the newest of them, and why some are slow; `h` shows them over time.

    Where no probe sees them: what the server's own counter tells.
    """

    title = "Engine steps"
    is_of_reports = False
    of_files = frozenset(("next_page",))
    place = Place(10, "body", suits=lambda _: False, heatmap=HeatSource("of engine steps", steps_heatmap))
    least_ns = CALM_NS

    def view(self, trace: Trace) -> StepsView | WithoutProbes | Unknown:
        if not self.context.is_of_a_server:
            return NO_TARGET
        seen = steps_view(trace)
        if not isinstance(seen, Unknown):
            return seen
        counted = counted_steps(trace)
        return seen if isinstance(counted, Unknown) else WithoutProbes(counted, seen)

    def lines(self, view: StepsView | WithoutProbes, width: int, look: Look) -> list[Strip]:
        if isinstance(view, WithoutProbes):
            return counted_steps_lines(view.counted, view.why_not_single, width, look)
        return engine_steps_lines(view, width, look)

    def subtitle(self, view: StepsView | WithoutProbes) -> Content:
        if isinstance(view, WithoutProbes):
            told = f"{view.counted.source}, between looks"
        else:
            told = f"{view.loop.source}, {view.loop.found}"
        return super().subtitle(view) or Content(told)


VIEW: Final = EngineStepsPane
