"""The event log: what happened, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual.binding import Binding, BindingType

from llmtop.analysis.pages.events import NOTHING_HAPPENED, Event, events, events_table
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.view import MomentWanted

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import TableView
    from llmtop.model import Trace, Unknown
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

Key: TypeAlias = "tuple[int, str, str]"
"""Of an event: the moment, where and what."""


class EventsPane(ListPane["tuple[Event, ...]"]):
    """XIDs, GPUs lost and back, clock limits, processes and servers that come and go; Enter goes to the moment.

    Whatever moment the screen shows, the log goes on to now.
    """

    title = "Events"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "go there", tooltip="Go to the moment of the event"),
    ]

    def view(self, trace: Trace) -> tuple[Event, ...] | Unknown:
        return events(trace) or NOTHING_HAPPENED

    def rows(self, view: tuple[Event, ...], trace: Trace) -> RowTable:
        return events_table(view, trace.end_ns)

    def described(self, rows: TableView, row: int) -> str:
        """The same, as far as a line has room for it."""
        *_, where, what, meaning, action = rows.cells(row)
        head = f"{where}: {what}"
        return ". ".join(str(part) for part in (f"{head}: {meaning}" if meaning else head, action) if part)

    def details(self, view: tuple[Event, ...], trace: Trace, key: Key, width: int, look: Look) -> Paragraphs:
        """Meaning and action in full: columns cut them."""
        event = next(one for one in view if one.key == key)
        said = ((f"{event.where}: {event.what}", "title"), (event.meaning, "text"), (event.action, "accent"))
        return tuple(one for one in said if one[0])

    def opened(self, view: tuple[Event, ...], trace: Trace, key: Key) -> MomentWanted:
        return MomentWanted(key[0])

    def go_to(self, t_ns: int) -> None:
        """Put the cursor on the event that is nearest to a moment."""
        rows = self.table.rows
        if rows is not None and len(rows):
            self.table.move_to(min(range(len(rows)), key=lambda i: abs(_moment(rows, i) - t_ns)))


def _moment(rows: TableView, row: int) -> int:
    """When the event of a row was."""
    t_ns: int = rows.key(row)[0]  # type: ignore[index]  # as Key has it
    return t_ns
