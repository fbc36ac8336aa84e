"""The engine's thread is ready to run and gets no CPU."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import counter_rate, latest
from llmtop.analysis.rules.evidence import WINDOW_NS, known, says
from llmtop.analysis.threads import engine_thread
from llmtop.model import Finding, Severity, Trace, Unknown

id = "run-queue-starvation"
summary = "The engine loop waits for a CPU: every step is late by that much."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"

_SHARE = 0.05
"""Run-queue wait of 5 % of the wall time: with 20 ms steps a millisecond of each is lost."""
_SWITCHES_PER_S = 1.0
_PRESSURE_PERCENT = 10.0
"""PSI "some": tasks waited for a CPU in this share of the last ten seconds."""


def check(trace: Trace) -> Iterator[Finding]:
    """Run-queue wait of the engine thread, and a second witness: involuntary switches, or the host's CPU pressure."""
    engine = engine_thread(trace)
    if isinstance(engine, Unknown) or isinstance(engine.shares, Unknown) or engine.shares.run_queue < _SHARE:
        return
    track = f"thread:{engine.pid}/{engine.tid}"
    witnesses = _witnesses(trace, track)
    if witnesses:
        share = engine.shares.run_queue
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=engine.name,
            message=f"{engine.name} waits for a CPU {share * 100:.0f} % of the time",
            evidence=(says(trace, track, v.THREAD_RUN_QUEUE, share, "ratio"), *witnesses),
            action="give the server more cores (at least 2 + one per GPU), cap thread pools (OMP_NUM_THREADS), "
            "or move neighbours away",
            next_command=f"sudo perf sched record -p {engine.pid} -- sleep 5 && sudo perf sched latency",
            source=source,
        )


def _witnesses(trace: Trace, track: str) -> tuple[str, ...]:
    switches = known(counter_rate(trace, track, v.THREAD_INVOLUNTARY, WINDOW_NS))
    pressure = known(latest(trace, "host", v.HOST_CPU_PRESSURE))
    found = []
    if switches is not None and switches >= _SWITCHES_PER_S:
        found.append(says(trace, track, v.THREAD_INVOLUNTARY, switches, "/s"))
    if pressure is not None and pressure >= _PRESSURE_PERCENT:
        found.append(says(trace, "host", v.HOST_CPU_PRESSURE, pressure))
    return tuple(found)
