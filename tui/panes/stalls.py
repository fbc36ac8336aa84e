"""What the warps of each kernel wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels import no_kernels, stall_bars
from llmtop.analysis.stalls import StallBar
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import KernelWanted, PagedPane
from llmtop.tui.render.bars import bar_rows, draw_stall_bars

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class StallsPane(PagedPane[tuple[StallBar, ...]]):
    """A stacked bar for each kernel, the longest kernel first."""

    number = 2
    title = "Stalls"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "details", tooltip="Details of the row"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    def view(self, trace: Trace) -> tuple[StallBar, ...] | Unknown:
        if why := no_kernels(trace):
            return why
        bars = stall_bars(trace)
        if not any(bar.shares for bar in bars):
            return bars[0].why_not or Unknown("no stalls were collected")
        return bars

    def draw(self, view: tuple[StallBar, ...], width: int, height: int, look: Look) -> list[Strip]:
        rows = bar_rows(view, width, height, look)
        self._top = min(max(self._top, self.at - rows + 1), self.at)
        return draw_stall_bars(view, width, height, look, cursor=self.at, top=self._top)

    def count(self) -> int:
        return len(self._view) if isinstance(self._view, tuple) else 1

    def action_choose(self) -> None:
        """Ask the screen for the kernel's details."""
        if isinstance(self._view, tuple):
            self.post_message(KernelWanted(self._view[self.at].launch))
