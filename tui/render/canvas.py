"""A drawing surface of 2x4 dots a cell, with text over it."""

from __future__ import annotations

from itertools import groupby

from rich.segment import Segment
from textual.strip import Strip

from llmtop.tui.render.lines import pad, spelled, width_of
from llmtop.tui.render.look import Look

DOTS_X, DOTS_Y = 2, 4
"""Dots in a cell, across and down."""

# Unicode braille patterns (block U+2800): the bit of each dot, by row then column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_UPPER = 0x01 | 0x08 | 0x02 | 0x10
_BRAILLE = {bits: chr(0x2800 + bits) if bits else " " for bits in range(256)}


def _ascii_cell(bits: int) -> str:
    if not bits:
        return " "
    upper, lower = bits & _UPPER, bits & ~_UPPER
    return ":" if upper and lower else "'" if upper else "."


_ASCII = {bits: _ascii_cell(bits) for bits in range(256)}


class Canvas:
    """Dots and text, each with a role; read out as strips once.

    Dot coordinates count from the upper left: x in [0, 2 * width), y in [0, 4 * height). What lies outside is
    dropped. A cell has one colour: the last dot drawn gives it.
    """

    def __init__(self, width: int, height: int, look: Look) -> None:
        self.width, self.height = width, height
        self._look = look
        self._dots = [bytearray(width) for _ in range(height)]
        self._roles = [bytearray(width) for _ in range(height)]
        self._role_names = ["text"]
        self._text: list[dict[int, tuple[str, int]]] = [{} for _ in range(height)]
        """By row, by column."""

    def _role(self, role: str) -> int:
        if role not in self._role_names:
            self._role_names.append(role)
        return self._role_names.index(role)

    def dot(self, x: int, y: int, role: str) -> None:
        """Set one dot."""
        self._set(x, y, self._role(role))

    def _set(self, x: int, y: int, role: int) -> None:
        if 0 <= x < self.width * DOTS_X and 0 <= y < self.height * DOTS_Y:
            row, col = y >> 2, x >> 1
            self._dots[row][col] |= _BITS[y & 3][x & 1]
            self._roles[row][col] = role

    def line(self, x0: int, y0: int, x1: int, y1: int, role: str, *, every: int = 1) -> None:
        """A straight line between two dots; `every` above 1 leaves dots out."""
        number = self._role(role)
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(0, steps + 1, every):
            self._set(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps), number)

    def text(self, col: int, row: int, text: str, role: str) -> None:
        """Text over the dots, from cell (col, row) on; cut at the right edge."""
        if not 0 <= row < self.height or col >= self.width or col < 0:
            return
        number, over = self._role(role), self._text[row]
        shown = pad(spelled(text, self._look), min(width_of(text), self.width - col), self._look)
        for character in shown:
            size = width_of(character)
            if size == 0:  # a combining mark belongs to the character before it
                held = over.get(col - 1)
                if held is not None:
                    over[col - 1] = (held[0] + character, held[1])
                continue
            over[col] = (character, number)
            if size == 2:
                over[col + 1] = ("", number)
            col += size

    def is_free(self, col: int, row: int, width: int) -> bool:
        """Whether cells [col, col + width) of a row lie inside and hold no text; dots do not count."""
        if not (0 <= row < self.height and col >= 0 and col + width <= self.width):
            return False
        return self._text[row].keys().isdisjoint(range(col, col + width))

    def dotted(self, col: int, row: int, width: int) -> int:
        """How many of the cells [col, col + width) of a row have a dot set."""
        cells = self._dots[row][max(0, col) : col + width]
        return len(cells) - cells.count(0)

    def strips(self) -> list[Strip]:
        """The picture, one strip a row."""
        return [self._strip(row) for row in range(self.height)]

    def _strip(self, row: int) -> Strip:
        table = _ASCII if self._look.glyphs.ascii else _BRAILLE
        cells = [table[bits] for bits in self._dots[row]]
        roles = bytearray(self._roles[row])
        for col, over in self._text[row].items():
            cells[col], roles[col] = over
        segments = []
        start = 0
        for role, run in groupby(roles):
            stop = start + sum(1 for _ in run)
            segments.append(Segment("".join(cells[start:stop]), self._look.style(self._role_names[role])))
            start = stop
        return Strip(segments, self.width)
