"""What the full screens have in common."""

from __future__ import annotations

from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget


class FullScreen(Screen[None]):
    """A screen whose focus moves without drawing all of it again: the two widgets that it concerns draw themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
