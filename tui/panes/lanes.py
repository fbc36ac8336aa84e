"""CPU and GPU on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from llmtop.analysis.lanes import lanes_view
from llmtop.analysis.live_summary import target_gpus
from llmtop.analysis.views import Lanes
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.time_axis import TimeAxisPane
from llmtop.tui.render.axis import nearest_mark
from llmtop.tui.render.lanes import draw_lanes, lanes_axis

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Target, Trace
    from llmtop.tui.render.axis import Axis
    from llmtop.tui.render.look import Look


class LanesPane(TimeAxisPane[Lanes]):
    """What the GPU did, what the server delivered, and whether its engine got a CPU, one above the other."""

    number = 6
    title = "CPU-GPU"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_mark", "event", show=False, tooltip="The event of the mark that is named at the left"),
    ]

    class MarkWanted(Message):
        """Open the event that a mark stands for."""

        def __init__(self, t_ns: int) -> None:
            super().__init__()
            self.t_ns = t_ns

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="lanes")
        self.target = target
        self.gpu: str | None = None
        """A track; None for the first of the server's GPUs."""

    def view(self, trace: Trace) -> Lanes:
        return lanes_view(trace, self._chosen(trace), self.window_ns, has_server=self.target is not None)

    def _chosen(self, trace: Trace) -> str | None:
        gpus = target_gpus(trace, self.target)
        return self.gpu if self.gpu in trace.tracks else gpus[0].id if gpus else None

    def axis(self, width: int) -> Axis | None:
        return lanes_axis(self._view, width) if isinstance(self._view, Lanes) else None

    def draw(self, view: Lanes, width: int, height: int, look: Look) -> list[Strip]:
        newest_ns = view.end_ns if self._newest is None else self._newest.end_ns
        return draw_lanes(view, width, height, look, cursor_ns=self.at_ns, newest_ns=newest_ns)

    def subtitle(self, view: Lanes) -> Content:
        return Content(f"{self.said_window(look_of(self))}, one axis")

    def action_open_mark(self) -> None:
        """Open the event of the mark that is named: the one nearest to the cursor, or the newest."""
        if isinstance(self._view, Lanes) and self._view.marks:
            at_ns = self._view.end_ns if self.at_ns is None else self.at_ns
            mark = nearest_mark(self._view.marks, at_ns)
            if mark is not None:
                self.post_message(self.MarkWanted(mark.t_ns))
