"""The event log: what happened, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.message import Message

from llmtop.analysis.pages.events import NOTHING_HAPPENED, events, events_table
from llmtop.tui.panes.table import TablePane, VirtualTable

if TYPE_CHECKING:
    from llmtop.analysis.views import TableView
    from llmtop.model import Trace


class EventsPane(TablePane):
    """XIDs, GPUs lost and back, clock limits, processes and servers that come and go; Enter goes to the moment."""

    class Wanted(Message):
        """Show the moment of an event."""

        def __init__(self, t_ns: int) -> None:
            super().__init__()
            self.t_ns = t_ns

    def __init__(self) -> None:
        super().__init__("Events", describe=_describe, id="events")

    def show(self, trace: Trace) -> None:
        """Take the newest trace: whatever moment the screen shows, the log goes on to now."""
        if self.display:
            self.show_table(events_table(events(trace), trace.end_ns), NOTHING_HAPPENED)
            self.table.border_title = Content("Events  Enter: go to the moment")

    def go_to(self, t_ns: int) -> None:
        """Put the cursor on the event that is nearest to a moment."""
        rows = self.table.rows
        if rows is not None and len(rows):
            self.table.move_to(min(range(len(rows)), key=lambda i: abs(_moment(rows, i) - t_ns)))

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        event.stop()
        rows = self.table.rows
        if rows is not None and len(rows):
            self.post_message(self.Wanted(_moment(rows, self.table.cursor)))


def _moment(rows: TableView, row: int) -> int:
    """When the event of a row was."""
    t_ns: int = rows.key(row)[0]  # type: ignore[index]  # keys of events_table
    return t_ns


def _describe(rows: TableView, row: int) -> str:
    """Meaning and action in full: columns cut them."""
    *_, where, what, meaning, action = rows.cells(row)
    head = f"{where}: {what}"
    return ". ".join(str(part) for part in (f"{head}: {meaning}" if meaning else head, action) if part)
