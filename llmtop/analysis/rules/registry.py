"""All diagnosis rules. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules import (
    cgroup_throttled,
    clocks_capped,
    compute_bound,
    engine_starved,
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

RULES: tuple[Rule, ...] = (
    # live: what the server waits for
    kv_bound,
    cgroup_throttled,
    engine_starved,
    run_queue_starvation,
    queue_growth,
    straggler,
    clocks_capped,
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


def diagnose(trace: Trace, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What all rules find, gravest first. A rule that fails says so and costs only itself."""
    found = [finding for rule in rules for finding in _checked(rule, trace)]
    return tuple(sorted(found, key=lambda finding: _GRAVEST_FIRST.index(finding.severity)))


def _checked(rule: Rule, trace: Trace) -> Iterator[Finding]:
    try:
        yield from rule.check(trace)
    except Exception as error:  # the border: one bad rule never ends the program
        message = f"the rule {rule.id} failed: {type(error).__name__}: {error}"
        yield Finding(rule.id, Severity.INFO, "llmtop", message, (), "please report this")
