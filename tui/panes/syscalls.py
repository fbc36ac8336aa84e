"""What the server asks of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.analysis.pages.header import NO_TARGET
from llmtop.analysis.threads.syscalls import SyscallsView, syscalls_view
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.render.syscalls import draw_syscalls

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Target, Trace, Unknown
    from llmtop.tui.render.look import Look


class SyscallsPane(Pane[SyscallsView]):
    """System calls, the longest in total first; zoomed it is a table (`analysis.syscalls.syscalls_table`)."""

    number = 8
    title = "System calls"
    least_ns = CALM_NS

    def __init__(self, target: Target | None) -> None:
        super().__init__(id="syscalls")
        self.target = target

    def view(self, trace: Trace) -> SyscallsView | Unknown:
        return syscalls_view(trace) if self.target else NO_TARGET

    def draw(self, view: SyscallsView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_syscalls(view, width, height, look)

    def subtitle(self, view: SyscallsView) -> Content:
        return Content(f"{view.source}, last {view.observed_s:.0f} s")
