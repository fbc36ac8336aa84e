"""What a launched server prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.view import Place
from llmtop.tui.render.lines import chopped, line

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context
    from llmtop.tui.render.look import Look

_MOST = 300
"""Lines that are gone back to; the rest is where the server writes its log."""


def _is_launched(context: Context) -> bool:
    return context.launched is not None


class LogPane(LinesPane[tuple[str, ...]]):
    """The last lines of the command's output, already clean, whole; it goes on with them while its end is shown."""

    title = "Log"
    of_files = frozenset(("next_page",))
    place = Place(7, "middle", exists=_is_launched, suits=_is_launched)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._follows = True

    def view(self, trace: Trace) -> tuple[str, ...]:
        launched = self.context.launched
        return () if launched is None else tuple(launched.lines(_MOST))

    def lines(self, view: tuple[str, ...], width: int, look: Look) -> list[Strip]:
        return [line([(part, "text")], width, look) for text in view for part in chopped(text, width)]

    def draw(self, view: tuple[str, ...], width: int, height: int, look: Look) -> list[Strip]:
        self.tells_place = self.is_zoomed  # beside others the border would be drawn anew with each line
        if self._follows and not self.search:
            self.at = sys.maxsize
        return super().draw(view, width, height, look)

    def subtitle(self, view: tuple[str, ...]) -> Content:
        code = None if self.context.launched is None else self.context.launched.poll()
        return super().subtitle(view) or Content("" if code is None else f"exited with code {code}")

    def _go(self, at: int) -> None:
        self._follows = at >= self.count() - 1
        super()._go(at)


VIEW: Final = LogPane
