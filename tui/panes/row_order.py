"""The rows of a table in the order that is wanted, and the one that the cursor is on: nothing here knows a screen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.analysis.views import TableView
    from llmtop.tui.render.table import Sort


@dataclass(frozen=True, slots=True, eq=False)
class RowOrder:
    """Rows, and which of them are shown in what order."""

    source: TableView
    filter_text: str = ""
    sort: Sort | None = None

    @property
    def is_quick(self) -> bool:
        """Whether keys can wait for it."""
        is_found = not self.filter_text or self.source.filters_at_once(self.filter_text)
        return is_found and (self.sort is None or self.source.sorts_at_once(self.sort.column))

    def made(self) -> tuple[TableView, int]:
        """The rows in their order, and the CPU time that it took, in ns."""
        begun_ns = time.thread_time_ns()
        rows = self.source.filtered(self.filter_text) if self.filter_text else self.source
        if self.sort is not None and any(column.key == self.sort.column for column in rows.columns):
            rows = rows.sorted_by(self.sort.column, descending=self.sort.descending)
        return rows, time.thread_time_ns() - begun_ns

    def is_as(self, other: RowOrder) -> bool:
        """Whether the same is wanted, of whichever rows."""
        return (self.filter_text, self.sort) == (other.filter_text, other.sort)


class OrderedRows:
    """Rows sorted and filtered as is wanted, and a cursor that stays on its row when other rows come.

    An order that much must be worked out for is not made here: whoever shows the rows has it made elsewhere, one at a
    time, and until it is there the rows stay as they are.

    Attributes:
        sort: What the rows are to be sorted by.
        filter_text: What the rows that are shown are to contain.
        source: All rows, in the order in which they came.
        rows: The rows in the order in which they are shown.
        shown_sort: What these are sorted by.
        cursor: The index of one of them.
        took_ns: CPU time of the last order that was made elsewhere.
    """

    def __init__(self, sort: Sort | None = None) -> None:
        self.sort = self.shown_sort = sort
        self.filter_text = ""
        self.source: TableView | None = None
        self.rows: TableView | None = None
        self.cursor = 0
        self.took_ns = 0
        self._wanted: RowOrder | None = None
        """What is to be shown as soon as it is made."""
        self._under_way: RowOrder | None = None

    def __len__(self) -> int:
        return len(self.rows) if self.rows is not None else 0

    @property
    def total(self) -> int:
        """Rows without the filter."""
        return len(self.source) if self.source is not None else 0

    @property
    def newest(self) -> TableView | None:
        """All rows, also where their order is still being made."""
        return self.source if self._wanted is None else self._wanted.source

    @property
    def is_sorting(self) -> bool:
        """Whether another order is being made than that of the rows that are shown."""
        return self._wanted is not None and self._wanted.sort != self.shown_sort

    def show(self, source: TableView) -> RowOrder | None:
        """Take rows, in the sort order and with the filter that are set.

        Returns:
            The order that is to be made elsewhere now, for `finish`; None where the rows are there, or another order is
            under way.
        """
        order = RowOrder(source, self.filter_text, self.sort)
        self._wanted = None
        if order.is_quick:
            self._take(order, order.made()[0])
            return None
        self._wanted = order
        if self.source is None:  # of what is to be said of the rows none waits for their order
            self._take(RowOrder(source), source)
        if self._under_way is not None:
            return None
        self._under_way = order
        return order

    def finish(self, order: object) -> tuple[RowOrder | None, RowOrder | None]:
        """Note that an order has been made elsewhere, whichever way that ended.

        Returns:
            The order, if it is wanted still; and the one that is to be made next.
        """
        made, wanted = self._under_way, self._wanted
        if made is None or order is not made:
            return None, None
        self._under_way = None
        if wanted is None:
            return None, None
        if wanted is made:
            self._wanted = None
        else:
            self._under_way = wanted
        return made if made.is_as(wanted) else None, self._under_way

    def take(self, order: RowOrder, rows: TableView, took_ns: int) -> None:
        """Show the rows of an order that `finish` has found to be wanted."""
        self.took_ns = took_ns
        self._take(order, rows)

    def forget_orders(self) -> None:
        """Rows of another kind come next: what is being made of these is not to be shown."""
        self.sort = self._wanted = self._under_way = None
        self.took_ns = 0

    def move_to(self, index: int) -> None:
        """Put the cursor on a row, or on the one that is next to where that would be."""
        self.cursor = max(0, min(index, len(self) - 1))

    def _take(self, order: RowOrder, rows: TableView) -> None:
        """Show rows, the cursor on the one that it was on; where they were sorted anew, on the first."""
        is_anew, self.shown_sort = order.sort != self.shown_sort, order.sort
        has_cursor = self.rows is not None and self.cursor < len(self.rows) and not is_anew
        key = self.rows.key(self.cursor) if self.rows is not None and has_cursor else None
        self.source, self.rows = order.source, rows
        found = (i for i in range(len(rows)) if rows.key(i) == key) if key is not None else iter(())
        self.move_to(next(found, 0))
