"""What has a beginning and an end on a track, in columns: work of GPUs, calls, ranges, allocations."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from llmtop.model.tracks import TrackId
from llmtop.model.values import Value


class SpanKind(StrEnum):
    """What a span is of: the keys of `Trace.spans` and `Trace.more_spans`. First those on the tracks of GPUs."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GRAPH = "graph"
    """Traced as a whole."""
    SYNC = "sync"
    """A wait for an event, a stream or a context, as the GPU saw it."""
    GPU_RANGE = "gpu-range"
    """A range as it ran there, from its first work to its last."""
    PAGE_FAULT = "page-fault"
    """Of unified memory."""
    ALLOCATION = "allocation"
    """From getting memory to giving it back."""
    LAUNCH = "launch"
    """Of CUDA, on the track of a thread, as all that follow."""
    CALL = "call"
    BRIEF_CALL = "brief-call"
    ALLOCATOR = "allocator"
    """Moments at which a thread asked an allocator of its program for memory, or gave it back."""
    NVTX = "nvtx"
    """A range that the program marks."""
    MARK = "mark"
    """A moment that it marks, without length."""
    OPERATOR = "operator"
    """PyTorch's, as the next one."""
    PYTHON = "python"
    REGION = "region"
    """All else that has a start, an end and a name."""
    OS = "os"
    ON_CPU = "on-cpu"
    """A stretch on one CPU; where it is told, the next one is what lies between."""
    OFF_CPU = "off-cpu"
    SAMPLE = "sample"
    OVERHEAD = "overhead"
    OTHER_OS = "other-os"
    """Of threads that never call CUDA, as the next ones."""
    OTHER_OFF_CPU = "other-off-cpu"
    OTHER_SAMPLE = "other-sample"
    CAPTURED = "captured"
    """The calls that put a kernel into a CUDA graph, one for each kernel that the graph then ran: `correlation` is the
    row of the kernel in `Trace.kernels`."""


GPU_WORK: Final = (SpanKind.KERNEL, SpanKind.MEMCPY, SpanKind.MEMSET, SpanKind.GRAPH)
"""What keeps a GPU busy."""
API_CALLS: Final = (SpanKind.LAUNCH, SpanKind.CALL)
"""Calls of CUDA that conclusions are drawn from."""
FROM_BEFORE: Final = " (from before the capture)"
NOT_GIVEN_BACK: Final = " (not given back)"
GIVING_BACK_LOST: Final = " (giving back not recorded)"
"""What the names of allocations end with of which an end is not known: the first begins with the first of all events,
the second lasts until the last one, the third until its address was got once more."""
MIGRATED: Final = -2
"""The join key of a page migration that no call asked for: the driver moves pages as CPU or GPU touch them."""
NOTED_FAULTS: Final = "page faults"
NOTED_ADDRESS: Final = "address"
NOTED_INSTRUCTION: Final = "CPU instruction"
"""Keys of `SpanTable.notes` of page faults and of migrations of unified memory: how many, of which page, and where."""


@dataclass(frozen=True, slots=True, eq=False)
class SpanTable:
    """Spans of one kind in columns, sorted by start; row i of every column is span i.

    Attributes:
        kind: A `SpanKind`, or one of a parser's own: it is listed under its own name.
        names: Distinct names, clean; `name_id` indexes them.
        tracks: Distinct track ids; `track_id` indexes them.
        correlation: Joins a launch to its kernel, and the call that got memory to the allocation; -1 where there is
            none.
        amount: Bytes of copies, fills, allocations and messages; NaN elsewhere.
        notes: What else is recorded of some spans, by row: {"category": "io", "Message size [bytes]": 4096}.
    """

    kind: str
    names: tuple[str, ...]
    tracks: tuple[TrackId, ...]
    name_id: array[int]
    track_id: array[int]
    start_ns: array[int]
    end_ns: array[int]
    correlation: array[int]
    amount: array[float]
    notes: Mapping[int, Mapping[str, Value]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_ns)
