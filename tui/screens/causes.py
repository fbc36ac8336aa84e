"""What every part of the idle account means."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.timeline.causes import MEANINGS, TITLES
from llmtop.tui.panes.lines import MeaningsPane
from llmtop.tui.render.lines import fact_lines
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


class CausesPane(MeaningsPane):
    """The list; the same for every timeline."""

    title = "Why a GPU has nothing to do"

    def lines(self, view: None, width: int, look: Look) -> list[Strip]:
        longest = max(map(len, TITLES.values()))
        return [
            strip
            for cause, meaning in MEANINGS.items()
            for strip in fact_lines(TITLES[cause], meaning, longest, width, look)
        ]


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
