"""Waits, faults, memory, libraries, metrics and stacks of Nsight Systems exports, by the tables of their versions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from llmtop import columns, ids
from llmtop.analysis.threads.stack_tree import stack_tree
from llmtop.analysis.views import StackTree
from llmtop.model import SpanTable, Trace
from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_capture import PID, TID, Capture, add_table, global_id

THREAD, PROCESS = global_id(PID, TID), global_id(PID)
NO_STREAM = 0xFFFFFFFF


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A kernel on GPU 0, and texts: 3 is MPI_Send, 4 is cublasGemmEx, 5 is libc.so."""
    capture = Capture()
    capture.kernel(30, 40, capture.call("cudaLaunchKernel", 10, 20))
    assert [capture.string(text) for text in ("MPI_Send", "cublasGemmEx", "/lib/libc.so")] == [3, 4, 5]
    return capture.write(tmp_path / "capture.sqlite")


def read(path: Path) -> Trace:
    return NsysSqliteParser().parse(path)


def told(table: SpanTable) -> list[tuple[str, str, int, int]]:
    names, tracks = ([of[i] for i in ids] for of, ids in ((table.names, table.name_id), (table.tracks, table.track_id)))
    return list(zip(names, tracks, table.start_ns, table.end_ns, strict=True))


def samples(trace: Trace) -> Mapping[tuple[str, str], list[tuple[int, float | None]]]:
    return {key: list(series) for key, series in trace.series.items()}


OLD_SYNC = "start end deviceId contextId streamId correlationId globalPid syncType eventId"
NEW_SYNC = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid deprecatedSyncType syncType eventId"
)


@pytest.mark.parametrize("schema", [OLD_SYNC, NEW_SYNC], ids=["old", "new"])
def test_waits_are_on_their_stream_or_on_the_process_that_has_it(path: Path, schema: str) -> None:
    rows = [
        {"start": 50, "end": 60, "streamId": 7, "syncType": 3, "correlationId": 9},
        {"start": 70, "end": 80, "streamId": NO_STREAM, "syncType": 4, "correlationId": 10},
        {"start": 90, "end": 95, "streamId": 13, "syncType": 2, "correlationId": 11},
        {"start": 99, "end": 98, "streamId": 13, "syncType": 2, "correlationId": 11},
    ]
    row = {"deviceId": 0, "contextId": 1, "globalPid": PROCESS, "eventId": 1}
    add_table(
        path,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        schema,
        *([(row | one).get(name) for name in schema.split()] for one in rows),
    )
    trace = read(path)
    assert trace.end_ns == 40, "waits are read when they are asked for"
    assert told(trace.spans["sync"]) == [
        ("wait for a stream", "gpu:0/process:100/stream:7", 50, 60),
        ("wait for a context", "gpu:0/process:100", 70, 80),
        ("stream waits for an event", "gpu:0/process:100/stream:13", 90, 95),
    ]
    assert trace.spans["sync"].correlation[0] == (PID << 32) | 9
    assert [(issue.code, issue.count) for issue in trace.issues] == [("nsys-sync-times", 1)]
    assert trace.tracks[ids.gpu_process(ids.gpu(0), PID)].parent == ids.gpu(0)


def test_waits_are_named_by_their_numbers(path: Path) -> None:
    """ENUM_CUPTI_SYNC_TYPE; what a newer nsys may add is a wait too."""
    rows = [(100 * kind, 100 * kind + 50, 0, 1, 7, kind, PROCESS, kind, 1) for kind in range(6)]
    add_table(path, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", OLD_SYNC, *rows)
    assert [name for name, *_ in told(read(path).spans["sync"])] == [
        *("wait", "wait for an event", "stream waits for an event", "wait for a stream", "wait for a context"),
        "wait",
    ]


def test_calls_of_libraries_are_regions_with_the_bytes_that_they_moved(path: Path) -> None:
    add_table(
        path,
        "MPI_P2P_EVENTS",
        "start end globalTid textId commHandle tag remoteRank size requestHandle",
        (100, 120, THREAD, 3, 1, 0, 1, 4096, 0),
        (130, 140, THREAD, 3, 1, 0, 1, None, 0),
    )
    add_table(path, "CUBLAS_EVENTS", "start end eventClass globalTid nameId", (50, 60, 29, THREAD, 4))
    add_table(path, "A_TABLE_TO_COME", "start end globalTid nameId", (70, 80, THREAD, 77))
    regions = read(path).spans["region"]
    assert told(regions) == [
        ("cublasGemmEx", "thread:100/101", 50, 60),
        ("call 77", "thread:100/101", 70, 80),
        ("MPI_Send", "thread:100/101", 100, 120),
        ("MPI_Send", "thread:100/101", 130, 140),
    ]
    assert [regions.amount[2], regions.amount[3] == regions.amount[3]] == [4096, False]


def test_page_faults_of_unified_memory(path: Path) -> None:
    add_table(
        path,
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        "start end globalPid deviceId address numberOfPageFaults faultAccessType",
        (50, 60, PROCESS, 0, 4096, 3, 2),
    )
    add_table(
        path,
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        "start globalPid address originalFaultPc CpuInstruction module unresolvedFaultPc",
        (45, PROCESS, 4096, 1, None, None, None),
    )
    assert told(read(path).spans["page-fault"]) == [
        ("CPU page fault", "process:100", 45, 45),
        ("GPU page faults (write)", "gpu:0/process:100", 50, 60),
    ]


def test_faults_of_gpus_are_named_by_the_kind_of_access(path: Path) -> None:
    """ENUM_CUDA_UNIF_MEM_ACCESS_TYPE."""
    rows = [(100 * kind, 100 * kind + 50, PROCESS, 0, 4096, 3, kind) for kind in range(6)]
    columns = "start end globalPid deviceId address numberOfPageFaults faultAccessType"
    add_table(path, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", columns, *rows)
    kinds = ("unknown access", "read", "write", "atomic", "prefetch", "unknown access")
    assert [name for name, *_ in told(read(path).spans["page-fault"])] == [
        f"GPU page faults ({kind})" for kind in kinds
    ]


OLD_MEMORY = (
    "start globalPid deviceId contextId address pc bytes memKind memoryOperationType name:TEXT correlationId "
    "localMemoryPoolAddress localMemoryPoolReleaseThreshold localMemoryPoolSize localMemoryPoolUtilizedSize"
)


def memory(path: Path, *events: tuple[int, int, int, int, int], gpu: int = 0) -> None:
    """Allocations (0) and releases (1): start, address, bytes, kind, which of both."""
    rows = ((t, PROCESS, gpu, 1, at, 0, size, kind, what, *[None] * 6) for t, at, size, kind, what in events)
    add_table(path, "CUDA_GPU_MEMORY_USAGE_EVENTS", OLD_MEMORY, *rows)


def test_memory_is_of_the_gpu_that_it_is_on(path: Path) -> None:
    memory(path, (10, 1, 100, 2, 0), (30, 1, 100, 2, 1), gpu=1)
    trace = read(path)
    assert told(trace.spans["allocation"]) == [("device memory", ids.gpu_process(ids.gpu(1), PID), 10, 30)]


def test_memory_is_named_by_its_kind(path: Path) -> None:
    """ENUM_CUDA_MEM_KIND; 7 is its "unknown"."""
    memory(path, *((100 * kind + what, kind + 1, 8, kind, what) for kind in range(8) for what in (0, 1)))
    assert [name for name, *_ in told(read(path).spans["allocation"])] == [
        *("pageable memory", "pinned memory", "device memory", "array", "managed memory", "static device memory"),
        *("static managed memory", "memory"),
    ]


def test_memory_is_held_from_its_allocation_to_its_release(path: Path) -> None:
    memory(path, (10, 1, 100, 2, 0), (20, 2, 50, 2, 0), (25, 3, 8, 1, 0), (30, 1, 100, 2, 1), (40, 9, 7, 2, 1))
    trace = read(path)
    own = ids.gpu_process(ids.gpu(0), PID)
    assert told(trace.spans["allocation"]) == [
        ("device memory", own, 10, 30),
        ("device memory (from before the capture)", own, 10, 40),
        ("device memory (not given back)", own, 20, 40),
        ("pinned memory (not given back)", own, 25, 40),
    ]
    assert list(trace.spans["allocation"].amount) == [100, 7, 50, 8]
    assert samples(trace) == {
        (own, "cuda.device_memory"): [(10, 107), (20, 157), (30, 57), (40, 50)],
        (own, "cuda.pinned_memory"): [(25, 8)],
    }, "what is given back and was never got was there before"
    assert trace.series[own, "cuda.device_memory"].metric.unit == "bytes"


def test_memory_that_is_given_back_twice_is_counted_and_held_by_nobody(path: Path) -> None:
    memory(path, (10, 1, 100, 2, 0), (20, 1, 100, 2, 1), (30, 1, 100, 2, 1), (40, 1, 60, 2, 0), (50, 1, 8, 2, 0))
    trace = read(path)
    assert [(name, start, end) for name, _, start, end in told(trace.spans["allocation"])] == [
        ("device memory", 10, 20),
        ("device memory (giving back not recorded)", 40, 50),
        ("device memory (not given back)", 50, 50),
    ]
    (levels,) = samples(trace).values()
    assert levels == [(10, 100), (20, 0), (40, 60), (50, 8)]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("nsys-allocation-odd", 1)]


def test_an_allocation_is_joined_to_the_call_that_got_it(path: Path) -> None:
    row = dict.fromkeys(name.partition(":")[0] for name in OLD_MEMORY.split())
    row |= {"start": 15, "globalPid": PROCESS, "deviceId": 0, "address": 1, "name": ""}
    row |= {"bytes": 100, "memKind": 2, "memoryOperationType": 0, "correlationId": 1}
    add_table(path, "CUDA_GPU_MEMORY_USAGE_EVENTS", OLD_MEMORY, tuple(row.values()))
    trace = read(path)
    assert list(trace.spans["allocation"].correlation) == list(trace.spans["launch"].correlation) == [(PID << 32) | 1]


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_metrics_of_gpus_are_series_with_the_unit_in_their_names(
    path: Path, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    add_table(
        path,
        "TARGET_INFO_GPU_METRICS",
        "typeId sourceId typeName:TEXT metricId metricName:TEXT",
        (0x500, 1, "GPU Metrics [H100]", 1, "GPC Clock Frequency [MHz]"),
        (0x500, 1, "GPU Metrics [H100]", 2, "SMs Active [Throughput %]"),
        (0x501, 1, "GPU Metrics [H100]", 2, "SMs Active [Throughput %]"),
    )
    rows = [(0, 20, 0x500, 2, 55), (0, 10, 0x500, 2, 44), (0, 10, 0x500, 1, 1_980_000_000), (0, 10, 0x501, 2, 1)]
    add_table(path, "GPU_METRICS", "rawTimestamp timestamp typeId metricId value", *rows)
    trace = read(path)
    assert samples(trace) == {
        ("gpu:0", "gpu_metrics.GPC Clock Frequency"): [(10, 1980)],
        ("gpu:0", "gpu_metrics.SMs Active"): [(10, 44), (20, 55)],
        ("gpu:1", "gpu_metrics.SMs Active"): [(10, 1)],
    }
    units = {metric.metric.title: metric.metric.unit for metric in trace.series.values()}
    assert units == {"GPC Clock Frequency": "MHz", "SMs Active": "%"}
    assert trace.tracks[ids.gpu(1)].name == "NVIDIA H100"


@pytest.mark.parametrize(("written", "mhz"), [(100_000, 100_000), (100_001, 0.100001)])
def test_clocks_too_high_for_mhz_are_in_hz(path: Path, written: int, mhz: float) -> None:
    names = "typeId sourceId typeName:TEXT metricId metricName:TEXT"
    add_table(path, "TARGET_INFO_GPU_METRICS", names, (0, 1, "GPU Metrics", 1, "SYS Clock [MHz]"))
    add_table(path, "GPU_METRICS", "timestamp typeId metricId value", (10, 0, 1, written))
    assert samples(read(path)) == {("gpu:0", "gpu_metrics.SYS Clock"): [(10, mhz)]}


def test_values_of_gpu_metrics_may_be_fractions(path: Path) -> None:
    add_table(
        path,
        "TARGET_INFO_GPU_METRICS",
        "typeId sourceId typeName:TEXT metricId metricName:TEXT",
        (0, 1, "GPU Metrics", 1, "Tensor Active [Throughput %]"),
    )
    add_table(path, "GPU_METRICS", "timestamp typeId metricId value:REAL", (10, 0, 1, 12.5), (5, 0, 1, 3), (7, 0, 9, 1))
    assert samples(read(path)) == {("gpu:0", "gpu_metrics.Tensor Active"): [(5, 3), (10, 12.5)]}


def test_older_versions_have_gpu_metrics_as_json(path: Path) -> None:
    described = json.dumps({"Name": "GPU Metrics [NVIDIA A100]", "Fields": []})
    add_table(path, "GENERIC_EVENT_TYPES", "typeId sourceId data:TEXT", (0x201, 1, described), (7, 1, "{}"))
    event = json.dumps({"timestamp": 5, "SM Active": "40", "Name": "x"})
    add_table(
        path,
        "GENERIC_EVENTS",
        "rawTimestamp timestamp typeId data:TEXT",
        (0, 10, 0x201, event),
        (0, 20, 0x201, '{"SM Active": 41.5, "Later": 1}'),
        (0, 30, 0x201, "no JSON"),
        (0, 40, 7, '{"SM Active": 99}'),
    )
    assert samples(read(path)) == {("gpu:1", "gpu_metrics.SM Active"): [(10, 40), (20, 41.5)]}


def test_metrics_of_network_cards_have_their_card_and_unit(path: Path) -> None:
    add_table(
        path,
        "TARGET_INFO_NETWORK_METRICS",
        "metricsListId metricsIdx name:TEXT description:TEXT unit:TEXT",
        (1, 0, "IB: Bytes sent", "", "B/ms"),
    )
    add_table(path, "TARGET_INFO_NIC_INFO", "GUID stateName:TEXT nicId name:TEXT", (1, "", 3, "mlx5_0"))
    add_table(path, "NIC_ID_MAP", "nicId globalId", (3, 77))
    add_table(
        path,
        "NET_NIC_METRIC",
        "start end globalId metricsListId metricsIdx value",
        (10, 20, 77, 1, 0, 5), (20, 30, 77, 1, 0, 6), (20, 30, 77, 1, 9, 6),
    )  # fmt: skip
    trace = read(path)
    assert samples(trace) == {("host", "nic.mlx5_0: IB: Bytes sent"): [(20, 5), (30, 6)]}
    assert [series.metric.unit for series in trace.series.values()] == ["B/ms"]


def test_samples_of_cpus_are_stacks_by_thread(tmp_path: Path) -> None:
    capture = Capture()
    for at in (10, 20, 30):
        capture.sample(at, "read", "", "", "tokenize", "[Max depth]")
    capture.sample(40, "", "main", tid=500)
    file = capture.string("/usr/lib/libpython3.so")
    path = capture.write(tmp_path / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE SAMPLING_CALLCHAINS SET module = {file}")
        database.commit()
    trace = read(path)
    assert bool(trace.stacks)
    assert ids.thread(PID, 500) not in trace.tracks, "stacks are folded when they are asked for"
    assert [(stack.track, stack.frames, stack.weight, stack.unit) for stack in trace.stacks] == [
        (ids.thread(PID, TID), ("[Max depth]", "tokenize", "[libpython3.so]", "read"), 3, "samples"),
        (ids.thread(PID, 500), ("main", "[libpython3.so]"), 1, "samples"),
    ]
    tree = stack_tree(trace)
    assert isinstance(tree, StackTree)
    assert [node.name for node in tree.root.children] == ["thread 101", "thread 500"]


def test_frames_without_a_file_have_their_address_and_those_without_that_are_unknown(tmp_path: Path) -> None:
    capture = Capture()
    capture.sample(10, "", "main")
    path = capture.write(tmp_path / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO SAMPLING_CALLCHAINS (id, symbol, unresolved, stackDepth) VALUES (1, 999, 1, 2)")
        database.commit()
    (stack,) = read(path).stacks
    assert stack.frames == ("[unknown]", "main", "0x7f00")


def test_an_export_without_samples_has_no_stacks(path: Path) -> None:
    assert not read(path).stacks


TABLES = {
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": OLD_SYNC,
    "MPI_P2P_EVENTS": "start end globalTid textId size",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start end globalPid deviceId faultAccessType",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start globalPid",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": OLD_MEMORY,
    "GPU_METRICS": "timestamp typeId metricId value",
    "NET_NIC_METRIC": "start end globalId metricsListId metricsIdx value",
    "GENERIC_EVENTS": "timestamp typeId data:TEXT",
    "COMPOSITE_EVENTS": "id start globalTid",
}


@pytest.mark.parametrize("junk", [None, "text", 1.5, b"\xff", -1, (1 << 63) - 1])
@pytest.mark.parametrize("table", TABLES)
def test_junk_costs_itself_alone(path: Path, table: str, junk: object) -> None:
    for name, schema in TABLES.items():
        row = [junk if name == table else 1 for _ in schema.split()]
        add_table(path, name, schema, row, [1 for _ in schema.split()])
    add_table(path, "SAMPLING_CALLCHAINS", "id symbol stackDepth", (1, 3, 0), (junk, junk, junk))
    add_table(path, "GENERIC_EVENT_TYPES", "typeId data:TEXT", (1, "GPU Metrics"), (junk, junk))
    add_table(path, "TARGET_INFO_GPU_METRICS", "typeId metricId metricName:TEXT", (1, 1, "a"), (junk, junk, junk))
    trace = read(path)
    kinds = ("sync", "region", "page-fault", "allocation")
    assert all(len(trace.spans[kind]) for kind in kinds), {kind: len(trace.spans[kind]) for kind in kinds}
    assert any(map(len, trace.series.values()))
    assert ("MPI_Send",) in {stack.frames for stack in trace.stacks}
