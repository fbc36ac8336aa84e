"""Tokens stand still while requests run: is the engine hung, or does it work on something long?

A counter that stands still proves nothing: a long prompt, a compilation and weights that are loaded look the same. What
tells them apart is whether anything works: a hung engine takes no CPU, and its GPU does nothing, or spins in a
collective that touches neither memory nor tensor cores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.series import ages
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import BUSY, latest, server_gpus, server_track, since_ns, source
from llmtop.analysis.server.fault import Fault, for_s
from llmtop.analysis.server.processes import is_front, parts
from llmtop.analysis.threads.shares import Shares, threads_view
from llmtop.facts import ProcessFact, ThreadFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.units import counted

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace, Track

STALLED = "engine-hung"
RESTING_NS = 9 * NS_PER_S // 5
"""Nothing at all works for so long: steps take milliseconds, and those that take seconds keep a CPU or a GPU busy. Two
looks at 1 Hz, of which one may come early."""
LOOPING_NS = 30 * NS_PER_S
"""One CPU is busy for so long and nothing comes of it. Kernels that are compiled while requests run take seconds."""
POLLING_NS = 10 * NS_PER_S
"""All that takes a CPU only polls, and the GPU rests, for so long: what is waited for may be a step on another node, of
which those that are cut into chunks take a second."""
_ONE_CORE = (0.5, 1.2)
"""A loop without an end, in cores; a model that runs on CPUs, or compilers, take more."""
SPINNING_NS = 10 * NS_PER_S
"""The GPU spins and moves nothing: a collective whose other ranks do not come. Stragglers come within milliseconds."""
_RESTS = 0.02
"""Of a core, of all processes that drive GPUs together: timers and heartbeats take less."""
_GPU_RESTS_PERCENT = 5.0
"""Share of the time with any kernel, below which no GPU has work."""
_GPU_SPINS_PERCENT = 50.0
"""From this on a kernel runs,"""
_MOVES_NOTHING_PERCENT = 2.0
"""which waits where neither DRAM nor the tensor cores do more than this."""
_PROGRESS: tuple[Metric, ...] = (
    v.SERVER_OUTPUT_TOKENS,
    v.SERVER_PROMPT_TOKENS,
    v.SERVER_STEPS,
    v.SERVER_REQUESTS,
    v.SERVER_FAILURES,
    *(v.bucket(one, math.inf) for one in (v.SERVER_TTFT, v.SERVER_ITL, v.SERVER_E2E)),
)
"""What grows when anything comes out of an engine."""


@frozen
class _NoProgress:
    """What shows that nothing comes of it: a line of evidence, and what it is taken for."""

    text: str
    meaning: str


def progress_faults(trace: Trace) -> tuple[Fault, ...]:
    """At most one: requests run, nothing comes of them, and nothing works on them."""
    server = server_track(trace)
    if server is None:
        return ()
    running = _running(trace, server)
    since = None if running is None else _still_since(trace, server)
    if running is None or since is None:
        return ()
    rest = _rest(trace, trace.end_ns - since)
    return () if rest is None else (_fault(trace, server, running, since, rest),)


def _running(trace: Trace, server: Track) -> float | None:
    """How many requests run; None where none does or it is not known."""
    value = latest(trace, server.id, v.SERVER_RUNNING)
    return None if isinstance(value, Unknown) or value < 1 else value


def _still_since(trace: Trace, server: Track) -> int | None:
    """Since when nothing has come out while requests ran; None where something does, or it is not known.

    All counters are of one page: two looks and `RESTING_NS` between them are needed, and the newest must be of now.
    """
    running = trace.get(server.id, v.SERVER_RUNNING)
    moves = [one for metric in _PROGRESS if (one := trace.get(server.id, metric)) is not None and one.last is not None]
    if running is None or not any(one.metric == v.SERVER_OUTPUT_TOKENS for one in moves):
        return None
    newest = running.last_t_ns or 0
    since = max(map(since_ns, moves))
    idle = [t for t, value in running.known if value < 1 and t > since]
    since = max([since, *idle])
    return since if newest - since >= RESTING_NS and trace.end_ns - newest <= RESTING_NS else None


def _rest(trace: Trace, still_ns: int) -> _NoProgress | None:
    """What shows that nothing works on the requests; None where something may."""
    percents = (_gpu_percent(trace, metric, still_ns) for metric in BUSY)
    busy = next((percent for percent in percents if percent is not None), None)
    if busy is not None and busy >= _GPU_RESTS_PERCENT:
        return _spinning(trace, busy, still_ns)
    if busy is None and _waits_for_unseen_gpu(trace):
        return None
    # Without the look in which the last token came.
    cores = _cores_used(trace, max(NS_PER_S, min(still_ns, SPINNING_NS) - ages.limit_ns(trace) // 2))
    if cores is None:
        return None
    gpu = f", GPU {busy:.0f} % busy (NVML)" if busy is not None else ""
    taken = f"engine and workers take {cores:.1%} of a core (/proc){gpu}"
    if cores <= _RESTS:
        return _NoProgress(taken, "nothing works: it waits for something that never comes")
    # A GPU that is not seen may be what is polled.
    polling = _cores_polling(trace) if still_ns >= POLLING_NS and busy is not None else 0.0
    if polling > 0 and cores - polling <= _RESTS * max(1.0, cores):
        told = f"{taken}, all of it polling (probes)"
        return _NoProgress(told, "nothing works: all that is busy asks again and again for what never comes")
    if still_ns >= LOOPING_NS and _ONE_CORE[0] <= cores <= _ONE_CORE[1]:
        return _NoProgress(taken, "one CPU is busy all the time: the engine is in a loop, or compiles")
    return None


def _spinning(trace: Trace, busy: float, still_ns: int) -> _NoProgress | None:
    dram, tensor = (_gpu_percent(trace, metric, SPINNING_NS) for metric in (v.GPU_DRAM, v.GPU_TENSOR))
    if dram is None or tensor is None or still_ns < SPINNING_NS:
        return None
    if busy < _GPU_SPINS_PERCENT or max(dram, tensor) > _MOVES_NOTHING_PERCENT:
        return None
    text = f"GPU busy {busy:.0f} %, DRAM {dram:.1f} %, tensor {tensor:.1f} % (GPM)"
    return _NoProgress(text, "nothing works: its GPUs spin in a collective whose other ranks do not come")


def _gpu_percent(trace: Trace, metric: Metric, window_ns: int) -> float | None:
    """The busiest of the server's GPUs, on average; None where it is not known."""
    means = []
    for gpu in server_gpus(trace):
        series = trace.get(gpu.id, metric)
        values = [x for _, x in series.between(trace.end_ns - window_ns, trace.end_ns).known] if series else []
        means += [sum(values) / len(values)] if values else []
    return max(means, default=None)


def _waits_for_unseen_gpu(trace: Trace) -> bool:
    """A thread sleeps in a GPU's driver, and what the GPU does is not known."""
    causes = (v.ThreadCause.GPU_DRIVER, v.ThreadCause.CUDA_SYNC)
    return any(track.facts.get(ThreadFact.STATE) in causes for track in trace.tracks_of(TrackKind.THREAD))


def _cores_used(trace: Trace, window_ns: int) -> float | None:
    """Of all processes but the front ends: compilers that the engine started work for it."""
    used = 0.0
    own = [
        track
        for track in trace.tracks_of(TrackKind.PROCESS)
        if not is_front(str(track.facts.get(ProcessFact.ROLE, "")))
    ]
    for track in own or trace.tracks_of(TrackKind.PROCESS):
        grown = increase(trace.get(track.id, v.PROCESS_CPU), window_ns, trace.end_ns)
        if isinstance(grown, Unknown):
            return None
        used += grown.per_second / NS_PER_S
    return used if own or parts(trace) else None


def _cores_polling(trace: Trace) -> float:
    """Of the threads that drive GPUs, what they take of CPUs only to pass the time; 0 where no probe tells."""
    view = threads_view(trace, POLLING_NS)
    rows = () if isinstance(view, Unknown) else view.rows
    behind = (row.shares for row in rows if isinstance(row.shares, Shares) and not is_front(row.role))
    return sum(shares.polling or 0.0 for shares in behind)


def _fault(trace: Trace, server: Track, running: float, since: int, rest: _NoProgress) -> Fault:
    engine = next((part for part in parts(trace) if not part.is_front), None)
    where = source(trace, server.id, v.SERVER_OUTPUT_TOKENS)
    still = for_s(since, trace.end_ns)
    return Fault(
        STALLED,
        "ENGINE HUNG",
        engine.role if engine is not None else server.name,
        f"no token for {still} while {counted(running, 'request', 'run')}, and {rest.meaning}",
        (f"tokens and requests stand still since {still}, running {running:.0f} ({where})", rest.text),
        "see where its threads wait (the command below, on each rank), then restart it; an XID stands in the log (e). "
        "Some older versions go on counting requests that clients have dropped: then it only rests",
        commands.stacks(trace, engine.pid if engine is not None else None),
        since,
    )
