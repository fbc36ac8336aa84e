"""What every table of an Nsight Systems export is read with: columns by name, rows checked, names and tracks by key."""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from llmtop.columns import are_at_most, in_order, integers, replaced
from llmtop.model import Issue, Severity, SpanTable, Track, TrackKind

_BATCH = 200_000
"""Rows that are in memory as text at once: some 20 MB of a table of kernels."""
_FIRST_ROW = -(1 << 63)
_FEW_TEXTS = 1000
"""More are looked for by going through all texts of an export."""
_T = TypeVar("_T")


class Export:
    """An open export: what its tables and strings are."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.tables = frozenset(name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        self.columns: Callable[[str], frozenset[str]] = lru_cache(self._columns)
        self.distinct: Callable[[str, str], frozenset[int]] = lru_cache(self._distinct)
        """The integers of a column of a table."""
        self._has_rows: Callable[[str], bool] = lru_cache(self._any_row)

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(row[1] for row in self.execute(f'PRAGMA table_info("{table}")'))

    def _any_row(self, table: str) -> bool:
        return self.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with these columns, and not empty, as all are that `--lazy=false` makes."""
        return table in self.tables and self.columns(table).issuperset(columns) and self._has_rows(table)

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """A small table; none where it or one of the columns is not there."""
        if not self.has(table, *columns):
            return []
        return self.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """The texts of these ids; what is no text is left out."""
        if not self.has("StringIds", "id", "value"):
            return {}
        wanted = frozenset(ids)
        if len(wanted) > _FEW_TEXTS:
            found = self.execute("SELECT id, value FROM StringIds")
        else:
            found = self.execute(f"SELECT id, value FROM StringIds WHERE id IN ({', '.join(map(str, wanted))})")
        return {key: value for key, value in found if key in wanted and isinstance(value, str)}

    def _distinct(self, table: str, column: str) -> frozenset[int]:
        rows = self.execute(f"SELECT DISTINCT {column} FROM {table}")
        return frozenset(value for (value,) in rows if isinstance(value, int))


class Devices:
    """GPUs, streams and threads by the keys that rows have; makes their tracks as they are met."""

    def __init__(self, export: Export) -> None:
        self.tracks: dict[str, Track] = {}
        self._gpu_by_ordinal = {
            (pid, cuda): gpu for pid, cuda, gpu in export.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        }
        self.names = {key: str(name) for key, name in export.rows("TARGET_INFO_GPU", "id", "name")}

    def gpu(self, pid: int, device: int) -> int:
        """The index of a GPU: a process may see only some of them, numbered from 0."""
        index = self._gpu_by_ordinal.get((pid, device), device)
        return index if isinstance(index, int) else device

    def stream_track(self, key: int) -> str:
        """The track of a packed `Columns.stream` key."""
        pid, device, stream = unpacked(key)
        gpu = self.gpu(pid, device)
        parent = self._add(f"gpu:{gpu}", TrackKind.GPU, self.names.get(gpu, f"GPU {gpu}"), None)
        return self._add(f"{parent}/process:{pid}/stream:{stream}", TrackKind.STREAM, f"stream {stream}", parent)

    def thread_track(self, key: int) -> str:
        """The track of a `globalTid`."""
        pid, tid = (key >> 24) & 0xFFFFFF, key & 0xFFFFFF
        parent = self._add(f"process:{pid}", TrackKind.PROCESS, f"process {pid}", None)
        return self._add(f"thread:{pid}/{tid}", TrackKind.THREAD, f"thread {tid}", parent)

    def _add(self, track: str, kind: TrackKind, name: str, parent: str | None) -> str:
        self.tracks.setdefault(track, Track(track, kind, name, parent))
        return track


def aside(work: Callable[[], _T]) -> Future[_T]:
    """Do some work on a daemon thread, for which nobody who leaves has to wait."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="llmtop reading", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class Columns:
    """Expressions for what is read of a table.

    Attributes:
        checked: Take nothing for granted about the values; costs a third of the reading time.
    """

    names: frozenset[str]
    checked: bool

    def integer(self, name: str) -> str:
        """A column; -1 where it, or (if checked) an integer in it, is not there."""
        if name not in self.names:
            return "-1"
        return f'iif(typeof("{name}") = \'integer\', "{name}", -1)' if self.checked else f'"{name}"'

    @property
    def pid(self) -> str:
        """The process: bits 24 to 47 of a global id (the ones above tell virtual machines apart)."""
        name = next((name for name in ("globalPid", "globalTid") if name in self.names), None)
        return "0" if name is None else f"(({self.integer(name)} >> 24) & 16777215)"

    @property
    def stream(self) -> str:
        """Process, device and stream in one integer, so that a million rows need one lookup each."""
        device, stream = self.integer("deviceId"), self.integer("streamId")
        return f"(({self.pid} << 40) | (({device} & 255) << 32) | ({stream} & 4294967295))"

    @property
    def join(self) -> str:
        """Joins a launch to what it launched: ids count from 1 in each process, so the process is part of it."""
        if "correlationId" not in self.names:
            return "-1"
        joined = f'(({self.pid} << 32) | ("correlationId" & 4294967295))'
        return f"iif({self.integer('correlationId')} > 0, {joined}, -1)"


def unpacked(key: int) -> tuple[int, int, int]:
    """Process, device and stream of a packed key."""
    return (key >> 40) & 0xFFFFFF, (key >> 32) & 0xFF, key & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of integers, sorted by start, and how many rows could not be used."""

    columns: Sequence[array[int]]
    damaged: int = 0


TIMED = "typeof(start) = 'integer' AND typeof(\"end\") = 'integer' AND \"end\" >= start"


def read_rows(export: Export, table: str, keys: Callable[[Columns], Sequence[str]], where: str = "1") -> Rows:
    """Start, end and some integer expressions of every row that has times.

    Whole exports are read as they are. Only where that meets a value of another type, or an end before its start,
    is the table read again with every value checked.
    """
    try:
        columns = _fetched(export, table, keys(Columns(export.columns(table), checked=False)), where)
        if are_at_most(columns[0], columns[1]):
            return Rows(in_order(columns))
    except ValueError:
        pass
    columns = _fetched(export, table, keys(Columns(export.columns(table), checked=True)), f"{TIMED} AND ({where})")
    damaged = export.execute(f"SELECT count(*) FROM {table} WHERE NOT coalesce({TIMED}, 0) AND ({where})").fetchone()[0]
    return Rows(in_order(columns), damaged)


def _fetched(export: Export, table: str, keys: Sequence[str], where: str) -> list[array[int]]:
    """Read columns of integers, which SQLite writes as text: it makes no object of each value, and holds no lock.

    Raises:
        ValueError: A value is no integer.
    """
    expressions = ("start", '"end"', *keys)
    columns = [array("q") for _ in expressions]
    named = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(expressions))
    batch = f"SELECT rowid AS r, {named} FROM {table} WHERE rowid > ? AND ({where}) ORDER BY rowid LIMIT {_BATCH}"
    joined = ", ".join(f"CAST(group_concat(c{i}) AS BLOB)" for i in range(len(expressions)))
    last = _FIRST_ROW
    while last is not None:
        rows, last, *texts = export.execute(f"SELECT count(*), max(r), {joined} FROM ({batch})", (last,)).fetchone()
        for column, text in zip(columns, texts, strict=True):
            column.extend(integers(text or b"", rows))
    return columns


def _indexed(keys: array[int], name_of: Callable[[int], str]) -> tuple[tuple[str, ...], array[int]]:
    """Replace keys by indices into the distinct names they stand for."""
    names: dict[str, int] = {}
    index_by_key = {key: names.setdefault(name_of(key), len(names)) for key in dict.fromkeys(keys)}
    return tuple(names), replaced(keys, index_by_key)


def span_table(
    kind: str,
    rows: Rows,
    name_of: Callable[[int], str],
    track_of: Callable[[int], str],
    *,
    bytes_at: int | None = None,
) -> SpanTable:
    """Make spans of rows whose third to fifth columns are the keys of name and track and the join key."""
    start, end, name, track, join = rows.columns[:5]
    names, name_id = _indexed(name, name_of)
    tracks, track_id = _indexed(track, track_of)
    nan = float("nan")
    amount = array("d", [nan]) * len(start)
    if bytes_at is not None:
        amount = array("d", (value if value >= 0 else nan for value in rows.columns[bytes_at]))
    return SpanTable(kind, names, tracks, name_id, track_id, start, end, join, amount)


def count_damaged(issues: list[Issue], kind: str, rows: Rows) -> None:
    """Tell of rows that were left out, where there are any."""
    if rows.damaged:
        text = f"{kind} rows without a usable start and end were left out"
        issues.append(Issue(Severity.WARNING, f"nsys-{kind}-times", text, rows.damaged))
