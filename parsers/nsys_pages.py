"""Long tables of an export, from the file's pages. Loads NumPy, so it is itself loaded with the first long table."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llmtop.parsers.nsys_export import Columns, Condition, Export, Keys, SqlColumns, begins, ends
from llmtop.parsers.sqlite_pages import UnfitError, integer_columns

if TYPE_CHECKING:
    from llmtop.parsers.sqlite_pages import Integers


class PageColumns(Columns):
    """Expressions of columns that have been read."""

    def __init__(self, names: frozenset[str], read: Mapping[str, Integers]) -> None:
        super().__init__(names)
        self._read = read

    def integer(self, name: str) -> Any:
        return self._read.get(name, -1)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def among(self, column: Any, values: Collection[int]) -> Any:
        return np.isin(column, list(values))


def read_pages(export: Export, table: str, keys: Keys, parts: Sequence[Condition]) -> list[list[array[int]]]:
    """Start, end and the keys of each part of a table.

    Raises:
        UnfitError: Only SQLite can read it.
    """
    columns: list[list[array[int]]] = []
    for of in _read(export, table, keys, parts):
        expressions = of.integer(begins(of.names)), of.integer(ends(of.names)), *keys(of)
        columns = columns or [[array("q") for _ in expressions] for _ in parts]
        for part, own in zip(parts, columns, strict=True):
            _add(own, expressions, part(of), len(expressions[0]))
    return columns


def _read(export: Export, table: str, keys: Keys, parts: Sequence[Condition]) -> Iterator[PageColumns]:
    """The columns that all these expressions need, some thousand rows at once."""
    noted = SqlColumns(export.columns(table), checked=False)
    keys(noted), [part(noted) for part in parts]
    for read in export.integers(table, noted.asked | {begins(noted.names), ends(noted.names)}):
        yield PageColumns(noted.names, read)


def columns_of_pages(export: Export, table: str, names: Collection[str]) -> Iterator[Mapping[str, Integers]]:
    """Columns of integers from the pages of a database.

    Raises:
        UnfitError: Only SQLite can read them.
    """
    query = f'SELECT name, type, pk, hidden FROM pragma_table_xinfo("{table}")'
    columns = {name: (at, *facts) for at, (name, *facts) in enumerate(export.execute(query))}
    wanted = sorted(names, key=lambda name: columns[name][0])
    if any(is_key or is_hidden for _, _, is_key, is_hidden in columns.values()):
        raise UnfitError("a column that records do not have")
    if not all("INT" in columns[name][1].upper() for name in wanted):  # the affinity of what is declared otherwise
        raise UnfitError("a column that SQLite converts as it reads it")
    (root,) = export.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    for read in integer_columns(export.path, root, len(columns), [columns[name][0] for name in wanted]):
        yield dict(zip(wanted, read, strict=True))


def _add(columns: Sequence[array[int]], expressions: Sequence[Any], condition: Any, rows: int) -> None:
    chosen: Any = slice(None) if isinstance(condition, int) else np.asarray(condition, bool)
    for column, values in zip(columns, expressions, strict=True):
        column.frombytes(np.ascontiguousarray(np.broadcast_to(values, rows)[chosen], np.int64).view(np.uint8).data)
