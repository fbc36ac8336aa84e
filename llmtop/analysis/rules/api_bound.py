"""The process that takes requests has no time left, and the engine waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.configuration import change, one_of
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.needs import is_watched, lacks_threads
from llmtop.analysis.rules.signals import GPU_IDLE_PERCENT, gpu_activity, is_gpu_busy, requests
from llmtop.analysis.rules.thread_signals import (
    ALL_THE_TIME,
    INPUT_WAITS,
    Watched,
    drivers,
    fronts,
    says_blocked,
    says_on_cpu,
    says_polling,
)
from llmtop.model import Feature, Finding, Severity, Trace
from llmtop.units import percent

id = "api-bound"
summary = "One thread of the API server (tokenising, detokenising, HTTP) is the bottleneck; engine and GPU wait for it."
source = "vLLM pull requests 10635 and 25301 (tokenising on the event loop); SGLang issues 6553 and 7250"

_WAITS = 0.5
"""Share of the time that engine and workers sleep or poll for want of input: with work at hand they would not."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A front thread that never rests; and an engine that sleeps until it is told something, while the GPU idles."""
    yield from unjudged(id, lacks_threads(trace)) if is_watched(trace) else ()
    busiest = max(fronts(trace), key=lambda thread: thread.shares.working, default=None)
    if busiest is None or busiest.shares.working < ALL_THE_TIME or is_gpu_busy(trace, GPU_IDLE_PERCENT):
        return
    waiting = drivers(trace)
    if waiting and all(_input_wait(thread) >= _WAITS for thread in waiting):
        yield _finding(trace, busiest, waiting[0])


def _finding(trace: Trace, busiest: Watched, engine: Watched) -> Finding:
    numbers = (requests(trace), gpu_activity(trace))
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=busiest.name,
        message=f"API-bound: {busiest.name} is on its CPU {percent(100 * busiest.shares.working)} of the time, "
        f"{engine.name} waits for it",
        evidence=(
            says_on_cpu(trace, busiest),
            says_blocked(engine) if engine.blocked_on(INPUT_WAITS) >= _WAITS else _says_polls(trace, engine),
            *(signal.text for signal in numbers if signal is not None),
        ),
        action=one_of(
            change(trace, Feature.API_SERVERS, "add API server processes"),
            "send token IDs or shorter prompts",
            "stream in larger pieces",
        ),
        next_command=f"py-spy record --nonblocking -d 10 -o api.svg --pid {busiest.row.pid}",
        source=source,
    )


def _input_wait(thread: Watched) -> float:
    return thread.blocked_on(INPUT_WAITS) + (thread.shares.polling or 0.0)


def _says_polls(trace: Trace, engine: Watched) -> str:
    return f"{engine.name}: {says_polling(trace, engine)}"
