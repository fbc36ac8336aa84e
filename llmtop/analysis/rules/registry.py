"""All diagnosis rules. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules import (
    api_bound,
    cgroup_throttled,
    clocks_capped,
    compute_bound,
    cpu_bound,
    engine_starved,
    gil_bound,
    gpu_bound,
    idle_polling,
    kernel_access,
    kernel_compute_roof,
    kernel_latency,
    kernel_long_scoreboard,
    kernel_memory_roof,
    kv_bound,
    launch_gaps,
    memory_bound_decode,
    queue_growth,
    run_queue_starvation,
    straggler,
    tool_advice,
)
from llmtop.model import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.analysis.rules.base import Rule
    from llmtop.model import Trace

CAUSES: tuple[Rule, ...] = (
    cgroup_throttled,
    run_queue_starvation,
    gil_bound,
    api_bound,
    cpu_bound,
    engine_starved,
)
"""Why the CPU side is late, the root first. A throttled thread queues for a CPU, one that queues seems CPU-bound, and
threads that fight for the GIL fill one core: of these only the first that fires speaks."""

FAULTS: tuple[Rule, ...] = (*CAUSES, kv_bound, straggler, clocks_capped)
"""What may stand beside each other; none of it beside a verdict that all is well."""

HEALTHY: tuple[Rule, ...] = (idle_polling, gpu_bound)

RULES: tuple[Rule, ...] = (
    # live: what the server waits for
    kv_bound,
    *CAUSES,
    queue_growth,
    straggler,
    clocks_capped,
    *HEALTHY,
    memory_bound_decode,
    compute_bound,
    # reports: what a timeline or its kernels wait for
    launch_gaps,
    kernel_memory_roof,
    kernel_compute_roof,
    kernel_latency,
    kernel_long_scoreboard,
    kernel_access,
    tool_advice,
)
"""Of findings that matter alike, the one whose rule stands first here is shown first."""

_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def silenced_by(rule: Rule) -> tuple[Rule, ...]:
    """The rules whose findings, where they are more than information, explain or contradict what this one says."""
    if rule in CAUSES:
        return CAUSES[: CAUSES.index(rule)]
    return FAULTS if rule in HEALTHY else ()


def diagnose(trace: Trace, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What all rules find, gravest first. A rule that fails says so and costs only itself."""
    found = {rule.id: tuple(_checked(rule, trace)) for rule in rules}
    grave = {rule for rule, several in found.items() if any(one.severity is not Severity.INFO for one in several)}
    spoken = [rule for rule in rules if grave.isdisjoint(other.id for other in silenced_by(rule))]
    findings = [finding for rule in spoken for finding in found[rule.id]]
    return tuple(sorted(findings, key=lambda finding: _GRAVEST_FIRST.index(finding.severity)))


def _checked(rule: Rule, trace: Trace) -> Iterator[Finding]:
    try:
        yield from rule.check(trace)
    except Exception as error:  # the border: one bad rule never ends the program
        message = f"the rule {rule.id} failed: {type(error).__name__}: {error}"
        yield Finding(rule.id, Severity.INFO, "llmtop", message, (), "please report this")
