"""What a frame renders: of each widget the lines in which a cell has changed and is seen, and of those no other cells.

Textual renders, for whatever has changed, all lines of all widgets that lie in the rectangle around all changes: the
containers below the panes, and panes beside them of which nothing moved. That was half of what its compositor took.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from textual._compositor import Compositor
from textual.geometry import Region

from llmtop.tui.update import NarrowUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.strip import Strip
    from textual.widget import Widget

Span: TypeAlias = "tuple[int, int]"
"""Cells of a line, [start, stop)."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Cells of a line between two edges of widgets: all of one widget's, whichever lies on top there."""

    y: int
    start: int
    stop: int


class SparingCompositor(Compositor):
    """Textual's, with partial updates that ask widgets only for what they need."""

    def render_partial_update(self) -> NarrowUpdate | None:
        dirty, self._dirty_regions = self._dirty_regions, set()
        if not dirty:
            return None
        spans = list(self._regions_to_spans(region.intersection(self.size.region) for region in dirty))
        chops: list[dict[int, Strip | None]] = [dict.fromkeys(cuts[:-1]) for cuts in self.cuts]
        open_pieces = self._pieces(spans)
        for widget, (region, clip) in self.visible_widgets.items():  # the topmost first
            if not open_pieces:
                break
            seen = region.intersection(clip)
            mine = [piece for piece in open_pieces if _covers(seen, piece)]
            if mine:
                open_pieces.difference_update(mine)
                _render(widget, region, seen, mine, chops)
        return NarrowUpdate(chops, spans, [cuts[1:] for cuts in self.cuts])

    def _pieces(self, spans: Iterable[tuple[int, int, int]]) -> set[_Piece]:
        """What has a changed cell."""
        by_line: defaultdict[int, list[Span]] = defaultdict(list)
        for y, start, stop in spans:
            by_line[y].append((start, stop))
        return {
            _Piece(y, left, right)
            for y, changed in by_line.items()
            for left, right in zip(self.cuts[y], self.cuts[y][1:], strict=False)
            if any(start < right and stop > left for start, stop in changed)
        }


def _covers(seen: Region, piece: _Piece) -> bool:
    return seen.y <= piece.y < seen.bottom and seen.x <= piece.start and piece.stop <= seen.right


def _render(
    widget: Widget, region: Region, seen: Region, pieces: Iterable[_Piece], chops: Sequence[dict[int, Strip | None]]
) -> None:
    """Have a widget render the lines of some pieces, and put these in their places."""
    by_line: defaultdict[int, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        by_line[piece.y].append(piece)
    for top, bottom in _runs(by_line):
        crop = Region(seen.x - region.x, top - region.y, seen.width, bottom - top)
        for y, strip in enumerate(widget.render_lines(crop), top):
            for piece in by_line[y]:
                chops[y][piece.start] = strip.crop(piece.start - seen.x, piece.stop - seen.x)


def _runs(lines: Mapping[int, object]) -> Iterable[Span]:
    """Neighbouring lines together, as [top, bottom): each run is one request of a widget."""
    ordered = sorted(lines)
    starts = [y for y in ordered if y - 1 not in lines]
    stops = [y + 1 for y in ordered if y + 1 not in lines]
    return zip(starts, stops, strict=True)
