"""An export of Nsight Systems with a row or more in every table that is read, some of them odd."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from typing import TYPE_CHECKING

from tests.nsys_capture import BLOCKED, DTOH, HTOD, PAGEABLE, PID, TID, Capture, global_id

if TYPE_CHECKING:
    from pathlib import Path

_THREAD, _OTHER, _PROCESS = global_id(PID, TID), global_id(PID, 555), global_id(PID)
_OPERATIONS, _SENT = 1 << 24, (1 << 24) + 7
"""Numbers that a program gives an enumeration and a schema: from 1 << 24 on they are its own."""
_NO_STREAM = 0xFFFFFFFF
_NODE = (5 << 32) | 1
"""The first node of graph 5."""


def _host() -> Capture:
    """What the tables that all versions have can tell, some of it of a thread that never calls CUDA."""
    made = Capture(sms=132)
    launch = made.call("cudaLaunchKernel", 1_000, 3_000)
    graph = made.call("cudaGraphLaunch", 4_000, 6_000)
    copy = made.call("cudaMemcpyAsync", 7_000, 9_000)
    made.call("cudaStreamIsCapturing", 9_100, 9_200)
    made.call("cudaDeviceSynchronize", 9_300, 60_000)
    made.call("cudaFree", 9_400, 9_300)
    made.kernel(10_000, 12_000, launch)
    made.kernel(13_000, 14_500, graph, "reduce", stream=9)
    made.kernel(15_000, 14_000, graph, "backwards")
    made.copy(16_000, 17_000, copy, HTOD, host=PAGEABLE)
    made.copy(18_000, 19_000, copy, DTOH, gpu=1)
    made.copy(18_000, 17_000, copy, DTOH, gpu=1)
    made.graph(20_000, 25_000, graph)
    made.graph(20_000, 15_000, graph)
    made.os("poll", 100, 900, tid=555)
    made.os("read", 9_400, 9_500)
    made.os("write", 9_500, 9_400)
    made.os("poll", 900, 100, tid=555)
    made.off_cpu(9_600, 9_700, BLOCKED)
    made.off_cpu(200, 300, tid=555)
    made.sample(2_000, "", "tokenize", "main")
    made.sample(2_100, "read", "main")
    made.sample(2_200, "work", tid=555)
    made.overhead("CUPTI Buffer flush", 30_000, 31_000)
    made.driver(7, 1_100, 1_900)
    made.driver(7, 1_900, 1_100)
    made.nvtx("decode", 500, 61_000)
    made.nvtx("ncclAllReduce", 900, 3_500)
    made.nvtx("thrown away", 700, 600)
    made.tables["NVTX_EVENTS"] += [
        (5, None, 75, "NCCL", _THREAD), (650, None, 34, "preempted", _OTHER), (800, None, 59, "open", _THREAD),
    ]  # fmt: skip
    made.tables["ThreadNames"].append((made.string("EngineCore"), 20, _THREAD))
    made.tables["PROCESSES"].append((_PROCESS, PID, "vllm"))
    made.tables["TARGET_INFO_NVTX_CUDA_STREAM"].append(("copies", PID, 0, 1, 7))
    return made


_FURTHER = f"""
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
    (start INT, "end" INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT, syncType INT);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
    (21000, 22000, 0, 1, 7, 5, {_PROCESS}, 3), (22500, 23000, 0, 1, {_NO_STREAM}, 5, {_PROCESS}, 4),
    (22500, 22000, 0, 1, 7, 5, {_PROCESS}, 4);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET
    (start INT, "end" INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, value INT, bytes INT);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES
    (26000, 26100, 0, 7, 3, {_PROCESS}, 0, 4096), (26000, 25900, 0, 7, 3, {_PROCESS}, 0, 4096);
CREATE TABLE MPI_P2P_EVENTS (start INT, "end" INT, globalTid INT, textId INT, size INT);
INSERT INTO MPI_P2P_EVENTS VALUES (32000, 33000, {_THREAD}, 1, 4096), (34000, 35000, {_THREAD}, 99, NULL),
    (35000, 34000, {_THREAD}, 99, NULL);
CREATE TABLE CUBLAS_EVENTS (start INT, "end" INT, eventClass INT, globalTid INT, nameId INT);
INSERT INTO CUBLAS_EVENTS VALUES (36000, 36500, 29, {_THREAD}, 2);
CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS
    (start INT, "end" INT, globalPid INT, deviceId INT, address INT, numberOfPageFaults INT, faultAccessType INT);
INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES
    (37000, 37500, {_PROCESS}, 0, 0x7F00, 3, 2), (37500, 37000, {_PROCESS}, 0, 0x7F00, 3, 2);
CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INT, globalPid INT, address INT, CpuInstruction INT);
INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES
    (38000, {_PROCESS}, 0x8000, 2), (38100, {_PROCESS}, 0, 77), (38200, {_PROCESS}, NULL, NULL);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS
    (start INT, globalPid INT, deviceId INT, address INT, bytes INT, memKind INT, memoryOperationType INT,
     correlationId INT);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
    (1000, {_PROCESS}, 0, 1, 100, 2, 0, 1), (1100, {_PROCESS}, 0, 2, 50, 2, 0, NULL),
    (1200, {_PROCESS}, 0, 1, 100, 2, 1, NULL), (1300, {_PROCESS}, 1, 9, 7, 1, 1, NULL),
    (1400, {_PROCESS}, 1, 9, 7, 1, 1, NULL);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, metricId INT, metricName TEXT);
INSERT INTO TARGET_INFO_GPU_METRICS VALUES
    (0x500, 1, 'GPC Clock Frequency [MHz]'), (0x500, 2, 'SMs Active [Throughput %]');
CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value INT);
INSERT INTO GPU_METRICS VALUES (20, 0x500, 2, 55), (10, 0x500, 2, 44), (10, 0x500, 1, 1980000000);
CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INT, metricsIdx INT, name TEXT, unit TEXT);
INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 0, 'IB: Bytes sent', 'B/ms');
CREATE TABLE TARGET_INFO_NIC_INFO (nicId INT, name TEXT);
INSERT INTO TARGET_INFO_NIC_INFO VALUES (3, 'mlx5_0');
CREATE TABLE NIC_ID_MAP (nicId INT, globalId INT);
INSERT INTO NIC_ID_MAP VALUES (3, 77);
CREATE TABLE NET_NIC_METRIC
    (start INT, "end" INT, globalId INT, metricsListId INT, metricsIdx INT, value INT);
INSERT INTO NET_NIC_METRIC VALUES (10, 20, 77, 1, 0, 5), (20, 30, 77, 1, 0, 6);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES
    (domainId INT, schemaId INT, idx INT, type INT, name TEXT, flags INT, "offset" INT);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
    (1, {_SENT}, 0, 18, 'NCCL communicator ID', NULL, NULL), (1, {_SENT}, 1, 22, 'Message size [bytes]', NULL, 8),
    (1, {_SENT}, 2, {_OPERATIONS}, 'Reduction operation', NULL, 16);
CREATE TABLE NVTX_PAYLOAD_ENUM_ENTRIES (domainId INT, schemaId INT, name TEXT, value INT);
INSERT INTO NVTX_PAYLOAD_ENUM_ENTRIES VALUES (1, {_OPERATIONS}, 'Sum', 0), (1, {_OPERATIONS}, 'Max', 2);
CREATE TABLE CUDA_GRAPH_NODE_EVENTS
    (start INT, "end" INT, globalTid INT, nameId INT, graphNodeId INT, originalGraphNodeId INT);
INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (600, 620, {_THREAD}, 1, 1, NULL), (640, 650, {_THREAD}, 2, {_NODE}, 1);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (pid INT, cudaId INT, gpuId INT);
INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES ({PID}, 0, 1), ({PID}, 1, 0);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT, utcTime TEXT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1795224090111567183, '2026-11-21T01:21:30');
CREATE TABLE DIAGNOSTIC_EVENT (severity INT, text TEXT);
INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'all is well'), (2, 'some were lost'), (3, 'it failed');
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
INSERT INTO META_DATA_CAPTURE VALUES
    ('PROCESS_0:COMMAND', 'serve'), ('PROCESS_0:ARGUMENT_0', '--api-key'), ('PROCESS_0:ARGUMENT_1', 'hunter2'),
    ('PROCESS_0:WORKING_DIR', '/srv'), ('CAPTURE_EVENT_TYPE', 'Cuda'), ('CAPTURE_EVENT_TYPE', 'NvtxEvents'),
    ('START_DELAY_MS', '500'), ('DEVICE_DISPLAY_NAME', 'gpu7'), ('ENVIRONMENT_VARIABLE', 'RANK="3"'),
    ('ENVIRONMENT_VARIABLE', 'WORLD_SIZE=8'), ('ENVIRONMENT_VARIABLE', 'VLLM_USE_V1=1'),
    ('ENVIRONMENT_VARIABLE', 'HOME=/root');
UPDATE NVTX_EVENTS SET domainId = 1 WHERE text IN ('NCCL', 'ncclAllReduce');
UPDATE NVTX_EVENTS SET eventType = 60, category = 3, int64Value = -5, jsonText = '{{"rows": 7}}',
    endGlobalTid = {_OTHER} WHERE text = 'decode';
INSERT INTO StringIds VALUES (900, '{{"reason": "no room"}}');
UPDATE NVTX_EVENTS SET jsonTextId = 900 WHERE text = 'preempted';
INSERT INTO NVTX_EVENTS (start, eventType, category, text, globalTid) VALUES (0, 33, 3, 'storage', {_THREAD});
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = {_NODE}, registersPerThread = 32, staticSharedMemory = 1024,
    dynamicSharedMemory = 512 WHERE correlationId = 2;
UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 11, virtualAddress = 0x7F00 WHERE copyKind = 2;
UPDATE SAMPLING_CALLCHAINS SET module = 1;
"""


def _payload(domain: int, schema: int, form: str, *values: int) -> bytes:
    """Numbers as NVTX puts them into an event, behind their schema and how long they are."""
    own = struct.pack(f"<{form}", *values)
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, len(own), 32 + len(own)) + own


def full_export(path: Path) -> Path:
    """Write it."""
    _host().write(path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_FURTHER)
        sent = _payload(1, _SENT, "QQi4x", 0xC0FFEE, 1 << 20, 2)
        database.execute("UPDATE NVTX_EVENTS SET binaryData = ? WHERE text = 'ncclAllReduce'", (sent,))
        database.commit()
    return path
