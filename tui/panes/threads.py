"""The server's threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.analysis.pages.header import NO_TARGET
from llmtop.analysis.threads.shares import ThreadsView, threads_view
from llmtop.model import TrackKind, Unknown
from llmtop.tui.panes.base import SLOW_NS, Pane, in_roles, look_of
from llmtop.tui.render.threads import draw_threads, heading

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Target, Trace
    from llmtop.tui.render.look import Look


_TITLE = len("4 Threads  ") + 4
"""Cells of the border that are not for what is said of the threads."""


class ThreadsPane(Pane[ThreadsView]):
    """Each thread's time: on a CPU, waiting for one, blocked and on what."""

    number = 4
    title = "Threads"
    ages_of = TrackKind.THREAD
    least_ns = SLOW_NS

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="threads")
        self.target = target

    def view(self, trace: Trace) -> ThreadsView | Unknown:
        return threads_view(trace) if self.target else NO_TARGET

    def draw(self, view: ThreadsView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_threads(view, width, height, look)

    def subtitle(self, view: ThreadsView) -> Content:
        return in_roles(heading(view, self.size.width - _TITLE, look_of(self)), look_of(self))
