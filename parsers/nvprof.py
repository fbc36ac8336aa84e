"""Profiles of nvprof and the Visual Profiler (SQLite), read as what Nsight Systems would have exported of them.

Both write what CUPTI records, in tables of one name with other columns: calls have numbers in the place of names,
kernels mangled ones, memory other kinds. The tables are made anew in memory, as the reader of exports knows them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llmtop.parsers.nsys_export import Export

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_OWN = frozenset({"StringTable", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"})
"""Tables that its files have, and exports of Nsight Systems do not."""
_RUNTIME = {
    13: "cudaLaunch",
    20: "cudaMalloc",
    21: "cudaMallocPitch",
    22: "cudaFree",
    25: "cudaMallocHost",
    26: "cudaFreeHost",
    27: "cudaHostAlloc",
    31: "cudaMemcpy",
    32: "cudaMemcpy2D",
    39: "cudaMemcpyToSymbol",
    40: "cudaMemcpyFromSymbol",
    41: "cudaMemcpyAsync",
    44: "cudaMemcpy2DAsync",
    49: "cudaMemset",
    51: "cudaMemsetAsync",
    126: "cudaThreadSynchronize",
    129: "cudaStreamCreate",
    130: "cudaStreamDestroy",
    131: "cudaStreamSynchronize",
    132: "cudaStreamQuery",
    135: "cudaEventRecord",
    137: "cudaEventSynchronize",
    138: "cudaEventQuery",
    147: "cudaStreamWaitEvent",
    164: "cudaDeviceReset",
    165: "cudaDeviceSynchronize",
    206: "cudaMallocManaged",
    211: "cudaLaunchKernel",
}
"""Calls by their numbers in CUPTI (CUpti_runtime_api_trace_cbid): those that work or wait; others keep the number."""
_DRIVER = {307: "cuLaunchKernel"}
_RUNTIME_TEXTS, _DRIVER_TEXTS = 1_000_000_000, 2_000_000_000
"""Ids of texts that are added to the file's: behind them stands the number of the call."""
_SIZES = "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory"
_IDS = "deviceId, streamId, correlationId"
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "SELECT start - {t0} AS start, end - {t0} AS end, {pid} << 24 AS globalPid, name AS demangledName, "
        f"name AS shortName, {_IDS}, {_SIZES} FROM main.{{source}}",
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "SELECT start - {t0} AS start, end - {t0} AS end, {pid} << 24 AS globalPid, copyKind, bytes, "
        # CUpti_ActivityMemoryKind counts from 1, and calls 0 what it does not know.
        f"srcKind - 1 AS srcKind, dstKind - 1 AS dstKind, {_IDS} FROM main.{{source}}",
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "SELECT start - {t0} AS start, end - {t0} AS end, {pid} << 24 AS globalPid, value, bytes, "
        f"{_IDS} FROM main.{{source}}",
        ("CUPTI_ACTIVITY_KIND_MEMSET",),
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "SELECT w.start - {t0} AS start, w.end - {t0} AS end, {pid} << 24 AS globalPid, w.type AS syncType, "
        "c.deviceId, w.streamId, w.correlationId "
        "FROM main.{source} AS w LEFT JOIN main.CUPTI_ACTIVITY_KIND_CONTEXT AS c USING (contextId)",
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "SELECT start - {t0} AS start, end - {t0} AS end, 0 AS eventClass, "
        "(processId << 24) | (threadId & 0xFFFFFF) AS globalTid, correlationId, {texts} + cbid AS nameId, returnValue "
        "FROM main.{source}",
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"),
    ),
    "TARGET_INFO_GPU": (
        "SELECT id, coalesce(value, '') AS name, numMultiprocessors AS smCount, "
        "computeCapabilityMajor AS computeMajor, computeCapabilityMinor AS computeMinor "
        "FROM main.{source} AS d LEFT JOIN main.StringTable AS s ON s._id_ = d.name",
        ("CUPTI_ACTIVITY_KIND_DEVICE",),
    ),
    "TARGET_INFO_SESSION_START_TIME": ("SELECT {t0} AS utcEpochNs, '' AS utcTime", ("",)),
}
"""Tables of an export: how they are made of those of a profile, and of which; those have no times before t0."""
_MIGRATIONS = (
    "INSERT INTO temp.CUPTI_ACTIVITY_KIND_MEMCPY "
    "SELECT start - {t0}, end - {t0}, {pid} << 24, counterKind + 10, value, -1, -1, dstId, streamId, -1 "
    "FROM main.CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER WHERE counterKind IN (1, 2) AND end > start"
)
"""Pages of managed memory that move, to the GPU and from it: copies of kinds 11 and 12."""
_PART = re.compile(r"(\d+)")


def is_profile(tables: Iterable[str]) -> bool:
    """Whether a database with these tables is one of nvprof's."""
    return _OWN.issubset(tables)


class NvprofExport(Export):
    """A profile of nvprof that answers like an export of Nsight Systems."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._there = self.tables
        t0 = min(filter(None, map(self._first, ("start", "timestamp"))), default=0)
        pid = next(iter(self._of_calls("SELECT min(processId) FROM main.{}")), 0)
        for name, (select, sources) in _TABLES.items():
            parts = [
                select.format(source=one, t0=t0, pid=pid, texts=_DRIVER_TEXTS if "DRIVER" in one else _RUNTIME_TEXTS)
                for one in sources
                if not one or one in self._there
            ]
            if parts:
                self.execute(f"CREATE TEMP TABLE {name} AS {' UNION ALL '.join(parts)}")
        if {"CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER", "CUPTI_ACTIVITY_KIND_MEMCPY"} <= self._there:
            self.execute(_MIGRATIONS.format(t0=t0, pid=pid))
        self.execute("CREATE TEMP TABLE StringIds (id, value)")
        self._insert("StringIds", self._texts())
        self.execute("CREATE TEMP TABLE META_DATA_CAPTURE (name, value)")
        self._insert("META_DATA_CAPTURE", self._command())
        made = self.execute("SELECT name FROM temp.sqlite_master WHERE type = 'table'")
        self.tables = frozenset(name for (name,) in made)

    def is_bulk(self, table: str) -> bool:
        """Its tables are in memory."""
        return False

    def _insert(self, table: str, rows: Iterable[tuple[object, object]]) -> None:
        for row in rows:
            self.execute(f"INSERT INTO temp.{table} VALUES (?, ?)", row)

    def _first(self, column: str) -> int | None:
        """The first moment in any table that has this column."""
        named = (one for one in self._there if one.startswith("CUPTI_") and column in self._columns(one))
        found = (
            self.execute(f"SELECT min({column}) FROM main.{one} WHERE {column} > 0").fetchone()[0] for one in named
        )
        return min((one for one in found if isinstance(one, int)), default=None)

    def _of_calls(self, query: str) -> Iterator[int]:
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
            if table in self._there:
                yield from (one for (one,) in self.execute(query.format(table)) if isinstance(one, int))

    def _texts(self) -> Iterator[tuple[object, object]]:
        for key, text in self.execute("SELECT _id_, value FROM main.StringTable").fetchall():
            yield key, function_name(text) if isinstance(text, str) else text
        for table, first, names, api in (
            ("CUPTI_ACTIVITY_KIND_RUNTIME", _RUNTIME_TEXTS, _RUNTIME, "runtime"),
            ("CUPTI_ACTIVITY_KIND_DRIVER", _DRIVER_TEXTS, _DRIVER, "driver"),
        ):
            if table in self._there:
                for (number,) in self.execute(f"SELECT DISTINCT cbid FROM main.{table}").fetchall():
                    yield first + number, names.get(number, f"call {number} of the CUDA {api} API")

    def _command(self) -> Iterator[tuple[object, object]]:
        """The program's command line, which is its process's name."""
        if "CUPTI_ACTIVITY_KIND_NAME" not in self._there:
            return
        query = (
            "SELECT value FROM main.CUPTI_ACTIVITY_KIND_NAME AS n JOIN main.StringTable AS s ON s._id_ = n.name "
            "WHERE objectKind = 1 LIMIT 1"
        )
        for (text,) in self.execute(query).fetchall():
            command, *arguments = str(text).split() or [""]
            yield "PROCESS_0:COMMAND", command
            yield from ((f"PROCESS_0:ARGUMENT_{i}", one) for i, one in enumerate(arguments))


def function_name(mangled: str) -> str:
    """The function of a mangled name (Itanium C++ ABI), without its arguments; others as they are.

    >>> function_name("_Z6vecAddPdS_S_i"), function_name("_ZN2at6native5scaleIfEEvT_"), function_name("kernel")
    ('vecAdd', 'at::native::scale', 'kernel')
    """
    if not mangled.startswith("_Z"):
        return mangled
    rest, parts = mangled[2:].lstrip("NKL"), []
    while match := _PART.match(rest):
        end = match.end() + int(match[1])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    names = ("(anonymous namespace)" if part.startswith("_GLOBAL__N_") else part for part in parts)
    return "::".join(names) or mangled
