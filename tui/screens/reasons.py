"""What every stall reason means, in its colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.tui.panes.lines import MeaningsPane
from llmtop.tui.render.bars import meaning_lines
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class ReasonsPane(MeaningsPane):
    """The list; the same for every report."""

    title = "What stall reasons mean"

    def lines(self, view: None, width: int, look: Look) -> list[Strip]:
        return meaning_lines(width, look)


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
