"""What a frame renders, and what of it goes to the terminal: the cells that have changed and are seen, and no others.

Spans are the cells that have changed, cuts the cells of a line in which a widget begins or ends, and a line's chops are
the strips between its cuts, by the cell in which they begin.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from textual.geometry import Region

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console
    from textual.strip import Strip
    from textual.widget import Widget

Span: TypeAlias = "tuple[int, int]"
"""Cells of a line, [start, stop)."""
LineSpan: TypeAlias = "tuple[int, int, int]"
"""The line's number, and cells of it."""
Chops: TypeAlias = "dict[int, Strip | None]"
"""Of a line."""


@frozen
class _Piece:
    """Cells of a line between two edges of widgets: all of one widget's, whichever lies on top there."""

    y: int
    start: int
    stop: int


def render_changes(
    spans: Iterable[LineSpan], cuts: Sequence[Sequence[int]], visible: Mapping[Widget, tuple[Region, Region]]
) -> list[Chops]:
    """Have widgets render what has changed.

    Args:
        spans: What has changed.
        cuts: Of each line.
        visible: Where each widget is and what of it may be seen, the topmost first.
    """
    chops: list[Chops] = [dict.fromkeys(line[:-1]) for line in cuts]
    open_pieces = _pieces(spans, cuts)
    for widget, (region, clip) in visible.items():
        if not open_pieces:
            break
        seen = region.intersection(clip)
        mine = [piece for piece in open_pieces if _covers(seen, piece)]
        if mine:
            open_pieces.difference_update(mine)
            _render(widget, region, seen, mine, chops)
    return chops


def sent_pieces(
    spans: Iterable[LineSpan],
    chop_ends: Sequence[Sequence[int]],
    chops: Sequence[Mapping[int, Strip | None]],
    console: Console,
) -> Iterator[str]:
    """What the terminal is sent: each run of changed cells with its place, none to its left or right.

    Args:
        spans: What has changed.
        chop_ends: Of each line: where each of its chops ends.
        chops: Of each line, in order; None where nothing was rendered.
        console: Knows the terminal's colours.
    """
    for y, start, stop in spans:
        for end, (x, strip) in zip(chop_ends[y], chops[y].items(), strict=False):
            left, right = max(x, start), min(end, stop)
            if strip is not None and left < right:
                yield f"\x1b[{y + 1};{left + 1}H"  # CUP (ECMA-48)
                yield strip.crop(left - x, right - x).render(console)


def _pieces(spans: Iterable[LineSpan], cuts: Sequence[Sequence[int]]) -> set[_Piece]:
    """What has a changed cell."""
    by_line: defaultdict[int, list[Span]] = defaultdict(list)
    for y, start, stop in spans:
        by_line[y].append((start, stop))
    return {
        _Piece(y, left, right)
        for y, changed in by_line.items()
        for left, right in zip(cuts[y], cuts[y][1:], strict=False)
        if any(start < right and stop > left for start, stop in changed)
    }


def _covers(seen: Region, piece: _Piece) -> bool:
    return seen.y <= piece.y < seen.bottom and seen.x <= piece.start and piece.stop <= seen.right


def _render(widget: Widget, region: Region, seen: Region, pieces: Iterable[_Piece], chops: Sequence[Chops]) -> None:
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
