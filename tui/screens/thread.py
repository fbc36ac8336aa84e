"""Details of a thread, over the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from llmtop.tui.contents import Contents
from llmtop.tui.panes.base import look_of
from llmtop.tui.render.thread_details import draw_details
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from llmtop.analysis.threads.details import ThreadDetails
    from llmtop.tui.render.lines import Part

_BORDER = 4
"""Cells of the border and of the scrollbar."""


class ThreadScreen(Dialog):
    """A still picture of the moment it was opened: text that moves cannot be read."""

    DEFAULT_CSS = """
    ThreadScreen #details { background: $background; border: round $primary; height: 1fr; scrollbar-size: 1 1; }
    App.-ascii ThreadScreen #details { border: ascii $primary; scrollbar-size: 0 0; }
    ThreadScreen Static { width: 1fr; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace,enter", "dismiss", "back", tooltip="Back to the list")
    ]

    def __init__(self, details: ThreadDetails) -> None:
        super().__init__()
        self._details = details

    def compose(self) -> ComposeResult:
        """A text to scroll."""
        with VerticalScroll(id="details") as box:
            box.border_title = Content(self._details.title)
            box.border_subtitle = Content("as it was when opened · Esc closes")
            yield Static(id="text")

    def contents(self) -> Contents:
        """All of the text, below the screen's edge too."""
        return Contents(
            self._details.title, [part for parts in self._wrapped() for part in ("".join(t for t, _ in parts),)]
        )

    def show_fault(self, said: str) -> None:
        self.query_one("#text", Static).update(Text(said))

    def on_mount(self) -> None:
        """Keys scroll."""
        self.query_one("#details").focus()

    def on_resize(self) -> None:
        """Wrap anew."""
        look = look_of(self)
        styled = (Text.assemble(*((text, look.style(role)) for text, role in parts)) for parts in self._wrapped())
        self.query_one("#text", Static).update(Text("\n").join(styled))

    def _wrapped(self) -> list[list[Part]]:
        return draw_details(self._details, max(20, self.size.width - _BORDER), look_of(self))
