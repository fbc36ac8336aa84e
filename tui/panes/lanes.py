"""CPU and GPU on one time axis."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.worker import Worker, WorkerState

from llmtop.analysis.pages.correlate import Correlations, correlations
from llmtop.analysis.pages.lanes import lane_behind, lanes_view
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.readings import as_of, target_gpus, why_no_gpu
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.threads.idle_causes import IdleCauses, idle_causes
from llmtop.analysis.views import Lanes
from llmtop.frozen import frozen
from llmtop.model import TrackId, Unknown
from llmtop.tui.panes.base import SLOW_NS, look_of
from llmtop.tui.panes.time_axis import TimeAxisPane
from llmtop.tui.panes.view import EventWanted, Place
from llmtop.tui.render.axis import nearest_mark
from llmtop.tui.render.cpu_gpu import draw_cpu_gpu
from llmtop.tui.render.lanes import MOST_ROWS, draw_lanes, lanes_axis
from llmtop.tui.render.lines import blank

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.panes.view import Moment
    from llmtop.tui.render.axis import Axis
    from llmtop.tui.render.look import Look


ANALYSE_AGAIN_S = 3.0
"""Idle causes and correlations are made this often at most: they are of a minute and more."""
_LEAST_BELOW, _PART_BELOW = 6, 0.4
"""Lines below the lanes of the zoomed pane: at least, and of its height."""
_MOST_ROWS_ZOOMED = 8
_NOT_YET = Unknown("being worked out")


@frozen
class IdleAnalysis:
    """What takes too long for a frame: why the GPU was idle, and what moves with its idle time."""

    idle: IdleCauses | Unknown = _NOT_YET
    found: Correlations | Unknown = _NOT_YET


class LanesPane(TimeAxisPane[Lanes]):
    """What the GPU did, what the server delivered, and whether its engine got a CPU, one above the other."""

    title = "CPU-GPU"
    place = Place(6, "body", least_among_many=(0, 36))
    least_ns = SLOW_NS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_mark", "event", show=False, tooltip="The event of the mark that is named at the left"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.gpu: TrackId | None = None
        """A track; for all else the first of the server's GPUs."""
        self._headline = ""
        self._analysis = IdleAnalysis()
        self._analysed_s = 0.0
        self._worker: Worker[IdleAnalysis] | None = None

    def show_moment(self, moment: Moment) -> None:
        super().show_moment(moment)
        self._analyse_idle()

    def on_resize(self) -> None:
        super().on_resize()
        self._analyse_idle()

    def choose_gpu(self, gpu: TrackId | None) -> None:
        self.gpu = gpu
        self._stale = True

    def view(self, trace: Trace) -> Lanes:
        findings = diagnose(trace).findings if self.context.target is not None else ()
        self._headline = findings[0].rule if findings else ""
        view = lanes_view(trace, self._chosen(trace), self.window_ns, has_server=self.context.target is not None)
        no_gpu = why_no_gpu(trace) if self.context.target is not None else None
        # The screen says that once, for all panes of GPUs.
        return (
            view if no_gpu is None else replace(view, lanes=tuple(one for one in view.lanes if one.why_not != no_gpu))
        )

    def _chosen(self, trace: Trace) -> TrackId | None:
        gpus = target_gpus(trace, self.context.target)
        return self.gpu if self.gpu in trace.tracks else gpus[0].id if gpus else None

    def axis(self, width: int) -> Axis | None:
        return lanes_axis(self._view, width) if isinstance(self._view, Lanes) else None

    def draw(self, view: Lanes, width: int, height: int, look: Look) -> list[Strip]:
        newest_ns = view.end_ns if self._newest is None else self._newest.end_ns
        most = _rows_below(height, view) if self.is_zoomed else 0
        told = draw_cpu_gpu(self._analysis.idle, self._analysis.found, width, most - 1, look) if most else []
        below = [blank(width, look), *told] if told else []
        strips = draw_lanes(
            view,
            width,
            height - len(below),
            look,
            cursor_ns=self.at_ns,
            newest_ns=newest_ns,
            most_rows=_MOST_ROWS_ZOOMED if self.is_zoomed else MOST_ROWS,
            first=lane_behind(view, self._headline),
        )
        return [*strips, *below]

    def subtitle(self, view: Lanes) -> Content:
        values = "" if self.at_ns is not None else ", values of the newest look"  # other panes have means of 10 s
        return Content(f"{self.said_window(look_of(self))}, one axis{values}")

    def action_open_mark(self) -> None:
        """Open the event of the mark that is named: the one nearest to the cursor, or the newest."""
        if isinstance(self._view, Lanes) and self._view.marks:
            at_ns = self._view.end_ns if self.at_ns is None else self.at_ns
            mark = nearest_mark(self._view.marks, at_ns)
            if mark is not None:
                self.post_message(EventWanted(mark.t_ns))

    # -- what takes longer than a frame ------------------------------------------------------------------------

    def _analyse_idle(self) -> None:
        """Work out idle causes and correlations beside the screen: no frame waits for them."""
        is_busy = self._worker is not None and self._worker.is_running
        is_soon = time.monotonic() - self._analysed_s < ANALYSE_AGAIN_S
        if not self.is_zoomed or self._newest is None or is_busy or is_soon:
            return
        self._analysed_s = time.monotonic()
        trace = self._newest if self.at_ns is None else as_of(self._newest, self.at_ns)
        think = partial(_analysis, [trace], self._chosen(trace), self.window_ns)
        # A description, because Textual would make one of the work's repr.
        self._worker = self.run_worker(think, description="correlations", thread=True, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        event.stop()
        if event.state is WorkerState.SUCCESS:
            self._analysis = event.worker.result or self._analysis
            self.redraw()
        elif event.state is WorkerState.ERROR and isinstance(event.worker.error, Exception):
            why = Unknown(self.count_fault(event.worker.error))
            self._analysis = IdleAnalysis(why, why)
            self.redraw()


def _analysis(about: list[Trace], gpu: TrackId | None, window_ns: int) -> IdleAnalysis:
    """Think about the trace in `about`, which is taken out.

    Textual's workers stay until Python looks for cycles among its oldest objects, and with them what they were given.
    """
    trace = about.pop()
    return told_of(trace, IdleAnalysis(idle_causes(trace, gpu, window_ns), correlations(trace, gpu)))


def _rows_below(height: int, view: Lanes) -> int:
    """What whole rows of lanes leave below them; none where that would be too little to read."""
    drawn = sum(lane.why_not is None for lane in view.lanes) + len({lane.why_not for lane in view.lanes} - {None})
    wanted = max(_LEAST_BELOW, int(height * _PART_BELOW))
    rows_each = max(1, (height - 1 - wanted) // max(1, drawn))
    below = height - 1 - drawn * min(rows_each, _MOST_ROWS_ZOOMED)
    return below if below >= _LEAST_BELOW else 0


VIEW: Final = LanesPane
