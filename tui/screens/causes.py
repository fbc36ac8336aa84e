"""What every part of the idle account means."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.timeline.causes import MEANINGS, TITLES
from llmtop.tui.panes.report import PagedPane
from llmtop.tui.panes.session import fact_lines
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class CausesPane(PagedPane[None]):
    """The list; the same for every timeline."""

    title = "Why a GPU has nothing to do"

    def __init__(self) -> None:
        super().__init__()
        self._view = None
        self._lines = 0

    def draw(self, view: None, width: int, height: int, look: Look) -> list[Strip]:
        longest = max(map(len, TITLES.values()))
        lines = [
            strip
            for cause, meaning in MEANINGS.items()
            for strip in fact_lines(TITLES[cause], meaning, longest, width, look)
        ]
        self._lines = len(lines)
        self.at = min(self.at, self.count() - 1)
        return lines[self.at : self.at + height]

    def count(self) -> int:
        return max(1, self._lines - self.size.height + 1)


class CausesScreen(Dialog):
    """The list over the screen that it was asked for on."""

    DEFAULT_CSS = """
    CausesScreen { align: center middle; }
    CausesScreen CausesPane { max-width: 110; max-height: 32; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,m,backspace", "dismiss", "back", tooltip="Back to the idle time")
    ]

    def compose(self) -> ComposeResult:
        yield CausesPane()
