"""What a frame sends to the terminal: of each line the cells that were refreshed, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.control import Control
from textual._compositor import ChopsUpdate

if TYPE_CHECKING:
    from rich.console import Console


class NarrowUpdate(ChopsUpdate):
    """A partial update whose lines begin where the change does.

    Textual's own sends each line from the left edge of the widget on: the newest cell of a graph, at its right end,
    then costs the whole of its line.
    """

    @classmethod
    def of(cls, update: ChopsUpdate) -> Self:
        """The same cells, without those to their left."""
        return cls(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        return "".join(self._pieces(console))

    def _pieces(self, console: Console) -> Iterator[str]:
        for y, start, stop in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                left, right = max(x, start), min(end, stop)
                if strip is not None and left < right:
                    yield Control.move_to(left, y).segment.text
                    yield strip.crop(left - x, right - x).render(console)
