"""What the server asks of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.server.heatmaps import syscall_heatmap
from llmtop.analysis.threads.syscalls import SyscallsView, syscalls_table, syscalls_view
from llmtop.model import Unknown
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.panes.view import HeatSource, Place
from llmtop.tui.render.syscalls import draw_syscalls

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.views import TableView
    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


def _call_names(trace: Trace) -> tuple[str, ...]:
    view = syscalls_view(trace)
    return () if isinstance(view, Unknown) else tuple(call.name for call in view.calls)


class SyscallsPane(Pane[SyscallsView]):
    """System calls, the longest in total first; zoomed it is a table (`analysis.syscalls.syscalls_table`)."""

    title = "System calls"
    is_of_reports = False
    place = Place(
        8,
        "middle",
        least=(160, 50),
        suits=lambda context: context.launched is None,
        waits=True,
        heatmap=HeatSource("of system calls", syscall_heatmap, _call_names),
    )
    least_ns = CALM_NS

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        view = syscalls_view(trace)
        return view if isinstance(view, Unknown) else None

    def rows(self, view: SyscallsView, trace: Trace) -> TableView:
        return syscalls_table(view)

    def view(self, trace: Trace) -> SyscallsView | Unknown:
        return syscalls_view(trace) if self.context.is_of_a_server else NO_TARGET

    def draw(self, view: SyscallsView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_syscalls(view, width, height, look)

    def subtitle(self, view: SyscallsView) -> Content:
        return Content(f"{view.source}, last {view.observed_s:.0f} s")


VIEW: Final = SyscallsPane
