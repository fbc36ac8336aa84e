"""Kernels so short that starting them takes as long as they do."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from llmtop.analysis.kernels import counters, counting
from llmtop.analysis.kernels.family_shares import family_shares
from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.kernels.table import has_counters, kernels_of
from llmtop.model import Finding, Severity, Trace
from llmtop.units import duration, percent

id = "short-kernels"
summary = "Most kernels are shorter than what it takes to launch one."
source = (
    "DeepSeek-OCR kernel-level profiling, V2 (most kernels below 10 µs); Machine Learning Systems (launches of 5 "
    "to 10 µs)"
)

_SHORT_NS = 5_000.0
"""What a launch takes on the CPU side, at least where PyTorch makes it."""
_MOST = 0.5
"""Of all launches, that have to be short."""
_NOTABLE_SHARE = 0.1
"""Of the kernels' time."""
_ACTION = Words(
    pytorch="fewer, larger kernels: a larger batch, fused ones (torch.compile); launches cost least in CUDA graphs",
    compiled=f"fewer, larger kernels: a larger batch, fused ones ({COMPILED}); launches cost least in CUDA graphs",
    directives="fewer, larger kernels: fuse loops into one construct, and let each do more of the work",
    other="fewer, larger kernels: fused ones, more work in each; launches cost least in CUDA graphs",
)
_FEWEST = 50
"""Launches with a time, of fewer of which nothing is said."""
_SHOWN = 3
"""Kinds of kernels that are named."""


def check(trace: Trace) -> Iterator[Finding]:
    """Of a timeline: a report of counters says more of each of them."""
    kernels = kernels_of(trace)
    known = sum(ns == ns for ns in kernels.table.duration_ns)
    short = array("d", (ns for ns in kernels.table.duration_ns if ns < _SHORT_NS))
    if has_counters(trace) or known < _FEWEST or len(short) < _MOST * known:
        return
    share = sum(short) / kernels.total_ns
    if share < _NOTABLE_SHARE:
        return
    most = max(kernels.groups(), key=lambda row: sum(kernels.table.duration_ns[i] < _SHORT_NS for i in row.launches))
    next_command, no_command = counting.of_launch(trace, most.launches[0], (counters.LAUNCH, counters.OCCUPANCY))
    largest = [f"{one.family} {percent(100 * one.share)}" for one in family_shares(trace)[:_SHOWN]]
    yield Finding(
        rule=id,
        severity=Severity.INFO,
        subject="kernels",
        message=f"{percent(100 * len(short) / known)} of the launches are shorter than {duration(_SHORT_NS)}: "
        f"{percent(100 * share)} of the kernels' time",
        evidence=(
            f"{len(short)} of {known} launches, {duration(sum(short))} (nsys)",
            f"by kind: {', '.join(largest)}",
        ),
        action=_ACTION.of(trace),
        next_command=next_command,
        no_command=no_command,
        source=source,
    )
