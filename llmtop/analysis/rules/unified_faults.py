"""Unified (managed) memory that is touched where it is not: kernels and threads wait until its pages were moved."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.rules import stakes
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.unified import unified_lines, unified_memory
from llmtop.analysis.timeline.work import gpu_titles
from llmtop.model import API_CALLS, MIGRATED, Finding, SpanKind, TrackKind
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

id = "unified-faults"
summary = "Pages of unified memory move between CPU and GPU as they are touched, and what touches them waits."
source = "CUDA C++ Programming Guide, Unified Memory Programming (data prefetching, data usage hints)"

_NOTABLE_SHARE = 0.01
"""Of the capture's time, that page faults or migrations of the GPU with the most of them take. Ours."""
_SHOWN = 4
"""Lines on what was moved, the whole first."""
_REMEDIES = {
    "MemPrefetch": "bring pages before they are touched (cudaMemPrefetchAsync)",
    "MemAdvise": "keep on the GPU what both read (cudaMemAdvise)",
}
"""By the calls that a program makes which has taken them."""
_ELSE = "allocate what only kernels use with cudaMalloc"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all GPUs: the stake is that of the one that loses most."""
    lost: Mapping[TrackId, int] = {gpu: cover.total for gpu, cover in _faults_by_gpu(trace).items()}
    what, each = "page faults", "fault"
    waits = "kernels wait for pages"
    if not lost:
        lost, what, each = _migrations_by_gpu(trace), "page migrations", "migration"
        waits = "kernels or threads wait for pages"
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
        message=f"{what} of unified memory take {percent(100 * share)} of the capture: {waits}",
        evidence=(
            f"{what} of GPUs: {duration(most_ns)} on the one with the most",
            *moved[:_SHOWN],
        ),
        action=_action(trace),
        no_command=f"the capture has each {each}: the Timeline shows when, `report --by copy` at which addresses",
        source=source,
    )


def _action(trace: Trace) -> str:
    """What the program does not do yet; of what it does already, that it does not reach."""
    calls = [name for kind in API_CALLS if kind in trace.spans for name in trace.spans[kind].names]
    done = [call for call in _REMEDIES if any(call in name for name in calls)]
    left = [words for call, words in _REMEDIES.items() if call not in done]
    more = ["prefetch earlier, and all of what is touched"] if "MemPrefetch" in done else []
    return f"{', '.join((*more, *left))}, or {_ELSE}"


def _migrations_by_gpu(trace: Trace) -> Mapping[TrackId, int]:
    """How long each GPU moved pages that no call asked for, with the idle time from one to the next."""
    copies = trace.spans.get(SpanKind.MEMCPY)
    if copies is None or MIGRATED not in copies.correlation:
        return {}
    times: dict[TrackId, tuple[array[int], array[int]]] = {}
    for start, end, track, join in zip(
        copies.start_ns, copies.end_ns, copies.track_id, copies.correlation, strict=True
    ):
        if join == MIGRATED:
            starts, ends = times.setdefault(ids.gpu_of(copies.tracks[track]), (array("q"), array("q")))
            starts.append(start)
            ends.append(end)
    between = {
        gpu.gpu: sum(part.ns for part in gpu.parts if part.cause is Cause.MIGRATION) for gpu in idle_account(trace).gpus
    }
    return {gpu: Cover.of(*columns).total + between.get(gpu, 0) for gpu, columns in times.items()}


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
