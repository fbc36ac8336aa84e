"""Rows in the order that is wanted, and the cursor among them, without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.tui.panes.row_order import OrderedRows
from llmtop.tui.render.table import Sort

if TYPE_CHECKING:
    from llmtop.analysis.views import TableView

COLUMNS = (Column("name", "kernel"), Column("share", "time", "%", 6))
BY_NAME, BY_SHARE = Sort("name", descending=False), Sort("share", descending=True)


def table(*keys: int, kind: type[RowTable] = RowTable) -> RowTable:
    """A row for each key, of which the share is larger the larger the key is."""
    return kind(COLUMNS, tuple((f"kernel {key}", float(key)) for key in keys), keys)


class SlowRows(RowTable):
    """Too many for a frame."""

    def sorts_at_once(self, column: str) -> bool:
        return False


def keys(rows: TableView | None) -> list[object]:
    assert rows is not None
    return [rows.key(i) for i in range(len(rows))]


def made(order: OrderedRows, *sources: TableView) -> list[object]:
    """Have orders made, as a thread would, for as long as another is to be made; the rows then."""
    following = [due for due in map(order.show, sources) if due is not None]
    for due in following:
        wanted, following_one = order.finish(due)
        following += [following_one] if following_one is not None else []
        if wanted is not None:
            order.take(wanted, *wanted.made())
    return keys(order.rows)


def test_the_cursor_stays_on_its_row_and_goes_to_the_top_when_it_is_sorted_anew() -> None:
    order = OrderedRows()
    assert order.show(table(1, 2, 3)) is None
    order.move_to(1)
    order.show(table(0, 1, 2, 3))
    assert (order.cursor, keys(order.rows)) == (2, [0, 1, 2, 3])
    order.sort = BY_SHARE
    order.show(table(0, 1, 2, 3))
    assert (order.cursor, keys(order.rows)) == (0, [3, 2, 1, 0])
    order.move_to(9)
    assert order.cursor == 3
    order.show(table())
    assert (order.cursor, len(order), order.total) == (0, 0, 0)


def test_a_filter_leaves_rows_out_and_counts_all() -> None:
    order = OrderedRows(BY_SHARE)
    order.filter_text = "KERNEL 1"
    order.show(table(1, 2, 10))
    assert (keys(order.rows), len(order), order.total) == ([10, 1], 2, 3)


def test_rows_stay_as_they_are_until_their_order_is_made() -> None:
    order = OrderedRows(BY_SHARE)
    due = order.show(table(1, 2, 3, kind=SlowRows))
    assert due is not None
    assert (keys(order.rows), order.is_sorting) == ([1, 2, 3], True)
    wanted, following = order.finish(due)
    assert (wanted, following) == (due, None)
    order.take(due, due.made()[0], 5)
    assert (keys(order.rows), order.is_sorting, order.took_ns) == ([3, 2, 1], False, 5)


def test_one_order_is_made_at_a_time_and_one_that_nobody_wants_any_more_is_not_shown() -> None:
    order, rows = OrderedRows(BY_SHARE), table(1, 2, kind=SlowRows)
    first = order.show(rows)
    order.sort = BY_NAME
    assert order.show(rows) is None
    wanted, second = order.finish(first)
    assert (wanted, order.is_sorting) == (None, True)
    assert second is not None
    assert second.sort == BY_NAME
    assert order.finish(first) == (None, None)
    assert order.finish(second) == (second, None)


def test_rows_that_came_while_older_ones_were_sorted_are_sorted_next() -> None:
    order = OrderedRows(BY_SHARE)
    old, new = table(1, 2, kind=SlowRows), table(3, 4, kind=SlowRows)
    first = order.show(old)
    order.show(new)
    assert order.newest is new
    wanted, second = order.finish(first)
    assert wanted is first, "the same order, of older rows: better than none"
    assert second is not None
    assert second.source is new
    assert made(OrderedRows(BY_SHARE), old, new) == [4, 3]


def test_what_is_being_made_of_rows_of_another_kind_is_forgotten() -> None:
    order = OrderedRows(BY_SHARE)
    due = order.show(table(1, 2, kind=SlowRows))
    order.forget_orders()
    assert order.finish(due) == (None, None)
    assert made(order, table(1, 2, kind=SlowRows)) == [1, 2], "and the rows are in no order"
