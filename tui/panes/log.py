"""What a launched server prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.view import Place
from llmtop.tui.render.lines import line

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context
    from llmtop.tui.render.look import Look

_MOST = 200
"""Lines kept for drawing: more than the tallest terminal has."""


def _is_launched(context: Context) -> bool:
    return context.launched is not None


class LogPane(Pane[tuple[str, ...]]):
    """The last lines of the command's output, already clean."""

    title = "Log"
    place = Place(7, "middle", exists=_is_launched, suits=_is_launched)

    def view(self, trace: Trace) -> tuple[str, ...]:
        launched = self.context.launched
        return () if launched is None else tuple(launched.lines(_MOST))

    def draw(self, view: tuple[str, ...], width: int, height: int, look: Look) -> list[Strip]:
        return [line([(text, "text")], width, look) for text in view[-height:]]

    def subtitle(self, view: tuple[str, ...]) -> Content:
        code = None if self.context.launched is None else self.context.launched.poll()
        return Content("" if code is None else f"exited with code {code}")


VIEW: Final = LogPane
