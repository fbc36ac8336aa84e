"""What the explorer's panes share: views made off the screen's thread, pages of lines, a table with details."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

from textual.binding import Binding, BindingType
from textual.message import Message

from llmtop.analysis.tables import RowTable, fitted
from llmtop.model import Unknown
from llmtop.tui.aside import ANALYSING, Analysed, analyse_on_thread
from llmtop.tui.contents import Contents
from llmtop.tui.faults import FaultBorder
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.lines import TextPane, paragraphs_of
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.panes.view import NO_ROWS, RECORDED, StretchWanted, V, View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from textual.app import ComposeResult
    from textual.widget import Widget

    from llmtop.analysis.views import Column, TableView
    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context, Paragraphs

K = TypeVar("K", bound=Hashable)
IN_TIME: Final = Binding("t", "in_time", "timeline", tooltip="Its place in the timeline")
"""Of rows that know when they are (`View.when`)."""
NO_ROWS_YET: Final = RowTable((), (), ())
_ASKED = 40
"""Rows whose details are asked for how long they are."""
_BORDER = 2
_TABLE_LINES = _BORDER + 2
"""What a table has besides its rows: its header, and the line below."""
_RARELY = 20
"""Rows are made anew so many times more rarely than they take: thousands that are sorted by what each must be worked
out for cost a part of a second."""
_MOST_DETAILS = 12
"""Lines that details take from a table that could use them."""


class KernelWanted(Message):
    """Show the details of one launch."""

    def __init__(self, launch: int) -> None:
        super().__init__()
        self.launch = launch


class ListPane(TablePane, View[V], Generic[V]):
    """Rows over the details of the one under the cursor: of this view, or of another one that opens into them.

    A subclass gives `view`, which may be slow where no other trace follows, and `rows`.
    """

    DEFAULT_CSS = """
    ListPane TextPane { max-height: 12; }  /* until it is known what details need: see _share_room */
    ListPane.-low TextPane, ListPane.-empty TextPane { display: none; }
    ListPane.-open TextPane { display: block; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "details", tooltip="Details of the row"),
        Binding("pageup", "page_details(-1)", "details", show=False, priority=True, tooltip="A page of open details"),
        Binding("pagedown", "page_details(1)", "details", show=False, priority=True, tooltip="A page of open details"),
    ]
    heading = View.heading
    context = RECORDED

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(self.title, id=id, describe=self._described, sum_up=self._summed, beside=self._rows_beside)
        self.of: View[Any] = self
        """Whose rows these are."""
        self.text = TextPane()
        self.text.can_focus = False
        self._trace: Trace | None = None
        self._view: Any = ANALYSING
        self._took_ns = 0
        self._shared_by = 0
        """Rows that the details were given their room beside."""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.text

    def within(self, context: Context) -> Self:
        """Take what is known beside the trace, for the view whose rows these are too."""
        if self.of is not self:
            self.of.context = context
        return super().within(context)

    def open(self, view: View[Any]) -> Self:
        """Have the rows of another view from the next trace on, as they come."""
        if view is not self.of:
            self.of, self._trace, self._took_ns = view, None, 0
            self.table.order.forget_orders()
            self.number, self.title = view.number, view.title
            self.drop_filter()
        return self

    @property
    def wanting_keys(self) -> Widget:
        return self.table

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Pages are the table's, unless the details have been given the room; few files have a timeline."""
        if action == "choose":
            return self.of.opens_rows()
        if action == "page_details":
            return self.has_class("-open")
        if action == "in_time":
            return self._trace is not None and bool(self._trace.spans)
        return super().check_action(action, parameters)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        self.table.choose()

    def action_page_details(self, step: int) -> None:
        """Read on in details that do not fit."""
        self.text.action_page(step)

    def action_in_time(self) -> None:
        """Ask the screen for the row's place in the timeline, or say why it has none."""
        rows = self.table.rows
        if rows is None or not len(rows) or self._trace is None:
            return
        stretch = self.of.when(self._view, self._trace, rows.key(self.table.cursor))
        if isinstance(stretch, Unknown):
            self.notify(str(stretch), markup=False)
        else:
            self.post_message(StretchWanted(stretch))

    def contents(self) -> Contents | Unknown:
        """The rows, and the details of the one under the cursor."""
        rows = super().contents()
        if isinstance(rows, Unknown):
            return rows
        named = None if rows.table is None else partial(self.of.full_name, rows.table)
        return replace(rows, lines=self.text.text_lines(), full_name=named)

    def show(self, trace: Trace) -> None:
        """Take the trace: one that no other follows at once, as such a list is made when it is first seen."""
        if self.context.is_still:
            self._trace, self._view = trace, ANALYSING
            self.show_table(NO_ROWS_YET, ANALYSING)
            analyse_on_thread(self, trace, self._made_of)
        elif self.display and not self._is_new_enough(trace):
            begun_ns = time.thread_time_ns()
            self._trace = trace
            self._take(self._made_of(trace))
            self._took_ns = time.thread_time_ns() - begun_ns

    def _is_new_enough(self, trace: Trace) -> bool:
        """Whether what is shown may stay for this frame."""
        pace_ns = max(self.least_ns, _RARELY * (self._took_ns + self.table.order.took_ns))
        return self._trace is not None and 0 < trace.end_ns - self._trace.end_ns < pace_ns

    def _made_of(self, trace: Trace) -> tuple[Any, TableView | Unknown]:
        """The view and its rows, or why there are none."""
        view = self.of.view_of(trace)
        return view, view if isinstance(view, Unknown) else self.of.rows(view, trace)

    def on_analysed(self, message: Analysed) -> None:
        if isinstance(message.result, Exception):
            self.fail(message.result)
        else:
            self._take(message.result)

    def _take(self, made: tuple[Any, TableView | Unknown]) -> None:
        self._view, rows = made
        was = self.table.order.total
        if isinstance(rows, Unknown):
            self.show_table(NO_ROWS_YET, rows)
        else:
            self.show_table(rows, NO_ROWS if self.of.place is None else self.of.place.no_rows)
        if self.context.is_still or self.table.order.total != was:  # what goes on has details of one length
            self._share_room()

    def on_resize(self) -> None:
        self.set_class(self.size.height < 18, "-low")
        self._share_room()

    def _share_room(self) -> None:
        """Give the details what the longest need: of what the table leaves, or else two fifths; the table the rest.

        The same for every row, as the table must not move with its cursor.
        """
        source, width = self.table.order.source, self.size.width - _BORDER
        self._shared_by = self.table.order.total
        if self.has_class("-open") or source is None or not len(source) or width < 1:
            self._give_details(None)
            return
        with self.text.border():
            keys = [source.key(i) for i in range(min(len(source), _ASKED))]
            needed = max(len(paragraphs_of(self._said(key), width, look_of(self))) for key in keys) + _BORDER
            left = self.size.height - len(source) - _TABLE_LINES
            self._give_details(min(needed, max(left, min(_MOST_DETAILS, self.size.height * 2 // 5))))

    def _give_details(self, lines: int | None) -> None:
        """So many, or what the style sheet says."""
        self.text.styles.height = self.text.styles.max_height = lines

    def _summed(self, rows: TableView) -> str:
        return "" if isinstance(self._view, Unknown) else self.of.summed(self._view, rows)

    def _described(self, rows: TableView, row: int) -> str:
        """Not where the same stands in the details below."""
        has_details = not (self.has_class("-low") or self.has_class("-empty"))
        return "" if has_details else self.of.described(rows, row)

    def _rows_beside(self, rows: TableView, columns: Collection[str]) -> TableView:
        return self.of.rows_beside(rows, columns)

    def _said(self, key: object) -> Paragraphs:
        """What is said of a row."""
        if self._trace is None:
            return ()
        return self.of.details(self._view, self._trace, key, self.size.width - 2 * _BORDER, look_of(self))

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        if event.table.order.total != self._shared_by:  # their order took a while
            self._share_room()
        rows = event.table.rows
        is_empty = rows is None or not len(rows)
        if rows is not None and len(rows):
            with self.text.border():
                said = self._said(rows.key(event.table.cursor))
                self.text.show_text(said)
                is_empty = not said
        self.set_class(is_empty, "-empty")

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        """Open the row, or give its details more room, or take that back; a fault in that leaves the rows."""
        with self.screen.border() if isinstance(self.screen, FaultBorder) else self.border():
            self._open_row(event.table)

    def _open_row(self, table: VirtualTable) -> None:
        if table.rows is None or self._trace is None:
            return
        opened = self.of.opened(self._view, self._trace, table.rows.key(table.cursor))
        if isinstance(opened, Unknown):
            self.notify(str(opened), markup=False)
        elif isinstance(opened, Message):
            self.post_message(opened)
        elif opened is not None:
            self.app.push_screen(opened)
        elif not self.has_class("-empty"):
            self.toggle_class("-open")
            self._share_room()


def table_of(columns: tuple[Column, ...], rows: Mapping[K, tuple[Any, ...]]) -> RowTable:
    """A table of rows by key; columns of text are no wider than their longest one."""
    narrowed, widest = fitted(columns, tuple(rows.values()))
    return RowTable(narrowed, tuple(rows.values()), tuple(rows), widest)
