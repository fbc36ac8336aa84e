"""Kernels that touch unified memory which is elsewhere wait until its pages have been moved."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.rules import stakes
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.unified import unified_lines, unified_memory
from llmtop.analysis.timeline.work import gpu_titles
from llmtop.model import Finding, SpanKind, TrackKind
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

id = "unified-faults"
summary = "Kernels wait for pages of unified memory that are not on their GPU."
source = "CUDA C++ Programming Guide, Unified Memory Programming (data prefetching, data usage hints)"

_NOTABLE_SHARE = 0.01
"""Of the capture's time, that page faults of the GPU with the most of them take. Ours."""
_SHOWN = 4
"""Lines on what was moved, the whole first."""
_ACTION = (
    "bring the pages before the kernel asks for them (cudaMemPrefetchAsync), keep on the GPU what both read "
    "(cudaMemAdvise), or allocate what only kernels use with cudaMalloc"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all GPUs: the stake is that of the one that loses most."""
    lost = {gpu: cover.total for gpu, cover in _faults_by_gpu(trace).items()}
    most_ns, found = max(lost.values(), default=0), unified_memory(trace)
    share = stakes.share(trace, most_ns)
    if found is None or share < _NOTABLE_SHARE:
        return
    moved = tuple(line.strip() for line in unified_lines(found))
    yield stakes.finding(
        trace,
        most_ns,
        "all of their time",
        rule=id,
        subject=gpu_titles(lost),
        message=f"page faults of unified memory take {percent(100 * share)} of the capture: kernels wait for pages",
        evidence=(
            f"page faults of GPUs: {duration(most_ns)} on the one with the most",
            *moved[:_SHOWN],
        ),
        action=_ACTION,
        no_command="the capture has each fault: the Timeline shows when, `report --by copy` at which addresses",
        source=source,
    )


def _faults_by_gpu(trace: Trace) -> Mapping[TrackId, Cover]:
    """When each GPU met page faults; those of CPUs are moments."""
    faults = trace.spans.get(SpanKind.PAGE_FAULT)
    times: dict[TrackId, tuple[array[int], array[int]]] = {}
    if faults is None:
        return {}
    gpus = [None if ids.kind(track) is TrackKind.PROCESS else ids.gpu_of(track) for track in faults.tracks]
    for start, end, track in zip(faults.start_ns, faults.end_ns, faults.track_id, strict=True):
        if (gpu := gpus[track]) is not None:
            starts, ends = times.setdefault(gpu, (array("q"), array("q")))
            starts.append(start)
            ends.append(end)
    return {gpu: Cover.of(*columns) for gpu, columns in times.items()}
