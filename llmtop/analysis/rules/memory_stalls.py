"""When a CPU waits for memory while it works: what the rules on threads and on counts of perf stat share."""

from __future__ import annotations

from llmtop.units import number, percent

SOURCE = "Profiling guide, tables 8 to 10 (high LLC misses: working set exceeds the cache; 35 % and more)"
ACTION = "keep it and its memory on one NUMA node (numactl), give it cores whose cache nothing else fills"
HIGH_MISSES = 0.35
"""Share of the accesses that miss (table 9: the working set exceeds the cache)."""
FEW_PER_CYCLE = 1.0
"""Instructions: a core that does not wait for memory retires two and more."""
MUCH_ON_CPU = 0.5
"""Share of the time on a CPU, from which what it does there is what a step waits for."""


def waits_for_memory(miss_share: float, per_cycle: float) -> bool:
    """Whether most of what is looked for is not in the last-level cache, and that costs."""
    return miss_share >= HIGH_MISSES and per_cycle < FEW_PER_CYCLE


def says_memory_wait(name: str, miss_share: float, per_cycle: float) -> str:
    """That in a sentence."""
    misses, done = percent(100 * miss_share), f"{number(per_cycle)} instructions a cycle"
    return f"{name} waits for memory while it works: {misses} of its cache accesses miss, {done}"


def says_memory_counts(name: str, miss_share: float, per_cycle: float, dtlb_per_1000: float | None, source: str) -> str:
    """The line of evidence."""
    told = "" if dtlb_per_1000 is None else f", {number(dtlb_per_1000)} data TLB misses of 1,000 instructions"
    misses, done = percent(100 * miss_share), f"{number(per_cycle)} instructions a cycle"
    return f"{name}: {misses} of its last-level cache accesses miss, {done}{told} ({source})"
