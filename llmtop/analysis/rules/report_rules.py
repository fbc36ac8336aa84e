"""The rules for a tool's report: what a timeline or its kernels wait for. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules.base import grave_rules, named
from llmtop.analysis.rules.kernel_causes import PARTICULAR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llmtop.analysis.rules.base import Rule
    from llmtop.model import Finding, Trace

RULES: tuple[Rule, ...] = (
    *named(
        "gpu_fault",
        "sanitizer_error",
        "run_queue_delays",
        "false_sharing",
        "remote_memory",
        "counted_cache_misses",
        "failed_launches",
        "failed_calls",
        "host_code",
        "host_waits",
        "host_descheduled",
        "sync_stalls",
        "blocking_copies",
        "copies_dominate",
        "operators_on_cpu",
        "allocation_stalls",
        "unified_faults",
        "cuda_calls",
        "launch_gaps",
        "graph_launch_gaps",
        "graph_gaps",
        "kernel_turnaround",
        "exposed_communication",
        "rank_imbalance",
        "slow_steps",
        "queued_work",
        "code_loading",
        "no_work",
        "idle_unknown",
        "profiler_cost",
        "memory_growth",
        "skinny_matrices",
        "fusion_chances",
        "type_conversions",
        "attention_variant",
    ),
    *PARTICULAR,
    *named(
        "kernel_low_occupancy",
        "kernel_memory_latency",
        "kernel_waits",
        "kernel_latency_unknown",
        "kernel_small_grid",
        "idle_sms",
        "kernel_memory_roof",
        "kernel_fits_l2",
        "kernel_enough_warps",
        "kernel_compute_bound",
        "short_kernels",
        "tool_advice",
    ),
)
"""Of findings that matter alike, the one whose rule stands first here is shown first."""

_EXPLAINED = {
    "short-kernels": ("launch-gaps", "graph-gaps", "kernel-turnaround"),  # these say what the shortness costs
}
"""By rule, those that say why it is so where they fire."""


def asked(trace: Trace) -> tuple[Rule, ...]:
    """All: a report is of what it is of, however short."""
    return RULES


def heard(rules: Sequence[Rule], found: Mapping[str, Sequence[Finding]]) -> dict[Rule, Sequence[Finding]]:
    """All but what others explain: see `base.RuleSet`."""
    grave = grave_rules(found)
    spoken = (rule for rule in rules if grave.isdisjoint(_EXPLAINED.get(rule.id, ())))
    return {rule: found[rule.id] for rule in spoken}
