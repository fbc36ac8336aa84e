"""Requests take longer than was promised: how much of them, and what their time goes into."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import fewer_bytes, less_arithmetic, more_room_in_kv, shorter_prefills
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import known, metrics_command, says
from llmtop.analysis.rules.limits import limit, queue_grows
from llmtop.analysis.rules.prompts import says_prompts
from llmtop.analysis.rules.signals import GPU_IDLE_PERCENT, Signal, is_gpu_busy
from llmtop.analysis.rules.token_gaps import (
    TAIL,
    held_off_loop,
    preempted,
    prompts_in_between,
    steps_of_prompts,
    tail_ratio,
)
from llmtop.analysis.series.histograms import distribution
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import mean, server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.configuration import change, one_of, switch_on
from llmtop.analysis.server.lapses import LENGTH_NS
from llmtop.analysis.server.objectives import (
    ITL,
    MEDIAN,
    NEWEST_NS,
    WINDOW_NS,
    JudgedObjective,
    as_missed,
    goes_on,
    judged,
    judged_now,
    said_when,
    worst,
)
from llmtop.model import NS_PER_S, Feature, Finding, Metric, Severity, Trace, Track, TrackId, Unknown
from llmtop.units import percent, two_digits

id = "objective-missed"
summary = "First tokens, or the time between tokens, are later than the objectives allow."
source = "Machine Learning Systems, Performance Engineering (TTFT 500 / 200 ms, ITL 50 / 25 ms; tails against means)"

_MOST = 0.5
"""Share of the time to the first token from which that is what it is made of."""

_ENDED = 0.8
"""Share of the requests with a first token that have ended, from which what those waited holds for all."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """One for each latency that misses an objective; a median alone, and what is kept again, are information."""
    server = server_track(trace)
    if server is None:
        return
    for _, several in groupby(judged_now(trace), key=lambda one: one.objective.key):
        verdicts = list(several)
        if any(one.is_met is False for one in verdicts):
            yield _finding(trace, server, verdicts)
        else:
            untold = (one.is_met for one in verdicts[:1] if one.seen is not None)
            yield from unjudged(id, *(why for why in untold if isinstance(why, Unknown)))


def _finding(trace: Trace, server: Track, verdicts: list[JudgedObjective]) -> Finding:
    late = [one for one in verdicts if one.is_met is False]
    is_first = verdicts[0].objective.key == "ttft"
    then, window_ns = _when(trace, late)
    made_of, action = (_first_token if is_first else _gaps)(then, server.id, verdicts, window_ns)
    said = ", ".join(f"p{one.objective.percent} {_seen(one)} ({_limit(one)})" for one in late)
    name = verdicts[0].objective.latency
    return Finding(
        rule=id,
        severity=Severity.WARNING
        if any(one.objective.percent > MEDIAN and not one.is_past for one in late)
        else Severity.INFO,
        subject=server.name,
        message=f"{name} {misses(trace, late[0])}: {said}" + (f"; {made_of[0]}" if made_of[0] else ""),
        evidence=(
            *(one.text for one in verdicts if one.seen is not None),
            *_lapses(trace, late[0]),
            *_tail(verdicts),
            *made_of[1:],
        ),
        action=action,
        next_command=metrics_command(server, "first_token|inter_token|per_output_token|queue_time|prefill_time"),
        source=source,
        window_s=late[0].seen_ns / NS_PER_S,
    )


def is_of_gaps(finding: Finding) -> bool:
    """Whether it is about the time between tokens, and not that to the first one."""
    return finding.message.startswith(f"{ITL} ")


def misses(trace: Trace, late: JudgedObjective) -> str:
    """That an objective is missed, or was, and when: "misses its objective in the last 15 s"."""
    if late.is_past:
        return f"missed its objective {said_when(trace, late.lapses)}"
    if late.window_ns == WINDOW_NS:
        return "misses its objective"
    since_ns = late.seen_ns if late.window_ns == NEWEST_NS else trace.end_ns - late.lapses[-1].start_ns
    return f"misses its objective in the last {since_ns / NS_PER_S:.0f} s"


def _lapses(trace: Trace, late: JudgedObjective) -> tuple[str, ...]:
    """When it was missed, where the message does not say so, and that is not all along."""
    if late.is_past or not late.lapses or (len(late.lapses) == 1 and goes_on(trace, late.lapses)):
        return ()
    return (f"p99 of each 5 s missed it {said_when(trace, late.lapses)} ({late.source})",)


def _when(trace: Trace, late: list[JudgedObjective]) -> tuple[Trace, int]:
    """The moment and the window in which to look for what it is made of.

    That is now, as long as it is missed now: a minute mixes it with what was before.
    """
    if late[0].is_of_seconds:
        return as_missed(trace, worst(late[0].lapses)), LENGTH_NS
    missed = {one.objective for one in late}
    is_now = any(one.is_met is False and one.objective in missed for one in judged(trace, NEWEST_NS))
    return trace, NEWEST_NS if is_now else WINDOW_NS


def _seen(one: JudgedObjective) -> str:
    return "–" if one.seen is None else one.seen.text("s")


def _limit(one: JudgedObjective) -> str:
    return two_digits(one.objective.limit_s, "s")


def _tail(verdicts: list[JudgedObjective]) -> tuple[str, ...]:
    ratio = tail_ratio(verdicts)
    return (f"a tail: p99 is {ratio:.0f} times the median at least (the bounds above)",) if ratio >= TAIL else ()


# -- what it is made of: the words for the message, then the evidence; and what helps -------------------------------


def _first_token(trace: Trace, track: TrackId, _: list[JudgedObjective], window_ns: int) -> tuple[tuple[str, ...], str]:
    whole = _mean(trace, track, v.SERVER_TTFT, "mean time to first token", window_ns)
    queued, prefill = (_mean(trace, track, *part, window_ns) for part in _PARTS)
    parts = tuple(one.text for one in (whole, queued, prefill) if one is not None)
    if whole is None or not whole.value:
        return ("", *parts), "see what requests wait for: the queue, prefill, or the API server"
    shares = {
        name: one.value / whole.value for name, one in (("queue", queued), ("prefill", prefill)) if one is not None
    }
    if shares.get("queue", 0) >= _MOST:
        held = limit(trace, track)
        return (f"most of it in the queue, {held.name}", *parts, *held.evidence), held.action
    if shares.get("prefill", 0) >= _MOST:
        return ("most of it in prefill", *parts), _quicker_prefill(trace)
    if (
        not _is_queue_known(trace, track, window_ns)
        and (queue := _still_queued(trace, track, whole.value, window_ns)) is not None
    ):
        held = limit(trace, track)
        return (f"most of it in the queue, {held.name}", *parts, queue, *held.evidence), held.action
    if len(shares) == 2 and sum(shares.values()) < _MOST:
        more = change(trace, Feature.API_SERVERS, "add API server processes")
        action = f"look at the API server (tokenising, HTTP): {one_of(more, 'shorter prompts')}"
        if known(mean(trace, track, v.SERVER_WAITING, window_ns)):
            action = f"see what admitted requests wait for (KV blocks from another server, an adapter); {action}"
        return ("most of it neither in the queue nor in prefill", *parts), action
    return ("", *parts), "see what requests wait for: the queue, prefill, or the API server"


def _is_queue_known(trace: Trace, track: TrackId, window_ns: int) -> bool:
    """Whether the measured time in the queue holds for all: it is counted when requests end, and nearly all have."""
    queued, firsts = (distribution(trace, track, one, window_ns) for one in (v.SERVER_QUEUE_TIME, v.SERVER_TTFT))
    if isinstance(queued, Unknown) or isinstance(firsts, Unknown):
        return False
    return queued.observations >= _ENDED * firsts.observations and not queue_grows(trace, track)


def _still_queued(trace: Trace, track: TrackId, whole_s: float, window_ns: int) -> str | None:
    """The queue as it stands, where it explains most of the time to the first token.

    The time in the queue is told of requests that ended, and of a queue that grows those are the early ones, which
    waited little. Those that wait now take their number over the rate of first tokens (Little's law).
    """
    waiting = known(mean(trace, track, v.SERVER_WAITING, window_ns))
    firsts = increase(trace.get(track, v.total(v.SERVER_TTFT)), window_ns, trace.end_ns)
    seen = distribution(trace, track, v.SERVER_TTFT, window_ns)
    if waiting is None or isinstance(seen, Unknown) or isinstance(firsts, Unknown) or not seen.observations:
        return None
    queued_s = waiting * firsts.seconds / seen.observations
    if queued_s < _MOST * whole_s:
        return None
    return says(trace, track, v.SERVER_WAITING, waiting) + f", for about {two_digits(queued_s, 's')} at this rate"


_PARTS = ((v.SERVER_QUEUE_TIME, "mean time queued"), (v.SERVER_PREFILL_TIME, "mean prefill time"))


def _quicker_prefill(trace: Trace) -> str:
    return one_of(switch_on(trace, Feature.CHUNKED_PREFILL, "compute prompts in chunks"), less_arithmetic(trace))


def _gaps(trace: Trace, track: TrackId, verdicts: list[JudgedObjective], window_ns: int) -> tuple[tuple[str, ...], str]:
    if (thrown_out := preempted(trace, track, window_ns)) is not None:
        return ("requests are preempted", thrown_out.text), more_room_in_kv(trace)
    if (held := held_off_loop(trace)) is not None:
        return (
            "steps wait for a CPU",
            held.text,
        ), "see what else runs on the CPUs of the engine, and how many it may use"
    if (prompts := prompts_in_between(trace, track, verdicts, window_ns)) is not None:
        return ("prompts are computed in between", prompts.text), shorter_prefills(trace)
    if (prompts := steps_of_prompts(trace, track, window_ns)) is not None:
        said = (prompts.text, *says_prompts(trace, track, window_ns))
        return (f"steps are nearly all prompts, {percent(100 * prompts.value)} of the tokens", *said), shorter_prefills(
            trace
        )
    whole = _mean(trace, track, v.SERVER_ITL, "mean time between tokens", window_ns)
    slow = () if whole is None else (whole.text,)
    if is_gpu_busy(trace, GPU_IDLE_PERCENT):
        fewer = change(trace, Feature.MAX_RUNNING, "let fewer requests run at once")
        return ("the GPU is busy", *slow), one_of(fewer, fewer_bytes(trace))
    return ("", *slow), "see what a step waits for: the causes on the CPU side, stragglers, a GPU that is shared"


def _mean(trace: Trace, track: TrackId, metric: Metric, words: str, window_ns: int) -> Signal | None:
    seen = distribution(trace, track, metric, window_ns)
    value = None if isinstance(seen, Unknown) else seen.mean
    if value is None:
        return None
    return Signal(value, f"{words} {two_digits(value, 's')} ({source_of(trace, track, v.total(metric))})")
