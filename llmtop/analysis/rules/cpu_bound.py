"""The engine's own work on the CPU takes so long that the GPU waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, known
from llmtop.analysis.rules.launch_work import LaunchWork, launch_work
from llmtop.analysis.rules.needs import has_gpu, lacks_activity, lacks_requests, lacks_threads
from llmtop.analysis.rules.prompts import mostly_prompts
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import (
    GPU_IDLE_PERCENT,
    GPU_STARVED_PERCENT,
    Activity,
    Signal,
    gpu_activity,
    is_gpu_waiting,
    is_loaded,
    launches,
    process_activity,
    requests,
    says_idle,
    says_waiting,
)
from llmtop.analysis.rules.thread_signals import (
    ALL_THE_TIME,
    GPU_WAITS,
    RUN_QUEUE_SHARE,
    ServerThread,
    drivers,
    engine,
    kernel_share,
    says_in_sync,
    says_on_cpu,
    says_own_cost,
    spins,
)
from llmtop.analysis.series.readings import (
    counter_rate,
    gpu_tracks,
    own_gpus,
    server_track,
    told_why_unseen,
    why_no_gpu,
)
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.configuration import change, one_of, switch_on
from llmtop.analysis.server.processes import is_worker
from llmtop.analysis.server.ranks import gpus_of
from llmtop.model import Feature, Finding, Severity, Trace, Unknown, UnknownKind
from llmtop.units import percent, quantity

id = "cpu-bound"
summary = "The engine computes on its CPU while the GPU has nothing to do: scheduling, sampling, launching kernels."
source = "vLLM RFC 6854 (5 to 13 ms of GPU idle time a step from CPU work), issue 4806; arXiv:2603.22774"

_MOST = 0.5
"""Share of the time at work: more than this, and it is what a step is made of."""
_MANY_FAULTS_PER_S = 100_000.0
"""To give a process a page of 4 KiB, zero it and take it back costs the kernel 1 to 5 us: this many are a tenth to half
of a core, and where half of the time goes by in the kernel they are why."""
_MUCH_LAUNCHING = 0.25
"""Share of the time in launch calls from which they name the work: as measured it can be twice what it is,
and an eighth is what CUDA graphs would still give back."""
_MOSTLY_AT_WORK = 0.75
"""Share of the time, from which what a thread does is worth a word beside a GPU that rests meanwhile."""
_HARDLY_RESTS = 90.0
"""Busy for more of the time, a GPU rests too little for anything on the CPU's side to be worth a word."""
_HARDLY = 0.1
"""Share of the time in which a loop waits for the GPU, up to which the GPU cannot be what holds it up."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A thread that never rests and works rather than waits for the GPU; and requests, and a GPU that idles.

    Without probes nobody can tell a thread that works from one that spins until the GPU is done: then the GPU has to
    idle half of the time, and else only what is to be had of the CPU's side at most is told. Where the machine has no
    GPU at all, nothing else is there to be waited for; but there a loop that computes its model does what a GPU does
    elsewhere, and is no more a fault: `model-on-cpu` says so.
    """
    bound = _bound(trace)
    if bound is not None and model_loop(trace) is not None:
        return
    if bound is None:
        yield from unjudged(id, lacks_threads(trace)) if is_watched(trace) else ()
        return
    if not _is_harmful(trace, bound):
        lacks, unseen = lacks_requests(trace) if is_loaded(trace) is None else None, _lacks_sync(trace, bound)
        if not lacks and _may_be_why(trace, bound) and (unseen or _rests_a_little(trace, bound)):
            yield _rests_meanwhile(trace, bound, unseen)
        yield from unjudged(id, lacks_activity(trace), lacks, unseen)
    else:
        load, activity = requests(trace), _activity(trace, bound)
        gpu = f", GPU {activity.value:.0f} % busy" if activity is not None else ""
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=bound.name,
            message=f"CPU-bound: {bound.name} computes {percent(100 * bound.shares.working)} of the time"
            + _says_launching(trace, bound)
            + gpu
            + _says_prompts(trace)
            + (f", {load.brief}" if load is not None else ""),
            evidence=tuple(_evidence(trace, bound)),
            action=_action(trace, bound),
            next_command=commands.profile(trace, bound.row.pid),
            source=source,
            share=bound.shares.working,
        )


def model_loop(trace: Trace) -> ServerThread | None:
    """The loop of a server without a GPU that computes its model all the time, not in the kernel nor mostly prompts."""
    bound = _bound(trace)
    if bound is None or has_gpu(trace) or not _is_harmful(trace, bound):
        return None
    return bound if _in_kernel(trace, bound) is None and _prompts(trace) is None else None


def says_no_gpu(trace: Trace) -> str:
    """Why nothing but CPUs can be at work."""
    why = why_no_gpu(trace) if gpu_tracks(trace) else None
    return "no GPU is seen on this machine (NVML)" if why is None else f"{why.reason} (/proc/PID/fd, NVML)"


def _rests_a_little(trace: Trace, bound: ServerThread) -> bool:
    """The thread works for most of the time, and the GPU rests for less than would make that a fault."""
    is_at_work = bound.shares.in_cuda_sync is not None and bound.shares.working >= _MOSTLY_AT_WORK
    return is_at_work and is_loaded(trace) is True


def _rests_meanwhile(trace: Trace, bound: ServerThread, unseen: Unknown | None) -> Finding:
    """A GPU that rests for a part of each step, beside a thread that works, or of which nobody sees if it waits."""
    activity = _activity(trace, bound)
    rests = percent(100 - (activity.value if activity is not None else 0.0))
    share = bound.shares.on_cpu if unseen else bound.shares.working
    doing = "on its CPU" if unseen else "at work"
    return Finding(
        rule=id,
        severity=Severity.INFO,
        subject=bound.name,
        message=f"the GPU rests {rests} of the time, and {bound.name} is {doing} {percent(100 * share)}"
        + (": it works, or waits for the GPU" if unseen else ""),
        evidence=(*_evidence(trace, bound), *([f"which of both is not seen: {unseen.reason}"] if unseen else [])),
        action=f"{rests} is what the CPU's side can give at most: {_action(trace, bound)}",
        next_command=commands.profile(trace, bound.row.pid),
        source=source,
        share=share,
    )


def _in_kernel(trace: Trace, bound: ServerThread) -> Signal | None:
    """Half of the process's CPU time and more goes by in the kernel: what it asks for there is the cause."""
    process = ids.process(bound.row.pid)
    share = kernel_share(trace, process)
    if share is None or share < _MOST:
        return None
    faults = known(counter_rate(trace, process, v.PROCESS_FAULTS, WINDOW_NS))
    text = f"{bound.name}: {100 * share:.0f} % of its process's CPU time in the kernel"
    text += f", {quantity(faults, 'page faults/s')}" if faults is not None else ""
    return Signal(faults or 0.0, f"{text} ({source_of(trace, process, v.PROCESS_SYSTEM)})")


def _action(trace: Trace, bound: ServerThread) -> str:
    if (kernel := _in_kernel(trace, bound)) is not None:
        if kernel.value >= _MANY_FAULTS_PER_S:
            return (
                "it touches fresh memory at every step: keep buffers, let the allocator keep them "
                "(MALLOC_TRIM_THRESHOLD_, jemalloc), use huge pages"
            )
        return "the kernel works for it: see its system calls (pane 8), copies, files, processes that it starts"
    if _prompts(trace) is not None:
        chunks = switch_on(trace, Feature.CHUNKED_PREFILL, "compute prompts in chunks")
        cached = switch_on(trace, Feature.PREFIX_CACHING, "cache the beginnings of prompts")
        smaller = change(trace, Feature.MAX_BATCHED_TOKENS, "smaller steps, which hold up the others for less")
        return one_of(cached, chunks, smaller, "send shorter prompts", "prefill on servers of its own")
    if (launching := _launching(trace, bound)) is not None:
        return f"launch less: {_fewer_launches(trace, launching)}; a faster core"
    less = one_of(
        switch_on(trace, Feature.CUDA_GRAPHS, "CUDA graphs"),
        switch_on(trace, Feature.ASYNC_SCHEDULING, "async scheduling"),
        "fewer logprobs and penalties",
        "no guided decoding",
    )
    return f"cut CPU work per step: {less}; a faster core"


def _launching(trace: Trace, bound: ServerThread) -> LaunchWork | None:
    """What launching takes of its process, where that is much."""
    found = launch_work(trace, ids.process(bound.row.pid))
    return found if found is not None and found.share >= _MUCH_LAUNCHING else None


def _fewer_launches(trace: Trace, launching: LaunchWork) -> str:
    """What is launched is the better witness of graphs: not every server has a switch that tells of them."""
    graphs = switch_on(trace, Feature.CUDA_GRAPHS, "CUDA graphs")
    if not graphs and launching.lacks_graphs:
        graphs = f"CUDA graphs ({'next to ' if launching.graphs else ''}none is launched now)"
    fused = switch_on(trace, Feature.TORCH_COMPILE, "torch.compile")
    return one_of(graphs, fused, "kernels that do more each (fused ones, larger batches)")


def _says_launching(trace: Trace, bound: ServerThread) -> str:
    return ", much of it launching kernels" if _launching(trace, bound) is not None else ""


def _prompts(trace: Trace) -> Signal | None:
    """Most of what it computes is prompts, where no GPU computes them."""
    server = server_track(trace)
    return None if server is None or own_gpus(trace) else mostly_prompts(trace, server.id, WINDOW_NS)


def _says_prompts(trace: Trace) -> str:
    prompts = _prompts(trace)
    return "" if prompts is None else f", {100 * prompts.value:.0f} % of its tokens are prompts'"


def _bound(trace: Trace) -> ServerThread | None:
    """The engine's thread, or a worker's while the engine rests: one spins while the other works."""
    first = engine(trace)
    if first is None:
        return None
    may_poll = _may_poll(trace, first)
    if _never_rests(trace, first) and not may_poll:
        return first
    others = [thread for thread in drivers(trace) if thread.track != first.track]
    busy = [thread for thread in others if _never_rests(trace, thread)]
    return busy[0] if busy and (may_poll or first.shares.working < _MOST) else None


def _may_poll(trace: Trace, first: ServerThread) -> bool:
    """Whether it has workers in other processes, and nobody sees if it polls: vLLM's asks them in a loop."""
    if first.shares.polling is not None or is_worker(first.row.role):
        return False
    return any(is_worker(one.row.role) and one.row.pid != first.row.pid for one in drivers(trace))


def _never_rests(trace: Trace, thread: ServerThread) -> bool:
    """It works most of the time, sleeps next to none, and does not spin between its work."""
    shares = thread.shares
    awake = shares.working + shares.run_queue + (shares.in_cuda_sync or 0.0)
    return shares.working >= _MOST and awake >= ALL_THE_TIME and not spins(trace, thread)


def _is_harmful(trace: Trace, bound: ServerThread) -> bool:
    if not own_gpus(trace):
        uses_one_unseen = launches(trace) is not None or bound.blocked_on(GPU_WAITS) > 0
        return is_loaded(trace) is True and not uses_one_unseen
    sync = bound.shares.in_cuda_sync
    below = GPU_IDLE_PERCENT if sync is not None and sync <= _HARDLY else GPU_STARVED_PERCENT
    # While it waits for a CPU nobody feeds the GPU: of what is left of the time, that must idle as much.
    below *= 1 - min(1.0, bound.shares.run_queue)
    activity = _activity(trace, bound)
    return activity is not None and activity.value < below and is_gpu_waiting(trace, below) is True


def _may_be_why(trace: Trace, bound: ServerThread) -> bool:
    """Its own GPU rests, and it does not wait for a CPU meanwhile: that would be why, and a finding of its own."""
    activity = _activity(trace, bound)
    rests = activity is not None and activity.value < _HARDLY_RESTS
    return rests and bound.shares.run_queue < RUN_QUEUE_SHARE


def _activity(trace: Trace, bound: ServerThread) -> Activity | None:
    """Of the GPUs that its process works on, where it is told that there are some: others' rest for others' reasons."""
    pid = bound.row.pid
    return process_activity(trace, pid) if gpus_of(trace, pid) else gpu_activity(trace)


def _lacks_sync(trace: Trace, bound: ServerThread) -> Unknown | None:
    """Where a GPU idles for less than half of the time, only probes tell a thread that works from one that waits."""
    if bound.shares.in_cuda_sync is not None or is_gpu_waiting(trace, GPU_IDLE_PERCENT) is not True:
        return None
    told = told_why_unseen(trace, whats.LIBRARY_CALLS)
    return told or Unknown(
        "no probe tells yet whether its thread works or waits for the GPU", "look for longer", UnknownKind.PASSING
    )


def _evidence(trace: Trace, bound: ServerThread) -> Iterator[str]:
    yield says_on_cpu(trace, bound)
    if bound.shares.in_cuda_sync is not None:
        yield says_in_sync(trace, bound)
    if (kernel := _in_kernel(trace, bound)) is not None:
        yield kernel.text
    if (launching := _launching(trace, bound)) is not None:
        yield f"{bound.name}: {launching.text}"
    if (prompts := _prompts(trace)) is not None:
        yield prompts.text
    activity = _activity(trace, bound)
    yield from says_waiting(trace, activity)
    yield from says_idle(trace, activity)
    yield from says_own_cost(trace)
    if not own_gpus(trace):
        yield says_no_gpu(trace)
