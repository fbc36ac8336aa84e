"""What perf stat has counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.threads.event_counts import NO_COUNTS, TITLE, CountRow, EventCounts, counts_table, event_counts
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import ListPane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


class CountsPane(ListPane[EventCounts]):
    """A row for each event and what it was counted of; below it why one has no count, and how exact one is."""

    number = 1
    title = TITLE
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.counts else NO_COUNTS

    def view(self, trace: Trace) -> EventCounts | Unknown:
        return event_counts(trace)

    def rows(self, view: EventCounts, trace: Trace) -> RowTable:
        return counts_table(view)

    def details(self, view: EventCounts, trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return tuple(_details(view.rows[key]))


def _details(row: CountRow) -> Iterator[tuple[str, str]]:
    one = row.counted
    yield f"{one.event}, of {row.of}", "title"
    if isinstance(one.count, Unknown):
        yield str(one.count), "text"
        return
    if row.meaning:
        yield row.meaning, "text"
    if one.counted_share is not None and one.counted_share < 1:
        yield "an estimate: the event had a counter for a part of the time, and perf scales what it counted then", "dim"


VIEW: Final = CountsPane
