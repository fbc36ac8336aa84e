"""What perf stat counted waits for memory while it runs: the same as `cache_misses` says live of a loop."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids
from llmtop.analysis.rules.memory_stalls import (
    ACTION,
    MUCH_ON_CPU,
    SOURCE,
    says_memory_counts,
    says_memory_wait,
    waits_for_memory,
)
from llmtop.analysis.threads.event_counts import cache_use, cpu_seconds, known_counts
from llmtop.model import NS_PER_S, Finding, Severity, Trace, TrackId, TrackKind

id = "counted-cache-misses"
summary = "What was counted does not fit the last-level cache: it stalls on memory while it is on a CPU."
source = SOURCE


def check(trace: Trace) -> Iterator[Finding]:
    """Of a program, a thread or a CPU; where no clock was counted, nobody knows how much of the time it ran."""
    for track, known in known_counts(trace.counts).items():
        found, ran_s = cache_use(known), cpu_seconds(known)
        rests = ran_s is not None and ran_s < MUCH_ON_CPU * trace.end_ns / NS_PER_S
        if found is None or rests or not waits_for_memory(found.miss_share, found.per_cycle):
            continue
        told = (trace.tracks[track].name, found.miss_share, found.per_cycle)
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=told[0],
            message=says_memory_wait(*told),
            evidence=(says_memory_counts(*told, found.dtlb_misses_per_1000, f"perf stat, {found.misses}"),),
            action=ACTION,
            next_command=f"sudo perf record -e {found.misses} -g {_whom(track)} -- sleep 5",
            source=source,
        )


def _whom(track: TrackId) -> str:
    """The option of perf for what was counted; where nothing tells whose the counts are, all CPUs."""
    kind = ids.kind(track)
    if kind is TrackKind.THREAD:
        return f"-t {ids.tid(track)}"
    return f"-p {ids.pid(track)}" if kind is TrackKind.PROCESS and ids.pid(track) else "-a"
