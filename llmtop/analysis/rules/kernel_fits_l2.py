"""DRAM traffic that the L2 cache could hold, of kernels that were measured with empty caches."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.bounds import LATENCY_PERCENT, MARGIN_PERCENT
from llmtop.analysis.kernels.counters import total
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import JudgedKernel, heavy, subject_of
from llmtop.model import Finding, Severity, Trace
from llmtop.units import binary_bytes, percent, si

id = "kernel-fits-l2"
summary = "The kernel reads from DRAM what fits into L2: the profiler had emptied the caches before it."
source = "Nsight Compute, Kernel Profiling Guide (cache control: caches are flushed before each replay pass)"

_NOTABLE_SHARE = 0.05
"""Of the kernels' time, for all of them together."""
_FITTING_SHARE = 0.5
"""Of the L2: from Ampere on large chips have it in two halves, and what both need is in both. Ours."""
_SHOWN = 4
"""Kernels that are named."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all of them: what is measured says less of the program than it seems."""
    if not profiling.empties_caches(trace):
        return
    found = [(judged, size) for judged in heavy(trace) if (size := _fitting_bytes(judged)) is not None]
    share = sum(judged.share for judged, _ in found)
    if share < _NOTABLE_SHARE:
        return
    first, is_one = found[0][0], len(found) == 1
    held = binary_bytes(first.counter(c.L2_BYTES) or 0)
    yield Finding(
        rule=id,
        severity=Severity.INFO,
        subject=subject_of([one.name for one, _ in found]),
        message=f"limited by DRAM traffic that fits into L2 ({held}): {percent(100 * share)} of the kernels' time",
        evidence=(
            *(f"{one.row_name}: {si(size, 'B')} from and to DRAM; {one.time} (ncu)" for one, size in found[:_SHOWN]),
            *([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []),
            "the profiler empties the caches before each pass (its default): in the program the data may be there",
        ),
        action="measure it with the caches as the program leaves them; where it still waits for DRAM, run it right "
        "after the kernel that makes its input, or both on a part at a time that fits",
        next_command=profiling.of_launch_as_run(trace, first.launch),
        source=source,
        parts=() if is_one else tuple(dict.fromkeys(one.name for one, _ in found)),
    )


def _fitting_bytes(judged: JudgedKernel) -> float | None:
    """Its DRAM traffic; None where DRAM is not the limit, L2 could not hold it, or not known."""
    verdict, held = judged.verdict, judged.counter(c.L2_BYTES)
    moved = total((judged.counter(c.DRAM_READ_BYTES), judged.counter(c.DRAM_WRITE_BYTES)))
    if verdict is None or verdict.dram is None or held is None or not moved or moved > _FITTING_SHARE * held:
        return None
    leads = verdict.dram >= max(LATENCY_PERCENT, verdict.memory - MARGIN_PERCENT, verdict.compute or 0.0)
    return moved if leads and not is_explained(judged) else None
