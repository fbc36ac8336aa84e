"""Why a trace has no kernels to show. It is asked of every trace, and so loads nothing else."""

from __future__ import annotations

from llmtop import whats
from llmtop.model import Trace, Unknown


def no_kernels(trace: Trace) -> Unknown | None:
    """Why there is no kernel to show; None when there is one."""
    if trace.kernels is not None and len(trace.kernels):
        return None
    return trace.why_missing(whats.KERNELS) or Unknown("the capture has no kernels")


def not_of_kernels(trace: Trace) -> Unknown | None:
    """Why views of kernels do not apply: the file has none, and something else to look at."""
    others = (
        trace.stacks,
        trace.series,
        trace.faults,
        trace.sanitizer,
        trace.counts,
        trace.scheduling,
        trace.cache_lines,
        trace.accesses,
    )
    has_others = trace.spans or any(others)
    return no_kernels(trace) if has_others else None
