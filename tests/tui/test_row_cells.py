"""The cells of a table's rows, without a screen."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.tui.panes.row_cells import FRAME_S, RowCells
from llmtop.tui.render.table import GAP

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from llmtop.analysis.views import Cell, TableView

COLUMNS = (Column("name", "kernel", width=12), Column("share", "time", "%", 6), Column("roof", "roof", "%", 6, 1))
ROWS = RowTable(COLUMNS, tuple((f"kernel {i}", float(i), 1.0) for i in range(9)), tuple(range(9)))


def test_a_cell_is_made_once_until_the_rows_or_their_columns_are_others() -> None:
    cells, made = RowCells(), []

    def cells_of(row: int) -> Sequence[Cell]:
        made.append(row)
        return ROWS.cells(row)

    cells.place(ROWS, 60)
    assert cells.make(range(3), cells_of)
    cells.place(ROWS, 60)
    assert cells.make(range(4), cells_of)
    assert (made, cells[3], cells[4]) == ([0, 1, 2, 3], ("kernel 3", 3.0, 1.0), None)
    cells.place(ROWS, 20)
    assert [one.column.key for one in cells.placed] == ["name", "share"]
    assert cells[3] is None, "it is made anew beside other columns"
    cells.make(range(1), cells_of)
    cells.forget()
    assert cells[0] is None


def test_what_a_frame_has_no_time_for_comes_with_the_next() -> None:
    clock = count()
    cells = RowCells(clock=lambda: next(clock) * FRAME_S)
    cells.place(ROWS, 60)
    assert not cells.make(range(3), ROWS.cells)
    assert [cells[i] is not None for i in range(3)] == [True, False, False]
    assert not cells.make(range(3), ROWS.cells)
    assert cells.make(range(2), ROWS.cells)


def test_rows_read_as_they_do_beside_the_columns_that_are_shown() -> None:
    told: list[list[str]] = []

    def beside(rows: TableView, keys: Collection[str]) -> TableView:
        told.append(list(keys))
        return rows.filtered("kernel 1")

    assert len(RowCells(beside).place(ROWS, 20)) == 1
    assert told == [["name", "share"]]


def test_a_title_is_its_column_to_where_the_next_begins() -> None:
    cells = RowCells()
    cells.place(ROWS, 60)
    starts = [0, 12 + GAP, 12 + GAP + 6 + GAP]
    for x in (start + i for start in starts for i in (0, 6 + GAP - 1)):
        column = cells.column_at(x)
        assert column is not None
        assert column.key == COLUMNS[max(i for i, start in enumerate(starts) if start <= x)].key
    assert cells.column_at(starts[-1] + 6 + GAP) is None
