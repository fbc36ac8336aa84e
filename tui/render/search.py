"""Where a text stands in lines, and these with it marked."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from textual.strip import Strip

from llmtop.tui.render.lines import width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.tui.render.look import Look


class FoundPart(NamedTuple):
    """A part of a line in which something that was looked for stands, or a piece of it: characters [start, stop)."""

    line: int
    start: int
    stop: int


def places_of(text: str, lines: Sequence[str]) -> tuple[tuple[FoundPart, ...], ...]:
    """All places of a text, whatever its case, from top to bottom; one that goes on in the next line is several parts.

    >>> places_of("next step", ["The next", "  step; Next  STEP"])
    ((FoundPart(line=0, start=4, stop=8), FoundPart(line=1, start=2, stop=6)), (FoundPart(line=1, start=8, stop=18),))
    """
    words = text.split()
    if not words:
        return ()
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    found = re.finditer(r"\s+".join(map(re.escape, words)), "\n".join(lines), re.IGNORECASE)
    return tuple(tuple(_parts(*match.span(), lines, starts)) for match in found)


def _parts(start: int, stop: int, lines: Sequence[str], starts: Sequence[int]) -> Iterable[FoundPart]:
    for i in range(bisect_right(starts, start) - 1, bisect_right(starts, stop - 1)):
        line = lines[i]
        first, last = max(0, start - starts[i]), min(len(line), stop - starts[i])
        first += len(line[first:last]) - len(line[first:last].lstrip())
        last -= len(line[first:last]) - len(line[first:last].rstrip())
        if first < last:
            yield FoundPart(i, first, last)


def marked(strip: Strip, parts: Iterable[tuple[FoundPart, str]], look: Look) -> Strip:
    """A line with parts of it, from left to right, in the styles of other roles."""
    text, done, pieces = strip.text, 0, []
    for place, role in parts:
        left, right = width_of(text[: place.start]), width_of(text[: place.stop])
        inside = Strip([Segment(text[place.start : place.stop], look.style(role))], right - left)
        pieces += [strip.crop(done, left), inside]
        done = right
    return Strip.join([*pieces, strip.crop(done, strip.cell_length)])
