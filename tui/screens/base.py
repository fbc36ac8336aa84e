"""What the full screens have in common."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import ModalScreen
from textual.widget import Widget

from llmtop.tui.idle_keys import idle_bindings
from llmtop.tui.screens.holding import HoldingScreen
from llmtop.tui.textual_private import SparingScreen

_MOST_FAULTS = 20
"""Different faults that a screen may have and go on."""


class _FaultsOfScreens(HoldingScreen):
    """What a screen says of a fault that none of its parts has taken: a message over it, one for each fault."""

    _told: frozenset[str] = frozenset()

    def fail(self, error: Exception) -> None:
        """Take an error; a screen that could not be made is left, and the one below it shows the message.

        Raises:
            Exception: The error, where there have been so many that the screen cannot be of any use, or none was made.
        """
        if len(self._told) >= _MOST_FAULTS or (not self.children and self.app.screen_stack[0] is self.screen):
            raise error
        if self.children:
            super().fail(error)
        else:
            _FaultsOfScreens.show_fault(self, self.count_fault(error))
            self.app.call_later(self._leave)

    def show_fault(self, said: str) -> None:
        if said not in self._told:
            self._told |= {said}
            self.notify(said, severity="error", markup=False)

    async def _leave(self) -> None:
        """On the program's own account: a screen that waits for its own end waits for ever."""
        if self.app.screen is self.screen:
            await self.app.pop_screen()


class FullScreen(SparingScreen[None], _FaultsOfScreens):
    """A screen whose focus moves without drawing all of it again: the two widgets that it concerns draw themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


_OF_PROGRAM: Final[tuple[BindingType, ...]] = (
    Binding("question_mark", "app.help", "help", key_display="?", tooltip="This list"),
    Binding("s", "app.save_screen", "screenshot", show=False, tooltip="Save the screen as SVG and as text"),
)


class Dialog(ModalScreen[None], _FaultsOfScreens):
    """A screen over another one, with the keys that work on every screen: below a modal one the program's do not."""

    BINDINGS: ClassVar[list[BindingType]] = [*_OF_PROGRAM, *idle_bindings([*_OF_PROGRAM, *HoldingScreen.BINDINGS])]
