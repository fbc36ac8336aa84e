"""A table view over rows that are few enough to hold: threads, GPUs, GPU processes; and any table as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmtop.analysis.views import Cell, Column, TableView
from llmtop.frozen import frozen
from llmtop.model import Unknown

SORTED_AT_ONCE = 2_000
"""Rows of cells that are there are sorted, or searched, in a few milliseconds."""


@frozen
class RowTable:
    """Rows in memory; `keys[i]` identifies row i over updates. An implementation of `views.TableView`.

    Attributes:
        widest: By column, how many characters its longest text has: columns of no fixed width need no more. () of
            rows that come and go, as columns must not come and go with them.
    """

    columns: tuple[Column, ...]
    rows: tuple[Sequence[Cell], ...]
    keys: tuple[Hashable, ...]
    widest: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, row: int) -> Sequence[Cell]:
        """One cell per column."""
        return self.rows[row]

    def key(self, row: int) -> Hashable:
        """What the row is, whatever its place."""
        return self.keys[row]

    def sorted_by(self, column: str, *, descending: bool) -> RowTable:
        """The same rows in another order; unknown values last either way, equal ones in the order they had."""
        i = next(i for i, candidate in enumerate(self.columns) if candidate.key == column)
        return self._only(places_by([row[i] for row in self.rows], descending=descending))

    def sorts_at_once(self, column: str) -> bool:
        """Whether a frame has time for it."""
        return len(self) <= SORTED_AT_ONCE

    def filters_at_once(self, text: str) -> bool:
        """Whether a frame has time to look through all texts."""
        return len(self) <= SORTED_AT_ONCE

    def filtered(self, text: str) -> RowTable:
        """Rows with a text cell that contains `text`, ignoring case."""
        wanted = text.casefold()
        return self._only([n for n, row in enumerate(self.rows) if any(wanted in _searchable(cell) for cell in row)])

    def why_none(self) -> Unknown | None:
        """A text can always be looked for."""
        return None

    def _only(self, places: Sequence[int]) -> RowTable:
        return replace(self, rows=tuple(self.rows[n] for n in places), keys=tuple(self.keys[n] for n in places))


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    """Columns, those of text no wider than their longest one; and how long that is."""
    widest = tuple(max((len(str(row[i])) for row in rows), default=0) for i in range(len(columns)))
    return tuple(_no_wider(column, longest) for column, longest in zip(columns, widest, strict=True)), widest


def numbered(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RowTable:
    """Rows keyed by their number from 0 on, with columns as `fitted` has them."""
    narrow, widest = fitted(columns, rows)
    return RowTable(narrow, tuple(rows), tuple(range(len(rows))), widest)


def numbered_where_told(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RowTable:
    """The same without the columns of which no row says anything."""
    told = [i for i in range(len(columns)) if any(row[i] not in (None, "") for row in rows)]
    return numbered([columns[i] for i in told], [[row[i] for i in told] for row in rows])


def _no_wider(column: Column, longest: int) -> Column:
    needed = max(longest, len(column.title) + 1)  # and an arrow where it is sorted by
    return column if column.is_number or column.width <= needed else replace(column, width=needed)


def places_by(cells: Sequence[Cell], *, descending: bool) -> list[int]:
    """The places of cells in their order: numbers, then texts whatever their case; unknown ones last either way.

    >>> places_by([2, None, "b", 1.5, "A"], descending=False), places_by([2, None, 3], descending=True)
    ([3, 0, 4, 2, 1], [2, 0, 1])
    """
    known = [i for i, cell in enumerate(cells) if not _is_unknown(cell)]
    known.sort(key=lambda i: _order(cells[i]), reverse=descending)
    return [*known, *(i for i, cell in enumerate(cells) if _is_unknown(cell))]


def leave_out(columns: Sequence[Column], shown: Sequence[int], droppable: Sequence[int]) -> list[int]:
    """The columns that are left where one more must go: of the highest `shrink` the rightmost goes, with its pair.

    Args:
        columns: All of them.
        shown: Which of them are there yet.
        droppable: Which of these may go; at least one.
    """
    last = max(droppable, key=lambda i: (columns[i].shrink, i))
    pair = columns[last].pair
    return [i for i in shown if i != last and not (pair and columns[i].pair == pair)]


_WITHOUT_UNIT = ("", "1")


def csv_of(table: TableView, full_name: Callable[[int], str] | None = None) -> Iterator[str]:
    """A table as lines of CSV: numbers in the units that the titles name; at the end of a row why cells are empty.

    Args:
        table: Any.
        full_name: Of a row the name that its cells have in short; empty where they have it in full.
    """
    named = full_name if full_name is not None and len(table) and full_name(0) else None
    columns = table.columns
    titles = (one.title if one.unit in _WITHOUT_UNIT else f"{one.title} ({one.unit})" for one in columns)
    yield csv_line((*titles, *(["full name"] if named else []), "missing"))
    for row in range(len(table)):
        cells = table.cells(row)
        missing = [
            f"{one.title}: {cell}" for one, cell in zip(columns, cells, strict=True) if isinstance(cell, Unknown)
        ]
        plain = ("" if _is_unknown(cell) or cell != cell else cell for cell in cells)
        yield csv_line((*plain, *([named(row)] if named else []), "; ".join(missing)))


def csv_of_rows(rows: Iterable[Mapping[str, object]], titles: Sequence[str] = ()) -> Iterator[str]:
    """Rows of the same keys as lines of CSV: the keys are the titles; at the end of a row why cells are empty.

    Args:
        rows: Without one there are no titles either,
        titles: unless these are given.
    """
    if titles:
        yield csv_line((*titles, "missing"))
    for i, row in enumerate(rows):
        if i == 0 and not titles:
            yield csv_line((*row, "missing"))
        cells = ("" if cell is None or isinstance(cell, Unknown) else cell for cell in row.values())
        missing = "; ".join(f"{key}: {cell}" for key, cell in row.items() if isinstance(cell, Unknown))
        yield csv_line((*cells, missing))


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a cell begins with that a spreadsheet works out, in the wide forms of East Asia too."""


def csv_line(cells: Sequence[object]) -> str:
    r"""Cells as a line of CSV. Foreign text that a spreadsheet would take for a formula gets an apostrophe before it.

    >>> csv_line(["=HYPERLINK(A1)", "-x", -1.5, "-1.5", "a"])
    "'=HYPERLINK(A1),'-x,-1.5,-1.5,a\n"
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(map(_no_formula, cells))
    return buffer.getvalue()


def _no_formula(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _is_unknown(cell: Cell) -> bool:
    return cell is None or isinstance(cell, Unknown)


def _order(cell: Cell) -> tuple[int, float, str]:
    return (0, float(cell), "") if isinstance(cell, int | float) else (1, 0.0, str(cell).casefold())


def _searchable(cell: Cell) -> str:
    return "" if isinstance(cell, float) or _is_unknown(cell) else str(cell).casefold()
