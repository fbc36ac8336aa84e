"""The loop goes from CPU to CPU: after each move its data are in another one's caches."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS, known, says
from llmtop.analysis.rules.thread_signals import RUN_QUEUE_SHARE, loops, says_spent
from llmtop.analysis.series.readings import counter_rate
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent, quantity

id = "thread-migrations"
summary = "A loop is moved between CPUs while it waits for one: more threads want them than there are."
source = "Profiling guide, table 8 (context switches and scheduling latency: oversubscription, poor pinning)"

_MANY_PER_S = 50.0
"""With steps of 20 ms one in each."""


def check(trace: Trace) -> Iterator[Finding]:
    """Migrations of a loop, and that it queues for a CPU: one that wakes on another idle CPU loses little."""
    for thread in loops(trace):
        moved = known(counter_rate(trace, thread.track, v.THREAD_MIGRATIONS, WINDOW_NS))
        if moved is None or moved < _MANY_PER_S or thread.shares.run_queue < RUN_QUEUE_SHARE:
            continue
        queued = percent(100 * thread.shares.run_queue)
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=thread.name,
            message=f"{thread.name} changes CPUs {quantity(moved, '/s')}, and waits for one {queued} of the time",
            evidence=(says(trace, thread.track, v.THREAD_MIGRATIONS, moved, "/s"), says_spent(trace, thread)),
            action="pin it to cores of its own, away from other threads (taskset -p, cpuset), or run fewer of these",
            next_command=f"taskset -cp {thread.row.tid}",
            source=source,
            share=thread.shares.run_queue,
        )
