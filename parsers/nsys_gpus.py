"""What an Nsight Systems export has beside kernels, calls and ranges: waits of GPUs, faults, memory, libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from llmtop.lazy import LazyDictionary
from llmtop.model import (
    NOTED_ADDRESS,
    NOTED_FAULTS,
    NOTED_INSTRUCTION,
    Issue,
    Severity,
    SpanKind,
    SpanTable,
    TrackId,
    Value,
)
from llmtop.parsers.allocations import ODD_RELEASES, SUFFIXES, Ends, MemoryEvent, allocations, columns_of
from llmtop.parsers.nsys_export import (
    DAMAGE,
    Capture,
    Columns,
    Export,
    LateReader,
    Rows,
    count_damaged,
    joined,
    lost,
    read_rows,
    span_table,
    unless_of_tracing,
)
from llmtop.parsers.nsys_payloads import placed

_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_WAITS = {1: "wait for an event", 2: "stream waits for an event", 3: "wait for a stream", 4: "wait for a context"}
"""ENUM_CUPTI_SYNC_TYPE: all but the second are waits of the host."""
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_CPU_FAULTS, _GPU_FAULTS = "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
_ACCESSES = {1: "read", 2: "write", 3: "atomic", 4: "prefetch"}
"""ENUM_CUDA_UNIF_MEM_ACCESS_TYPE."""
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
MEMORY_KINDS = {
    0: "pageable memory",
    1: "pinned memory",
    2: "device memory",
    3: "array",
    4: "managed memory",
    5: "static device memory",
    6: "static managed memory",
}
"""ENUM_CUDA_MEM_KIND."""
_ALLOCATED, _RELEASED = 0, 1
"""ENUM_CUDA_DEV_MEM_EVENT_OPER."""
_NAMES = ("nameId", "textId")
_SIZES = ("size", "packedSize")
_READ_ELSEWHERE = (
    "NVTX_",
    "OSRT_",
    "PROFILER_",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "CUDA_GRAPH",
)


def more_of_gpus(export: Export) -> Mapping[str, LateReader]:
    """What there is of it, by kind of span, and how it is read."""
    there: dict[str, tuple[bool, LateReader]] = {
        SpanKind.SYNC: (export.has(_SYNC, "start", "end", "syncType"), _sync),
        SpanKind.PAGE_FAULT: (
            any(export.has(table, "start", "globalPid") for table in (_CPU_FAULTS, _GPU_FAULTS)),
            _faults,
        ),
        SpanKind.ALLOCATION: (export.has(MEMORY, *_OF_MEMORY), _allocations),
        SpanKind.REGION: (bool(_region_tables(export)), _regions),
    }
    return {kind: reader for kind, (is_there, reader) in there.items() if is_there}


def _sync(capture: Capture) -> SpanTable:
    rows = read_rows(capture.export, _SYNC, lambda of: (of.integer("syncType"), of.stream, of.join))
    count_damaged(capture.issues, SpanKind.SYNC, rows)
    return span_table(SpanKind.SYNC, rows, lambda key: _WAITS.get(key, "wait"), capture.devices.stream_track)


def _faults(capture: Capture) -> SpanTable:
    """Page faults of unified memory: of GPUs as long as they take, of CPUs as moments."""
    tables = [table for table in (_GPU_FAULTS, _CPU_FAULTS) if capture.export.has(table, "start", "globalPid")]
    rows = joined([read_rows(capture.export, table, partial(_fault, is_gpu=table == _GPU_FAULTS)) for table in tables])
    count_damaged(capture.issues, SpanKind.PAGE_FAULT, rows)
    table = span_table(SpanKind.PAGE_FAULT, rows, _fault_name, partial(_fault_track, capture))
    return replace(table, notes=LazyDictionary(partial(_fault_notes, capture, rows)))


def _fault_notes(capture: Capture, rows: Rows) -> Mapping[int, Mapping[str, Value]]:
    """Of each event the address, how many faults it stands for, and of a CPU's the instruction."""
    addresses, numbers, instructions = rows.columns[5:]
    texts = capture.export.strings(set(instructions))
    notes = {}
    for row, (address, number, key) in enumerate(zip(addresses, numbers, instructions, strict=True)):
        told: dict[str, Value] = {NOTED_FAULTS: max(1, number)}
        told |= {NOTED_ADDRESS: f"{address:#x}"} if address >= 0 else {}
        notes[row] = told | ({NOTED_INSTRUCTION: texts[key]} if key in texts else {})
    return notes


def migration_notes(capture: Capture, copies: SpanTable) -> Mapping[int, Mapping[str, Value]]:
    """Of the copies that the driver makes of unified memory the address."""
    try:
        return dict(placed(copies, _migrations(capture)))
    except DAMAGE as error:
        capture.issues.append(lost("addresses of migrations", error))
        return {}


def _migrations(capture: Capture) -> Iterator[tuple[int, int, TrackId, Mapping[str, Value]]]:
    if not capture.export.has(_COPIES, "copyKind", "virtualAddress", "deviceId", "streamId", "globalPid"):
        return
    columns = 'start, "end", virtualAddress, deviceId, streamId, globalPid'
    query = f"SELECT {columns} FROM {_COPIES} WHERE copyKind IN (11, 12) AND virtualAddress IS NOT NULL"
    for row in capture.export.execute(query):
        if all(isinstance(value, int) for value in row):
            start, end, address, device, stream, process = row
            key = (stream & 0xFFFFFFFF) | (device & 255) << 32 | ((process >> 24) & 0xFFFFFF) << 40
            yield start, end, capture.devices.stream_track(key), {NOTED_ADDRESS: f"{address:#x}"}


_OF_CPU = -2
"""In place of the kind of access."""
_CPU_KEY = 1 << 62
"""Marks a `globalPid` among packed keys of streams, which are positive and below."""


def _fault(of: Columns, *, is_gpu: bool) -> Sequence[Any]:
    if not is_gpu:
        return _OF_CPU, (of.pid << 24) | _CPU_KEY, -1, of.integer("address"), -1, of.integer("CpuInstruction")
    key = (of.integer("deviceId") << 32) | (of.pid << 40) | 0xFFFFFFFF
    return of.integer("faultAccessType"), key, -1, of.integer("address"), of.integer("numberOfPageFaults"), -1


def _fault_name(key: int) -> str:
    return "CPU page fault" if key == _OF_CPU else f"GPU page faults ({_ACCESSES.get(key, 'unknown access')})"


def _fault_track(capture: Capture, key: int) -> TrackId:
    if key & _CPU_KEY:
        return capture.devices.process_track(key & ~_CPU_KEY)
    return capture.devices.gpu_process_track(key)


_OF_MEMORY = ("start", "globalPid", "deviceId", "address", "bytes", "memoryOperationType")


def memory_events(export: Export) -> list[MemoryEvent]:
    """All allocations and releases, in the order of their times; keys are those that `Columns.stream` packs."""
    rows = read_rows(export, MEMORY, _memory_keys)
    starts, _, *columns = rows.columns
    known = (_ALLOCATED, _RELEASED)
    return [
        MemoryEvent(start, key, address, size, kind, operation == _RELEASED, join)
        for start, key, address, size, kind, operation, join in zip(starts, *columns, strict=True)
        if operation in known and size >= 0
    ]


def _memory_keys(of: Columns) -> Sequence[Any]:
    key = (of.integer("deviceId") << 32) | (of.pid << 40) | 0xFFFFFFFF
    told = (of.integer(name) for name in ("address", "bytes", "memKind", "memoryOperationType"))
    return key, *told, of.join


def _allocations(capture: Capture) -> SpanTable:
    held, odd = allocations(memory_events(capture.export))
    if odd:
        capture.issues.append(Issue(Severity.INFO, "nsys-allocation-odd", ODD_RELEASES, odd))
    gpu = capture.devices.gpu_process_track
    return span_table(SpanKind.ALLOCATION, Rows(columns_of(held)), _allocation_name, gpu, bytes_at=5)


def _allocation_name(key: int) -> str:
    kind, ends = divmod(key, len(Ends))
    return MEMORY_KINDS.get(kind, "memory") + SUFFIXES[Ends(ends)]


def _region_tables(export: Export) -> dict[str, str]:
    """Tables of calls of libraries (MPI, UCX, cuDNN, cuBLAS, OpenACC, OpenMP ...), with the column of their names."""
    found = {}
    for table in sorted(export.tables):
        name = next((one for one in _NAMES if one in export.columns(table)), None)
        if name and not table.startswith(_READ_ELSEWHERE) and export.has(table, "start", "end", "globalTid"):
            found[table] = name
    return found


def _regions(capture: Capture) -> SpanTable:
    export = capture.export
    calls = partial(unless_of_tracing, condition=1)
    tables = _region_tables(export).items()
    rows = joined([read_rows(export, table, partial(_region, name), calls) for table, name in tables])
    count_damaged(capture.issues, SpanKind.REGION, rows)
    texts = export.strings(set(rows.columns[2]))
    return span_table(
        SpanKind.REGION, rows, lambda key: texts.get(key, f"call {key}"), capture.devices.thread_track, bytes_at=5
    )


def _region(name: str, of: Columns) -> Sequence[Any]:
    size = next((one for one in _SIZES if one in of.names), "")
    return of.integer(name), of.integer("globalTid"), -1, of.integer(size)
