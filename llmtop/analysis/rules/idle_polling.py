"""Threads that seem busy and only ask again and again whether there is work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.needs import lacks_threads
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import GPU_QUIET_PERCENT, Signal, gpu_activity, is_loaded, no_requests
from llmtop.analysis.rules.thread_signals import ServerThread, drivers, says_on_cpu, says_spent, threads
from llmtop.analysis.series.readings import told_why_absent
from llmtop.analysis.server.configuration import switch_on
from llmtop.analysis.threads.probes import AWAKE
from llmtop.model import Feature, Finding, Severity, Trace, Unknown, UnknownKind

id = "idle-polling"
summary = "A thread takes a whole core to poll for work: it is idle, not busy."
source = "vLLM issue 19036 (sched_yield); SGLang issue 1730 (empty polls, --sleep-on-idle); Linux, sched_yield(2)"

_MOSTLY = 0.5
"""Share of the time that a thread polls, from which on that is what it does."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Threads that poll without pause, and a server that says it has no requests (or a GPU that rests)."""
    polling = [thread for thread in threads(trace) if _polls(thread)]
    nothing_to_do = _nothing_to_do(trace)
    if not polling and (idle := no_requests(trace)) is not None:
        yield from _awake(trace, idle)
    if not polling or not nothing_to_do:
        yield from unjudged(id, _lacks(trace)) if is_watched(trace) and nothing_to_do else ()
        return
    cores = sum(thread.shares.polling or 0.0 for thread in polling)
    yield Finding(
        rule=id,
        severity=Severity.INFO,
        subject=polling[0].name,
        message=f"idle polling: {_names(polling)} at {cores * 100:.0f} % of a core, asking for work when there is none",
        evidence=(*(says_on_cpu(trace, thread) for thread in polling[:4]), nothing_to_do),
        action=_action(trace),
        next_command=commands.stacks(trace, polling[0].row.pid),
        source=source,
    )


def _awake(trace: Trace, idle: Signal) -> Iterator[Finding]:
    """A loop that never rests while the server has nothing to do, and no probe tells what it does."""
    awake = [thread for thread in drivers(trace) if thread.awake >= AWAKE and thread.shares.polling is None]
    if awake:
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=awake[0].name,
            message=f"{_names(awake)} never rests, {awake[0].shares.on_cpu * 100:.0f} % on a CPU, without a request: "
            "it polls for work, as far as can be told without counting its calls",
            evidence=(*(says_spent(trace, thread) for thread in awake[:4]), idle.text),
            action=_action(trace),
            next_command=commands.stacks(trace, awake[0].row.pid),
            source=source,
        )


def _lacks(trace: Trace) -> Unknown | None:
    """A thread that never rests, of which nobody tells whether it polls."""
    unseen = any(thread.awake >= AWAKE and thread.shares.polling is None for thread in threads(trace))
    why = told_why_absent(trace, ids.NONE, v.THREAD_SPINS) or Unknown(
        "no probe counts this thread's spins", "wait for the first report of the probes", UnknownKind.PASSING
    )
    return why if unseen else lacks_threads(trace)


def _action(trace: Trace) -> str:
    sleep = switch_on(trace, Feature.SLEEP_WHEN_IDLE, "have it sleep when idle")
    return f"nothing is wrong; to free the cores: {sleep}" if sleep else "nothing is wrong"


def _polls(thread: ServerThread) -> bool:
    return thread.awake >= AWAKE and (thread.shares.polling or 0.0) >= _MOSTLY


def _nothing_to_do(trace: Trace) -> str:
    """The second signal: the server's own count; where it has none, a GPU on which next to nothing runs."""
    none = no_requests(trace)
    if none is not None:
        return none.text
    activity = gpu_activity(trace)
    is_quiet = activity is not None and activity.value < GPU_QUIET_PERCENT
    return activity.text if activity is not None and is_quiet and is_loaded(trace) is None else ""


def _names(polling: Sequence[ServerThread]) -> str:
    return polling[0].name if len(polling) == 1 else f"{polling[0].name} and {len(polling) - 1} more threads"
