"""The engine's thread is ready to run and gets no CPU, and the GPU waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.rules.signals import gpu_activity, is_gpu_waiting, says_waiting
from llmtop.analysis.rules.thread_signals import crowding, drivers, held_off
from llmtop.model import Finding, Severity, Trace

id = "run-queue-starvation"
summary = "The engine loop waits for a CPU: every step is late by that much."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"


def check(trace: Trace) -> Iterator[Finding]:
    """Run-queue wait of an engine's or a worker's thread, and GPUs that idle meanwhile.

    Where no source tells of the GPUs or of the requests, the second signal is that others queue for CPUs too.
    """
    waiting = is_gpu_waiting(trace)
    late = max(drivers(trace), key=lambda thread: thread.shares.run_queue, default=None)
    if waiting is False or late is None:
        return
    wait = held_off(trace, late)
    crowd = crowding(trace, late) if wait is not None else ()
    if wait is not None and (waiting or crowd):
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=late.name,
            message=f"{late.name} waits for a CPU {100 * wait.value:.0f} % of the time" + _idle(trace, waiting),
            evidence=(wait.text, *says_waiting(trace), *crowd),
            action="give the server more cores (at least 2 + one per GPU), cap thread pools (OMP_NUM_THREADS), "
            "or move neighbours away",
            next_command=f"sudo perf sched record -p {late.row.pid} -- sleep 5 && sudo perf sched latency",
            source=source,
        )


def _idle(trace: Trace, waiting: bool | None) -> str:
    activity = gpu_activity(trace)
    return f", GPU {activity.value:.0f} % busy" if waiting and activity is not None else ""
