"""What the full screens have in common."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from llmtop.tui.compositor import SparingCompositor


class FullScreen(Screen[None]):
    """A screen whose focus moves without drawing all of it again: the two widgets that it concerns draw themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()


class Dialog(ModalScreen[None]):
    """A screen over another one, with the keys that work on every screen: below a modal one the program's do not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "app.help", "help", key_display="?", tooltip="This list"),
        Binding("s", "app.save_screen", "screenshot", show=False, tooltip="Save the screen as SVG and as text"),
    ]
