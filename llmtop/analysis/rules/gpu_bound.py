"""The server waits for the GPU, as it should."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.advice import fewer_bytes, larger_batches, less_arithmetic
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.clocks_capped import holds_arithmetic, power_action
from llmtop.analysis.rules.evidence import BOUND_PERCENT, busy_percent, recent_mean
from llmtop.analysis.rules.gpu_limits import GpuUnit, limiting_unit
from llmtop.analysis.rules.needs import has_gpu, lacks_activity, lacks_threads
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import gpu_activity, is_gpu_busy, is_loaded, says_waiting
from llmtop.analysis.rules.thread_signals import (
    GPU_WAITS,
    RUN_QUEUE_SHARE,
    ServerThread,
    drivers,
    says_blocked,
    says_in_sync,
    says_run_queue,
)
from llmtop.analysis.series.readings import own_gpus
from llmtop.analysis.server.configuration import one_of
from llmtop.analysis.server.objectives import missed
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent

id = "gpu-bound"
summary = "The CPU side keeps up: the server waits for the GPU, which is how it should be."
source = "CUDA driver API, cuStreamSynchronize; NVML, GPM; NVIDIA Nsight Compute, SpeedOfLight rule (60 %)"

_WAITS = 0.3
"""Share of the time in which a loop waits for the GPU, from which the GPU sets its pace."""
_FILLED = 0.75
"""Of the multiprocessors: below it a quarter of the chip has nothing to do at any time, for want of blocks."""
_NEVER_IDLE_PERCENT = 90.0
"""Without probes on CUDA's calls: busy so much of the time, it rests so little that nothing else can be the limit."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A GPU that works, and a loop that waits for it; or a GPU that hardly rests, and nobody short of a CPU."""
    activity = gpu_activity(trace)
    loops = sorted(drivers(trace), key=_waits, reverse=True)
    if activity is None or not loops or is_loaded(trace) is False:
        applies = is_watched(trace) and has_gpu(trace) and is_loaded(trace) is not False
        yield from unjudged(id, lacks_activity(trace), lacks_threads(trace)) if applies else ()
        return
    if any(thread.shares.run_queue >= RUN_QUEUE_SHARE for thread in loops):
        return
    evidence = _evidence(trace, loops)
    if evidence:
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=loops[0].name,
            message=f"GPU-bound{_praise(trace)}: the server waits for the GPU "
            f"(busy {activity.value:.0f} % of the time)",
            evidence=(*says_waiting(trace), *evidence),
            action=f"{_of_the_cpu(activity.value)}; {_action(trace)}",
            next_command=profiling.timeline_of_server(trace),
            source=source,
        )


def _praise(trace: Trace) -> str:
    """A server that keeps the GPU busy is well, as long as it does what was promised."""
    return "" if missed(trace) else ", healthy"


def _evidence(trace: Trace, loops: list[ServerThread]) -> tuple[str, ...]:
    """The second signal: what says that the CPU side waits. The first is that the GPU works."""
    queue = says_run_queue(trace, max(loops, key=lambda thread: thread.shares.run_queue))
    waiter = loops[0]
    if _waits(waiter) >= _WAITS and is_gpu_busy(trace, BOUND_PERCENT):
        in_calls = (waiter.shares.in_cuda_sync or 0.0) >= _WAITS
        return (says_in_sync(trace, waiter) if in_calls else says_blocked(waiter), queue)
    return (queue,) if is_loaded(trace) and is_gpu_busy(trace, _NEVER_IDLE_PERCENT) else ()


def _waits(thread: ServerThread) -> float:
    return max(thread.shares.in_cuda_sync or 0.0, thread.blocked_on(GPU_WAITS))


def _of_the_cpu(busy: float) -> str:
    """What is to be had of the CPU's side: the time in which the GPU rests, and no more."""
    if busy >= _NEVER_IDLE_PERCENT:
        return "no CPU can help"
    return f"the CPU's side can give {100 - busy:.0f} % at most, in which the GPU rests"


def _action(trace: Trace) -> str:
    """What would make it faster: by which part of the chip is at its limit."""
    unit = limiting_unit(trace)
    if unit is not None:
        what = one_of(larger_batches(trace), fewer_bytes(trace)) if unit is GpuUnit.MEMORY else less_arithmetic(trace)
        return f"{unit} is the limit: {what}"
    capped = next((gpu.id for gpu in own_gpus(trace) if holds_arithmetic(trace, gpu.id)), None)
    if capped is not None:
        return f"the power cap is the limit: {power_action(trace, capped)}"
    better = one_of(larger_batches(trace), "fused kernels")
    filled = _filled(trace)
    small = "" if filled is None or filled >= _FILLED else f", and kernels fill {percent(100 * filled)} of the SMs"
    return f"neither memory nor tensor cores are at their limit{small}: {better}"


def _filled(trace: Trace) -> float | None:
    """Of the multiprocessors, how many have work while kernels run, on the fullest GPU; None where nobody tells."""
    pairs = ((recent_mean(trace, gpu.id, v.GPU_SM), busy_percent(trace, gpu.id)) for gpu in own_gpus(trace))
    return max((min(1.0, sm / busy) for sm, busy in pairs if sm is not None and busy), default=None)
