"""Exports of Nsight Systems as folders of Arrow or Parquet files: the same tables as in SQLite, a file each.

Columns of numbers are taken as they are. A table of which SQLite is asked something goes into a database in memory
first: most are small, and long ones are read by their columns.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop.errors import FileError
from llmtop.parsers.nsys_export import Export, begins, ends, text_of

if TYPE_CHECKING:
    from llmtop.parsers.sqlite_pages import Integers

_MAGICS = {".arrow": b"\xff\xff\xff\xff", ".parquet": b"PAR1"}
"""How files begin: https://arrow.apache.org/docs/format/Columnar.html (streaming format), and Parquet's."""
_ALWAYS = ("META_DATA_EXPORT", "EXPORT_META_DATA", "StringIds")
"""Tables that every export has."""
_WORD = re.compile(r"\w+")
_BATCH = 100_000


def is_export(path: Path) -> bool:
    """Whether a folder is such an export, by what is in it."""
    return any(_begins_right(path / f"{table}{suffix}") for table in _ALWAYS for suffix in _MAGICS)


def _begins_right(path: Path) -> bool:
    magic = _MAGICS[path.suffix]
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


class DirectoryExport(Export):
    """A folder with a file for each table.

    Raises:
        FileError: There is no library that reads them.
    """

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.text_factory = text_of
        weakref.finalize(self, connection.close)
        self.path = path
        self._arrow = _library(path)
        self._connection = connection
        self._files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in _MAGICS}
        self._loaded: set[str] = set()
        self._read_from(self._execute, frozenset(self._files))

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        for table in self._files.keys() & set(_WORD.findall(sql)) - self._loaded:
            self._load(table)
        return self._connection.execute(sql, parameters)

    def is_bulk(self, table: str) -> bool:
        return True

    def integers(self, table: str, wanted: Collection[str]) -> Iterator[Mapping[str, Integers]]:
        """Columns of integers; what has no value is -1, but for times."""
        from llmtop.parsers.sqlite_pages import UnfitError

        names = list(wanted)
        times = {begins(self.columns(table)), ends(self.columns(table))}
        for batch in self._batches(table, names):
            columns = dict(zip(names, batch.columns, strict=True))
            if any(column.null_count for name, column in columns.items() if name in times):
                raise UnfitError("a time that is not there")
            yield {name: self._integers(column) for name, column in columns.items()}

    def _integers(self, column: Any) -> Integers:
        import numpy as np

        from llmtop.parsers.sqlite_pages import UnfitError

        types, int64 = self._arrow.types, self._arrow.int64()
        if not (types.is_integer(column.type) or types.is_boolean(column.type)):
            raise UnfitError("something else than an integer")
        signed = column.view(int64) if types.is_uint64(column.type) else column.cast(int64)
        values: Integers = signed.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return values

    def _batches(self, table: str, names: list[str] | None = None) -> Iterator[Any]:
        """The rows of a table, some at once; damage is told as SQLite tells it."""
        try:
            with self._files[table].open("rb") as file:
                if self._files[table].suffix == ".parquet":
                    import pyarrow.parquet

                    yield from pyarrow.parquet.ParquetFile(file).iter_batches(_BATCH, columns=names)
                    return
                for batch in self._arrow.ipc.open_stream(file):
                    yield batch if names is None else batch.select(names)
        except (self._arrow.ArrowException, OSError, KeyError) as error:
            raise sqlite3.DatabaseError(f"{table}: {error}") from error

    def _schema(self, table: str) -> Sequence[str]:
        try:
            with self._files[table].open("rb") as file:
                if self._files[table].suffix == ".parquet":
                    import pyarrow.parquet

                    return list(pyarrow.parquet.read_schema(file).names)
                return list(self._arrow.ipc.open_stream(file).schema.names)
        except (self._arrow.ArrowException, OSError) as error:
            raise sqlite3.DatabaseError(f"{table}: {error}") from error

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(self._schema(table)) if table in self._files else frozenset()

    def _any_row(self, table: str) -> bool:
        try:
            return any(batch.num_rows for batch in self._batches(table, list(self._schema(table)[:1])))
        except sqlite3.Error:
            return True  # what is damaged shows once its rows are read

    def _distinct_rows(self, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        found: set[tuple[object, ...]] = set()
        for batch in self._batches(table, list(columns)):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return list(found)

    def _load(self, table: str) -> None:
        """Put a table into the database."""
        self._loaded.add(table)
        names = self._schema(table)
        self._connection.execute(f'CREATE TABLE "{table}" ({", ".join(f"{_quoted(name)}" for name in names)})')
        places = ", ".join("?" * len(names))
        for batch in self._batches(table):
            rows = zip(*(map(_value, self._values(column)) for column in batch.columns), strict=True)
            self._connection.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)

    def _values(self, column: Any) -> Iterable[object]:
        """Those of a column; nsys says of NVTX payloads, which are bytes, that they are text."""
        types = self._arrow.types
        if not (types.is_string(column.type) or types.is_large_string(column.type)):
            values: list[object] = column.to_pylist()
            return values
        return map(_text, column.cast(self._arrow.large_binary()).to_pylist())


def _text(written: bytes | None) -> str | bytes | None:
    try:
        return None if written is None else written.decode()
    except UnicodeDecodeError:
        return written


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: object) -> object:
    """As SQLite takes it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and value >= 1 << 63:
        return value - (1 << 64)
    return value if value is None or isinstance(value, int | float | str | bytes) else str(value)


def _library(path: Path) -> Any:
    """The library that reads Arrow's and Parquet's files."""
    try:
        import pyarrow as arrow
        import pyarrow.ipc
        import pyarrow.types
    except ImportError as error:
        raise FileError(
            f"{path} is an export of Arrow or Parquet files, which takes a library to read: pip install pyarrow, "
            "or export to one file: nsys export --type sqlite FILE.nsys-rep"
        ) from error
    return arrow
