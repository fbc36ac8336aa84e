"""Requests wait and the GPU does not work: the CPU side does not feed it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import gpu_tracks, mean, server_track
from llmtop.analysis.rules.evidence import WINDOW_NS, known, says
from llmtop.analysis.threads import Shares, ThreadRow, engine_thread
from llmtop.model import Finding, Metric, Severity, Trace, Unknown

id = "engine-starved"
summary = "Requests are there, the GPU idles: the engine's CPU side is the bottleneck."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"

_IDLE_PERCENT = 50.0
"""SM activity below this with requests at hand: half of the time nothing runs."""
_BUSY = 0.9
_RUN_QUEUE = 0.05
"""Share of the wall time spent ready but without a CPU from which an engine's loop visibly lags."""


def check(trace: Trace) -> Iterator[Finding]:
    """Work is there, every GPU idles, and the engine thread shows why."""
    server = server_track(trace)
    engine = engine_thread(trace)
    work = None if server is None else _work_at_hand(trace, server.id, engine)
    activity = _gpu_activity(trace)
    if server is None or work is None or activity is None or activity[2] >= _IDLE_PERCENT:
        return
    metric, requests = work
    track, gpu_metric, percent = activity
    verb = "wait" if metric is v.SERVER_WAITING else "run"
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"GPU {percent:.0f} % busy while {requests:.0f} requests {verb}: {_cause(engine)}",
        evidence=(
            says(trace, server.id, metric, requests),
            says(trace, track, gpu_metric, percent),
            *_engine_evidence(engine),
        ),
        action=_action(engine),
        next_command=_next_command(engine),
        source=source,
    )


def _work_at_hand(trace: Trace, server: str, engine: ThreadRow | Unknown) -> tuple[Metric, float] | None:
    """Requests that wait; or that run, where the engine thread's own clocks say that it is what they wait for."""
    waiting = known(mean(trace, server, v.SERVER_WAITING, WINDOW_NS))
    if waiting is not None and waiting >= 1:
        return v.SERVER_WAITING, waiting
    running = known(mean(trace, server, v.SERVER_RUNNING, WINDOW_NS))
    if running is None or running < 1 or isinstance(engine, Unknown) or isinstance(engine.shares, Unknown):
        return None
    is_late = engine.shares.on_cpu >= _BUSY or engine.shares.run_queue >= _RUN_QUEUE
    return (v.SERVER_RUNNING, running) if is_late else None


def _gpu_activity(trace: Trace) -> tuple[str, Metric, float] | None:
    """The busiest GPU: by SM activity, or by NVML's duty cycle where there is no GPM (it can only read higher)."""
    for metric in (v.GPU_SM, v.GPU_UTIL):
        seen = [(known(mean(trace, track.id, metric, WINDOW_NS)), track.id) for track in gpu_tracks(trace)]
        busiest = max(((value, track) for value, track in seen if value is not None), default=None)
        if busiest is not None:
            return busiest[1], metric, busiest[0]
    return None


def _cause(engine: ThreadRow | Unknown) -> str:
    if isinstance(engine, Unknown) or isinstance(engine.shares, Unknown):
        return "the CPU side does not feed it"
    if engine.shares.run_queue >= _RUN_QUEUE:
        return f"{engine.name} waits for a CPU"
    if engine.shares.on_cpu >= _BUSY:
        return f"{engine.name} is CPU-bound"
    return f"{engine.name} is blocked ({engine.shares.main_cause})"


def _engine_evidence(engine: ThreadRow | Unknown) -> tuple[str, ...]:
    if isinstance(engine, Unknown) or not isinstance(engine.shares, Shares):
        return ()
    shares = engine.shares
    return (
        f"{engine.name}: on-CPU {shares.on_cpu:.0%}, run queue {shares.run_queue:.0%}, "
        f"blocked {shares.blocked_total:.0%} (schedstat)".replace("%", " %"),
    )


def _action(engine: ThreadRow | Unknown) -> str:
    if isinstance(engine, Unknown) or isinstance(engine.shares, Unknown):
        return "look at the engine's threads: which one is on a CPU, which one waits"
    if engine.shares.run_queue >= _RUN_QUEUE:
        return "give the server more cores (at least 2 + one per GPU), or pin its neighbours elsewhere"
    if engine.shares.on_cpu >= _BUSY:
        return "cut per-step CPU work: CUDA graphs, async scheduling, fewer logprobs and penalties, no guided decoding"
    return "find what the engine waits for: tokeniser, detokeniser, a lock (GIL) or another rank"


def _next_command(engine: ThreadRow | Unknown) -> str:
    pid = "PID" if isinstance(engine, Unknown) else engine.pid
    return f"py-spy dump --nonblocking --pid {pid}"
