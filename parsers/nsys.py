"""Nsight Systems captures, as SQLite exports (`nsys export --type sqlite`), schema 2.9 to 3.30.

The schema changes from version to version: tables exist only where something was captured, and columns come and go.
So every table may be absent and every column is asked for by name. Times are nanoseconds since the capture began.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from operator import le, sub
from typing import TYPE_CHECKING

from llmtop.errors import FileError
from llmtop.model import (
    Fact,
    Issue,
    KernelTable,
    Missing,
    Origin,
    Severity,
    SpanTable,
    Trace,
    Track,
    TrackKind,
    Unknown,
)
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"SQLite format 3\0"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_EXPORT_FACTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""The same table; the second name up to 2023.2."""
_BATCH = 20_000
_EXPORT_AGAIN = "export it again: nsys export --type sqlite FILE.nsys-rep"

_COPY_KINDS = {1: "copy HtoD", 2: "copy DtoH", 8: "copy DtoD", 9: "copy HtoH", 10: "copy PtoP"}
"""ENUM_CUDA_MEMCPY_OPER; 11 to 13 are unified-memory migrations."""
_PUSH_POP, _START_END = 59, 60
"""NVTX event types that are ranges."""
_SHOWN_VARIABLES = ("CUDA_", "NCCL_", "OMP_", "PYTORCH_", "SGLANG_", "TORCH_", "TRTLLM_", "VLLM_")
"""A capture holds the whole environment. Only variables that change how a server runs are kept, and those redacted."""


class NsysSqliteParser:
    """Reads an SQLite export of an Nsight Systems capture."""

    name = "nsys-sqlite"
    priority = 30

    def sniff(self, head: bytes, path: Path) -> bool:
        """Any SQLite database: whether it is an export is known only when it is open."""
        return head.startswith(MAGIC)

    def parse(self, path: Path) -> Trace:
        """Read kernels, launches, copies, graphs and NVTX ranges.

        Raises:
            FileError: It is truncated, corrupted, or a database of something else.
        """
        _check_length(path)
        try:
            with closing(_connect(path)) as connection:
                return _read(_Export(connection), path)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter for the names of columns
            raise FileError(f"{path} is a damaged SQLite database ({clean(str(error))}); {_EXPORT_AGAIN}") from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open it so that SQLite creates no lock, journal or temporary file beside it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = _text
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _text(raw: bytes) -> str:
    """Exports hold text that is not UTF-8 (a protobuf message, a name cut in the middle of a character)."""
    return clean(raw.decode("utf-8", "replace"))


def _check_length(path: Path) -> None:
    """Compare the file's size with the one its header states (https://www.sqlite.org/fileformat.html, 1.3)."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise FileError(f"{path} is truncated: it ends within the SQLite header; {_EXPORT_AGAIN}")
    page, pages = struct.unpack_from(">H", header, 16)[0], struct.unpack_from(">I", header, 28)[0]
    # The page count holds only if the file was last written by a version that keeps it: two counters then agree.
    stated = (65536 if page == 1 else page) * pages if header[24:28] == header[92:96] else 0
    if (size := path.stat().st_size) < stated:
        raise FileError(f"{path} is truncated: {size} of {stated} bytes are there; copy or export it again")


class _Export:
    """An open export: what its tables and strings are."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.tables = frozenset(name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        self.columns: Callable[[str], frozenset[str]] = lru_cache(self._columns)

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(row[1] for row in self.execute(f'PRAGMA table_info("{table}")'))

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with these columns."""
        return table in self.tables and self.columns(table).issuperset(columns)

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """A small table; none where it or one of the columns is not there."""
        if not self.has(table, *columns):
            return []
        return self.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()

    def strings(self, ids: str) -> dict[int, str]:
        """The texts of the ids that a query selects; what is no text is left out."""
        if not self.has("StringIds", "id", "value"):
            return {}
        query = f"SELECT id, value FROM StringIds WHERE id IN ({ids})"
        return {key: value for key, value in self.execute(query) if isinstance(value, str)}


def _read(export: _Export, path: Path) -> Trace:
    if not export.tables & {*_EXPORT_FACTS, _KERNELS, _RUNTIME}:
        raise FileError(f"{path} is an SQLite database, but no Nsight Systems export: it has none of its tables")
    devices = _Devices(export)
    issues: list[Issue] = []
    spans = {kind: table for kind, table in _all_spans(export, devices, issues) if len(table)}
    kernels, kernel_spans = _kernels(export, devices, issues)
    if kernel_spans is not None:
        spans["kernel"] = kernel_spans
    starts = [table.start_ns[0] for table in spans.values()]
    return Trace(
        origin=_origin(export, path, devices),
        start_ns=min(starts, default=0),
        end_ns=max((max(table.end_ns) for table in spans.values()), default=0),
        tracks=devices.tracks,
        spans=spans,
        kernels=kernels,
        issues=(*issues, *_diagnostics(export)),
        missing=tuple(_missing(export, kernels)),
    )


class _Devices:
    """GPUs, streams and threads by the keys that rows have; makes their tracks as they are met."""

    def __init__(self, export: _Export) -> None:
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
        """The track of a packed `_STREAM` key."""
        pid, device, stream = _unpacked(key)
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


@dataclass(frozen=True, slots=True)
class _Columns:
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
        """Joins a launch to what it launched: correlation ids count per process, so the process is part of it."""
        if "correlationId" not in self.names:
            return "-1"
        joined = f'(({self.pid} << 32) | ("correlationId" & 4294967295))'
        return f"iif({self.integer('correlationId')} < 0, -1, {joined})" if self.checked else joined


def _unpacked(key: int) -> tuple[int, int, int]:
    """Process, device and stream of a packed key."""
    return (key >> 40) & 0xFFFFFF, (key >> 32) & 0xFF, key & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of integers, sorted by start, and how many rows could not be used."""

    columns: Sequence[array[int]]
    damaged: int = 0


_TIMED = "typeof(start) = 'integer' AND typeof(\"end\") = 'integer' AND \"end\" >= start"


def _rows(export: _Export, table: str, keys: Callable[[_Columns], Sequence[str]], where: str = "1") -> _Rows:
    """Start, end and some integer expressions of every row that has times.

    Whole exports are read as they are. Only where that meets a value of another type, or an end before its start,
    is the table read again with every value checked.
    """
    try:
        columns = _fetched(export, table, keys(_Columns(export.columns(table), checked=False)), where)
        if all(map(le, columns[0], columns[1])):
            return _Rows(_sorted(columns))
    except TypeError:
        pass
    columns = _fetched(export, table, keys(_Columns(export.columns(table), checked=True)), f"{_TIMED} AND ({where})")
    damaged = export.execute(f"SELECT count(*) FROM {table} WHERE NOT coalesce({_TIMED}, 0) AND ({where})").fetchone()[
        0
    ]
    return _Rows(_sorted(columns), damaged)


def _fetched(export: _Export, table: str, keys: Sequence[str], where: str) -> list[array[int]]:
    """Read columns of integers.

    Raises:
        TypeError: A value is no integer.
    """
    columns = [array("q") for _ in range(2 + len(keys))]
    selected = ", ".join(("start", '"end"', *keys))
    cursor = export.execute(f"SELECT {selected} FROM {table} WHERE {where}")
    while batch := cursor.fetchmany(_BATCH):
        for column, values in zip(columns, zip(*batch, strict=True), strict=True):
            column.extend(values)
    return columns


def _sorted(columns: list[array[int]]) -> list[array[int]]:
    """All columns in the order of the first; API calls of several threads are not stored so."""
    start = columns[0]
    if all(map(le, start, islice(start, 1, None))):
        return columns
    order = sorted(range(len(start)), key=start.__getitem__)
    return [array("q", map(column.__getitem__, order)) for column in columns]


def _indexed(keys: array[int], name_of: Callable[[int], str]) -> tuple[tuple[str, ...], array[int]]:
    """Replace keys by indices into the distinct names they stand for."""
    names: dict[str, int] = {}
    index_by_key = {key: names.setdefault(name_of(key), len(names)) for key in dict.fromkeys(keys)}
    return tuple(names), array("q", map(index_by_key.__getitem__, keys))


def _span_table(
    kind: str,
    rows: _Rows,
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


def _kernels(export: _Export, devices: _Devices, issues: list[Issue]) -> tuple[KernelTable, SpanTable | None]:
    """The kernel table, and the same launches as spans that share its columns."""
    if not export.has(_KERNELS, "start", "end"):
        return _NO_KERNELS, None
    name = "demangledName" if "demangledName" in export.columns(_KERNELS) else "shortName"
    sizes = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
    rows = _rows(
        export,
        _KERNELS,
        lambda of: [of.integer(name), of.stream, of.join, *map(of.integer, sizes)],
    )
    _count_damaged(issues, "kernel", rows)
    texts = export.strings(f"SELECT DISTINCT {name} FROM {_KERNELS}")
    spans = _span_table(
        "kernel", rows, lambda key: texts.get(key, f"kernel name {key} (not in the file)"), devices.stream_track
    )
    places = {key: _unpacked(key) for key in dict.fromkeys(rows.columns[3])}
    gpu_by_key = {key: devices.gpu(pid, device) for key, (pid, device, _) in places.items()}
    stream_by_key = {key: stream for key, (_, _, stream) in places.items()}
    gx, gy, gz, bx, by, bz = rows.columns[5:]
    table = KernelTable(
        names=spans.names,
        functions=_functions(export, spans.names, name),
        name_id=spans.name_id,
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        start_ns=spans.start_ns,
        duration_ns=array("d", map(sub, spans.end_ns, spans.start_ns)),
        device=array("q", map(gpu_by_key.__getitem__, rows.columns[3])),
        stream=array("q", map(stream_by_key.__getitem__, rows.columns[3])),
    )
    return table, spans


_NOTHING: array[int] = array("q")
_NO_KERNELS = KernelTable((), (), _NOTHING, (_NOTHING,) * 3, (_NOTHING,) * 3, _NOTHING, array("d"), _NOTHING, _NOTHING)


def _functions(export: _Export, names: Sequence[str], column: str) -> tuple[str, ...]:
    """The short name of each name; the name itself where the export has none."""
    if not export.has(_KERNELS, column, "shortName"):
        return tuple(names)
    texts = export.strings(f"SELECT {column} FROM {_KERNELS} UNION SELECT shortName FROM {_KERNELS}")
    pairs = export.execute(f"SELECT DISTINCT {column}, shortName FROM {_KERNELS}")
    short = {texts[name]: texts[function] for name, function in pairs if name in texts and function in texts}
    return tuple(short.get(name, name) for name in names)


def _all_spans(export: _Export, devices: _Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    """All kinds but kernels."""
    yield from _launches(export, devices, issues)
    on_gpu = (
        ("memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", lambda key: _COPY_KINDS.get(key, "copy"), "bytes"),
        ("memset", "CUPTI_ACTIVITY_KIND_MEMSET", "value", lambda _: "memset", "bytes"),
        ("graph", _GRAPHS, "graphId", lambda key: f"CUDA graph {key}", ""),
    )
    for kind, table, key, name_of, amount in on_gpu:
        if export.has(table, "start", "end"):
            rows = _rows(export, table, partial(_gpu_work, key=key, amount=amount))
            _count_damaged(issues, kind, rows)
            yield kind, _span_table(kind, rows, name_of, devices.stream_track, bytes_at=5 if amount else None)
    yield from _nvtx(export, devices)


def _gpu_work(of: _Columns, *, key: str, amount: str) -> Sequence[str]:
    return of.integer(key), of.stream, of.join, of.integer(amount)


def _launches(export: _Export, devices: _Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    """Calls of the CUDA API that launch something."""
    if not export.has(_RUNTIME, "start", "end", "nameId"):
        return
    texts = export.strings(f"SELECT DISTINCT nameId FROM {_RUNTIME}")
    launches = ", ".join(str(key) for key, text in texts.items() if "Launch" in text) or "-1"
    rows = _rows(
        export,
        _RUNTIME,
        lambda of: [of.integer("nameId"), of.integer("globalTid"), of.join],
        f"nameId IN ({launches})",
    )
    _count_damaged(issues, "launch", rows)
    yield "launch", _span_table("launch", rows, lambda key: texts.get(key, f"call {key}"), devices.thread_track)


def _nvtx(export: _Export, devices: _Devices) -> Iterator[tuple[str, SpanTable]]:
    """Ranges that ended; one that was open at the end of the capture has no length."""
    table = "NVTX_EVENTS"
    if not export.has(table, "start", "end", "eventType", "text", "globalTid"):
        return
    # A text is in the row or in StringIds; rows with the same text have to get one number either way.
    text_id = "coalesce(text, textId)" if "textId" in export.columns(table) else "text"
    where = f"eventType IN ({_PUSH_POP}, {_START_END})"
    named = f"{_TIMED} AND {where}"
    keys = [key for (key,) in export.execute(f"SELECT DISTINCT {text_id} FROM {table} WHERE {named}")]
    texts = export.strings(f"SELECT DISTINCT textId FROM {table}") if "textId" in export.columns(table) else {}
    number_by_key = {key: number for number, key in enumerate(keys)}
    names = [texts.get(key, "") if isinstance(key, int) else str(key or "") for key in keys]
    columns = [array("q") for _ in range(5)]
    tid = _Columns(export.columns(table), checked=True).integer("globalTid")
    for start, end, key, thread in export.execute(
        f'SELECT start, "end", {text_id}, {tid} FROM {table} WHERE {named} ORDER BY start'
    ):
        for column, value in zip(columns, (start, end, number_by_key[key], thread, -1), strict=True):
            column.append(value)
    yield "nvtx", _span_table("nvtx", _Rows(columns), lambda key: names[key] or "(no text)", devices.thread_track)


def _count_damaged(issues: list[Issue], kind: str, rows: _Rows) -> None:
    if rows.damaged:
        text = f"{kind} rows without a usable start and end were left out"
        issues.append(Issue(Severity.WARNING, f"nsys-{kind}-times", text, rows.damaged))


def _missing(export: _Export, kernels: KernelTable) -> Iterable[Missing]:
    graphs = _GRAPHS in export.tables
    if not len(kernels):
        reason = "the capture has no CUDA kernels"
        remedy = "nsys profile --trace=cuda,nvtx,osrt -- CMD, and let it run while the GPU works"
        if graphs:
            reason, remedy = "the capture traced CUDA graphs as a whole", "nsys profile --cuda-graph-trace=node"
        yield Missing("kernels", Unknown(reason, remedy))
    elif graphs:
        why = Unknown(
            "graphs were traced as a whole: their kernels are not listed", "nsys profile --cuda-graph-trace=node"
        )
        yield Missing("kernels in CUDA graphs", why)
    if not export.has("NVTX_EVENTS"):
        yield Missing("nvtx", Unknown("the capture has no NVTX ranges", "nsys profile --trace=cuda,nvtx,osrt"))


def _diagnostics(export: _Export) -> Iterator[Issue]:
    """The capture's own warnings and errors."""
    levels = {2: Severity.WARNING, 3: Severity.ERROR}
    for severity, text in dict.fromkeys(export.rows("DIAGNOSTIC_EVENT", "severity", "text")):
        if isinstance(severity, int) and severity in levels:
            yield Issue(levels[severity], "nsys-diagnostic", str(text))


def _origin(export: _Export, path: Path, devices: _Devices) -> Origin:
    exported = dict(_pairs(export, _EXPORT_FACTS))
    return Origin(
        kind=NsysSqliteParser.name,
        path=str(path),
        tool_version=exported.get("EXPORT_PRODUCT_VERSION", ""),
        gpu=_gpu_names(devices.names),
        facts=_facts(export, exported),
    )


def _gpu_names(names: Mapping[object, str]) -> str:
    """The models of all GPUs.

    >>> _gpu_names({0: "NVIDIA H100", 1: "NVIDIA H100"})
    '2x NVIDIA H100'
    """
    counts = {name: list(names.values()).count(name) for name in dict.fromkeys(names.values())}
    return ", ".join(name if count == 1 else f"{count}x {name}" for name, count in counts.items())


def _pairs(export: _Export, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and values of the first of these tables that is there."""
    for table in tables:
        if table in export.tables:
            for name, value in export.rows(table, "name", "value"):
                yield str(name), str(value)
            return


def _facts(export: _Export, exported: Mapping[str, str]) -> dict[str, Fact]:
    capture = list(_pairs(export, ("META_DATA_CAPTURE",)))
    words = [value for name, value in capture if name.startswith("PROCESS_0:") and _is_command(name)]
    wanted = {
        "schema": exported.get("EXPORT_SCHEMA_VERSION", ""),
        "command": redact(" ".join(words)),
        "traced": ", ".join(value for name, value in capture if name == "CAPTURE_EVENT_TYPE"),
        "started": next((str(utc) for (utc,) in export.rows("TARGET_INFO_SESSION_START_TIME", "utcTime")), ""),
        "host": next((value for name, value in capture if name == "DEVICE_DISPLAY_NAME"), ""),
        **_variables(value for name, value in capture if name.endswith("ENVIRONMENT_VARIABLE")),
    }
    return {name: value for name, value in wanted.items() if value}


def _is_command(name: str) -> bool:
    """COMMAND, then ARGUMENT_0, ARGUMENT_1 ... in the order of the file."""
    return name.endswith(":COMMAND") or ":ARGUMENT_" in name


def _variables(assignments: Iterable[str]) -> dict[str, str]:
    """The environment variables that matter to a server."""
    shown = (assignment for assignment in assignments if assignment.startswith(_SHOWN_VARIABLES))
    pairs = (redact(assignment.replace('"', "")).partition("=") for assignment in shown)
    return {name: value for name, _, value in pairs}
