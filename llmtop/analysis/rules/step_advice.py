"""What helps against slow steps of an engine, and what to run next, by what these steps have more of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.advice import more_room_in_kv, shorter_prefills
from llmtop.analysis.rules.evidence import metrics_command
from llmtop.analysis.server.configuration import one_of, switch_on
from llmtop.analysis.server.step_causes import StepCause
from llmtop.model import Feature, Trace, Track

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.analysis.server.engine_steps import EngineLoop


def action(trace: Trace, cause: StepCause) -> str:
    """What takes most off the steps that are slow for this."""
    return _ACTIONS[cause](trace)


def command(trace: Trace, server: Track, loop: EngineLoop, cause: StepCause) -> str:
    """What to run next: it looks at what the slow steps have more of."""
    if cause in _OF_REQUESTS:
        return metrics_command(server, "prompt_tokens|prefill_time|iteration_tokens|preemptions")
    pid = ids.pid(loop.track)
    if cause is StepCause.QUEUE:
        return commands.queueing(trace)
    if cause in _OF_THE_GPU:
        return "nvidia-smi -q -d CLOCK,PERFORMANCE"
    return commands.stacks(trace, pid) if cause in _OF_WAITS else commands.profile(trace, pid)


_OF_REQUESTS = frozenset({StepCause.PREFILL, StepCause.PREEMPTION, StepCause.MORE_WORK, StepCause.LONGER_WAIT})
_OF_THE_GPU = frozenset({StepCause.CLOCK, StepCause.SLOWER_GPU})
_OF_WAITS = frozenset({StepCause.LOCK, StepCause.ASLEEP, StepCause.LATE_RANK})


def _more_work(trace: Trace) -> str:
    graphs = switch_on(trace, Feature.CUDA_GRAPHS, "CUDA graphs")
    return f"see what these batches held (pane 2): {one_of(shorter_prefills(trace), graphs)}"


def _own_code(trace: Trace) -> str:
    less = one_of(
        switch_on(trace, Feature.ASYNC_SCHEDULING, "async scheduling"),
        "fewer logprobs and penalties",
        "no guided decoding",
    )
    return f"find what it does in these steps alone, with a profile: {less}"


_ACTIONS: dict[StepCause, Callable[[Trace], str]] = {
    StepCause.PREFILL: lambda trace: f"{shorter_prefills(trace)}: a prompt then holds up the others for less",
    StepCause.PREEMPTION: more_room_in_kv,
    StepCause.MORE_WORK: _more_work,
    StepCause.LATE_RANK: lambda _: "find the rank that comes late: its thread (pane 4), its GPU's clock (pane 3)",
    StepCause.CLOCK: lambda _: "see what lowers the clock (pane 3): heat, a power limit, a locked clock",
    StepCause.SLOWER_GPU: lambda _: "see who else runs on the GPU then (pane 3), and its clock",
    StepCause.LONGER_WAIT: lambda trace: f"likely larger batches: {shorter_prefills(trace)}; else who shares the GPU",
    StepCause.COPY: lambda _: (
        "copy from pinned memory and asynchronously, or in smaller pieces (KV offloading, weights)"
    ),
    StepCause.ALLOCATION: lambda _: "have the memory before requests come: preallocated pools, warm up every shape",
    StepCause.COLLECTION: lambda _: (
        "gc.freeze() after the start, a higher gc.set_threshold(), or collect between requests"
    ),
    StepCause.QUEUE: lambda _: "give the engine a CPU of its own (taskset, cpuset), or fewer threads beside it",
    StepCause.LOCK: lambda _: "find who holds what it waits for: another thread of its process, the GIL",
    StepCause.FAULTS: lambda _: (
        "keep buffers and let the allocator keep them (MALLOC_TRIM_THRESHOLD_, jemalloc), use huge pages"
    ),
    StepCause.ASLEEP: lambda _: "see which system call it sleeps in (pane 8), and take that off the engine's thread",
    StepCause.OWN_CODE: _own_code,
    StepCause.UNSEEN: lambda _: "find what the engine does in these steps alone, with a profile of it",
}
"""What helps, by what a slow step has more of: preallocated pools against allocations, quiet collections, batches that
are small beside a prompt (the same chapter; of run queues, locks and page faults its tables of system calls)."""
