"""The loop touches fresh memory at every step: each page of it costs a fault in the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS, known, recent_mean, says
from llmtop.analysis.rules.thread_signals import loops, says_spent
from llmtop.analysis.series.readings import counter_rate, server_track
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent, quantity

id = "allocation-churn"
summary = "A loop gives memory back and takes it again: page faults take a part of each step."
source = "Profiling guide, table 8 (minor faults and RSS growth: allocation churn); Linux, proc_pid_stat(5) (minflt)"

_FAULT_S = 0.5e-6
"""What a minor fault takes at least: the kernel finds and clears a page of 4 KiB. Measured with giving it back: 1.5 us
in a virtual machine (benchmarks/perf_counters_cost.py); half a microsecond is left for faster ones."""
_FELT = 0.02
"""Share of the loop's time."""


def check(trace: Trace) -> Iterator[Finding]:
    """Minor faults of a loop's own thread while requests run, at what each takes at least."""
    server = server_track(trace)
    running = recent_mean(trace, server.id, v.SERVER_RUNNING) if server is not None else None
    if running is not None and not running:
        return
    for thread in loops(trace):
        faults = known(counter_rate(trace, thread.track, v.THREAD_MINOR_FAULTS, WINDOW_NS))
        if faults is None or faults * _FAULT_S < _FELT:
            continue
        share = min(1.0, faults * _FAULT_S)
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=thread.name,
            message=f"{thread.name}: {quantity(faults, 'page faults/s')}, {percent(100 * share)} of its time at least",
            evidence=(
                says(trace, thread.track, v.THREAD_MINOR_FAULTS, faults, "/s"),
                says_spent(trace, thread),
            ),
            action="keep buffers and let the allocator keep memory (MALLOC_TRIM_THRESHOLD_, jemalloc), use huge pages",
            next_command=f"sudo perf record -e page-faults -g -t {thread.row.tid} -- sleep 5",
            source=source,
            share=share,
        )
