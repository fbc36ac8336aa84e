"""A table of any number of rows, made when they are seen; with a filter and a line that explains the cursor's row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from llmtop.model import Unknown
from llmtop.tui.aside import Analysed, analyse_on_thread
from llmtop.tui.contents import Contents
from llmtop.tui.faults import FaultBorder, fault_text
from llmtop.tui.panes.base import ROW_KEYS, DiffedWidget, look_of
from llmtop.tui.panes.row_cells import Beside, RowCells
from llmtop.tui.panes.row_order import OrderedRows, RowOrder
from llmtop.tui.render.lines import blank, cut, explain, fill, line, prose
from llmtop.tui.render.table import Sort, header, row, unknowns
from llmtop.tui.textual_private import title_of

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from llmtop.analysis.views import Cell, TableView

_FILTER_KEY: Final = "slash"
SORT_KEYS: Final = (
    Binding("less_than_sign", "sort(-1)", "sort", key_display="< >", tooltip="Sort by the column left or right"),
    Binding(
        "greater_than_sign",
        "sort(1)",
        "sort",
        key_display=">",
        show=False,
        tooltip="Sort by the column left or right",
    ),
    Binding("R", "reverse", "reverse", show=False, tooltip="Reverse the order"),
)
"""Of whatever is sorted by its columns."""
_NOTHING = Unknown("nothing has been read yet")
_NO_MATCH = Unknown("no row matches the filter", "Esc clears it")


class VirtualTable(ScrollView, DiffedWidget, can_focus=True, inherit_bindings=False):
    """Shows a `TableView`: only the rows on the screen are ever made.

    The cursor stays on its row when new rows come; sorting by hand goes to the top. Space is given up column by column,
    by their `shrink`; what is left out is in the details of a row. An order that much must be worked out for is made
    on a thread: until it is there, the rows stay as they are and keys are answered.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *ROW_KEYS,
        *SORT_KEYS,
    ]

    class Moved(Message):
        """The cursor is on another row, or its row has new cells."""

        def __init__(self, table: VirtualTable) -> None:
            super().__init__()
            # Whoever made it move (the filter of the pane around it): a message stops at the one that sent it, and
            # those further out show what is under the cursor too.
            self.set_sender(table)
            self.table = table

        @property
        def control(self) -> VirtualTable:
            """The table, for `on` selectors."""
            return self.table

    class Chosen(Moved):
        """Enter or a double click on a row."""

    def __init__(self, *, id: str | None = None, sort: Sort | None = None, beside: Beside | None = None) -> None:
        super().__init__(id=id)
        self.order = OrderedRows(sort)
        self._cells = RowCells(beside)
        self._why_empty = _NOTHING
        self._failure = ""

    # -- what is shown -----------------------------------------------------------------------------------------

    def show_table(self, table: TableView, why_empty: Unknown = _NOTHING) -> None:
        """Take new rows, in the sort order and filter that are set; `why_empty` explains a table without any."""
        self._why_empty = why_empty
        self._arrange(table)

    @property
    def rows(self) -> TableView | None:
        """The rows in the order in which they are shown."""
        return self.order.rows

    @property
    def cursor(self) -> int:
        """The index of the row that the cursor is on."""
        return self.order.cursor

    @property
    def why_empty(self) -> Unknown:
        """Why no row is shown, where none is."""
        refused = None if self.order.rows is None else self.order.rows.why_none()
        if refused is not None:
            return refused
        return _NO_MATCH if self.order.filter_text and self.order.total else self._why_empty

    def filter(self, text: str) -> None:
        """Show only rows that contain a text."""
        self.order.filter_text = text
        self._arrange(self.order.newest)

    def _arrange(self, source: TableView | None) -> None:
        """Sort and filter again, and keep the cursor on its row."""
        self._failure = ""
        if source is None:
            return
        with self.border():
            self._make_aside(self.order.show(source))
            self._show_rows()

    def _make_aside(self, order: RowOrder | None) -> None:
        if order is not None:
            analyse_on_thread(self, order, RowOrder.made)

    def on_analysed(self, message: Analysed) -> None:
        """Take the rows in their order, unless another one is wanted by now; then go on with what came meanwhile."""
        order, following = self.order.finish(message.of)
        self._make_aside(following)
        if order is None:
            return
        if isinstance(message.result, Exception):
            self.fail(message.result)
            return
        with self.border():
            self._failure = ""
            self.order.take(order, *message.result)
            self._show_rows()

    def _show_rows(self) -> None:
        """Draw rows that may be others than before, or in another order."""
        self._cells.forget()
        self._resize_rows()
        self.move_to(self.cursor)

    def _resize_rows(self) -> None:
        self.virtual_size = Size(self.size.width, 1 + len(self.order))

    # -- moving ------------------------------------------------------------------------------------------------

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 1)

    def move_to(self, index: int) -> None:
        """Put the cursor on a row and bring it into view."""
        self.order.move_to(index)
        top = round(self.scroll_y)
        wanted = min(max(top, self.cursor - self._page + 1), self.cursor)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, immediate=True)
        self._paint()
        self.post_message(self.Moved(self))

    def action_move(self, step: int) -> None:
        """Move the cursor by rows."""
        self.move_to(self.cursor + step)

    def action_page(self, step: int) -> None:
        """Move the cursor by pages."""
        self.move_to(self.cursor + step * self._page)

    def action_edge(self, side: int) -> None:
        """Move the cursor to the first or the last row."""
        self.move_to(0 if side < 0 else len(self.order) - 1)

    def choose(self) -> None:
        """Ask for the row's details; say why there is no row."""
        if len(self.order):
            self.post_message(self.Chosen(self))
        else:
            self.notify(str(self.why_empty), severity="warning", markup=False)

    # -- sorting -----------------------------------------------------------------------------------------------

    def action_sort(self, step: int) -> None:
        """Sort by the next shown column on the left or right."""
        columns = [one.column for one in self._cells.placed]
        if columns:
            sort = self.order.sort
            self._sort_anew(Sort.by(columns[0]) if sort is None else sort.beside(columns, step))

    def sort_by(self, key: str) -> None:
        """Sort by a column, numbers from the largest; by the same column again, the other way round."""
        if self.order.sort is not None and self.order.sort.column == key:
            self.action_reverse()
            return
        column = next((one.column for one in self._cells.placed if one.column.key == key), None)
        if column is not None:
            self._sort_anew(Sort.by(column))

    def action_reverse(self) -> None:
        """Turn the order round."""
        if self.order.sort is not None:
            self._sort_anew(self.order.sort.reversed)

    def _sort_anew(self, sort: Sort) -> None:
        self.order.sort = sort
        self._arrange(self.order.newest)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            column = self._cells.column_at(offset.x)
            if column is not None:
                self.sort_by(column.key)
        elif (index := round(self.scroll_y) + offset.y - 1) < len(self.order):
            self.move_to(index)
            if event.chain == 2:
                self.choose()

    # -- drawing -----------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._resize_rows()
        self.move_to(self.cursor)

    def on_show(self) -> None:
        self._paint()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw after scrolling; the base class would send all cells again."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(new_value):
            self._paint()

    def redraw(self) -> None:
        self._paint()

    def show_fault(self, said: str) -> None:
        """Say so until other rows come, or these in another order."""
        self._failure = said
        self._paint()

    def _paint(self) -> None:
        width, height = self.size
        if width > 1 and height:
            # The last cell is the scrollbar's, whether there is one or not: columns must not jump with it.
            blank_cell = blank(1, look_of(self))
            with self.border():
                self.send_frame([Strip.join([strip, blank_cell]) for strip in self._frame(width - 1, height)])

    def _frame(self, width: int, height: int) -> list[Strip]:
        look = look_of(self)
        if self._failure:
            return fill(prose(self._failure, width, look, "bad"), width, height, look)
        if self.rows is None or not len(self.rows):
            return explain(self.why_empty, width, height, look)
        rows = self._cells.place(self.rows, width)
        top = round(self.scroll_y)
        shown = range(top, min(len(rows), top + height - 1))
        if not self._cells.make(shown, partial(self._cells_of, rows)) and self.is_on_screen:
            self.call_after_refresh(self._paint)
        placed = self._cells.placed
        coming = [look.glyphs.ellipsis] + [None] * (len(rows.columns) - 1)
        body = [row(placed, self._cells[i] or coming, width, look, is_cursor=i == self.cursor) for i in shown]
        return fill([header(placed, self.order.shown_sort, width, look), *body], width, height, look)

    def _cells_of(self, rows: TableView, i: int) -> Sequence[Cell]:
        """The cells of a row; a fault in one costs that row, which says so in its first column."""
        try:
            return rows.cells(i)
        except Exception as error:  # the border
            self.count_fault(error, "row")
            return [fault_text(error, "row"), *[None] * (len(rows.columns) - 1)]


class StatusLine(DiffedWidget):
    """One line under a table: what the cursor's row is, or why cells of it are empty."""

    DEFAULT_CSS = "StatusLine { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._text, self._role = "", "dim"

    def say(self, text: str, role: str = "dim") -> None:
        """Show a text in place of the last one."""
        self._text, self._role = text, role
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def show_fault(self, said: str) -> None:
        self.say(said, "bad")

    def redraw(self) -> None:
        width, look = self.size.width, look_of(self)
        if width:
            shown = cut(self._text, width, look)
            self.send_frame([line([(shown, self._role)], width, look) if shown else blank(width, look)])


class TablePane(Vertical, FaultBorder):
    """A `VirtualTable` with its status line and its filter (`/`).

    Args:
        title: What stands in the border.
        describe: What the status line says of a row whose cells are all known: the full name, say.
        sum_up: What stands in the lower border: of all rows together, or of those that a filter leaves.
        beside: See `Beside`.
    """

    DEFAULT_CSS = """
    TablePane Input { display: none; border: none; height: 1; padding: 0; }
    TablePane.-filtering Input { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(_FILTER_KEY, "filter", "filter", key_display="/", tooltip="Filter the rows"),
        Binding("escape", "clear_filter", "clear", show=False, tooltip="Clear the filter"),
    ]

    def __init__(
        self,
        title: str,
        *,
        describe: Callable[[TableView, int], str] | None = None,
        sum_up: Callable[[TableView], str] | None = None,
        sort: Sort | None = None,
        beside: Beside | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.table = VirtualTable(sort=sort, beside=beside)
        self.title = title
        self._describe = describe
        self._sum_up = sum_up
        self._status = StatusLine()
        self._input = Input(placeholder="filter: Enter keeps it, Esc clears it", compact=True, select_on_focus=False)

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._status
        yield self._input

    def on_mount(self) -> None:
        self.table.border_title = Content(self.heading)

    @property
    def heading(self) -> str:
        """What stands in the border."""
        return self.title

    def show_fault(self, said: str) -> None:
        self.table.show_fault(said)

    def show_table(self, table: TableView, why_empty: Unknown = _NOTHING) -> None:
        """Take new rows; see `VirtualTable.show_table`."""
        self.table.show_table(table, why_empty)

    def contents(self) -> Contents | Unknown:
        """The rows as they are shown, and which of them is under the cursor."""
        rows = self.table.rows
        if rows is None or not len(rows):
            return self.table.why_empty
        title = title_of(self.table)
        return Contents(title.plain if title else self.title, table=rows, at=self.table.cursor)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc clears a filter only where there is one; else it is the screen's."""
        if action == "clear_filter":
            return bool(self.table.order.filter_text) or self.has_class("-filtering")
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Open the filter."""
        self.add_class("-filtering")
        self.screen.set_focus(self._input)  # at once: what is typed next is the filter, in place of the last one
        self._input.action_select_all()

    def action_clear_filter(self) -> None:
        """Show all rows again."""
        self.drop_filter()
        self.table.focus()

    def drop_filter(self) -> None:
        """Have none."""
        self._input.value = ""
        self.table.filter("")
        self.remove_class("-filtering")

    async def on_key(self, event: events.Key) -> None:
        """The key that opens the filter is taken here, and those typed behind it that the table has got by then."""
        is_open = self.screen.focused is self._input  # which knows of that only with a message
        if event.key == _FILTER_KEY and not is_open and self.check_action("filter", ()):
            self.action_filter()
        elif not is_open:
            return
        elif event.key == "enter":
            await self._input.action_submit()
        elif event.is_printable and event.character:
            self._input.replace(event.character, *self._input.selection)
        elif event.key == "backspace":
            self._input.action_delete_left()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.table.filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_class(bool(event.value), "-filtering")
        self.table.focus()

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        with self._status.border():
            self._explain(self.table.rows)

    def _explain(self, rows: TableView | None) -> None:
        if rows is not None and self._sum_up is not None:
            said = self._sum_up(rows)
            if said != (self.table.border_subtitle or ""):  # setting it draws the whole table again
                self.table.border_subtitle = Content(said)
        if rows is None or not len(rows):
            self._status.say("")
            return
        look = look_of(self)
        why = unknowns(rows.cells(self.table.cursor), rows.columns, look)
        said = self._describe(rows, self.table.cursor) if self._describe else ""
        count = f"{self.table.cursor + 1}/{len(rows)}" + ("" if len(rows) == self.table.order.total else " filtered")
        sorting = "sorting" if self.table.order.is_sorting else ""
        parts = [part for part in (sorting, count, why if why and not said else said, why if said else "") if part]
        self._status.say(f"  {look.glyphs.separator}  ".join(parts))
