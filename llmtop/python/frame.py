"""A table as named columns with units, which needs nothing but Python; as a frame of pandas where that is there."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from llmtop.analysis.views import Cell

_MISSING = "missing"


@frozen
class Frame:
    """Named columns of equal length. As with frames of pandas, `len` counts rows and `in` and `for` go by columns.

    Attributes:
        columns: What each is: `key` is its name, `unit` that of its numbers ("1" of plain ones, "" of text), and
            `help` says what it means.
        values: Of each column its cells: a number or a text; None where there is nothing to know; `Unknown`, with
            the reason and the remedy, where there is.
    """

    columns: tuple[Column, ...]
    values: tuple[Sequence[Cell], ...]

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Frame:
        """A frame of rows, of which each has a cell for every column."""
        by_column = zip(*rows, strict=True)
        values = tuple([str(cell) if isinstance(cell, StrEnum) else cell for cell in cells] for cells in by_column)
        return cls(tuple(columns), values or ((),) * len(columns))

    def __len__(self) -> int:
        return len(self.values[0]) if self.values else 0

    def __repr__(self) -> str:
        units = (f"{name} ({unit})" if unit not in ("", "1") else name for name, unit in self.units.items())
        return f"<Frame of {len(self)} rows: {', '.join(units)}>"

    def __iter__(self) -> Iterator[str]:
        return (column.key for column in self.columns)

    def __getitem__(self, name: str) -> Sequence[Cell]:
        """The cells of a column.

        Raises:
            KeyError: There is none of this name; those that there are.
        """
        for column, cells in zip(self.columns, self.values, strict=True):
            if column.key == name:
                return cells
        raise KeyError(f"no column {name!r}: there are {', '.join(self)}")

    @property
    def units(self) -> Mapping[str, str]:
        """Of each column the unit of its numbers."""
        return {column.key: column.unit for column in self.columns}

    def rows(self) -> Iterator[dict[str, Cell]]:
        """Row by row, its cells by the names of their columns."""
        return (dict(zip(self, cells, strict=True)) for cells in zip(*self.values, strict=True))

    def to_pandas(self) -> pd.DataFrame:
        """As a frame of pandas, with units in `attrs["units"]`.

        What is not known is NaN, or None among texts; a last column "missing" says why.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        told = {
            column.key: pd.Series([_known(cell) for cell in cells], dtype=_dtype(column, cells))
            for column, cells in zip(self.columns, self.values, strict=True)
        }
        frame = pd.DataFrame({**told, _MISSING: pd.Series(self._reasons(), dtype=object)})
        frame.attrs["units"] = dict(self.units)
        return frame

    def _reasons(self) -> list[str]:
        """By row why cells of it are not known, as the CSV of reports has it."""
        reasons: list[list[str]] = [[] for _ in range(len(self))]
        for name, cells in zip(self, self.values, strict=True):
            for row, cell in enumerate(cells):
                if isinstance(cell, Unknown):
                    reasons[row].append(f"{name}: {cell}")
        return list(map("; ".join, reasons))


def _known(cell: Cell) -> str | float | int | None:
    return None if isinstance(cell, Unknown) else cell


def _dtype(column: Column, cells: Sequence[Cell]) -> str | None:
    """Of numbers alone, where some are missing too; whole ones are as long as they are. Else they stay as they are."""
    known = {type(_known(cell)) for cell in cells}
    if not column.is_number or str in known:
        return "object"
    return None if known == {int} else "float64"
