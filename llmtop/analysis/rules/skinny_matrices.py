"""Most of the time goes into products of a matrix with one or a few vectors: weights are read for little work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop.analysis.kernels.architecture import quantised_types
from llmtop.analysis.kernels.family import KernelFamily, KernelKind
from llmtop.analysis.kernels.fusion import is_chosen
from llmtop.analysis.kernels.table import Row, kernels_of
from llmtop.analysis.rules import kernel_memory_roof, stakes
from llmtop.analysis.rules.kernel_evidence import heavy
from llmtop.model import Finding, Trace
from llmtop.units import duration, percent

id = "skinny-matrices"
summary = "Matrix kernels made for batches of 1 to 16 take much of the time: each weight is read for a few tokens."
source = (
    "DeepSeek-OCR kernel-level profiling, V2 (GEMV 49 % of the time); Machine Learning Systems, intensity by batch size"
)

_NOTABLE_SHARE = 0.3
"""Of the kernels' time. Ours; the study speaks of dominance at 49 %."""
_FEW = 16
"""Columns of a tile: a larger batch takes a wider tile."""
_SAVED = 0.5
"""Of the time for each token, by twice the batch: the weights are read once for both."""
_SHOWN = 3
"""Kernels with a line of their own."""


def check(trace: Trace) -> Iterator[Finding]:
    """Unless the counters have told the same of the same kernels."""
    kernels = kernels_of(trace)
    rows = [
        row for row in kernels.groups() if _is_skinny(kernels.kind(row.launches[0])) and row.total_ns == row.total_ns
    ]
    total_ns = sum(row.total_ns for row in rows)
    share = 0.0 if is_chosen(trace) else kernels.share(total_ns) or 0.0
    if share < _NOTABLE_SHARE or any(_is_skinny(one.kind) and kernel_memory_roof.judge(one) for one in heavy(trace)):
        return
    yield stakes.finding(
        trace,
        stakes.on_each_gpu(trace, _SAVED * total_ns),
        f"half of their time, for each token at twice the batch{stakes.mean(trace)}",
        rule=id,
        subject="matrix kernels",
        message=f"matrix kernels for a few tokens at a time take {percent(100 * share)} of the kernels' time",
        evidence=(
            f"{kernels.short_name(row.launches[0])}: {duration(row.total_ns)} in {row.calls} calls"
            for row in rows[:_SHOWN]
        ),
        action="let more requests run at once, so that each weight is read for more tokens; for one request alone "
        f"{_quantise(trace, rows)}use speculative decoding",
        next_command=_next(trace, rows),
        source=source,
    )


def _is_skinny(kind: KernelKind) -> bool:
    if kind.family is KernelFamily.GEMV:
        return kind.dtype != "fp64"  # no language model's
    return kind.family is KernelFamily.GEMM and bool(kind.tile) and min(map(int, kind.tile.split("x")[:2])) <= _FEW


def _quantise(trace: Trace, rows: Sequence[Row]) -> str:
    types = quantised_types(trace, kernels_of(trace).kind(rows[0].launches[0]).dtype)
    return f"quantise the weights ({types}) or " if types else ""


def _next(trace: Trace, rows: Sequence[Row]) -> str:
    """How near they are to the memory's roof, where that is not known."""
    launches = {row.launches[0] for row in rows}
    judged = next((one for one in heavy(trace, counted=False) if one.row.launches[0] in launches), None)
    return "" if judged is None else judged.again("SpeedOfLight", "MemoryWorkloadAnalysis")
