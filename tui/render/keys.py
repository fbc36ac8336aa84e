"""Keys and what they do, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.tui.render.lines import Part, line, pad, width_of, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_GAP = 2
_WIDEST = 60
"""Cells of the texts; longer ones go on in the next line."""


def draw_keys(parts: Sequence[tuple[str, Sequence[tuple[str, str]]]], width: int, look: Look) -> list[Strip]:
    """Parts with their titles (the first may have none): keys at the right of their column, texts beside them."""
    longest = max((width_of(keys) for _, pairs in parts for keys, _ in pairs), default=0)
    room = max(1, min(_WIDEST, width - longest - _GAP))
    lines: list[list[Part]] = []
    for title, pairs in parts:
        if title:
            lines += [[], [(" " * (longest + _GAP), "text"), (title, "title")]]
        for keys, what in pairs:
            for i, text in enumerate(wrap(what, room, look)):
                head = pad(keys if i == 0 else "", longest, look, right=True)
                lines.append([(head, "accent"), (" " * _GAP, "text"), (text, "text")])
    return [line(one or [("", "text")], width, look) for one in lines]
