"""The last line of a screen: its keys, made from its bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from llmtop.tui.panes.base import DiffedWidget, look_of
from llmtop.tui.render.lines import Part, line

if TYPE_CHECKING:
    from collections.abc import Iterable


class KeysLine(DiffedWidget):
    """Textual's footer as one drawn line: no widget for each key, and nothing sent when focus moves."""

    DEFAULT_CSS = "KeysLine { height: 1; }"

    def on_mount(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draw again, as after a change of colours."""
        width = self.size.width
        if width:
            bindings = (*self.app.BINDINGS, *self.screen.BINDINGS)
            shown = (one for one in bindings if isinstance(one, Binding) and one.show and one.description)
            self.send_frame([line(_parts(shown), width, look_of(self))])


def _parts(bindings: Iterable[Binding]) -> list[Part]:
    parts: list[Part] = [(" ", "text")]
    for binding in bindings:
        parts += [(binding.key_display or binding.key, "title"), (f" {binding.description}  ", "dim")]
    return parts
