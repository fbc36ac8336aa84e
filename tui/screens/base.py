"""What the full screens have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from llmtop.tui.compositor import SparingCompositor

if TYPE_CHECKING:
    from collections.abc import Sequence


class FullScreen(Screen[None]):
    """A screen whose focus moves without drawing all of it again: the two widgets that it concerns draw themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def send_at_once(self, widgets: Sequence[Widget]) -> bool:
        """Send what widgets have to draw anew, where nothing has to be arranged first and nothing lies above.

        By itself Textual has each widget tell the screen in a message of its own, and the screen wait for a timer.

        Returns:
            Whether it was sent; else Textual does so by itself.
        """
        if self.app.screen is not self or self._layout_required or any(one._layout_required for one in widgets):
            return False
        changed = [one for one in widgets if one._repaint_required]
        for one in changed:
            one._repaint_required = False
        self._dirty_widgets.update(one for one in changed if one.display)
        self._on_timer_update()
        return True


class Dialog(ModalScreen[None]):
    """A screen over another one, with the keys that work on every screen: below a modal one the program's do not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "app.help", "help", key_display="?", tooltip="This list"),
        Binding("s", "app.save_screen", "screenshot", show=False, tooltip="Save the screen as SVG and as text"),
    ]
