"""Requests wait, the GPU does not work, and the engine sleeps."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import server_track
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import recent_mean
from llmtop.analysis.rules.needs import is_watched, lacks_activity, lacks_server
from llmtop.analysis.rules.signals import GPU_STARVED_PERCENT, gpu_activity, is_gpu_waiting, says_idle, says_waiting
from llmtop.analysis.rules.thread_signals import GPU_WAITS, Watched, engine, says_blocked
from llmtop.model import Finding, Severity, Trace

id = "engine-starved"
summary = "Requests wait, the GPU idles and no CPU is short: the engine sleeps, and for what is the question."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"

_ACTIONS = {
    v.ThreadCause.DISK: "see what it reads or writes: model or LoRA weights, KV offloading, swap; use a faster disk",
    v.ThreadCause.SOCKET: "see what it waits for on the network: another rank, KV transfer, a remote store",
    v.ThreadCause.FUTEX: "find what holds the lock or queue it waits for: the GIL, a tokeniser, another rank",
} | dict.fromkeys(
    GPU_WAITS, "it waits for a GPU that hardly works: see PCIe and NVLink rates, copies, another rank or node"
)
_OTHERWISE = "find what the engine waits for: tokeniser, detokeniser, a lock or another rank"
_ASLEEP = 0.5
"""Share of the time asleep from which that is what the engine does."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Requests in the queue, every GPU idle half of the time, and an engine that sleeps or cannot be seen."""
    server, activity, thread = server_track(trace), gpu_activity(trace), engine(trace)
    if not is_watched(trace) or (thread is not None and thread.shares.blocked_total < _ASLEEP):
        return
    if server is None or activity is None or not is_gpu_waiting(trace, GPU_STARVED_PERCENT):
        yield from unjudged(id, lacks_server(trace, v.SERVER_WAITING), lacks_activity(trace))
        return
    waiting = recent_mean(trace, server.id, v.SERVER_WAITING)
    if waiting is None or waiting < 1:
        yield from unjudged(id, lacks_server(trace, v.SERVER_WAITING))
        return
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"GPU {activity.value:.0f} % busy while {waiting:.0f} requests wait: {_cause(thread)}",
        evidence=(*says_waiting(trace), *(() if thread is None else (says_blocked(thread),)), *says_idle(trace)),
        action=_action(thread),
        next_command=f"py-spy dump --nonblocking --pid {'PID' if thread is None else thread.row.pid}",
        source=source,
    )


def _cause(thread: Watched | None) -> str:
    if thread is None:
        return "the CPU side does not feed it"
    return f"{thread.name} is blocked ({thread.shares.main_cause})"


def _action(thread: Watched | None) -> str:
    if thread is None:
        return "look at the engine's threads: which one is on a CPU, which one waits"
    return next((text for cause, text in _ACTIONS.items() if cause == thread.shares.main_cause), _OTHERWISE)
