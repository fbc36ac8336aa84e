"""How long kernels of a timeline took from their launch to their start, by the definitions of `nsys stats`."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from llmtop.columns import chosen, put_times, rows_by_key
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, SpanKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Trace

NO_CALL = Unknown("the call that launched it is not in the capture", "add --trace=cuda")
NOT_QUEUED = Unknown("none was queued: each began before its launch call returned")


@frozen
class LaunchTimes:
    """Of each kernel, in ns, NaN where there is none; empty without calls.

    Kernels of a CUDA graph count from the launch of the graph.

    Attributes:
        latency: From the beginning of the call that launched it to its own.
        queue: From the end of that call to its beginning; none where it began before (`nsys stats -r
            cuda_kern_exec_sum`).
    """

    latency: array[float]
    queue: array[float]

    def median_latency(self, launches: Sequence[int]) -> float | Unknown:
        """Of these kernels."""
        latency = _median(self.latency, launches)
        return NO_CALL if latency is None else latency

    def median_queue(self, launches: Sequence[int]) -> float | Unknown:
        """Of those of these kernels that have one."""
        queue = _median(self.queue, launches)
        if queue is None:
            return NOT_QUEUED if _median(self.latency, launches) is not None else NO_CALL
        return queue


def _median(column: array[float], launches: Sequence[int]) -> float | None:
    known = chosen(column, launches) if column else []
    return (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else None


def launch_times(trace: Trace) -> LaunchTimes:
    """Those of the kernel table's rows."""
    kernels, table = trace.spans.get(SpanKind.KERNEL), trace.kernels
    if kernels is None or table is None or len(kernels) != len(table):
        return LaunchTimes(array("d"), array("d"))
    latency = array("d", [math.nan]) * len(kernels)
    queue = array("d", [math.nan]) * len(kernels)
    for kind in API_CALLS:
        if (calls := trace.spans.get(kind)) is None:
            continue
        rows = rows_by_key(calls.correlation, kernels.correlation)
        put_times(latency, kernels.start_ns, calls.start_ns, rows)  # none where their clocks do not fit
        put_times(queue, kernels.start_ns, calls.end_ns, rows)
    return LaunchTimes(latency, queue)
