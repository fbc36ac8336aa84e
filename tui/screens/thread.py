"""Details of a thread, over the screen below."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.render.lines import line
from llmtop.tui.render.thread_details import draw_details
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.analysis.threads.details import ThreadDetails
    from llmtop.tui.render.look import Look


class ThreadDetailsPane(LinesPane["ThreadDetails"]):
    """A still picture of the moment it was opened: text that moves cannot be read."""

    hint = "as it was when opened · / search, Esc closes"

    def __init__(self, details: ThreadDetails) -> None:
        super().__init__(id="details")
        self.title = details.title
        self._view = details

    def lines(self, view: ThreadDetails, width: int, look: Look) -> list[Strip]:
        return [line(parts, width, look) for parts in draw_details(view, width, look)]


class ThreadScreen(Dialog):
    """All of the screen for the details."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace,enter", "dismiss", "back", tooltip="Back to the list")
    ]

    def __init__(self, details: ThreadDetails) -> None:
        super().__init__()
        self._details = details

    def compose(self) -> ComposeResult:
        yield ThreadDetailsPane(self._details)
