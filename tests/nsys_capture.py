"""Nsight Systems exports with known causes of idle time, written table by table as any `nsys export` does."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_schemas import USUAL, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from llmtop.model import Trace

US, MS = 1_000, 1_000_000
PID, TID = 100, 101
HTOD, DTOH, DTOD = 1, 2, 8
PAGEABLE, PINNED, DEVICE = 0, 1, 2
RUNNABLE, BLOCKED, UNINTERRUPTIBLE, NO_STATE = 6, 2, 3, 0

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COLUMNS = {
    _KERNEL: (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "graphNodeId",
    ),
    _RUNTIME: ("start", "end", "eventClass", "globalTid", "correlationId", "nameId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind",
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": ("start", "end", "globalTid", "nameId", "overheadType"),
    "PROFILER_OVERHEAD": ("start", "end", "globalTid", "nameId", "returnValue"),
    "OSRT_API": ("start", "end", "globalTid", "nameId", "nestingLevel"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "globalTid"),
    "SCHED_EVENTS": ("start", "cpu", "isSchedIn", "globalTid", "threadState"),
    "COMPOSITE_EVENTS": ("id", "start", "globalTid"),
    "SAMPLING_CALLCHAINS": ("id", "symbol", "unresolved", "stackDepth"),
    "TARGET_INFO_GPU": ("id", "name", "smCount"),
    "META_DATA_EXPORT": ("name", "value"),
    "EXPORT_META_DATA": ("name", "value"),
    "StringIds": ("id", "value"),
    "ThreadNames": ("nameId", "priority", "globalTid"),
    "PROCESSES": ("globalPid", "pid", "name"),
    "TARGET_INFO_NVTX_CUDA_STREAM": ("name", "processId", "deviceId", "contextId", "streamId"),
}  # fmt: skip
"""What is known of a row here. What else a schema has is NULL, and what it has not is left out."""


def global_id(pid: int, tid: int = 0) -> int:
    return (1 << 48) | (pid << 24) | tid


@dataclass
class Capture:
    """A capture under construction. All times are ns; a call returns the correlation id that its work takes."""

    tables: dict[str, list[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    sms: int | None = None

    def call(self, name: str, start: int, end: int, *, pid: int = PID, tid: int = TID) -> int:
        """A CUDA call."""
        self.calls += 1
        self.tables[_RUNTIME].append((start, end, 0, global_id(pid, tid), self.calls, self.string(f"{name}_v7000")))
        return self.calls

    def kernel(
        self,
        start: int,
        end: int,
        call: int,
        name: str = "gemm",
        *,
        gpu: int = 0,
        stream: int = 7,
        pid: int = PID,
        blocks: int = 64,
    ) -> None:
        """A kernel that `call` launched; several of one call are nodes of a graph."""
        key = self.string(name)
        row = (start, end, gpu, stream, call, global_id(pid), key, key, blocks, 1, 1, 128, 1, 1, None)
        self.tables[_KERNEL].append(row)

    def copy(
        self,
        start: int,
        end: int,
        call: int,
        kind: int = HTOD,
        *,
        host: int = PINNED,
        gpu: int = 0,
        size: int = 4096,
        pid: int = PID,
    ) -> None:
        """A copy that `call` made, its host side of the kind `host`."""
        source, target = (host, DEVICE) if kind == HTOD else (DEVICE, host)
        row = (start, end, gpu, 7, call, global_id(pid), size, kind, source, target)
        self.tables["CUPTI_ACTIVITY_KIND_MEMCPY"].append(row)

    def graph(self, start: int, end: int, call: int, *, gpu: int = 0) -> None:
        """A graph that was traced as a whole."""
        self.tables["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((start, end, gpu, 7, call, global_id(PID), 1))

    def os(self, name: str, start: int, end: int, *, pid: int = PID, tid: int = TID) -> None:
        """A call of the C library."""
        self.tables["OSRT_API"].append((start, end, global_id(pid, tid), self.string(name), 0))

    def nvtx(self, text: str, start: int, end: int, *, pid: int = PID, tid: int = TID) -> None:
        """A range pushed and popped."""
        self.tables["NVTX_EVENTS"].append((start, end, 59, text, global_id(pid, tid)))

    def off_cpu(self, start: int, end: int, state: int = RUNNABLE, *, pid: int = PID, tid: int = TID) -> None:
        """A thread off its CPU."""
        thread = global_id(pid, tid)
        self.tables["SCHED_EVENTS"] += [(start, 0, 0, thread, state), (end, 1, 1, thread, 0)]

    def sample(self, at: int, *leaf_first: str, pid: int = PID, tid: int = TID) -> None:
        """Where a thread stood; an empty name is an address without a symbol."""
        number = len(self.tables["COMPOSITE_EVENTS"]) + 1
        self.tables["COMPOSITE_EVENTS"].append((number, at, global_id(pid, tid)))
        for depth, name in enumerate(leaf_first):
            row = (number, self.string(name or "0x7f00"), int(not name), depth)
            self.tables["SAMPLING_CALLCHAINS"].append(row)

    def overhead(self, name: str, start: int, end: int, *, tid: int = TID) -> None:
        """What the profiler did on a thread."""
        row = (start, end, global_id(PID, tid), self.string(name), 0)
        self.tables["PROFILER_OVERHEAD"].append(row)

    def driver(self, kind: int, start: int, end: int, *, tid: int = TID) -> None:
        """What the driver did behind a call, by its number in ENUM_CUPTI_OVERHEAD_TYPE."""
        row = (start, end, global_id(PID, tid), self.string("overhead"), kind)
        self.tables["CUPTI_ACTIVITY_KIND_OVERHEAD"].append(row)

    def fits(self, schema: Schema) -> bool:
        """Whether a version has a table for all that was captured."""
        return self.tables.keys() <= schema.tables.keys()

    def write(self, path: Path, schema: Schema = USUAL) -> Path:
        """Make the database."""
        facts = [("EXPORT_SCHEMA_VERSION", schema.version), ("EXPORT_PRODUCT_VERSION", schema.product)]
        gpus = [(gpu, "NVIDIA H100", self.sms) for gpu in (0, 1)]
        strings = [(number, text) for text, number in self.strings.items()]
        fixed: dict[str, list[tuple[object, ...]]] = {}
        fixed |= {schema.facts: [*facts], "TARGET_INFO_GPU": [*gpus], "StringIds": [*strings]}
        with closing(sqlite3.connect(path)) as database:
            for table, rows in {**self.tables, **fixed}.items():
                _insert(database, table, rows, schema.tables[table])
            database.commit()
        return path

    def trace(self, folder: Path, schema: Schema = USUAL) -> Trace:
        """What llmtop reads of it."""
        return NsysSqliteParser().parse(self.write(folder / "capture.sqlite", schema))

    def string(self, text: str) -> int:
        """The number of a text."""
        return self.strings.setdefault(text, len(self.strings) + 1)


def add_table(path: Path, table: str, columns: str, *rows: Sequence[object]) -> None:
    """A further table of an export; names of columns beside those of numbers end with `:TEXT` or `:REAL`."""
    declared = [(name.partition(":")[0], name.partition(":")[2] or "INTEGER") for name in columns.split()]
    with closing(sqlite3.connect(path)) as database:
        told = ", ".join(f'"{name}" {kind}' for name, kind in declared)
        database.execute(f"CREATE TABLE {table} ({told})")
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(declared))})", rows)
        database.commit()


def _insert(
    database: sqlite3.Connection, table: str, rows: Iterable[tuple[object, ...]], columns: Sequence[str]
) -> None:
    """Make a table with these columns, and fill those of them that are known."""
    names = ", ".join(f'"{column}"' for column in columns)
    known = [_COLUMNS[table].index(column) if column in _COLUMNS[table] else None for column in columns]
    database.execute(f"CREATE TABLE {table} ({names})")
    values = ([None if at is None else row[at] for at in known] for row in rows)
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values)
