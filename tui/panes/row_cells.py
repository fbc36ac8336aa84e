"""What is made of the rows that a table shows: the columns that fit, and cells, each made once. It knows no screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.tables import RowTable
from llmtop.tui.render.table import GAP, Placed, place_columns

if TYPE_CHECKING:
    from llmtop.analysis.views import Cell, Column, TableView

FRAME_S = 0.025
"""Rows that take longer than this to make are left for the next frame: keys are answered while a report decodes."""

Beside: TypeAlias = "Callable[[TableView, Collection[str]], TableView]"
"""The same rows as they read beside the columns of these keys, which are shown: what one says no other repeats."""


class RowCells:
    """The cells of a table's rows as far as they were seen, and where its columns stand.

    Args:
        beside: See `Beside`.
        clock: Seconds.
    """

    def __init__(self, beside: Beside | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.placed: tuple[Placed, ...] = ()
        """The columns that are shown, left to right."""
        self._beside = beside
        self._clock = clock
        self._made: dict[int, Sequence[Cell]] = {}

    def __getitem__(self, row: int) -> Sequence[Cell] | None:
        """The cells of a row; None as long as they are not made."""
        return self._made.get(row)

    def forget(self) -> None:
        """Other rows come next, or these in another order."""
        self._made = {}

    def place(self, rows: TableView, width: int) -> TableView:
        """Choose the columns that fit; the rows as they read beside these."""
        placed = place_columns(rows.columns, width, rows.widest if isinstance(rows, RowTable) else ())
        if placed != self.placed:
            self.placed, self._made = placed, {}
        return rows if self._beside is None else self._beside(rows, [one.column.key for one in placed])

    def make(self, shown: range, cells_of: Callable[[int], Sequence[Cell]]) -> bool:
        """Make the cells of rows, as many as a frame has time for; whether these are all."""
        start = self._clock()
        for i in shown:
            if i not in self._made:
                if self._clock() - start > FRAME_S:
                    return False
                self._made[i] = cells_of(i)
        return True

    def column_at(self, x: int) -> Column | None:
        """The column whose title stands in a cell of the first line; what is between two is the left one's."""
        right = 0
        for one in self.placed:
            right += one.width + GAP
            if x < right:
                return one.column
        return None
