"""What of a program's run a capture covers: what shares of it are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.analysis.commands import profiling
from llmtop.analysis.timeline.work import gpus_at_work
from llmtop.model import API_CALLS, GPU_WORK, SpanKind, Unknown
from llmtop.text import listed
from llmtop.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import SpanTable, Trace

_ENDS = {
    "GPU work": GPU_WORK,
    "CUDA call": API_CALLS,
    "NVTX range": (SpanKind.NVTX,),
    "operator": (SpanKind.OPERATOR,),
}
"""By what a capture begins and ends."""
_AROUND: Mapping[str, str] = {
    SpanKind.OS: "OS calls",
    SpanKind.ON_CPU: "scheduling",
    SpanKind.OFF_CPU: "scheduling",
    SpanKind.SAMPLE: "CPU samples",
    SpanKind.OVERHEAD: "the profiler's work",
    SpanKind.SYNC: "waits for GPUs",
    SpanKind.GPU_RANGE: "ranges on GPUs",
    SpanKind.REGION: "calls of libraries",
    SpanKind.PAGE_FAULT: "page faults",
    SpanKind.ALLOCATION: "allocations",
    SpanKind.CAPTURED: "captures of graphs",
}
"""What there can be before and after, of the CPU side."""


def capture_length(trace: Trace) -> str:
    """What shares "of the capture" are of, from where to where, and what of the file lies outside; empty of others.

    What a program does before its first CUDA call and after its last work is no time that its GPUs could have had:
    calls of the operating system are taken in only between.
    """
    if profiling.is_cut_off(trace) and trace.kernels is not None:
        number = len(trace.kernels)
        these = (
            "one launch that it was to have: shares are of this one"
            if number == 1
            else (f"{number} launches that it was to have: shares are of these")
        )
        return f"the report ends after the {these} alone"
    length = trace.end_ns - trace.start_ns
    if not trace.spans or length <= 0:
        return ""
    tables = {kind: spans for kind, spans in trace.spans.items() if len(spans)}
    around = [kind for kind, spans in tables.items() if spans.start_ns[0] < trace.start_ns or _ends_after(trace, spans)]
    called = {"NVTX range": trace.origin.range_term}
    ends = [called.get(what, what) for what, kinds in _ENDS.items() if tables.keys() & kinds] or ["event"]
    each = ", for one GPU" if len(gpus_at_work(trace)) > 1 else ""
    said = (
        f'"of the capture" is a share of the {duration(length)} from the first to the last {listed(ends, "or")}{each}'
    )
    return f"{said}{_outside(trace, around)}" if around else said


def why_no_work(trace: Trace) -> Unknown | None:
    """Why a trace has no GPU work on a timeline; None where it has some."""
    if gpus_at_work(trace):
        return None
    return trace.why_missing(whats.KERNELS) or Unknown("the report has no timeline", profiling.timeline(trace))


def _ends_after(trace: Trace, spans: SpanTable) -> bool:
    return max(spans.end_ns) > trace.end_ns


def _outside(trace: Trace, around: Sequence[str]) -> str:
    """How much of the file is before and after the capture, and what it holds there."""
    first = min(trace.start_ns, *(trace.spans[kind].start_ns[0] for kind in around))
    last = max(trace.end_ns, *(max(trace.spans[kind].end_ns) for kind in around))
    sides = ((trace.start_ns - first, "before"), (last - trace.end_ns, "after"))
    parts = " and ".join(f"{duration(ns)} {side}" for ns, side in sides if ns)
    what = listed(_AROUND.get(kind, kind) for kind in around)
    return f"; left out are {parts} it, with {what} alone"
