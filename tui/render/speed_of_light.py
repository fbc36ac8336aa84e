"""Compute and memory throughput with what they are made of, beside each other or below each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.model import Unknown
from llmtop.tui.render.lines import bar, cut_middle, line, pad, prose
from llmtop.units import percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.speed_of_light import Throughput
    from llmtop.tui.render.look import Look

_BESIDE = 100
"""Columns from which on there is room for both beside each other."""
_SHARE, _BAR = 8, 12


def speed_of_light_lines(both: Sequence[Throughput], width: int, look: Look) -> list[Strip]:
    """All of it: the throughput, then its parts, the busiest first."""
    if width < _BESIDE:
        return [strip for one in both for strip in _lines(one, width, look)]
    column = width // len(both)
    blank = line([("", "text")], column, look)
    pairs = zip_longest(*(_lines(one, column, look) for one in both), fillvalue=blank)
    return [Strip.join(pair).adjust_cell_length(width, look.style("text")) for pair in pairs]


def _lines(one: Throughput, width: int, look: Look) -> list[Strip]:
    if isinstance(one.percent, Unknown):
        return [line([(row.text, "dim")], width, look) for row in prose(f"{one.title}: {one.percent}", width - 1, look)]
    rows = [_line(one.title, one.percent, width, look, "title")]
    return rows + [_line(f" {name}", value, width, look, "text") for name, value in one.parts]


def _line(name: str, value: float, width: int, look: Look, role: str) -> Strip:
    room = max(8, width - _SHARE - _BAR - 2)
    text = pad(cut_middle(name, room, look), room, look)
    drawn = bar(value / 100, _BAR, look)
    return line([(text, role), (f"{percent(value):>{_SHARE}} ", "value"), (drawn, "accent")], width, look)
