"""What a view holds, on the screen or not, as text: what is copied and written of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from llmtop.analysis.tables import csv_of
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.render.table import cell_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llmtop.analysis.views import TableView
    from llmtop.tui.render.look import Look


@frozen
class Contents:
    """What a view holds.

    Attributes:
        title: Of the view, as its border has it.
        lines: Its text: all lines, where they are a text, or what is drawn of it; of rows under a cursor, what else is
            known of that row.
        table: Its rows, in the order and with the filter that are set; None where it has none.
        at: The row under the cursor; None where no row is.
        full_name: Of a row of the table the name that its cells have in short; empty where they have it in full.
        folded: Makes the lines of its stacks, which are written in place of what is drawn of them; None without any.
    """

    title: str
    lines: Sequence[str] = ()
    table: TableView | None = None
    at: int | None = None
    full_name: Callable[[int], str] | None = None
    folded: Callable[[], Iterator[str]] | None = None

    @property
    def suffix(self) -> str:
        """The ending of the name of a file that it is written to."""
        if self.folded is not None:
            return ".folded"
        return ".txt" if self.table is None else ".csv"

    def written(self) -> Iterator[str]:
        """What stands in that file, line by line."""
        return lines_of(self) if self.folded is None else self.folded()


@runtime_checkable
class Holder(Protocol):
    """A part of the screen whose contents can be copied and written."""

    def contents(self) -> Contents | Unknown:
        """What it holds now, or why nothing."""
        ...


def row_lines(table: TableView, row: int, look: Look) -> list[str]:
    """A row as people read it, a line for each column: of a value that is not known, why."""
    pairs = zip(table.columns, table.cells(row), strict=True)
    return [
        f"{column.title}: {f'not known: {cell}' if isinstance(cell, Unknown) else cell_text(cell, column, look)}"
        for column, cell in pairs
        if cell is not None
    ]


def lines_of(contents: Contents) -> Iterator[str]:
    """All of it: rows as CSV, or else the lines without the blanks at their ends."""
    if contents.table is not None:
        return csv_of(contents.table, contents.full_name)
    return (f"{line.rstrip()}\n" for line in contents.lines)
