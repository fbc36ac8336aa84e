"""The line that stands for the panes of GPUs on a machine that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.series.readings import why_no_gpu
from llmtop.model import Unknown
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.lines import line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


RECORDED = "recorded on a GPU: llmtop demo --incident gpu-decode"
"""What the demo offers on a machine without a GPU."""


class FoldedLine(Pane[tuple[Unknown, ...]], can_focus=False):
    """Which panes have nothing to show, why, and what would change that. Their digits still open them.

    Args:
        names: Digits and titles of the panes.
        offer: Where such panes can be seen.
    """

    def __init__(self, names: Sequence[str], offer: str = "") -> None:
        super().__init__(id="folded")
        self._names = ", ".join(names)
        self._offer = [(f"{offer}; ", "text")] if offer else []

    def view(self, trace: Trace) -> tuple[Unknown, ...]:
        why = why_no_gpu(trace)
        return () if why is None else (why,)

    def draw(self, view: tuple[Unknown, ...], width: int, height: int, look: Look) -> list[Strip]:
        dash = look.glyphs.unknown
        names = f" {self._names} {dash} "
        return [line([(names, "dim"), *self._offer, (str(why), "text")], width, look) for why in view]
