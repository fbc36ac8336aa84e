"""The kernel table as formatted text, for the formats that print it."""

from __future__ import annotations

from collections.abc import Sequence

from llmtop.analysis.kernels.table import KernelRows
from llmtop.analysis.views import Cell, Column
from llmtop.model import Unknown
from llmtop.units import quantity

UNKNOWN = "–"


def kernel_rows(table: KernelRows, count: int) -> list[list[str]]:
    """The cells of the first rows; what is not known is a dash."""
    return [cell_texts(table.cells(row), table.columns) for row in range(min(count, len(table)))]


def total_row(table: KernelRows) -> list[str]:
    """The sums of all rows, shown or not; nothing in columns in which a sum means nothing."""
    totals = table.totals()
    sums: dict[str, Cell] = {
        "name": f"total of {totals.rows}",
        "share": None if totals.share is None else 100 * totals.share,
        "calls": totals.launches,
        "duration": totals.total_ns or Unknown("no launch has a time"),
    }
    return cell_texts([sums.get(column.key) for column in table.columns], table.columns)


def cell_texts(cells: Sequence[Cell], columns: Sequence[Column]) -> list[str]:
    """The cells of a row as people read them."""
    return [cell_text(cell, column) for cell, column in zip(cells, columns, strict=True)]


def cell_text(cell: Cell, column: Column) -> str:
    """A cell as people read it; what is not known is a dash."""
    if cell is None:
        return ""
    if isinstance(cell, Unknown):
        return UNKNOWN
    if isinstance(cell, str):
        return cell
    text = str(cell) if isinstance(cell, int) and column.unit == "1" else quantity(cell, column.unit)
    return f"+{text}" if column.is_signed and cell > 0 else text


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "launch"), counted(2, "launch"), counted(0, "kernel"), counted(2, "copy")
    ('1 launch', '2 launches', '0 kernels', '2 copies')
    """
    if count == 1:
        return f"{count} {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("py") else f"{count} {what}{'es' if what.endswith('ch') else 's'}"
