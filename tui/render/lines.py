"""Lines of text: cut and padded by the cell, bars, sparklines, wrapped prose."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import TypeAlias

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from textual.strip import Strip

from llmtop.model import Fact, Unknown
from llmtop.tui.render.look import Look

Part: TypeAlias = tuple[str, str]
"""A piece of a line: its text and its role (see `Look.style`)."""

_LONG, _LONGEST_MARKS = 4, 64
"""More characters a cell than text has, but for combining marks, and how many of these are borne."""

_INDENT = 2
_ASIDE = re.compile(r" \([^()]*\)")
_WORD = re.compile(r"\s*\S+|\s+")
_NAMES = re.compile(r".+?(?:::|[<,(/]|$)")
"""What a long word is made of: of functions and paths."""
_CODE = re.compile(r"::|<")
"""In a word that nobody copies into a shell."""


def width_of(text: str) -> int:
    """Terminal cells that a text takes: two for wide characters, none for combining ones."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int, look: Look) -> str:
    """The text if it fits, else its beginning and an ellipsis; never splits a wide or a combined character."""
    if width <= 0:
        return ""
    # No text of this many characters fits: measuring 10 kB names cell by cell for each frame would cost.
    most = _LONG * width + _LONGEST_MARKS
    text = text[:most] if len(text) > most else text
    if width_of(text) <= width:
        return text
    ellipsis = look.glyphs.ellipsis
    return _head(text, width - len(ellipsis)) + ellipsis


def cut_words(text: str, width: int, look: Look) -> str:
    """The text if it fits, else its beginning in whole words and an ellipsis, and no number without what it is of.

    >>> cut_words("waits for a CPU 56 % of the time", 19, Look())
    'waits for a CPU…'
    """
    text = " ".join(text.split())
    if width_of(text) <= width:
        return text
    head = _head(text, width - len(look.glyphs.ellipsis))
    words = head.split(" ")
    if text[len(head) : len(head) + 1] != " ":
        words.pop()  # the cut went through it
    while words and words[-1][:1].isdecimal():
        words.pop()
    return " ".join(words).rstrip(",;:") + look.glyphs.ellipsis if words else cut(text, width, look)


def _head(text: str, width: int) -> str:
    """The longest beginning that takes at most `width` cells."""
    if text.isascii():
        return text[:width]
    end = used = 0
    for _, stop, size in split_graphemes(text)[0]:
        if used + size > width:
            break
        end, used = stop, used + size
    return text[:end]


def without_asides(text: str) -> str:
    """The text without what stands in parentheses, where there is no room for that.

    >>> without_asides("CPU 14 ms (median 1 ms), GPU 2 ms (median 2 ms)")
    'CPU 14 ms, GPU 2 ms'
    """
    return _ASIDE.sub("", text)


def cut_middle(text: str, width: int, look: Look) -> str:
    """The text if it fits, else without its middle: the ends of kernel names tell them apart."""
    if len(text) <= _LONG * width + _LONGEST_MARKS and width_of(text) <= width:
        return text
    room = width - len(look.glyphs.ellipsis)
    if room <= 1:
        return cut(text, width, look)
    tail = _head(text[: -(4 * width) - 1 : -1], room // 2)[::-1]
    return _head(text[: 4 * width], room - width_of(tail)) + look.glyphs.ellipsis + tail


def pad(text: str, width: int, look: Look, *, right: bool = False) -> str:
    """The text in exactly `width` cells, cut or padded; `right` puts it at the right end."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width) if right else text.ljust(width)
    short = cut(text, width, look)
    blank = " " * max(0, width - width_of(short))
    return blank + short if right else short + blank


_ASCII_FOR = str.maketrans(
    {"µ": "u", "…": "~", "–": "-", "—": "-", "·": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "↔": "-"}
)


def spelled(text: str, look: Look) -> str:
    """The text as the terminal can show it: where that is only ASCII, of the same width but in ASCII.

    >>> from llmtop.tui.render.look import ASCII
    >>> spelled("12 µs 内", Look(ASCII))
    '12 us ??'
    """
    if not look.glyphs.ascii or text.isascii():
        return text
    known = text.translate(_ASCII_FOR)
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in known)


def line(parts: Sequence[Part], width: int, look: Look) -> Strip:
    """One line of exactly `width` cells; what does not fit is cut with an ellipsis."""
    return _line(tuple(parts), width, look)


@lru_cache(maxsize=512)
def _line(parts: tuple[Part, ...], width: int, look: Look) -> Strip:
    """Kept, because most lines of a screen are those of the frame before."""
    segments: list[Segment] = []
    left = width
    for i, (raw, role) in enumerate(parts):
        text = spelled(raw, look)
        size = width_of(text) if len(text) <= _LONG * left + _LONGEST_MARKS else left + 1
        is_last = size < left or not any(rest for rest, _ in parts[i + 1 :])
        # Where something is left out, the cut must show.
        shown = text if size < left or (size == left and (is_last or not text)) else cut(text + " ", left, look)
        if shown:
            segments.append(Segment(shown, look.style(role)))
            left -= size if shown is text else width_of(shown)
        if shown != text or left <= 0:
            break
    if left > 0:
        segments.append(Segment(" " * left, look.style("text")))
    return Strip(segments, width)


@lru_cache(maxsize=64)
def blank(width: int, look: Look) -> Strip:
    """An empty line."""
    return Strip([Segment(" " * width, look.style("text"))] if width else [], width)


def fill(strips: Sequence[Strip], width: int, height: int, look: Look) -> list[Strip]:
    """Exactly `height` lines: cut at the end or filled with empty ones."""
    missing = height - len(strips)
    return [*strips[:height], *(blank(width, look) for _ in range(missing))]


def cut_lines(strips: Sequence[Strip], width: int, height: int, look: Look) -> list[Strip]:
    """As many as there is room for; the last one says where there are more."""
    if len(strips) <= height:
        return list(strips)
    more = look.glyphs.ellipsis
    last = strips[height - 1].crop(0, max(0, width - width_of(more)))
    return [*strips[: height - 1], Strip.join([last, line([(more, "dim")], width_of(more), look)])]


def spark(values: Sequence[float | None], width: int, look: Look, low: float = 0.0, high: float | None = None) -> str:
    """A graph one line high, newest value at the right end, `width` cells.

    None is a gap and shows as a space; the lowest value shows as the lowest block. Where there are more values
    than cells each cell shows the largest of its own, so that spikes stay. `high` None takes the largest value as
    the top of the scale.
    """
    cells = _buckets(values, width)
    known = [value for value in cells if value is not None]
    top = high if high is not None else max(known, default=low)
    span = top - low
    levels = look.glyphs.spark
    steps = len(levels) - 1

    def level(value: float | None) -> str:
        if value is None:
            return " "
        share = (value - low) / span if span > 0 else 0.0
        return levels[max(0, min(steps, round(share * steps)))]

    return "".join(level(value) for value in cells).rjust(width)


def _buckets(values: Sequence[float | None], width: int) -> list[float | None]:
    clean = [None if value is None or math.isnan(value) else value for value in values]
    if len(clean) <= width or width <= 0:
        return clean[: max(0, width)]
    count = len(clean)
    edges = [i * count // width for i in range(width + 1)]
    return [
        max((value for value in clean[start:stop] if value is not None), default=None)
        for start, stop in pairwise(edges)
    ]


def bar(fraction: float, width: int, look: Look) -> str:
    """A bar of `fraction` (0 to 1) of `width` cells, padded with spaces; more than nothing always shows."""
    eighths = look.glyphs.eighths
    parts = len(eighths)
    full = max(0.0, min(1.0, fraction)) * width * parts
    units = max(1, round(full)) if full > 0 else 0
    whole, rest = divmod(units, parts)
    return (eighths[-1] * whole + (eighths[rest - 1] if rest else "")).ljust(width)


def stacked_bar(shares: Sequence[tuple[float, str]], width: int, look: Look, fills: Sequence[str] = ()) -> list[Part]:
    """Shares (fraction, role) side by side in `width` cells; what they leave open stays empty.

    Without `fills`, one for each share, neighbours differ in fill as well as in role. Cells go to the largest
    remainders, so that the whole has the right length.
    """
    exact = [max(0.0, share) * width for share, _ in shares]
    scale = min(1.0, width / total) if (total := sum(exact)) > 0 else 0.0
    exact = [size * scale for size in exact]
    cells = [int(size) for size in exact]
    spare = min(width, round(sum(exact))) - sum(cells)
    by_remainder = sorted(range(len(exact)), key=lambda i: cells[i] - exact[i])
    for i in by_remainder[: max(0, spare)]:
        cells[i] += 1
    fills = fills or look.glyphs.fills
    parts = [(fills[i % len(fills)] * size, shares[i][1]) for i, size in enumerate(cells) if size]
    empty = width - sum(cells)
    return [*parts, (" " * empty, "text")] if empty > 0 else parts


def columns(pairs: Sequence[tuple[str, Sequence[Part]]], width: int, look: Look, *, across: int = 1) -> list[Strip]:
    """Keys and values in two aligned columns; `across` pairs stand side by side on one line."""
    across = max(1, across)
    cell = max(1, (width - 2 * (across - 1)) // across)
    key_width = min(max((width_of(key) for key, _ in pairs), default=0), max(1, cell // 2))
    strips = []
    for start in range(0, len(pairs), across):
        cells = [_pair(key, value, key_width, cell, look) for key, value in pairs[start : start + across]]
        gap = Strip([Segment("  ", look.style("text"))], 2)
        joined = [part for strip in cells for part in (strip, gap)][:-1]
        strips.append(Strip.join(joined).adjust_cell_length(width, look.style("text")))
    return strips


def _pair(key: str, value: Sequence[Part], key_width: int, width: int, look: Look) -> Strip:
    return line([(pad(key, key_width, look) + "  ", "dim"), *value], width, look)


def wrap(text: str, width: int, look: Look) -> list[str]:
    """A text as lines of at most `width` cells, broken at spaces.

    A word that is wider is broken after what parts its names; so is one of code that would leave half a line empty.

    >>> wrap("void cutlass::Kernel<Tile<64, 64>>", 24, Look())
    ['void cutlass::Kernel<', 'Tile<64, 64>>']
    """
    return list(_wrapped(text, max(1, width), look))


def _wrapped(text: str, width: int, look: Look) -> Iterator[str]:
    current = ""
    for word in text.split():
        gap, used = " " if current else "", width_of(current)
        is_of_code = used < width / 2 and _CODE.search(word)
        is_whole = width_of(word) <= (width - used - len(gap) if is_of_code else width)
        for piece in [word] if is_whole else _NAMES.findall(word):
            joined, gap = current + gap + piece, ""
            if width_of(joined) <= width:
                current = joined
                continue
            if current:
                yield current
            *whole, current = chopped(piece, width)
            yield from whole
    if current:
        yield current


def chopped(text: str, width: int) -> Iterator[str]:
    """A text in pieces of at most `width` cells, with all its blanks; of an empty one a piece too."""
    while width_of(text) > width:
        head = _head(text, width) or text[:1]
        yield head
        text = text[len(head) :]
    yield text


def wrap_parts(parts: Sequence[Part], width: int) -> list[list[Part]]:
    """One line as lines of at most `width` cells, the later ones indented.

    It is broken before parts that begin with a space, as labels do: a value stays with its unit. What is wider than a
    line by itself is broken at any space.
    """
    rows: list[list[Part]] = [[]]
    room = width
    for piece in _pieces(parts, width):
        size = sum(width_of(text) for text, _ in piece)
        if size > room and rows[-1]:
            rows.append([(" " * _INDENT, "text")])
            room = width - _INDENT
            (first, role), *others = piece
            piece = [(first.lstrip(), role), *others]
        rows[-1] += piece
        room -= size
    return rows


def in_room(lines: Sequence[Sequence[Part]], width: int, room: int) -> Iterator[Sequence[Part]]:
    """These lines, the first of them that are too wide wrapped as far as `room` lines are enough for all."""
    spare = room - len(lines)
    for parts in lines:
        rows = wrap_parts(parts, width)
        if len(rows) - 1 <= spare:
            spare -= len(rows) - 1
            yield from rows
        else:
            yield parts


def _pieces(parts: Sequence[Part], width: int) -> Iterator[list[Part]]:
    """What is not to be broken: labels with their values, words of what is wider than a line."""
    fields: list[list[Part]] = []
    for part in parts:
        if fields and not part[0].startswith(" "):
            fields[-1].append(part)
        else:
            fields.append([part])
    for own in fields:
        if sum(width_of(text) for text, _ in own) <= width:
            yield own
        else:
            yield from ([(word, role)] for text, role in own for word in _WORD.findall(text))


def prose(text: str, width: int, look: Look, role: str = "text") -> list[Strip]:
    """A text as wrapped lines of one role."""
    return [line([(row, role)], width, look) for row in wrap(text, width, look)]


def explain(why: Unknown, width: int, height: int, look: Look) -> list[Strip]:
    """Why there is nothing to show and what would change that, centred in the space there is."""
    inner = max(1, min(width - 2, 76))
    rows = [(row, "text") for row in wrap(why.reason, inner, look)]
    rows += [(row, "accent") for row in wrap(why.remedy, inner, look)]
    top = max(0, (height - len(rows)) // 2)
    strips = [blank(width, look)] * top
    for row, role in rows:
        strips.append(line([(" " * max(0, (width - width_of(row)) // 2), "text"), (row, role)], width, look))
    return fill(strips, width, height, look)


def fact_lines(key: str, value: Fact, key_width: int, width: int, look: Look) -> list[Strip]:
    """The key and the value, each wrapped in its column."""
    role = "dim" if isinstance(value, Unknown) else "text"
    names, said = wrap(key, key_width, look), wrap(str(value), max(8, width - key_width - 2), look) or [""]
    pairs = zip_longest(names, said, fillvalue="")
    return columns([(pad(name, key_width, look), [(row, role)]) for name, row in pairs], width, look)
