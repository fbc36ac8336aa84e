"""Keys and what they do, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.tui.render.lines import Part, line, pad, width_of, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_GAP = 2
_WIDEST = 60
"""Cells of the texts; longer ones go on in the next line."""


def draw_keys(parts: Mapping[str, Sequence[tuple[str, str]]], width: int, look: Look) -> list[Strip]:
    """Parts by their titles (one without a title comes first): keys at the right of their column, texts beside them."""
    longest = max((width_of(keys) for pairs in parts.values() for keys, _ in pairs), default=0)
    room = max(1, min(_WIDEST, width - longest - _GAP))
    lines: list[list[Part]] = []
    for title, pairs in parts.items():
        if title:
            lines += [[], [(" " * (longest + _GAP), "text"), (title, "title")]]
        for keys, what in pairs:
            for i, text in enumerate(wrap(what, room, look)):
                head = pad(keys if i == 0 else "", longest, look, right=True)
                lines.append([(head, "accent"), (" " * _GAP, "text"), (text, "text")])
    return [line(one or [("", "text")], width, look) for one in lines]
