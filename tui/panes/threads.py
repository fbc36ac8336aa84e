"""A server's threads, live and of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.server.heatmaps import run_queue_heatmap
from llmtop.analysis.threads.details import thread_details
from llmtop.analysis.threads.shares import ThreadsView, threads_view, why_no_threads
from llmtop.analysis.threads.table import Key, threads_of, threads_table
from llmtop.model import TrackKind, Unknown
from llmtop.tui.panes.base import SLOW_NS, Pane, in_roles, look_of
from llmtop.tui.panes.view import HeatSource, Place, with_a_server
from llmtop.tui.render.threads import draw_threads, heading
from llmtop.tui.screens.thread import ThreadScreen

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.strip import Strip

    from llmtop.analysis.views import Heatmap, TableView
    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


_TITLE = len("4 Threads  ") + 4
"""Cells of the border that are not for what is said of the threads."""


def _run_queue(trace: Trace, _: str | None, window_ns: int, columns: int, known: Heatmap | None) -> Heatmap | Unknown:
    return run_queue_heatmap(trace, window_ns, columns, known)


class ThreadsPane(Pane[ThreadsView]):
    """Each thread's time: on a CPU, waiting for one, blocked and on what."""

    number = 4
    title = "Threads"
    is_of_reports = False
    place = Place(4, "middle", suits=with_a_server, heatmap=HeatSource("from ready to run to on a CPU", _run_queue))
    ages_of = TrackKind.THREAD
    least_ns = SLOW_NS

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_threads(trace)

    def rows(self, view: ThreadsView, trace: Trace) -> TableView:
        return threads_table(trace, view)

    def opened(self, view: ThreadsView, trace: Trace, key: Key) -> Screen[None] | Unknown:
        details = told_of(trace, thread_details(trace, threads_of(view, key)))
        return details if isinstance(details, Unknown) else ThreadScreen(details)

    def view(self, trace: Trace) -> ThreadsView | Unknown:
        return threads_view(trace) if self.context.is_of_a_server else NO_TARGET

    def draw(self, view: ThreadsView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_threads(view, width, height, look)

    def subtitle(self, view: ThreadsView) -> Content:
        return in_roles(heading(view, self.size.width - _TITLE, look_of(self)), look_of(self))


VIEW: Final = ThreadsPane
