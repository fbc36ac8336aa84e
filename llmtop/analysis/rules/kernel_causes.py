"""Causes that are about one thing in a kernel's code: where one holds, no other rule calls it by its symptom."""

from __future__ import annotations

from functools import lru_cache

from llmtop.analysis.rules import (
    kernel_atomics,
    kernel_bank_conflicts,
    kernel_divergence,
    kernel_narrow_accesses,
    kernel_repeated_reads,
    kernel_spills,
    kernel_tensor_missed,
    kernel_uncoalesced,
    kernel_uneven,
)
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel

PARTICULAR = (
    kernel_uncoalesced,
    kernel_bank_conflicts,
    kernel_spills,
    kernel_divergence,
    kernel_atomics,
    kernel_narrow_accesses,
    kernel_repeated_reads,
    kernel_tensor_missed,
    kernel_uneven,
)
_MUCH = 0.15
"""Of the kernel's time: a smaller cause does not explain what the kernel waits for."""


@lru_cache(maxsize=64)
def claims(judged: JudgedKernel) -> tuple[Claim, ...]:
    """What is particular to this kernel."""
    return tuple(claim for rule in PARTICULAR if (claim := rule.judge(judged)) is not None)


def is_explained(judged: JudgedKernel) -> bool:
    """Whether one of them accounts for much of its time."""
    return any(claim.at_stake_ns >= _MUCH * judged.row.total_ns for claim in claims(judged))
