"""Copies between host and GPU that the launching thread waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import PAGEABLE
from llmtop.model import SpanKind
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from llmtop.analysis.timeline.account import IdlePart
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
    """Of copies of pageable memory, and of all others: what helps differs."""
    pageable = _pageable(trace)
    for is_pageable, action in ((True, _PAGEABLE.of(trace)), (False, _PINNED)):
        lost = idle.stake(trace, pageable if is_pageable else lambda part: _is_lost(part) and not pageable(part))
        if lost is not None:
            copies = _copies(trace, lost.worst.gpu.gpu)
            yield idle.finding(
                trace,
                lost,
                rule=id,
                message=f"the launching thread waits for copies{' of pageable memory' if is_pageable else ''}",
                evidence=(
                    f"{count(calls)} x {kind}, {quantity(size, 'bytes')} (nsys)"
                    for kind, calls, size in copies
                    if (PAGEABLE in kind) == is_pageable
                ),
                action=action,
                source=source,
            )


def _is_lost(part: IdlePart) -> bool:
    return idle.culprit(part) is Cause.COPY


def _pageable(trace: Trace) -> Callable[[IdlePart], bool]:
    """Whether a part is lost to copies of pageable memory; of launches after copies, where most of those are such."""
    copying: Counter[bool] = Counter()
    for gpu in idle_account(trace).gpus:
        for part in gpu.parts:
            if part.cause is Cause.COPY:
                copying[PAGEABLE in part.name] += part.ns
    mostly = copying[True] > copying[False]
    return lambda part: _is_lost(part) and (PAGEABLE in part.name if part.cause is Cause.COPY else mostly)


def _copies(trace: Trace, gpu: TrackId) -> list[tuple[str, int, float]]:
    """Copies between this GPU and its host: their kind, how many, and their bytes; the most frequent first."""
    spans = trace.spans.get(SpanKind.MEMCPY)
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
