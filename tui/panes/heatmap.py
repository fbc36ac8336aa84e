"""A latency over time: what a zoomed pane opens into beside its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.views import Heatmap
from llmtop.model import Unknown
from llmtop.tui.panes.base import CALM_NS, look_of
from llmtop.tui.panes.time_axis import TimeAxisPane
from llmtop.tui.render.heatmap import LEFT, draw_heatmap, heatmap_axis

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.panes.view import HeatSource
    from llmtop.tui.render.axis import Axis
    from llmtop.tui.render.look import Look


class HeatmapPane(TimeAxisPane[Heatmap]):
    """How often something took how long, over time."""

    title = "Latency"
    least_ns = CALM_NS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", "other call", key_display="up", tooltip="All calls together, or one of them"),
        Binding("down,j", "choose(1)", "other call", show=False, tooltip="All calls together, or one of them"),
    ]

    def __init__(self) -> None:
        super().__init__(id="heatmap")
        self.source: HeatSource | None = None
        self.choice: str | None = None

    def open(self, source: HeatSource, choice: str | None) -> None:
        """Show the heatmap of a source, of one of its choices or of all."""
        if (source, choice) != (self.source, self.choice):
            self.source, self.choice = source, choice
            self._view, self._stale = Unknown("being made"), True

    def view(self, trace: Trace) -> Heatmap | Unknown:
        columns = self.size.width - LEFT
        if self.source is None or columns < 1:
            return Unknown("there is no room for it")
        known = self._view if isinstance(self._view, Heatmap) else None
        return self.source.make(trace, self.choice, self.window_ns, columns, known)

    def on_resize(self) -> None:
        self._stale = True  # it has a column for each cell
        super().on_resize()

    def axis(self, width: int) -> Axis | None:
        return heatmap_axis(self._view) if isinstance(self._view, Heatmap) else None

    def draw(self, view: Heatmap, width: int, height: int, look: Look) -> list[Strip]:
        newest_ns = self._newest.end_ns if self._newest is not None else 0
        return draw_heatmap(view, width, height, look, cursor_ns=self.at_ns, newest_ns=newest_ns)

    def subtitle(self, view: Heatmap) -> Content:
        title = "" if self.source is None else self.source.title
        return Content(f"{title}  {view.source}  {self.said_window(look_of(self))}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where there is nothing to choose from, its keys are not offered."""
        if action == "choose":
            return self.source is not None and self.source.has_choices
        return super().check_action(action, parameters)

    def action_choose(self, step: int) -> None:
        """Show the next of the choices, the first of which is all together."""
        if self.source is None or self._newest is None:
            return
        choices = [None, *self.source.choices(self._newest)]
        at = choices.index(self.choice) + step if self.choice in choices else 0
        self.open(self.source, choices[max(0, min(at, len(choices) - 1))])
        self._follow(self._newest, has_moved=False, is_known=True)
