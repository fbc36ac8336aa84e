"""What keeps more requests from running at once: the KV cache, the most that the server lets run, or its speed."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import ROOM_IN_KV, fewer_bytes, less_arithmetic, more_room_in_kv, room_in_kv
from llmtop.analysis.rules.evidence import WINDOW_NS, known, recent_mean, says
from llmtop.analysis.rules.gpu_limits import GpuUnit, limiting_unit
from llmtop.analysis.rules.preemptions import Preempted, preempted
from llmtop.analysis.rules.signals import GPU_IDLE_PERCENT, gpu_activity, is_gpu_busy
from llmtop.analysis.series.readings import counter_rate, history, latest
from llmtop.analysis.server.configuration import Setting, change, number, one_of, setting
from llmtop.frozen import frozen
from llmtop.model import Feature, TrackId, Unknown

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace

_FULL = 0.9
"""Share of KV blocks in use from which no further request fits (NVIDIA AIPerf guide, server metrics)."""
_AT_MOST = 0.97
"""Running requests of the most that may run, on average over the window, those that ended in the last step
among them."""
_HALF_A_PLACE = 0.5
"""Of few places one that is free between two steps is a larger share: 7.7 of 8 ran, while 40 waited all the time."""
_STEADY = 0.02


@frozen
class Limit:
    """What is at its limit, the lines of evidence for it, and what helps."""

    name: str
    evidence: tuple[str, ...]
    action: str
    is_kv: bool = False


def limit(trace: Trace, server: TrackId) -> Limit:
    """What a queue of this server waits for.

    Requests that are thrown out all the time come first: the more run, the more of them. Else nobody waits for KV
    blocks as long as no place is free.
    """
    thrown_out = preempted(trace, server)
    if isinstance(thrown_out, Preempted) and thrown_out.is_much:
        return Limit("the KV cache is too small", thrown_out.evidence, more_room_in_kv(trace), is_kv=True)
    is_near = isinstance(thrown_out, Preempted) and thrown_out.is_going_on
    return (
        _places(trace, server)
        or _full_cache(trace, server, ROOM_IN_KV if is_near else _FULL)
        or _standing(trace, server)
        or _speed(trace)
    )


def waiting_now(trace: Trace, server: TrackId, mean: float) -> float:
    """How many requests wait, for words in the present: a mean tells of a queue that grows less than stands there.

    The mean where none waits at the last look, as between two steps, or that is not known.
    """
    return known(latest(trace, server, v.SERVER_WAITING)) or mean


def queue_grows(trace: Trace, server: TrackId) -> bool:
    """Whether more wait at the end of the window than at its begin: those that wait then wait longer than those before.

    Of a queue that does not grow, what requests that came through waited is what those in it will wait.
    """
    values = [value for _, value in history(trace, server, v.SERVER_WAITING, WINDOW_NS) if value is not None]
    third = len(values) // 3
    return third > 0 and fmean(values[-third:]) > _GROWN * fmean(values[:third])


_GROWN = 1.25


def _full_cache(trace: Trace, server: TrackId, full: float) -> Limit | None:
    usage = recent_mean(trace, server, v.SERVER_KV_USAGE)
    if usage is None or usage < full:
        return None
    evidence = says(trace, server, v.SERVER_KV_USAGE, usage)
    return Limit("the KV cache is full", (evidence,), room_in_kv(trace), is_kv=True)


def _places(trace: Trace, server: TrackId) -> Limit | None:
    """As many run as may, by what the server was told."""
    running, most = recent_mean(trace, server, v.SERVER_RUNNING), number(trace, Feature.MAX_RUNNING)
    told = setting(trace, Feature.MAX_RUNNING)
    if running is None or running < 1 or most is None or isinstance(told, Unknown):
        return None
    ended = _ended_in_a_step(trace, server)
    if running + ended < min(_AT_MOST * most, most - _HALF_A_PLACE):
        return None
    evidence = f"at most {most:.0f} requests run at once ({told.source})"
    if running < _AT_MOST * most:
        evidence += f"; {ended:.1f} of them end in each step, and are not counted as running after it"
    return Limit(f"all {most:.0f} places are taken", (evidence, *_says_gpu(trace)), _more_places(trace, server))


def _ended_in_a_step(trace: Trace, server: TrackId) -> float:
    """Requests; the gauge stands as it was after a step, when those that ended in it have left their places."""
    ended, steps = (known(counter_rate(trace, server, one, WINDOW_NS)) for one in (v.SERVER_REQUESTS, v.SERVER_STEPS))
    return ended / steps if ended and steps else 0.0


def _standing(trace: Trace, server: TrackId) -> Limit | None:
    """Their number does not move, and how many may run is not known."""
    running, told = recent_mean(trace, server, v.SERVER_RUNNING), setting(trace, Feature.MAX_RUNNING)
    is_told = number(trace, Feature.MAX_RUNNING) is not None
    if running is None or running < 1 or is_told or not _stands_still(trace, server, v.SERVER_RUNNING, running):
        return None
    evidence = (f"running stands at {running:.0f} ({_why(told)})", *_says_gpu(trace))
    return Limit(f"no more than {running:.0f} run at once", evidence, _more_places(trace, server))


def _why(told: Setting | Unknown) -> str:
    return f"the most it lets run is not known: {told.reason}" if isinstance(told, Unknown) else str(told.value)


def _stands_still(trace: Trace, track: TrackId, metric: Metric, level: float) -> bool:
    values = [value for _, value in history(trace, track, metric, WINDOW_NS) if value is not None]
    return len(values) > 2 and max(values) - min(values) <= max(_STEADY * level, 0.5)


def _more_places(trace: Trace, server: TrackId) -> str:
    """More at once only where what they need is there: KV blocks, and a GPU that is not at its limit."""
    usage = known(latest(trace, server, v.SERVER_KV_USAGE))
    if usage is not None and usage >= ROOM_IN_KV:
        return f"KV is at {usage * 100:.0f} %, so more at once would be thrown out: {room_in_kv(trace)}"
    thrown_out = preempted(trace, server)
    if isinstance(thrown_out, Preempted) and thrown_out.is_going_on:
        return f"some requests are thrown out already, so with more at once more would be: {room_in_kv(trace)}"
    if is_gpu_busy(trace, GPU_IDLE_PERCENT):
        return _speed(trace).action
    more = change(trace, Feature.MAX_RUNNING, "let more requests run at once")
    return one_of(more, "send less load", "add a replica")


def _speed(trace: Trace) -> Limit:
    if not is_gpu_busy(trace, GPU_IDLE_PERCENT):
        action = "send less load, add a replica, or look at what the engine's threads do (pane 4)"
        return Limit("the server is too slow for its load", _says_gpu(trace), action)
    unit = limiting_unit(trace)
    if unit is None:
        return Limit("the GPU is busy", _says_gpu(trace), "send less load, or add GPUs or a replica")
    fewer = fewer_bytes(trace) if unit is GpuUnit.MEMORY else less_arithmetic(trace)
    return Limit(f"the GPU's {unit} is at its limit", _says_gpu(trace), f"{fewer}, add a replica, or send less load")


def _says_gpu(trace: Trace) -> tuple[str, ...]:
    activity = gpu_activity(trace)
    return () if activity is None else (activity.text,)
