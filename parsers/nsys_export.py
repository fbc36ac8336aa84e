"""What every table of an Nsight Systems export is read with: columns by name, rows checked, names and tracks by key."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar

from llmtop import ids
from llmtop.columns import are_at_most, in_order, indexed, integers, is_long, narrow
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.lazy import GrowingTracks
from llmtop.model import Fact, Issue, Severity, SpanTable, Track, TrackId, TrackKind
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.parsers.sqlite_pages import Integers

_BATCH = 200_000
"""Rows that are in memory as text at once: some 20 MB of a table of kernels."""
_CHECKED_WHOLE = 16 << 20
"""Bytes of a file of which every page is checked: that takes 60 ms, and three seconds of one of a million kernels."""
_FIRST_ROW = -(1 << 63)
_FEW_TEXTS = 1000
"""More are looked for by going through all texts of an export."""
_CALLED = ("nameId", "globalTid")
"""Both are asked for of the same tables, and found in one pass."""
_NO_STREAM = 0xFFFFFFFF
"""Stands for the stream where a wait is of an event or of a whole context."""
_T = TypeVar("_T")


class Export:
    """An open export: what its tables and strings are. It stays open as long as somebody holds it."""

    def __init__(self, path: Path) -> None:
        connection = _connect(path)
        # Of a compressed export the file is gone by the time that a view asks for more of it: what is open remains.
        file = path.open("rb")
        weakref.finalize(self, _close, connection, file)
        self.path = Path(f"/proc/self/fd/{file.fileno()}")
        self.damage = _damage(connection, path.stat().st_size)
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._read_from(connection.execute, frozenset(name for (name,) in tables))

    damage = ""
    """What is wrong with its structure; empty where nothing is known to be."""

    def _read_from(self, execute: Callable[..., sqlite3.Cursor], tables: frozenset[str]) -> None:
        self.execute = execute
        self.tables = tables
        # What remembers its answers must not hold the export, which holds it: files would stay open until Python looks
        # for such circles.
        own, weak = type(self), weakref.proxy(self)
        self.columns: Callable[[str], frozenset[str]] = lru_cache(partial(own._columns, weak))
        self.distinct: Callable[[str, str], frozenset[int]] = lru_cache(partial(own._distinct, weak))
        """The integers of a column of a table."""
        self._combinations: Callable[[str, Sequence[str]], list[tuple[Any, ...]]] = lru_cache(
            partial(own._distinct_rows, weak)
        )
        self._has_rows: Callable[[str], bool] = lru_cache(partial(own._any_row, weak))

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(row[1] for row in self.execute(f'PRAGMA table_info("{table}")'))

    def is_bulk(self, table: str) -> bool:
        """Whether it pays to read its columns without SQLite: by the highest row id, which is at once to be had."""
        return is_long(int(self.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 0))

    def integers(self, table: str, wanted: Collection[str]) -> Iterator[Mapping[str, Integers]]:
        """Columns of a table by their names, part after part, read without SQLite.

        Raises:
            UnfitError: Only SQLite can read them.
        """
        from llmtop.parsers.nsys_pages import columns_of_pages

        return columns_of_pages(self, table, wanted)

    def _any_row(self, table: str) -> bool:
        try:
            return self.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None
        except sqlite3.Error:
            return True  # what is damaged shows once its rows are read

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
        columns = _CALLED if column in _CALLED and self.columns(table).issuperset(_CALLED) else (column,)
        place = columns.index(column)
        return frozenset(row[place] for row in self._combinations(table, columns) if isinstance(row[place], int))

    def _distinct_rows(self, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        return self.execute(f"SELECT DISTINCT {', '.join(columns)} FROM {table}").fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    """Open it so that SQLite creates no lock, journal or temporary file beside it."""
    name = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(name, uri=True, check_same_thread=False)
    connection.text_factory = text_of
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _damage(connection: sqlite3.Connection, size: int) -> str:
    """What SQLite finds wrong with the structure of a file: of a large one with the page that names its tables."""
    pragma = "quick_check(1)" if size <= _CHECKED_WHOLE else "quick_check('sqlite_schema')"
    ((said,),) = connection.execute(f"PRAGMA {pragma}").fetchmany(1)
    return "" if said == "ok" else said


def _close(connection: sqlite3.Connection, file: BinaryIO) -> None:
    connection.close()
    file.close()


def text_of(raw: bytes) -> str:
    """Exports hold text that is not UTF-8 (a protobuf message, a name cut in the middle of a character)."""
    return clean(raw.decode("utf-8", "replace"))


class Devices:
    """GPUs, streams, processes and threads by the keys that rows have; makes their tracks as they are met."""

    def __init__(self, export: Export) -> None:
        self.tracks = GrowingTracks()
        self._gpu_by_ordinal = {
            (pid, cuda): gpu for pid, cuda, gpu in export.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        }
        self.names = {key: str(name) for key, name in export.rows("TARGET_INFO_GPU", "id", "name")}
        self._facts: defaultdict[object, dict[str, Fact]] = defaultdict(dict)
        for key, sms in export.rows("TARGET_INFO_GPU", "id", "smCount"):
            if isinstance(sms, int):
                self._facts[key][GpuFact.SM_COUNT] = sms
        for key, major, minor in export.rows("TARGET_INFO_GPU", "id", "computeMajor", "computeMinor"):
            if isinstance(major, int) and isinstance(minor, int):
                self._facts[key][GpuFact.COMPUTE_CAPABILITY] = f"{major}.{minor}"
        self._processes = {pid: name for pid, name in export.rows("PROCESSES", "pid", "name") if name}
        of_threads = {
            key & 0xFFFFFFFFFFFF: name
            for key, name in export.rows("ThreadNames", "globalTid", "nameId")
            if isinstance(key, int) and isinstance(name, int)
        }
        texts = export.strings(set(of_threads.values())) if of_threads else {}
        self._threads = {key: texts[name] for key, name in of_threads.items() if name in texts}
        columns = ("processId", "streamId", "name")
        self._streams = {
            (pid, stream): name for pid, stream, name in export.rows("TARGET_INFO_NVTX_CUDA_STREAM", *columns)
        }

    def gpu(self, pid: int, device: int) -> int:
        """The index of a GPU: a process may see only some of them, numbered from 0."""
        index = self._gpu_by_ordinal.get((pid, device), device)
        return index if isinstance(index, int) else device

    def stream_track(self, key: int) -> TrackId:
        """The track of a packed `Columns.stream` key."""
        pid, device, stream = unpacked(key)
        if stream == _NO_STREAM:
            return self.gpu_process_track(key)
        parent = self.gpu_track(self.gpu(pid, device))
        own = self._streams.get((pid, stream))
        name = f"{own} (stream {stream})" if own else f"stream {stream}"
        return self._add(ids.stream(parent, pid, stream), TrackKind.STREAM, name, parent)

    def gpu_track(self, gpu: int) -> TrackId:
        """The track of a GPU by its index."""
        name = self.names.get(gpu, f"GPU {gpu}")
        return self._add(ids.gpu(gpu), TrackKind.GPU, name, None, self._facts.get(gpu, {}))

    def gpu_process_track(self, key: int) -> TrackId:
        """What a process has on a GPU, of a packed `Columns.stream` key."""
        pid, device, _ = unpacked(key)
        parent = self.gpu_track(self.gpu(pid, device))
        return self._add(ids.gpu_process(parent, pid), TrackKind.GPU_PROCESS, self._process_name(pid), parent)

    def process_track(self, key: int) -> TrackId:
        """The track of a `globalPid`, or of a `globalTid` without its thread."""
        pid = (key >> 24) & 0xFFFFFF
        return self._add(ids.process(pid), TrackKind.PROCESS, self._process_name(pid), None)

    def thread_track(self, key: int) -> TrackId:
        """The track of a `globalTid`."""
        pid, tid = (key >> 24) & 0xFFFFFF, key & 0xFFFFFF
        own = self._threads.get(key & 0xFFFFFFFFFFFF)
        name = f"{own} ({tid})" if own else f"thread {tid}"
        return self._add(ids.thread(pid, tid), TrackKind.THREAD, name, self.process_track(key))

    def _process_name(self, pid: int) -> str:
        own = self._processes.get(pid)
        return f"{own} ({pid})" if own else f"process {pid}"

    def _add(
        self,
        track: TrackId,
        kind: TrackKind,
        name: str,
        parent: TrackId | None,
        facts: Mapping[str, Fact] = MappingProxyType({}),
    ) -> TrackId:
        if track not in self.tracks:
            self.tracks.add(Track(track, kind, name, parent, facts))
        return track


@frozen
class Capture:
    """An open export with the tracks of what was read of it, and what was met on the way."""

    export: Export
    devices: Devices
    issues: list[Issue]


LateReader: TypeAlias = Callable[[Capture], SpanTable]
"""Reads all spans of a kind."""


def late(capture: Capture, kind: str, reader: LateReader) -> Callable[[], SpanTable]:
    """Read a kind of spans once a view asks for it: what is damaged by then costs that kind, and is an issue."""

    def read() -> SpanTable:
        try:
            return reader(capture)
        except DAMAGE as error:
            capture.issues.append(lost(kind, error))
            return span_table(kind, Rows([array("q") for _ in range(5)]), str, capture.devices.thread_track)

    return read


DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What damaged databases raise; the latter for the names of columns."""


def lost(what: str, error: Exception) -> Issue:
    """Tell of a part of an export that cannot be read."""
    return Issue(Severity.ERROR, f"nsys-{what}-lost", f"{what} is lost: the file is damaged ({clean(str(error))})")


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


class Columns(ABC):
    """The columns of a table, and expressions of them: written once, worked out by SQLite or by NumPy.

    Besides the operators `+ - * & | << >> < > <= >=` with columns and integers they know what stands here.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    @abstractmethod
    def integer(self, name: str) -> Any:
        """A column; -1 where it is not there."""

    @abstractmethod
    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        """The one where the condition holds, the other where not."""

    @abstractmethod
    def among(self, column: Any, values: Collection[int]) -> Any:
        """The condition that the column has one of these values."""

    @property
    def pid(self) -> Any:
        """The process: bits 24 to 47 of a global id (the ones above tell virtual machines apart)."""
        name = next((name for name in ("globalPid", "globalTid") if name in self.names), None)
        return 0 if name is None else (self.integer(name) >> 24) & 0xFFFFFF

    @property
    def stream(self) -> Any:
        """Process, device and stream in one integer, so that a million rows need one lookup each."""
        device, stream = self.integer("deviceId"), self.integer("streamId")
        return (stream & 0xFFFFFFFF) | ((device & 255) << 32) | (self.pid << 40)

    @property
    def join(self) -> Any:
        """Joins a launch to what it launched: ids count from 1 in each process, so the process is part of it."""
        if "correlationId" not in self.names:
            return -1
        own = self.integer("correlationId")
        return self.choose(own > 0, (own & 0xFFFFFFFF) | (self.pid << 32), -1)


def _binary(sign: str) -> Callable[[Sql, Sql | int], Sql]:
    return lambda one, other: Sql(f"({one} {sign} {other})")


@frozen
class Sql:
    """An expression that SQLite works out."""

    text: str

    def __str__(self) -> str:
        return self.text

    __add__, __sub__, __mul__ = map(_binary, "+-*")
    __and__, __or__, __lshift__, __rshift__ = map(_binary, ("&", "|", "<<", ">>"))
    __lt__, __gt__, __le__, __ge__ = map(_binary, ("<", ">", "<=", ">="))


class SqlColumns(Columns):
    """Expressions for SQLite. `checked` takes nothing for granted about the values: what is no integer is -1 too."""

    def __init__(self, names: frozenset[str], *, checked: bool) -> None:
        super().__init__(names)
        self._checked = checked
        self.asked: set[str] = set()
        """The columns that the expressions so far are made of."""

    def integer(self, name: str) -> Any:
        if name not in self.names:
            return Sql("-1")
        self.asked.add(name)
        return Sql(f'iif(typeof("{name}") = \'integer\', "{name}", -1)' if self._checked else f'"{name}"')

    def choose(self, condition: Any, yes: Any, no: Any) -> Sql:
        return Sql(f"iif({condition}, {yes}, {no})")

    def among(self, column: Any, values: Collection[int]) -> Sql:
        return Sql(f"({column} IN ({', '.join(map(str, values))}))")


TRACING_BEGAN_OR_ENDED = (31, 32, 33, 34, 35, 36, 45, 46, 47, 79, 80, 84, 85, 87, 88, 90, 91)
"""ENUM_NSYS_EVENT_CLASS of rows that tell when a library was traced, and are no calls of it."""


def unless_of_tracing(of: Columns, condition: Any) -> Any:
    """The condition, for rows that are calls."""
    return of.choose(of.among(of.integer("eventClass"), TRACING_BEGAN_OR_ENDED), 0, condition)


def unpacked(key: int) -> tuple[int, int, int]:
    """Process, device and stream of a packed key."""
    return (key >> 40) & 0xFFFFFF, (key >> 32) & 0xFF, key & 0xFFFFFFFF


@frozen
class Rows:
    """Columns of integers, sorted by start, and how many rows could not be used."""

    columns: Sequence[array[int]]
    damaged: int = 0


def timed(columns: Collection[str]) -> str:
    """The condition that a row has usable times; what has no end is a moment."""
    if "end" not in columns:
        return f"typeof({begins(columns)}) = 'integer'"
    return "typeof(start) = 'integer' AND typeof(\"end\") = 'integer' AND \"end\" >= start"


def begins(columns: Collection[str]) -> str:
    """The name of the column with the starts: tables of samples call it otherwise."""
    return "timestamp" if "timestamp" in columns and "start" not in columns else "start"


def ends(columns: Collection[str]) -> str:
    """The name of the column with the ends: of moments that with the starts."""
    return "end" if "end" in columns else begins(columns)


Keys: TypeAlias = Callable[[Columns], Sequence[Any]]
Condition: TypeAlias = Callable[[Columns], Any]


def read_rows(export: Export, table: str, keys: Keys, where: Condition | None = None) -> Rows:
    """Start, end and some integer expressions of every row that has times."""
    return read_parts(export, table, keys, [where or (lambda _: 1)])[0]


def read_parts(export: Export, table: str, keys: Keys, parts: Sequence[Condition]) -> list[Rows]:
    """The same of several parts of a table, a condition for each.

    Whole exports are read as they are. Only where that meets a value of another type, or an end before its start,
    is the table read again with every value checked.
    """
    read = _from_pages(export, table, keys, parts) if export.is_bulk(table) else None
    rows = [_usable(columns) for columns in read] if read else [None] * len(parts)
    return [own or _read_by_sqlite(export, table, keys, part) for part, own in zip(parts, rows, strict=True)]


def _usable(columns: Sequence[array[int]]) -> Rows | None:
    return Rows(in_order(columns)) if are_at_most(columns[0], columns[1]) else None


def _from_pages(export: Export, table: str, keys: Keys, parts: Sequence[Condition]) -> list[list[array[int]]] | None:
    """The columns of each part, read without SQLite; None where that cannot read them."""
    from llmtop.parsers.nsys_pages import read_pages
    from llmtop.parsers.sqlite_pages import UnfitError

    try:
        return read_pages(export, table, keys, parts)
    except UnfitError:
        return None


def _read_by_sqlite(export: Export, table: str, keys: Keys, part: Condition) -> Rows:
    of = SqlColumns(export.columns(table), checked=False)
    try:
        if (rows := _usable(_fetched(export, table, keys(of), part(of)))) is not None:
            return rows
    except ValueError:
        pass
    of = SqlColumns(export.columns(table), checked=True)
    has_times = timed(of.names)
    columns = _fetched(export, table, keys(of), f"{has_times} AND ({part(of)})")
    query = f"SELECT count(*) FROM {table} WHERE NOT coalesce({has_times}, 0) AND ({part(of)})"
    return Rows(in_order(columns), export.execute(query).fetchone()[0])


def _fetched(export: Export, table: str, keys: Sequence[Any], where: Any) -> list[array[int]]:
    """Read columns of integers, which SQLite writes as text: it makes no object of each value, and holds no lock.

    Raises:
        ValueError: A value is no integer.
    """
    names = export.columns(table)
    expressions = (begins(names), f'"{ends(names)}"', *keys)
    columns = [array("q") for _ in expressions]
    named = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(expressions))
    batch = f"SELECT rowid AS r, {named} FROM {table} WHERE rowid > ? AND ({where}) ORDER BY rowid LIMIT {_BATCH}"
    joined = ", ".join(f"CAST(group_concat(c{i}) AS BLOB)" for i in range(len(expressions)))
    last = _FIRST_ROW
    while last is not None:
        before = last
        rows, last, *texts = export.execute(f"SELECT count(*), max(r), {joined} FROM ({batch})", (last,)).fetchone()
        if last is not None and last <= before:  # of a damaged tree SQLite may give the same rows again and again
            raise sqlite3.DatabaseError("its rows are in no order")
        for column, text in zip(columns, texts, strict=True):
            column.extend(integers(text or b"", rows))
    return columns


def span_table(
    kind: str,
    rows: Rows,
    name_of: Callable[[int], str],
    track_of: Callable[[int], TrackId],
    *,
    bytes_at: int | None = None,
) -> SpanTable:
    """Make spans of rows whose third to fifth columns are the keys of name and track and the join key."""
    start, end, name, track, join = rows.columns[:5]
    names, name_id = indexed(name, name_of)
    tracks, track_id = indexed(track, track_of)
    nan = float("nan")
    amount = array("d", [nan]) * len(start)
    if bytes_at is not None:
        amount = array("d", (value if value >= 0 else nan for value in rows.columns[bytes_at]))
    return SpanTable(kind, names, tracks, name_id, track_id, start, end, narrow(join), amount)


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of several tables as one."""
    columns = [
        array("q", chain.from_iterable(several)) for several in zip(*(rows.columns for rows in parts), strict=True)
    ]
    return Rows(in_order(columns), sum(rows.damaged for rows in parts))


def count_damaged(issues: list[Issue], kind: str, rows: Rows) -> None:
    """Tell of rows that were left out, where there are any."""
    if rows.damaged:
        text = f"{kind} rows without a usable start and end were left out"
        issues.append(Issue(Severity.WARNING, f"nsys-{kind}-times", text, rows.damaged))
