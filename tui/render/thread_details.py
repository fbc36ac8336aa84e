"""All that is known of a thread, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, pad, spark, width_of, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.threads.details import Detail, ThreadDetails
    from llmtop.tui.render.look import Look

_LABEL = 24
_GRAPH = 30
_LEAST_TEXT = 20


def draw_details(details: ThreadDetails, width: int, look: Look) -> list[list[Part]]:
    """Parts with their titles; long texts go on in the next line, below their beginning."""
    lines: list[list[Part]] = []
    for title, rows in details.parts:
        lines.append([(title, "title")])
        for row in rows:
            lines += _lines(row, width, look)
        lines.append([("", "text")])
    return lines[:-1]


def _lines(row: Detail, width: int, look: Look) -> Iterator[list[Part]]:
    role = "dim" if isinstance(row.text, Unknown) else "text"
    graph = spark(row.history[-_GRAPH:], _GRAPH, look, high=row.high) if row.history else ""
    room = max(_LEAST_TEXT, width - _LABEL - 2 - width_of(graph))
    label = f"  {pad(row.label, _LABEL - 2, look)} " if row.label else "  "
    for i, text in enumerate(wrap(str(row.text), room, look) or [""]):
        head = label if i == 0 else " " * width_of(label)
        yield [(head, "dim"), (text, role), *([(f"  {graph}", "series1")] if graph and i == 0 else [])]
