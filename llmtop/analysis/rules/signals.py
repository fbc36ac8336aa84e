"""Signals that verdicts rest on: each is one thing that one source measured, with the line of evidence that quotes it.

A signal is None where the data do not say it: it was not measured, too rarely, too long ago, or it is not so.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import (
    BOUND_PERCENT,
    WINDOW_NS,
    busy,
    busy_percent,
    gpu_names,
    recent_mean,
    says,
    says_value,
)
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import history, own_gpus, server_gpus, server_track, source
from llmtop.analysis.server.ranks import gpus_of, in_step
from llmtop.analysis.threads.idle_causes import idle_causes
from llmtop.analysis.threads.probes import launch_rate
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, TrackKind, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from llmtop.model import Metric, Series, Trace

GPU_IDLE_PERCENT = 80.0
"""Busy for less of the time with requests at hand: for a fifth of it and more the GPU waits for the CPU side."""
GPU_STARVED_PERCENT = 50.0
"""Below this it waits half of the time, and nobody can say that the server waits for the GPU."""
GPU_QUIET_PERCENT = 5.0
"""Below this nothing but housekeeping runs on a GPU."""

SLOW_SCRAPE_S = 1.0
"""An event loop with room answers for its metrics in milliseconds; vLLM's at its limit took 1 to 4 s."""

_ALL_THE_TIME = 0.9
"""Share of the window, from which on there were requests all the time."""
_MOSTLY_COVERED = 0.5
"""Share of the window in which both the GPU and its thread must have been read."""
_BEFORE_NS = 60 * NS_PER_S
"""What was "before" the window: the minute until it began."""
_SLOWER = 1.25
"""Times what it was, from which on a step is slower."""
_LEAST_OUTSIDE = 2.0
"""Requests more than the engine knows of. One may be a page of metrics, or a check of the server's health."""
_MOST_OF_IT = 0.5
"""Share of the requests without an answer."""
_FEWEST_LOOKS = 4
"""At connections, of fewer of which nothing is said."""
_SAME_LOAD = 0.9
"""Fewer tokens of so many fewer requests are no slowdown."""


@frozen
class Signal:
    """A number that was measured, and the line of evidence that quotes it with its unit and source."""

    value: float
    text: str


@frozen
class RequestCount(Signal):
    """How many requests run, or wait; `brief` is without the source: "running 3 requests"."""

    brief: str


# -- the server's own numbers ------------------------------------------------------------------------------------


def requests(trace: Trace) -> RequestCount | None:
    """At least one request runs or waits, on average over the window."""
    return next((signal for signal in _loads(trace) if signal.value >= 1), None)


def no_requests(trace: Trace) -> Signal | None:
    """The server itself says that none ran or waited in the window."""
    loads = _loads(trace)
    if len(loads) < 2 or any(signal.value > 0 for signal in loads):
        return None
    return Signal(0.0, ", ".join(signal.text for signal in loads))


def work_at_hand(trace: Trace) -> Signal | None:
    """At least one request runs or waits all the time: in nine of ten samples of the window, and on average."""
    return requests(trace) if share_at_hand(trace) >= _ALL_THE_TIME else None


def share_at_hand(trace: Trace) -> float:
    """Share of the samples of the window in which a request ran or waited; 0 where that is not known."""
    server = server_track(trace)
    if server is None:
        return 0.0
    counts: dict[int, float] = {}
    for metric in (v.SERVER_RUNNING, v.SERVER_WAITING):
        for t_ns, value in history(trace, server.id, metric, WINDOW_NS):
            counts[t_ns] = counts.get(t_ns, 0.0) + (value or 0.0)
    return sum(count >= 1 for count in counts.values()) / len(counts) if counts else 0.0


@frozen
class UnadmittedRequests(Signal):
    """Requests that the engine has not heard of, at least so many on average; `lines` are all the counts behind it."""

    lines: tuple[str, ...]


@lru_cache(maxsize=4)
def unadmitted_requests(trace: Trace) -> UnadmittedRequests | None:
    """More requests without an answer than run and wait in the engine, all the time; each is a second old or older.

    Those that are answered in one piece run meanwhile, and those that are streamed to somebody already are not
    counted: what is more than run and wait is the least that the engine can not have heard of.
    """
    server = server_track(trace)
    if server is None:
        return None
    endpoint = ids.endpoint(ids.port(server.id))
    looks = [n for _, n in history(trace, endpoint, v.ENDPOINT_UNANSWERED, WINDOW_NS) if n is not None]
    running, waiting = (recent_mean(trace, server.id, metric) for metric in (v.SERVER_RUNNING, v.SERVER_WAITING))
    if len(looks) < _FEWEST_LOOKS or running is None or waiting is None:
        return None
    unanswered, lasts = sum(looks) / len(looks), sum(n >= 1 for n in looks) >= _ALL_THE_TIME * len(looks)
    more = unanswered - running - waiting
    if not lasts or more < max(_LEAST_OUTSIDE, _MOST_OF_IT * unanswered):
        return None
    counts = ((endpoint, v.ENDPOINT_UNANSWERED, unanswered), (server.id, v.SERVER_RUNNING, running))
    lines = tuple(says(trace, *count) for count in (*counts, (server.id, v.SERVER_WAITING, waiting)))
    return UnadmittedRequests(more, lines[0], lines)


def is_starting(trace: Trace) -> bool:
    """Whether a server has not answered yet: loading weights, compiling and capturing graphs launch kernels too."""
    if server_track(trace) is not None:
        return False
    answers = _answers(trace)
    if answers is None:
        return trace.why_missing(whats.kind(TrackKind.SERVER)) is not None
    has_answered = any(value == v.EndpointAnswer.METRICS for series in answers for _, value in series.known)
    return not has_answered and any(
        series.last in (v.EndpointAnswer.REFUSED, v.EndpointAnswer.SILENT) for series in answers
    )


def is_awaited(trace: Trace) -> bool:
    """Whether a server's port is known, and nothing has come of asking there: no answer, and no failure either."""
    return server_track(trace) is None and _answers(trace) == []


def _answers(trace: Trace) -> list[Series] | None:
    """What asking for metrics came to, by endpoint; None where there is none to ask."""
    endpoints = trace.tracks_of(TrackKind.ENDPOINT)
    if not endpoints:
        return None
    return [one for track in endpoints if (one := trace.get(track.id, v.ENDPOINT_ANSWER)) is not None]


def slow_scrape(trace: Trace) -> Signal | None:
    """The API server takes a second and more to answer for its metrics: its event loop is late by that much."""
    for track in trace.tracks_of(TrackKind.ENDPOINT):
        took = recent_mean(trace, track.id, v.ENDPOINT_TIME)
        if took is not None and took >= SLOW_SCRAPE_S:
            return Signal(took, says(trace, track.id, v.ENDPOINT_TIME, took))
    return None


def is_loaded(trace: Trace) -> bool | None:
    """Whether there is work for the GPU; None where it cannot be told.

    Without an endpoint that counts requests, work shows where it is done: kernels are launched, or a GPU runs them.
    Not so while a server starts: it compiles, warms up and captures graphs.
    """
    if requests(trace) is not None:
        return True
    if len(_loads(trace)) == 2:
        return False
    if is_starting(trace):
        return None
    return True if launches(trace) or _runs_kernels(trace) else None


def slower(trace: Trace) -> Signal | None:
    """Tokens come later than in the minute before, or fewer a second under the same load."""
    server = server_track(trace)
    if server is None:
        return None
    return _later_tokens(trace, server.id) or _fewer_tokens(trace, server.id)


@lru_cache(maxsize=4)
def _loads(trace: Trace) -> tuple[RequestCount, ...]:
    """Waiting and running requests, as far as they are known; kept, for one rule after the other asks."""
    server = server_track(trace)
    if server is None:
        return ()
    counts = ((metric, recent_mean(trace, server.id, metric)) for metric in (v.SERVER_WAITING, v.SERVER_RUNNING))
    return tuple(
        RequestCount(n, says(trace, server.id, metric, n), says_value(metric, n))
        for metric, n in counts
        if n is not None
    )


def launches(trace: Trace) -> Signal | None:
    """Kernels and graphs that the server launches in a second."""
    threads = [thread.id for thread in trace.tracks_of(TrackKind.THREAD)]
    rate = launch_rate(trace, threads, WINDOW_NS)
    if not rate:
        return None
    where = next(one.source for thread in threads if (one := trace.get(thread, v.THREAD_LAUNCHES)) is not None)
    return Signal(rate, f"{v.THREAD_LAUNCHES.title} {quantity(rate, '/s')} ({where})")


def _runs_kernels(trace: Trace) -> bool:
    return any((busy_percent(trace, one.id) or 0.0) >= GPU_QUIET_PERCENT for one in server_gpus(trace))


def _later_tokens(trace: Trace, server: TrackId) -> Signal | None:
    now, before = (_mean_latency(trace, server, *span) for span in now_and_before(trace))
    if now is None or before is None or now < before * _SLOWER:
        return None
    grew = f"inter-token latency {quantity(now, 's')}, was {quantity(before, 's')}"
    return Signal(now, f"{grew} ({source(trace, server, v.total(v.SERVER_ITL))})")


def _mean_latency(trace: Trace, server: TrackId, window_ns: int, end_ns: int) -> float | None:
    """Sum over count of the observations: seconds."""
    parts = (v.total(v.SERVER_ITL), v.bucket(v.SERVER_ITL, math.inf))
    seconds, count = (increase(trace.get(server, part), window_ns, end_ns) for part in parts)
    if isinstance(seconds, Unknown) or isinstance(count, Unknown) or not count.amount:
        return None
    return seconds.amount / count.amount


def _fewer_tokens(trace: Trace, server: TrackId) -> Signal | None:
    """Only while as many requests run as before: a server with less to do is not slow."""
    spans = now_and_before(trace)
    running = [_mean_between(trace, server, v.SERVER_RUNNING, *span) for span in spans]
    rates = [increase(trace.get(server, v.SERVER_OUTPUT_TOKENS), *span) for span in spans]
    now, before = rates
    if running[0] is None or running[1] is None or isinstance(now, Unknown) or isinstance(before, Unknown):
        return None
    if running[0] < 1 or running[0] < running[1] * _SAME_LOAD or now.per_second * _SLOWER > before.per_second:
        return None
    rate, old = (quantity(one.per_second, "tok/s") for one in (now, before))
    return Signal(now.per_second, f"output {rate}, was {old} ({source(trace, server, v.SERVER_OUTPUT_TOKENS)})")


def now_and_before(trace: Trace) -> tuple[tuple[int, int], tuple[int, int]]:
    """(length, end) of the window, and of what was before it."""
    return (WINDOW_NS, trace.end_ns), (_BEFORE_NS, trace.end_ns - WINDOW_NS)


def _mean_between(trace: Trace, track: TrackId, metric: Metric, window_ns: int, end_ns: int) -> float | None:
    series = trace.get(track, metric)
    if series is None:
        return None
    values = [value for _, value in series.between(end_ns - window_ns, end_ns).known]
    return sum(values) / len(values) if len(values) > 1 else None


# -- the GPU -----------------------------------------------------------------------------------------------------


@frozen
class Activity(Signal):
    """How much of the time a GPU has work, in %; `by` what: GPM, or NVML's duty cycle."""

    by: Metric
    gpu: TrackId


def activity_of(trace: Trace, gpu: TrackId) -> Activity | None:
    """What one GPU does."""
    found = busy(trace, gpu)
    if found is None:
        return None
    value, metric = found
    return Activity(value, f"{gpu_names([gpu])}: {says(trace, gpu, metric, value)}", metric, gpu)


def process_activity(trace: Trace, pid: int) -> Activity | None:
    """What the busiest GPU does that a process works on; None where it works on none, or nothing tells."""
    known = (one for gpu in gpus_of(trace, pid) if (one := activity_of(trace, gpu)) is not None)
    return max(known, key=_how_busy, default=None)


@lru_cache(maxsize=4)
def gpu_activity(trace: Trace) -> Activity | None:
    """What the server's busiest GPU does. Kept, for a dozen rules ask.

    Of ranks that keep step the least busy GPU counts: kernels of the others stand in a collective until it comes.
    """
    groups = in_step(trace, server_gpus(trace) or own_gpus(trace))
    known = ([one for gpu in some if (one := activity_of(trace, gpu.id)) is not None] for some in groups)
    return max((min(some, key=_how_busy) for some in known if some), key=_how_busy, default=None)


def _how_busy(activity: Activity) -> float:
    return activity.value


def is_gpu_busy(trace: Trace, least: float = GPU_IDLE_PERCENT) -> bool:
    """Whether a GPU of the server is known to work at least so much of the time, or to be at a roof.

    One whose memory or tensor cores are at a roof waits for nobody.
    """
    activity = gpu_activity(trace)
    return activity is not None and (activity.value >= least or _is_at_a_roof(trace))


def is_gpu_waiting(trace: Trace, below: float = GPU_IDLE_PERCENT) -> bool | None:
    """Whether the GPUs idle at least so much of the time with work for them at hand; None where it cannot be told."""
    loaded = is_loaded(trace)
    if loaded is False or is_gpu_busy(trace, below):
        return False
    return None if loaded is None or gpu_activity(trace) is None else True


def says_waiting(trace: Trace, activity: Activity | None = None) -> tuple[str, ...]:
    """The lines of evidence of `is_gpu_waiting`: the work at hand and the GPU, as far as they are known."""
    work = requests(trace) or (None if _loads(trace) else launches(trace))
    return tuple(signal.text for signal in (work, activity or gpu_activity(trace)) if signal is not None)


def says_idle(trace: Trace, activity: Activity | None = None) -> tuple[str, ...]:
    """What the CPU side did in the seconds in which the GPU idled: the signals met, and did not just both occur."""
    activity = activity or gpu_activity(trace)
    causes = idle_causes(trace, activity.gpu if activity is not None else None, WINDOW_NS)
    if isinstance(causes, Unknown) or causes.coverage < _MOSTLY_COVERED:
        return ()
    return (f"{causes.sentence} (estimated second by second)",)


def _is_at_a_roof(trace: Trace) -> bool:
    pairs = ((one.id, metric) for one in server_gpus(trace) for metric in (v.GPU_DRAM, v.GPU_TENSOR))
    return any((recent_mean(trace, *pair) or 0.0) >= BOUND_PERCENT for pair in pairs)
