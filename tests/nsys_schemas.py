"""What the SQLite exports of Nsight Systems look like, version by version: tables, and columns in their order.

Read off exports: of 2022.2.1, 2025.3.1, 2025.3.2 and 2026.2.1 made by others or by us, and of one capture that
2022.4.2 and 2023.4.4 exported here. What 3.30 has more is by the documentation of 2026.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

_SINCE: Mapping[str, str] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId@3.7 streamId correlationId globalPid demangledName shortName "
        "mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ "
        "staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone@3.24 qmdPreexitDone@3.24 qmdLastCtaDone@3.24 "
        "graphId@3.24 clusterX@3.24 clusterY@3.24 clusterZ@3.24 clusterSchedulingPolicy@3.24 "
        "maxPotentialClusterSize@3.24 maxActiveClusters@3.24 sharedMemoryRequestedPercentage@3.25 "
        "tensorSizeMinusOneElements@3.25"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId greenContextId@3.7 streamId correlationId globalPid bytes copyKind "
        "deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause graphNodeId "
        "virtualAddress copyCount@3.20 numaNodeId@3.30"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@3.20": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid graphId graphExecId"
    ),
    "CUPTI_ACTIVITY_KIND_OVERHEAD@3.25": "start end eventClass globalTid correlationId nameId overheadType",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue@0-3.25 overheadType@3.25",
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value "
        "doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData@3.20"
    ),
    "SCHED_EVENTS": "start cpu isSchedIn globalTid threadState@3.20 threadBlock@3.20",
    "COMPOSITE_EVENTS": "id start cpu threadState globalTid cpuCycles",
    "SAMPLING_CALLCHAINS": (
        "id symbol module kernelMode thumbCode unresolved specialEntry originalIP unwindMethod stackDepth"
    ),
    "TARGET_INFO_GPU": "vmId id name busLocation isDiscrete totalMemory memoryBandwidth clockRate smCount",
    "EXPORT_META_DATA@0-3.4": "name value",
    "META_DATA_EXPORT@3.4": "name value",
    "StringIds": "id value",
    "ThreadNames": "nameId priority globalTid",
    "PROCESSES": "globalPid pid name",
    "TARGET_INFO_NVTX_CUDA_STREAM": "name hwId vmId processId deviceId contextId streamId",
}
"""Tables and columns with the schema from which on they are there, and from which on they are there no more."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What one version of Nsight Systems writes.

    Attributes:
        version: Of the schema.
        product: The version of Nsight Systems.
    """

    version: str
    product: str

    def __str__(self) -> str:
        return self.version

    @property
    def facts(self) -> str:
        """The table that tells the version."""
        return next(table for table in ("META_DATA_EXPORT", "EXPORT_META_DATA") if table in self.tables)

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Columns by table, in the order of the file."""
        return _tables(self.version)


@cache
def _tables(version: str) -> Mapping[str, tuple[str, ...]]:
    there = {}
    for table, columns in _SINCE.items():
        if (name := _there(table, version)) is not None:
            there[name] = tuple(column for one in columns.split() if (column := _there(one, version)) is not None)
    return there


def _there(told: str, version: str) -> str | None:
    """The name in `NAME@SINCE-UNTIL`, if this version is within.

    >>> _there("value", "2.9.1"), _there("a@3.4", "2.9.1"), _there("a@0-3.4", "3.0.0"), _there("a@3.4", "3.25.0")
    ('value', None, 'a', 'a')
    """
    name, _, when = told.partition("@")
    since, _, until = when.partition("-")
    is_there = _number(since or "0") <= _number(version) and not (until and _number(version) >= _number(until))
    return name if is_there else None


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


SCHEMAS = (
    Schema("2.9.1", "2022.2.1.31"),
    Schema("3.0.0", "2022.4.2.1"),
    Schema("3.7.2", "2023.4.4.54"),
    Schema("3.20.2", "2025.3.1.90"),
    Schema("3.25.0", "2026.2.1.210"),
    Schema("3.30.1", "2026.5.1.0"),
)
OLDEST, USUAL, NEWEST = SCHEMAS[0], SCHEMAS[-2], SCHEMAS[-1]
