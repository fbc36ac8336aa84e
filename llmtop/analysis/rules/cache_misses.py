"""The loop waits for memory while it runs: most of what it looks for is not in the last-level cache."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.memory_stalls import (
    ACTION,
    MUCH_ON_CPU,
    SOURCE,
    says_memory_counts,
    says_memory_wait,
    waits_for_memory,
)
from llmtop.analysis.rules.thread_signals import loops, says_spent
from llmtop.analysis.threads.events import events
from llmtop.model import Finding, Severity, Trace, Unknown

id = "cache-misses"
summary = "A loop's data do not fit the last-level cache: it stalls on memory while it is on a CPU."
source = SOURCE


def check(trace: Trace) -> Iterator[Finding]:
    """The processor's counters of a loop that works: misses, and that they cost."""
    for thread in loops(trace):
        found = events(trace, thread.track, WINDOW_NS)
        if isinstance(found, Unknown) or thread.shares.on_cpu < MUCH_ON_CPU:
            continue
        told = (thread.name, found.cache_miss_share, found.per_cycle)
        if not waits_for_memory(*told[1:]):
            continue
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=thread.name,
            message=says_memory_wait(*told),
            evidence=(
                says_memory_counts(*told, found.dtlb_misses_per_1000, "perf_event_open"),
                says_spent(trace, thread),
            ),
            action=ACTION,
            next_command=f"sudo perf record -e cache-misses -g -t {thread.row.tid} -- sleep 5",
            source=source,
        )
