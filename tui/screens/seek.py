"""Asks for a time of a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from llmtop.replay import moment_of
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult


class SeekDialog(Dialog):
    """One line to type in.

    Args:
        at_ns: Where the recording stands.
        first_ns: Its beginning.
        go: Called with the moment that was asked for.
    """

    DEFAULT_CSS = """
    SeekDialog { align: center middle; }
    SeekDialog Input { width: 60; max-width: 100%; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back", tooltip="Stay where it stands")]

    def __init__(self, at_ns: int, first_ns: int, go: Callable[[int], None]) -> None:
        super().__init__()
        self._place = (at_ns, first_ns)
        self._go = go

    def compose(self) -> ComposeResult:
        field = Input(placeholder="12:31 from the beginning, or +30, -1:00 from here")
        field.border_title = "Go to"
        yield field

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go there and leave; what is no time stays to be mended."""
        t_ns = moment_of(event.value, *self._place)
        if t_ns is None:
            self.notify(f"{event.value!r} is no time as 12:31, 1:02:03, +30 or -1:00", severity="warning", markup=False)
            return
        self.dismiss()
        self._go(t_ns)
