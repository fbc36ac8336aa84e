"""Multiprocessors that rest while the last blocks run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.model import Finding, Trace
from llmtop.units import percent

id = "kernel-uneven"
summary = "The kernel's blocks do not divide evenly over the multiprocessors: some rest until the last block is done."
source = "Nsight Compute, LaunchConfiguration rule (partial waves) and WorkloadDistribution section"

_NOTABLE_SHARE = 0.1
"""Of the time in which an SM could have worked. Ours."""
_NOTABLE_GUESS = 0.25
"""The same where only the number of waves is known, and not whether blocks take the same time."""
ADVICE = ("LaunchConfiguration", "WorkloadImbalance", "SMWorkloadImbalance", "AchievedOccupancy")
_LIBRARY = (
    "choose sizes (batch, tokens) whose blocks fill whole waves, or another algorithm: split-K or stream-K "
    "divide the rest"
)
_OWN = (
    "make the grid a multiple of what fits at once, use smaller blocks, or let a fixed number of blocks take "
    "work in a loop "
    "(persistent, stream-K)"
)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of more than one wave."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "blocks that do not divide evenly")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the rest of the GPU loses; None where that is little, or not known."""
    waves, measured = judged.facts.waves, _resting(judged)
    if not isinstance(waves, float) or waves <= 1:
        return None
    resting = _resting_in_last_wave(waves) if measured is None else measured
    if resting < (_NOTABLE_SHARE if measured is not None else _NOTABLE_GUESS):
        return None
    works = f"an SM works {percent(100 * (1 - resting))} of the time on average"
    claim = Claim(
        judged,
        f"uneven: {works}, the busiest one all of it" if measured is not None else f"uneven by its waves: {works}",
        _LIBRARY if judged.kind.library else _OWN,
        judged.row.total_ns * resting,
        "the time that multiprocessors rest, on average",
        (f"{waves:.4g} waves of blocks, the last one {percent(100 * (waves % 1 or 1.0))} full (ncu)",),
        ("LaunchStats", "WorkloadDistribution"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


def _resting(judged: JudgedKernel) -> float | None:
    """How much less an SM works on average than the busiest one, as measured."""
    name = "sm__cycles_active.{}"
    work = quotient(judged.counter(name.format("avg")), judged.counter(name.format("max")))
    return None if work is None else 1 - work


def _resting_in_last_wave(waves: float) -> float:
    """The same if all blocks take the same time.

    >>> _resting_in_last_wave(1.25), _resting_in_last_wave(4.0)
    (0.375, 0.0)
    """
    return 1 - waves / math.ceil(waves)
