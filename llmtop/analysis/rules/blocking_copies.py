"""Copies between host and GPU that the launching thread waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace, TrackId

id = "blocking-copies"
summary = "The GPU idles because of copies that the launching thread waits for."
source = "CUDA C++ Best Practices Guide (pinned memory, asynchronous transfers)"

_WAITS = (
    "of pageable memory a copy waits for all work before it; fewer and larger copies, and none in the loop that a "
    "later step could wait for instead"
)
_PAGEABLE = Words(
    pytorch=f"use pinned host memory (pin_memory=True, cudaHostAlloc) and non_blocking copies: {_WAITS}",
    directives="keep arrays on the GPU in a data region around the loop, and update with async from pinned host memory "
    f"(nvc and nvfortran: -gpu=pinned): {_WAITS}",
    other=f"use pinned host memory (cudaHostAlloc, cudaHostRegister) and cudaMemcpyAsync: {_WAITS}",
)
_PINNED = "copy on a stream of its own (cudaMemcpyAsync) and launch on; wait for the copy where its data are used"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, with the copies of the capture by kind."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.COPY)
    if lost is not None:
        copies = _copies(trace, lost.worst.gpu.gpu)
        is_pageable = any("pageable" in kind for kind, _, _ in copies)
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"the launching thread waits for copies{' of pageable memory' if is_pageable else ''}",
            evidence=(f"{count(calls)} x {kind}, {quantity(size, 'bytes')} (nsys)" for kind, calls, size in copies),
            action=_PAGEABLE.of(trace) if is_pageable else _PINNED,
            source=source,
        )


def _copies(trace: Trace, gpu: TrackId) -> list[tuple[str, int, float]]:
    """Copies between this GPU and its host: their kind, how many, and their bytes; the most frequent first."""
    spans = trace.spans.get("memcpy")
    if spans is None:
        return []
    is_own = [ids.gpu_of(track) == gpu for track in spans.tracks]
    calls: Counter[str] = Counter()
    sizes: dict[str, float] = {}
    for name_id, track_id, size in zip(spans.name_id, spans.track_id, spans.amount, strict=True):
        kind = spans.names[name_id]
        if is_own[track_id] and ("HtoD" in kind or "DtoH" in kind):
            calls[kind] += 1
            sizes[kind] = sizes.get(kind, 0.0) + (size if size == size else 0.0)
    return [(kind, number, sizes[kind]) for kind, number in calls.most_common()]
