"""The spans of one line of a timeline as a table, to copy and to write; each row is made when it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from llmtop.analysis.tables import RowTable
from llmtop.analysis.timeline.rows import kind_title
from llmtop.analysis.timeline.span_rows import recorded_text
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.timeline.levels import SpanLine
    from llmtop.analysis.timeline.spans import TraceTimeline

COLUMNS = (
    Column("kind", "kind"),
    Column("name", "name"),
    Column("start", "start", "ns", help="since the capture began"),
    Column("duration", "duration", "ns"),
    Column("bytes", "bytes", "bytes"),
    Column("correlation", "correlation", "1"),
    Column("recorded", "recorded", help="category, payload, what is sent to other ranks"),
)


@frozen
class SpansOfLine:
    """Rows of a line by their number there; an implementation of `views.TableView`."""

    timeline: TraceTimeline
    line: SpanLine
    rows: Sequence[int]

    @classmethod
    def within(cls, timeline: TraceTimeline, line: SpanLine, start: int, end: int) -> SpansOfLine:
        """Those that touch [start, end)."""
        last = bisect_left(line.starts, end)
        if not line.overlaps:
            return cls(timeline, line, range(bisect_left(line.ends, start + 1), last))
        return cls(timeline, line, [row for row in range(last) if line.ends[row] > start])

    @property
    def columns(self) -> tuple[Column, ...]:
        return COLUMNS

    def __len__(self) -> int:
        return len(self.rows)

    def row_of(self, code: int) -> int | None:
        """Where a span stands; None where it is not among them."""
        place = self.line.place_of(code, self.timeline.times(code)[0])
        at = len(self) if place is None else bisect_left(self.rows, place)
        return at if at < len(self) and self.rows[at] == place else None

    def cells(self, row: int) -> Sequence[Cell]:
        spans, at = self.timeline.span(self.key(row))
        start, end = spans.start_ns[at], spans.end_ns[at]
        amount, join = spans.amount[at], spans.correlation[at]
        name = spans.names[spans.name_id[at]]
        moved = amount if amount == amount else None
        return (
            kind_title(spans.kind),
            name,
            start - self.timeline.start_ns,
            end - start,
            moved,
            None if join < 0 else join,
            recorded_text([spans.notes[at]]) if at in spans.notes else None,
        )

    def key(self, row: int) -> int:
        """The span's code."""
        return self.line.codes[self.rows[row]]

    def sorted_by(self, column: str, *, descending: bool) -> RowTable:
        return self._held.sorted_by(column, descending=descending)

    def sorts_at_once(self, column: str) -> bool:
        return False

    def filters_at_once(self, text: str) -> bool:
        return False

    def filtered(self, text: str) -> RowTable:
        return self._held.filtered(text)

    def why_none(self) -> None:
        return None

    @property
    def _held(self) -> RowTable:
        rows = range(len(self))
        return RowTable(COLUMNS, tuple(map(self.cells, rows)), tuple(map(self.key, rows)))
