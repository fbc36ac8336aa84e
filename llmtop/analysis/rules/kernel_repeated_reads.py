"""Data that the SMs fetch from L2 again and again, because nothing nearer keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.bounds import LATENCY_PERCENT, MARGIN_PERCENT
from llmtop.analysis.kernels.counters import first, quotient
from llmtop.analysis.rules import kernel_atomics, kernel_spills, kernel_uncoalesced
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.model import Finding, Trace
from llmtop.units import number as text
from llmtop.units import percent, si

id = "kernel-repeated-reads"
summary = "The SMs fetch the same data from L2 again and again: L1 and shared memory keep too little of it."
source = (
    "Nsight Compute, Kernel Profiling Guide (memory tables: L1/TEX and L2 hit rates) and SpeedOfLight rule (60 %); "
    "CUDA C++ Best Practices Guide, shared memory"
)

_SECTOR_BYTES = 32
_OFTEN = 2.0
"""Times that a byte from DRAM passes from L2 to the SMs: from here on half of that traffic is repeats. Ours."""
_READ = ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_op_read.sum")
_LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_HITS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"
ADVICE = ("SOLBottleneck", "MemoryCacheAccessPattern")
_OWN = (
    "keep what is used again in the SM: tiles in shared memory or registers, larger ones, and neighbouring blocks that "
    "share their input (swizzled block order, clusters)"
)
_LIBRARY = "try another tile or algorithm of the library (its heuristics, autotuning), other sizes, or a newer version"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "the same data is fetched from L2 again and again")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the repeats cost; None where L2 is not the limit, or not known.

    That a byte comes from DRAM once is only so where the profiler emptied the caches before it counted.
    """
    used, verdict, times = judged.counter(c.L2_PERCENT), judged.verdict, _times(judged)
    if used is None or verdict is None or times is None or times < _OFTEN or used < LATENCY_PERCENT:
        return None
    others = max(verdict.compute or 0.0, verdict.dram or 0.0)
    if others > used - MARGIN_PERCENT or not profiling.empties_caches(judged.trace) or _is_of_its_pattern(judged):
        return None
    claim = Claim(
        judged,
        f"fetches the same data from L2 again: each byte from DRAM goes to the SMs {text(times)} times",
        _LIBRARY if judged.kind.library else _OWN,
        judged.row.total_ns * min(1 - 1 / times, 1 - others / used),
        "the share of repeats, up to the limit of the next unit",
        tuple(_evidence(judged, used)),
        ("MemoryWorkloadAnalysis_Tables", "SourceCounters"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


def _times(judged: JudgedKernel) -> float | None:
    sectors = first(judged.metrics, _READ)
    return None if sectors is None else quotient(_SECTOR_BYTES * sectors, judged.counter(c.DRAM_READ_BYTES))


def _is_of_its_pattern(judged: JudgedKernel) -> bool:
    """Whether the sectors themselves are too many: that is what those rules are about."""
    return any(rule.judge(judged) is not None for rule in (kernel_uncoalesced, kernel_atomics, kernel_spills))


def _evidence(judged: JudgedKernel, used: float) -> Iterator[str]:
    read, dram = first(judged.metrics, _READ) or 0.0, judged.counter(c.DRAM_READ_BYTES) or 0.0
    moved = f"SMs read {si(_SECTOR_BYTES * read, 'B')} from L2, L2 {si(dram, 'B')} from DRAM"
    yield f"L2 {percent(used)} busy; {moved} (ncu)"
    loads, hits = judged.counter(_LOADS), judged.counter(_HITS)
    if loads and hits is not None:
        most = max(0.0, 1 - dram / _SECTOR_BYTES / loads)
        yield (
            f"L1 hits {percent(100 * hits / loads)} of what is loaded; {percent(100 * most)} if each byte came to the "
            "SMs once (ncu)"
        )
