"""Asks for a name or a note, with what there is to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from llmtop.errors import FileError
from llmtop.notes import LONGEST
from llmtop.text import clean
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult


class NoteDialog(Dialog):
    """One line to type in; what is emptied is taken out.

    Args:
        title: What is asked for.
        text: What there is.
        take: Called with what was typed; raises `FileError` or `OSError` where it cannot be kept.
    """

    DEFAULT_CSS = """
    NoteDialog { align: center middle; }
    NoteDialog Input { width: 90%; max-width: 100; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back", tooltip="Leave it as it is")]

    def __init__(self, title: str, text: str, take: Callable[[str], None]) -> None:
        super().__init__()
        self._title, self._text, self._take = title, text, take

    def compose(self) -> ComposeResult:
        field = Input(self._text, placeholder="empty: none", max_length=LONGEST, select_on_focus=False)
        field.border_title = self._title.replace("[", r"\[")
        field.border_subtitle = "Enter keeps it, Esc leaves it"
        yield field

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it and leave; what cannot be kept stays to be copied."""
        event.stop()
        try:
            self._take(event.value)
        except (FileError, OSError) as error:
            self.notify(f"not kept: {clean(str(error))}", severity="error", markup=False)
            return
        self.dismiss()
