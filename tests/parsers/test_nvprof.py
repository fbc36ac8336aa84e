"""Profiles of nvprof: made here with a few rows of each table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.gpus.capability import capability_of
from llmtop.analysis.pages.damage import damage
from llmtop.analysis.rules.registry import diagnose
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.parsers.registry import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from llmtop.model import Trace

T0 = 1_700_000_000_000_000_000
_KERNEL = (
    "start, end, deviceId, contextId, streamId, correlationId, name, gridX, gridY, gridZ, blockX, blockY, blockZ, "
    "registersPerThread, staticSharedMemory, dynamicSharedMemory"
)
_CALL = "cbid, start, end, processId, threadId, correlationId, returnValue"
_COLUMNS = {
    "StringTable": "_id_, value",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALL,
    "CUPTI_ACTIVITY_KIND_DRIVER": _CALL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "copyKind, srcKind, dstKind, bytes, start, end, deviceId, contextId, streamId, correlationId"
    ),
    "CUPTI_ACTIVITY_KIND_DEVICE": "id, name, numMultiprocessors, computeCapabilityMajor, computeCapabilityMinor",
    "CUPTI_ACTIVITY_KIND_CONTEXT": "contextId, deviceId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "type, start, end, correlationId, contextId, streamId",
    "CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER": "counterKind, value, start, end, dstId, streamId",
    "CUPTI_ACTIVITY_KIND_NAME": "objectKind, name",
}
TEXTS = [(1, "a.out 100"), (2, "Tesla T4"), (3, "_Z6vecAddPdS_S_i")]


def profile(path: Path, **rows: Sequence[tuple[object, ...]]) -> Path:
    """A database with these rows; tables without rows are there all the same, as nvprof makes them."""
    with closing(sqlite3.connect(path)) as database:
        for table, columns in _COLUMNS.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
            for row in rows.get(table.removeprefix("CUPTI_ACTIVITY_KIND_"), ()):
                database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Two kernels with their launches, a copy of pinned memory, a wait for a stream, a page that moves."""
    size = (4, 1, 1, 256, 1, 1, 16, 0, 0)
    made = profile(
        tmp_path / "made.nvvp",
        StringTable=TEXTS,
        NAME=[(1, 1)],
        DEVICE=[(0, 2, 40, 7, 5)],
        CONTEXT=[(1, 0)],
        RUNTIME=[
            (41, T0, T0 + 2000, 42, 790188032, 1, 0),
            (211, T0 + 10_000, T0 + 14_000, 42, 790188032, 2, 0),
            (999, T0 + 15_000, T0 + 17_000, 42, 790188032, 9, 0),
        ],
        DRIVER=[(307, T0 + 20_000, T0 + 24_000, 42, 790188032, 3, 0)],
        CONCURRENT_KERNEL=[
            (T0 + 15_000, T0 + 18_000, 0, 1, 7, 2, 3, *size),
            (T0 + 25_000, T0 + 29_000, 0, 1, 7, 3, 3, *size),
        ],
        MEMCPY=[(1, 2, 3, 8000, T0 + 1000, T0 + 3000, 0, 1, 7, 1)],
        SYNCHRONIZATION=[(3, T0 + 26_000, T0 + 30_000, 4, 1, 7)],
        UNIFIED_MEMORY_COUNTER=[(1, 4096, T0 + 40_000, T0 + 41_000, 0, 7), (3, 1, T0 + 40_000, T0 + 40_000, 0, 7)],
    )
    return load(made)


def test_kernels_copies_and_calls_are_read(trace: Trace) -> None:
    assert trace.origin.kind == "nvprof"
    assert trace.origin.gpu == "Tesla T4"
    assert trace.origin.utc_ns == T0
    assert trace.origin.facts[OriginFact.COMMAND] == "a.out 100"
    assert capability_of(trace) == (7, 5)
    assert trace.kernels is not None
    assert trace.kernels.functions == ("vecAdd",)
    assert list(trace.kernels.duration_ns) == [3000.0, 4000.0]
    assert sorted(trace.spans["memcpy"].names) == ["copy HtoD", "migration HtoD"]
    assert list(trace.spans["launch"].names) == ["cudaLaunchKernel", "cuLaunchKernel"]
    assert list(trace.spans["launch"].correlation) == list(trace.spans["kernel"].correlation)
    assert "call 999 of the CUDA runtime API" in trace.spans["call"].names
    assert trace.spans["sync"].names == ("wait for a stream",)
    assert damage(trace) == ()


def test_numbers_are_said_to_be_of_nvprof(trace: Trace) -> None:
    evidence = " ".join(line for one in diagnose(trace).findings for line in one.evidence)
    assert "(nvprof)" in evidence
    assert "(nsys)" not in evidence


def test_kernels_one_by_one_are_read_too(tmp_path: Path) -> None:
    row = (T0, T0 + 500, 0, 1, 7, 2, 3, 1, 1, 1, 32, 1, 1, 8, 0, 0)
    trace = load(profile(tmp_path / "a.nvvp", StringTable=TEXTS, KERNEL=[row]))
    assert trace.kernels is not None
    assert list(trace.kernels.duration_ns) == [500.0]


def test_a_profile_without_rows_says_what_to_do(tmp_path: Path) -> None:
    trace = load(profile(tmp_path / "empty.nvvp", StringTable=TEXTS))
    assert trace.kernels is not None
    assert not len(trace.kernels)


def test_a_damaged_profile_is_refused_in_a_line(tmp_path: Path) -> None:
    path = profile(tmp_path / "cut.nvvp", StringTable=[(i, "x" * 900) for i in range(200)])
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(FileError, match="truncated"):
        load(path)
