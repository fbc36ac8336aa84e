"""Threads of a warp that ask one bank of shared memory for different words, and so wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, at_most, busy_share, claims_of, findings, heavy
from llmtop.model import Finding, Trace
from llmtop.units import percent, si

id = "kernel-bank-conflicts"
summary = "The kernel's accesses to shared memory collide and are done again."
source = "Nsight Compute, SharedMemoryConflicts rule (10 %); CUDA C++ Best Practices Guide, shared memory and banks"

_NOTABLE_SHARE = 0.1
"""Of all wavefronts: the threshold of NVIDIA's SharedMemoryConflicts rule."""
ADVICE = ("SharedMemoryConflicts", "UncoalescedSharedAccess")
_OPERATIONS = {"ld": "loads", "st": "stores"}
_PIPE = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "bank conflicts in shared memory")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes; None where that is little, or not known, or another one's code."""
    conflicts, wavefronts = _total(judged, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"), _waves(judged)
    if not wavefronts or conflicts / wavefronts < _NOTABLE_SHARE or judged.kind.library:
        return None
    share = conflicts / wavefronts
    wasted_ns = judged.row.total_ns * share * _held_up(judged)
    basis = "the share of repeats, by how much of the time shared memory is busy or waited for"
    at_stake_ns, basis = at_most(judged, wasted_ns, basis, ADVICE)
    claim = Claim(
        judged,
        f"bank conflicts: {percent(100 * share)} of the wavefronts of {_worst(judged)} are repeats",
        "pad the rows of the shared array by one element, or swizzle its index",
        at_stake_ns,
        basis,
        (f"{si(conflicts)} conflicts in {si(wavefronts)} wavefronts (ncu)",),
        ("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


def _waves(judged: JudgedKernel) -> float:
    return _total(judged, "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum")


def _total(judged: JudgedKernel, name: str) -> float:
    return sum(judged.counter(name.format(operation)) or 0.0 for operation in _OPERATIONS)


def _worst(judged: JudgedKernel) -> str:
    conflicts = {
        title: judged.counter(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum") or 0.0
        for op, title in _OPERATIONS.items()
    }
    return f"shared {max(conflicts, key=lambda title: conflicts[title])}"


def _held_up(judged: JudgedKernel) -> float:
    """How much of the time shared memory is the limit: its pipe's use, or the waiting for it where that is more."""
    used = judged.counter(_PIPE)
    waiting = judged.stalled(StallReason.MIO_THROTTLE, StallReason.SHORT_SCOREBOARD)
    return busy_share(judged) if used is None else min(1.0, max(used / 100, waiting))
