"""Whatever bytes of an Nsight Systems export change: a trace, all of which can be read, or one sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop import columns
from llmtop.analysis.kernels.nvtx_ranges import launch_ranges
from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers.nsys import NsysSqliteParser
from llmtop.parsers.registry import load
from tests.nsys_capture import BLOCKED, PID, TID, Capture, add_table, global_id
from tests.parsers.full_export import full_export

A, P = global_id(PID, TID), global_id(PID)
MORE = {
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start end deviceId streamId correlationId globalPid syncType", (5, 6, 0, 7, 1, P, 3)
    ),
    "CUBLAS_EVENTS": ("start end eventClass globalTid nameId", (5, 6, 29, A, 1)),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": ("start end globalPid deviceId faultAccessType", (5, 6, P, 0, 1)),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start globalPid deviceId address bytes memKind memoryOperationType", (5, P, 0, 4096, 100, 2, 0)
    ),
    "TARGET_INFO_GPU_METRICS": ("typeId metricId metricName:TEXT", (0, 1, "SMs Active [Throughput %]")),
    "GPU_METRICS": ("timestamp typeId metricId value", (5, 0, 1, 50)),
    "CUDA_GRAPH_NODE_EVENTS": (
        "start end globalTid nameId graphNodeId originalGraphNodeId", (5, 6, A, 1, 9, None)
    ),
    "GENERIC_EVENT_TYPES": ("typeId data:TEXT", (1, "GPU Metrics")),
    "NET_NIC_METRIC": ("start end globalId metricsListId metricsIdx value", (5, 6, 1, 1, 1, 1)),
    "TARGET_INFO_NETWORK_METRICS": ("metricsListId metricsIdx name:TEXT unit:TEXT", (1, 1, "sent", "B/ms")),
}  # fmt: skip


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row or more in each table that is read."""
    capture = Capture()
    for at in range(0, 1000, 50):
        capture.kernel(at + 30, at + 40, capture.call("cudaLaunchKernel", at + 10, at + 20))
        capture.call("cudaStreamIsCapturing", at + 41, at + 42)
        capture.os("read", at + 43, at + 49)
        capture.os("poll", at + 43, at + 49, tid=7)
        capture.off_cpu(at + 44, at + 46, BLOCKED)
        capture.sample(at + 45, "work", "main")
        capture.nvtx("decode", at, at + 49)
    capture.copy(50, 60, capture.call("cudaMemcpyAsync", 45, 48))
    path = capture.write(tmp_path_factory.mktemp("damage") / "whole.sqlite")
    for table, (schema, row) in MORE.items():
        add_table(path, table, schema, *[row] * 3)
    return path


@pytest.mark.parametrize("are_registered", [False, True], ids=["own texts", "registered texts"])
@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_what_takes_no_time_is_a_span_in_every_table(
    tmp_path: Path, long: int, are_registered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only what ends before it begins is left out."""
    monkeypatch.setattr(columns, "LONG", long)
    export = full_export(tmp_path / "full.sqlite")
    with closing(sqlite3.connect(export)) as base, base:
        if are_registered:
            base.execute("INSERT INTO StringIds SELECT 5000 + rowid, text FROM NVTX_EVENTS")
            base.execute("UPDATE NVTX_EVENTS SET textId = 5000 + rowid, text = NULL")
        base.commit()
        before = amounts(export)
        for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if {"start", "end"} <= {row[1] for row in base.execute(f"PRAGMA table_info({table})")}:
                base.execute(f'UPDATE {table} SET "end" = start WHERE "end" > start')
    assert amounts(export) == before


def amounts(export: Path) -> dict[str, int]:
    trace = load(export)
    return {kind: len(table) for of in (trace.spans, trace.more_spans) for kind, table in of.items()}


def read_all(trace: Trace) -> int:
    """All that a view may ask for; how much it is."""
    spans = [table for of in (trace.spans, trace.more_spans) for table in of.values()]
    assert all(table.start_ns[i] <= table.end_ns[i] for table in spans for i in range(len(table)))
    assert all(isinstance(track.name, str) for track in trace.tracks.values())
    samples = sum(len(list(series)) for series in trace.series.values())
    return sum(map(len, spans)) + samples + len(trace.stacks) + len(launch_ranges(trace))


def test_all_of_a_whole_one_is_there(export: Path) -> None:
    trace = NsysSqliteParser().parse(export)
    assert read_all(trace) > 200
    assert {"os", "sync", "region", "page-fault", "allocation", "sample", "off-cpu"} < set(trace.spans)
    assert len(trace.series) == 3
    assert trace.issues == []


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(place=st.integers(100, 1 << 30), change=st.binary(min_size=1, max_size=12))
def test_changed_bytes_cost_no_more_than_a_sentence(export: Path, long: int, place: int, change: bytes) -> None:
    whole = export.read_bytes()
    place %= len(whole)
    changed = export.with_name("changed.sqlite")
    changed.write_bytes((whole[:place] + change + whole[place + len(change) :])[: len(whole)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LONG", long)
        try:
            read_all(NsysSqliteParser().parse(changed))
        except FileError as error:
            said = str(error)
            assert "\n" not in said


@settings(deadline=None, max_examples=20)
@given(swap=st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)))
def test_swapped_pages_cost_no_more_than_a_sentence(export: Path, swap: tuple[int, int]) -> None:
    whole = bytearray(export.read_bytes())
    size = int.from_bytes(whole[16:18])
    one, other = (1 + place % (len(whole) // size - 1) for place in swap)
    first, second = slice(one * size, (one + 1) * size), slice(other * size, (other + 1) * size)
    whole[first], whole[second] = whole[second], whole[first]
    swapped = export.with_name("swapped.sqlite")
    swapped.write_bytes(whole)
    try:
        read_all(NsysSqliteParser().parse(swapped))
    except FileError as error:
        said = str(error)
        assert "\n" not in said


def test_a_page_of_names_that_lost_its_rows_is_damage(export: Path, tmp_path: Path) -> None:
    """The number of cells of the first page, without which no table is known."""
    content = bytearray(export.read_bytes())
    kept = content[104]
    content[104] = kept - 1
    (tmp_path / "file").write_bytes(content)
    assert "nsys-damaged" in {issue.code for issue in load(tmp_path / "file").issues}
    content[104] = kept
    (tmp_path / "file").write_bytes(content)
    assert not load(tmp_path / "file").issues


def test_of_a_large_export_the_page_of_names_is_checked(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmtop.parsers.nsys_export._CHECKED_WHOLE", 0)
    test_a_page_of_names_that_lost_its_rows_is_damage(export, tmp_path)
