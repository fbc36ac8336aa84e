"""Between two launches the thread that feeds the GPU runs code of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.analysis.kernels.programs import Words, is_of_torch
from llmtop.analysis.rules import idle
from llmtop.analysis.rules.recurrence import Recurrence, recurrence
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.holders import idle_holder
from llmtop.model import SpanKind
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.timeline.account import IdlePart
    from llmtop.analysis.timeline.holders import IdleHolder
    from llmtop.model import Finding, Trace

id = "host-code"
summary = "The GPU idles while the launching thread runs its own code."
source = idle.SOURCE

_FUNCTIONS = 3
"""Functions that are named."""
_NOTABLE = 0.05
"""Share of what is lost, from which on it is told that the GPU had run dry under a call."""
_WARM = "warm up before, or cache what was compiled"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, with the range or the functions that it runs."""
    lost = idle.stake(trace, lambda part: idle.culprit(part) is Cause.OWN_CODE)
    if lost is not None:
        largest, *_ = together = lost.together
        amount = "most" if largest.ns > sum(part.ns for part in together) / 2 else "the largest part"
        where = f", {amount} of it in {_what(trace, largest.name)} {largest.name}" if largest.name else ""
        sampled = tuple(_functions(lost.worst.details))
        again = recurrence(trace, lost.worst.gpu.gpu, largest.name) if largest.name else None
        holder = _holder(trace, lost)
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"the launching thread {_runs(trace, largest.name)}{where}",
            general=_untraced(trace),
            evidence=(
                *(str(one) for one in (holder, again) if one),
                *sampled,
                *_run_dry(lost.worst),
                *_compiled(lost.worst),
            ),
            action=_loading(holder, largest) or _of_library(trace, holder, lost) or _action(lost.worst, again),
            no_command="CPU samples in this capture tell where the thread stood" if sampled else "",
        )


def _holder(trace: Trace, lost: idle.Stake) -> IdleHolder | None:
    """The ranges that hold most of the GPU's idle time, if most of what they hold is this rule's."""
    holder = idle_holder(trace, lost.worst.gpu.gpu)
    return holder if holder is not None and 2 * lost.worst.ns >= holder.idle_ns else None


def _what(trace: Trace, name: str) -> str:
    """What has this name."""
    kinds = {SpanKind.OPERATOR: "the operator", SpanKind.PYTHON: "the function"}
    own = (what for kind, what in kinds.items() if kind in trace.spans and name in trace.spans[kind].names)
    return next(own, "the range")


def _runs(trace: Trace, name: str) -> str:
    """What the thread does: an operator is a library's, and no code of the program."""
    return "runs code on the CPU" if _what(trace, name) == "the operator" else "runs its own code"


_LOADERS = {
    "_SingleProcessDataLoaderIter": Words(
        pytorch="let other processes load batches: DataLoader(num_workers=N) with N above 0, pin_memory=True and "
        "persistent_workers=True; with num_workers=0 the launching thread makes each batch itself",
        other="",
    ),
    "_MultiProcessingDataLoaderIter": Words(
        pytorch="the processes that load batches are late: raise the DataLoader's num_workers and prefetch_factor, or "
        "make its dataset and collate_fn faster",
        other="",
    ),
}
"""By what PyTorch calls the iterator that loads batches: whose it is tells what the program is written in."""


def _loading(holder: IdleHolder | None, largest: IdlePart) -> str:
    """What to do where the thread loads batches."""
    names = f"{holder.name if holder else ''} {largest.name}"
    return next((action.pytorch for loader, action in _LOADERS.items() if loader in names), "")


_PLANS = re.compile(r"_cudnn_attention")
"""Operators that have cuDNN make a plan at each new shape (PyTorch, aten/src/ATen/native/cudnn/MHA.cpp)."""
_FEWER_SHAPES = "have fewer shapes (pad to a few lengths, a cache of fixed size), and run each once before what matters"
_FIRST_USES = Words(
    pytorch=f"most of it is in few of the operator's calls, as at the first use of a shape: {_FEWER_SHAPES}",
    other=f"most of it is in few of its calls, as at the first use of a shape: {_FEWER_SHAPES}",
)
_CUDNN = Words(
    pytorch=f"cuDNN makes a plan for each new shape: {_FEWER_SHAPES}; another backend makes none "
    "(torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION))",
    other=f"cuDNN makes a plan for each new shape: {_FEWER_SHAPES}",
)
_LIBRARYS = Words(
    pytorch="it is a library's code: call it less often (larger batches, fused operators, a CUDA graph), or take "
    "another implementation of the operator; launch further ahead of the GPU",
    other="it is a library's code: call it less often, or take another implementation; launch further ahead of the GPU",
)


def _of_library(trace: Trace, holder: IdleHolder | None, lost: idle.Stake) -> str:
    """What to do where most of it is the code of operators, which the program has no hand in; empty where it is not."""
    largest, *_ = lost.together
    whole = sum(part.ns for part in lost.together)
    # As operators, or as the ranges that nsys makes of them.
    if 2 * sum(part.ns for part in lost.together if is_of_torch(part.name)) <= whole:
        return ""
    if 2 * largest.ns <= whole or holder is None or holder.name != largest.name or not holder.is_uneven:
        return _LIBRARYS.of(trace)
    return (_CUDNN if _PLANS.search(largest.name) else _FIRST_USES).of(trace)


def _functions(parts: tuple[IdlePart, ...]) -> Iterator[str]:
    samples: Counter[str] = Counter()
    for part in parts:
        samples.update(dict(part.functions))
    if samples:
        named = ", ".join(f"{name} ({number})" for name, number in samples.most_common(_FUNCTIONS))
        yield f"CPU samples in this time: {named}"


def _run_dry(lost: idle.Loss) -> Iterator[str]:
    if lost.drained_ns >= _NOTABLE * lost.ns:
        share = percent(100 * lost.drained_ns / lost.ns)
        yield f"{share} of it begins with a call that had waited for the GPU: nothing was queued behind"


def _compiled(lost: idle.Loss) -> Iterator[str]:
    """Signs that the code is a compiler: NVRTC is loaded, and what it made."""
    compiling = [part for part in lost.gpu.parts if part.cause is Cause.LOADING or "nvrtc" in part.name]
    if any("nvrtc" in part.name for part in compiling):
        named = ", ".join(dict.fromkeys(part.name for part in compiling))
        yield f"in the same gaps kernels are compiled and loaded ({named}: {duration(sum(p.ns for p in compiling))})"


def _untraced(trace: Trace) -> Iterator[str]:
    if (why := trace.why_missing(whats.OS_CALLS)) is not None:
        yield f"part of it may be OS calls: {why}"


def _action(lost: idle.Loss, again: Recurrence | None) -> str:
    if any(_compiled(lost)):
        before = "and cache what was compiled: it comes back, so that no warm-up takes it away" if again else _WARM
        return (
            "kernels are compiled while the program runs (NVRTC): keep shapes and types the same from step to step, "
            f"{before}; what else runs there, move off the launching thread"
        )
    if 2 * lost.drained_ns > lost.ns:
        return (
            "launch the next step before this code runs (asynchronous scheduling), or run it on another thread: it "
            "starts when the GPU has nothing left, so that all of its time is the GPU's"
        )
    return "make this code faster or run it on another thread, and launch further ahead of the GPU"
