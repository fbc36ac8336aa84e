"""What every part of the idle account means."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.idle_time.causes import MEANINGS, TITLES
from llmtop.tui.panes.report import TextPane
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult


class CausesPane(TextPane):
    """The list; the same for every timeline."""

    title = "Why a GPU has nothing to do"

    def on_mount(self) -> None:
        self.show_text(tuple((f"{TITLES[cause]}: {meaning}", "text") for cause, meaning in MEANINGS.items()))


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
