"""A GPU copies longer than it computes."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import stakes
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.work import gpu_title, work_by_gpu
from llmtop.model import MIGRATED, Finding, SpanKind
from llmtop.units import count, duration, percent, quantity

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

id = "copies-dominate"
summary = "Most of what keeps a GPU busy are copies, not kernels."
source = "CUDA C++ Best Practices Guide (minimise transfers between host and device, overlap them with kernels)"

_MOST = 0.5
"""Share of the busy time from which on copies without a concurrent kernel dominate it."""
_NOTABLE_SHARE = 0.05
"""Of the time from the GPU's first work to its last. Ours."""
_OVERLAP = "what has to be copied, copy while kernels run: pinned memory, a stream of its own, the next part early"
_ACTION = Words(
    pytorch=f"keep tensors on the GPU from one step to the next, and create them there (device='cuda'); {_OVERLAP}",
    directives="keep arrays on the GPU in a data region around the loop, and update only what changed",
    other=f"keep data on the GPU from one kernel to the next, and do more there with what is copied; {_OVERLAP}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """The GPU whose copies take longest without a kernel; another rule reports page migrations."""
    copies, kernels = trace.spans.get(SpanKind.MEMCPY), trace.spans.get(SpanKind.KERNEL)
    if copies is None:
        return
    copied, computed = _covers(copies), {} if kernels is None else _covers(kernels)
    alone = {
        gpu: Cover.union([cover, computed[gpu]]).total - computed[gpu].total if gpu in computed else cover.total
        for gpu, cover in copied.items()
    }
    gpu = max(alone, key=alone.__getitem__, default=None)
    if gpu is None:
        return
    work, busy_ns = work_by_gpu(trace)[gpu], alone[gpu] + (computed[gpu].total if gpu in computed else 0)
    if alone[gpu] < max(_MOST * busy_ns, _NOTABLE_SHARE * (work.reach[-1] - work.starts[0])):
        return
    command, no_command = profiling.of_threads(trace)
    yield stakes.finding(
        trace,
        alone[gpu],
        "all of it: copies that are not needed, or that kernels run beside, cost the GPU nothing",
        rule=id,
        subject=gpu_title(gpu),
        message=f"copies take {percent(100 * alone[gpu] / busy_ns)} of the time that the GPU is busy: "
        f"{duration(alone[gpu])} without a kernel beside them",
        evidence=_evidence(copies, gpu),
        action=_ACTION.of(trace),
        next_command=command,
        no_command=no_command,
        source=source,
    )


def _covers(spans: SpanTable) -> dict[TrackId, Cover]:
    """When each GPU is at it, but for migrations."""
    gpus = [ids.gpu_of(track) for track in spans.tracks]
    columns: dict[TrackId, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
    for start, end, track, join in zip(spans.start_ns, spans.end_ns, spans.track_id, spans.correlation, strict=True):
        if join != MIGRATED:
            starts, ends = columns[gpus[track]]
            starts.append(start)
            ends.append(end)
    return {gpu: Cover.of(*both) for gpu, both in columns.items()}


def _evidence(copies: SpanTable, gpu: TrackId) -> Iterator[str]:
    """The kinds of its copies, those that take longest first."""
    is_own = [ids.gpu_of(track) == gpu for track in copies.tracks]
    times, calls, sizes = Counter[str](), Counter[str](), Counter[str]()
    for row, name_id in enumerate(copies.name_id):
        if is_own[copies.track_id[row]] and copies.correlation[row] != MIGRATED:
            name, size = copies.names[name_id], copies.amount[row]
            times[name] += copies.end_ns[row] - copies.start_ns[row]
            calls[name] += 1
            sizes[name] += int(size) if size == size else 0
    for name, ns in times.most_common():
        rate = f" at {quantity(sizes[name] * 1e9 / ns, 'bytes/s')}" if ns and sizes[name] else ""
        yield f"{count(calls[name])} x {name}: {duration(ns)}, {quantity(sizes[name], 'bytes')}{rate} (nsys)"
