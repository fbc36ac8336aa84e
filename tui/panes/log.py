"""What a launched server prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from llmtop.tui.panes.base import Pane
from llmtop.tui.render.lines import line

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.servers.launch import Launched
    from llmtop.tui.render.look import Look

_MOST = 200
"""Lines kept for drawing: more than the tallest terminal has."""


class LogPane(Pane[tuple[str, ...]]):
    """The last lines of the command's output, already clean."""

    number = 7
    title = "Log"

    def __init__(self, launched: Launched) -> None:
        super().__init__(id="log")
        self.launched = launched

    def view(self, trace: Trace) -> tuple[str, ...]:
        return tuple(self.launched.lines(_MOST))

    def draw(self, view: tuple[str, ...], width: int, height: int, look: Look) -> list[Strip]:
        return [line([(text, "text")], width, look) for text in view[-height:]]

    def subtitle(self, view: tuple[str, ...]) -> Content:
        code = self.launched.poll()
        return Content("" if code is None else f"exited with code {code}")
