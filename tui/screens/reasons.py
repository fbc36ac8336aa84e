"""What every stall reason means, in its colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.tui.panes.report import PagedPane
from llmtop.tui.render.bars import meaning_lines
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class ReasonsPane(PagedPane[None]):
    """The list; the same for every report."""

    title = "What stall reasons mean"

    def __init__(self) -> None:
        super().__init__()
        self._view = None
        self._lines = 0

    def draw(self, view: None, width: int, height: int, look: Look) -> list[Strip]:
        lines = meaning_lines(width, look)
        self._lines = len(lines)
        self.at = min(self.at, self.count() - 1)
        return lines[self.at : self.at + height]

    def count(self) -> int:
        return max(1, self._lines - self.size.height + 1)


class ReasonsScreen(Dialog):
    """The list over the screen that it was asked for on."""

    DEFAULT_CSS = """
    ReasonsScreen { align: center middle; }
    ReasonsScreen ReasonsPane { max-width: 92; max-height: 20; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,m,backspace", "dismiss", "back", tooltip="Back to the stalls")
    ]

    def compose(self) -> ComposeResult:
        yield ReasonsPane()
