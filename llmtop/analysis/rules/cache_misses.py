"""The loop waits for memory while it runs: most of what it looks for is not in the last-level cache."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.thread_signals import loops, says_spent
from llmtop.analysis.threads.events import events
from llmtop.model import Finding, Severity, Trace, Unknown
from llmtop.units import number, percent

id = "cache-misses"
summary = "A loop's data do not fit the last-level cache: it stalls on memory while it is on a CPU."
source = "Profiling guide, tables 8 to 10 (high LLC misses: working set exceeds the cache; 35 % and more)"

_HIGH = 0.35
"""Share of the accesses that miss (table 9: the working set exceeds the cache)."""
_FEW_PER_CYCLE = 1.0
"""Instructions: a core that does not wait for memory retires two and more."""
_MUCH = 0.5
"""Share of the time on a CPU, from which what it does there is what a step waits for."""


def check(trace: Trace) -> Iterator[Finding]:
    """The processor's counters of a loop that works: misses, and that they cost."""
    for thread in loops(trace):
        found = events(trace, thread.track, WINDOW_NS)
        if isinstance(found, Unknown) or thread.shares.on_cpu < _MUCH:
            continue
        if found.cache_miss_share < _HIGH or found.per_cycle >= _FEW_PER_CYCLE:
            continue
        misses, done = percent(100 * found.cache_miss_share), f"{number(found.per_cycle)} instructions a cycle"
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=thread.name,
            message=f"{thread.name} waits for memory while it works: {misses} of its cache accesses miss, {done}",
            evidence=(
                f"{thread.name}: {misses} of its last-level cache accesses miss, {done}, "
                f"{number(found.dtlb_misses_per_1000)} data TLB misses of 1,000 instructions (perf_event_open)",
                says_spent(trace, thread),
            ),
            action="keep it and its memory on one NUMA node (numactl), give it cores whose cache nothing else fills",
            next_command=f"sudo perf record -e cache-misses -g -t {thread.row.tid} -- sleep 5",
            source=source,
        )
