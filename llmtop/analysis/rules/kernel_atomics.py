"""Threads that update the same few addresses and so take turns."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, busy_share, claims_of, findings, heavy
from llmtop.model import Finding, Trace
from llmtop.units import percent, si

id = "kernel-atomics"
summary = "The kernel waits for atomic updates of global memory."
source = (
    "CUDA C++ Programming Guide, atomic functions (updates of one address take turns); Nsight Compute, L2 cache tables"
)

_NOTABLE_SHARE = 0.2
"""Of the requests to global memory. Ours."""
_HELD_UP = 0.3
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "contended atomic updates")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes; None where that is little, or not known, or another one's code."""
    atomic = _asked(judged, "atom", "red")
    share = quotient(atomic, atomic + _asked(judged, "ld", "st"))
    if share is None or share < _NOTABLE_SHARE or judged.kind.library or _held_up(judged) < _HELD_UP:
        return None
    claim = Claim(
        judged,
        f"atomic updates: {percent(100 * share)} of its requests to global memory, and warps wait for them",
        "add up in registers, then in the warp (__reduce_add_sync, shuffles) or in shared memory, and update "
        "global memory "
        "once a block; or spread the updates over more addresses",
        judged.row.total_ns * _beyond_dram(judged) * _held_up(judged),
        "its time beyond what its DRAM traffic takes at peak, by how much of it it waits for memory or uses it",
        (f"{si(atomic)} atomic requests (ncu)",),
        ("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
    )
    return claim if claim.is_worthwhile else None


def _asked(judged: JudgedKernel, *operations: str) -> float:
    return sum(judged.counter(_REQUESTS.format(operation)) or 0.0 for operation in operations)


def _beyond_dram(judged: JudgedKernel) -> float:
    """The share of its time that the bytes themselves do not take; all of it where they were not counted."""
    verdict = judged.verdict
    return 1.0 if verdict is None or verdict.dram is None else max(0.0, 1.0 - verdict.dram / 100)


def _held_up(judged: JudgedKernel) -> float:
    waiting = judged.stalled(
        StallReason.LONG_SCOREBOARD,
        StallReason.LG_THROTTLE,
        StallReason.DRAIN,
        StallReason.MEMBAR,
        StallReason.MIO_THROTTLE,
    )
    return max(waiting, busy_share(judged))
