"""The process that takes requests has no time left, and the engine waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.advice import says_clients_see_more
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.needs import lacks_threads
from llmtop.analysis.rules.requests_outside import outside_now
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import (
    GPU_IDLE_PERCENT,
    gpu_activity,
    is_gpu_busy,
    requests,
    slow_scrape,
    unadmitted_requests,
)
from llmtop.analysis.rules.thread_signals import (
    ALL_THE_TIME,
    NO_INPUT_WAITS,
    SerialFrontend,
    ServerThread,
    drivers,
    says_on_cpu,
    says_run_queue,
    says_spent,
    serial_frontends,
    tireless_front,
)
from llmtop.analysis.series.readings import source as read_by
from llmtop.analysis.server.configuration import change, one_of
from llmtop.model import Feature, Finding, Severity, Trace
from llmtop.units import counted, percent

id = "api-bound"
summary = "One thread of the API server (tokenising, detokenising, HTTP) is the bottleneck; engine and GPU wait for it."
source = "vLLM pull requests 10635 and 25301 (tokenising on the event loop); SGLang issues 6553 and 7250"

_WAITS = 0.5
"""Share of the time that engine and workers sleep or poll for want of input: with work at hand they would not."""
_NOTABLE = 0.05
"""Share of the time that a thread waits for a CPU, from which on that is evidence."""
_MOSTLY = 0.5
"""Share of the time that the thread must work, of all in which it works or queues: else it is short of a CPU."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A front thread that never rests, and one that is late for it: engine and workers, or its own other duties.

    They sleep until they are told something; or they have time left while the GPU idles; or the metrics, which come
    from the same event loop, take a second: so late is then every token that is streamed, however busy the GPU is.
    """
    yield from unjudged(id, lacks_threads(trace)) if is_watched(trace) else ()
    busiest = tireless_front(trace)
    if busiest is None:
        yield from _serial_frontends(trace)
        return
    if busiest.shares.working < _MOSTLY:
        return
    late, waiting = slow_scrape(trace), drivers(trace)
    if late is None and (is_gpu_busy(trace, GPU_IDLE_PERCENT) or not waiting):
        return
    if late is not None or all(_has_time_left(thread) for thread in waiting):
        yield _finding(trace, busiest, waiting)


def _serial_frontends(trace: Trace) -> Iterator[Finding]:
    """Threads of one process that take turns on one core, while requests wait that the engine has not heard of."""
    held, waiting = unadmitted_requests(trace), drivers(trace)
    if held is None or not waiting or not all(thread.input_wait >= _WAITS for thread in waiting):
        return
    late = slow_scrape(trace)
    lines = (*held.lines, *([late.text] if late is not None else []), says_spent(trace, waiting[0]))
    now = outside_now(trace, held)
    yield from (_herd_finding(trace, found, now, lines) for found in serial_frontends(trace))


def _herd_finding(trace: Trace, found: SerialFrontend, waiting: float, lines: tuple[str, ...]) -> Finding:
    first = found.threads[0]
    name, many = first.row.role or first.name, len(found.threads)
    held = counted(waiting, "request", "wait")
    where = read_by(trace, ids.process(first.row.pid), v.PROCESS_CPU)
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=name,
        message=f"API-bound: {many} threads of {name} share one core, and {held} for them",
        evidence=(f"{name}: {found.cores:.2f} cores, {many} threads that else wait in futex ({where})", *lines),
        action=_action(trace),
        next_command=commands.profile(trace, first.row.pid),
        source=source,
        share=min(1.0, found.cores),
    )


def _action(trace: Trace) -> str:
    return one_of(
        change(trace, Feature.API_SERVERS, "add API server processes"),
        "send token IDs or shorter prompts",
        "stream in larger pieces",
    )


def _has_time_left(thread: ServerThread) -> bool:
    """It waits for input; or it does not work all the time, and nothing else holds it up."""
    return thread.input_wait >= _WAITS or (
        thread.shares.working < ALL_THE_TIME and thread.blocked_on(NO_INPUT_WAITS) < _WAITS
    )


def _finding(trace: Trace, busiest: ServerThread, waiting: Sequence[ServerThread]) -> Finding:
    numbers = (slow_scrape(trace), requests(trace), gpu_activity(trace))
    queued = [says_run_queue(trace, busiest)] if busiest.shares.run_queue >= _NOTABLE else []
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=busiest.name,
        message=f"API-bound: {busiest.name} is on its CPU {percent(100 * busiest.shares.working)} of the time"
        + _late(trace, waiting),
        evidence=(
            says_on_cpu(trace, busiest),
            *queued,
            *(says_spent(trace, thread) for thread in waiting[:1]),
            *(signal.text for signal in numbers if signal is not None),
            *says_clients_see_more(trace),
        ),
        action=_action(trace),
        next_command=commands.profile(trace, busiest.row.pid),
        source=source,
        share=busiest.shares.working,
    )


def _late(trace: Trace, waiting: Sequence[ServerThread]) -> str:
    if waiting and all(thread.input_wait >= _WAITS for thread in waiting):
        return f", {waiting[0].name} waits for it"
    late = slow_scrape(trace)
    return f", its own metrics take {late.value:.1f} s" if late is not None else ""
