"""Advice that several rules give, by what the server is set to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import recent_mean
from llmtop.analysis.series.readings import own_gpus, server_track
from llmtop.analysis.server.configuration import change, is_on, number, one_of, switch_on
from llmtop.analysis.server.objectives import missed
from llmtop.analysis.threads.neighbours import host
from llmtop.model import Feature, Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace

_A_CORE_FREE = 0.5
"""Cores at rest from which one more thread has somewhere to run."""
ROOM_IN_KV = 0.8
"""Below this share of KV blocks in use more requests still fit without preemption."""


def fewer_bytes(trace: Trace) -> str:
    """What makes a step read less of the GPU's memory."""
    return one_of(
        switch_on(trace, Feature.QUANTIZATION, "quantise the weights"),
        switch_on(trace, Feature.KV_CACHE_DTYPE, "quantise the KV cache"),
        _more_gpus(trace),
    )


def larger_batches(trace: Trace) -> str:
    """What puts more tokens into a step; empty where there is no room for them, or where tokens are late already.

    A batch is what clients send as long as nothing waits: then no setting makes it larger.
    """
    server = server_track(trace)
    usage, waiting = (
        None if server is None else recent_mean(trace, server.id, one) for one in (v.SERVER_KV_USAGE, v.SERVER_WAITING)
    )
    if (usage is not None and usage >= ROOM_IN_KV) or any(one.objective.key == "itl" for one in missed(trace)):
        return ""
    if waiting is None:
        return "larger batches"
    if waiting < 1:
        return "more load on this server (nothing waits: its batch is all that clients send)"
    return change(trace, Feature.MAX_RUNNING, "let more requests run at once") or "larger batches"


def less_arithmetic(trace: Trace) -> str:
    """What makes a step compute less."""
    return one_of(
        switch_on(trace, Feature.QUANTIZATION, "use a lower precision"),
        switch_on(trace, Feature.PREFIX_CACHING, "cache the beginnings of prompts"),
        "shorten prompts",
        _more_gpus(trace),
    )


def shorter_prefills(trace: Trace) -> str:
    """What keeps a prompt from holding up the tokens of all other requests for long."""
    return one_of(
        switch_on(trace, Feature.CHUNKED_PREFILL, "compute prompts in chunks"),
        change(trace, Feature.MAX_BATCHED_TOKENS, "smaller steps"),
        switch_on(trace, Feature.PREFIX_CACHING, "cache the beginnings of prompts"),
        "prefill on servers of its own",
    )


def more_room_in_kv(trace: Trace) -> str:
    """What keeps running requests from being thrown out of the KV cache."""
    return one_of(change(trace, Feature.MAX_RUNNING, "let fewer requests run at once"), room_in_kv(trace))


def fewer_preempted(trace: Trace) -> str:
    """The same in a few words."""
    return one_of("more room for the KV cache", change(trace, Feature.MAX_RUNNING, "or fewer requests at once"))


def more_threads(trace: Trace, most: int) -> str:
    """What lets a model that runs on CPUs have more of them; empty where none is free, or it was told to have as many.

    Args:
        trace: With the server's settings and the machine's CPUs.
        most: CPUs that its threads may run on.
    """
    used, told = host(trace, v.HOST_CPU), number(trace, Feature.CPU_THREADS)
    if isinstance(used, Unknown) or most - used < _A_CORE_FREE or (told is not None and told >= most):
        return ""
    return change(trace, Feature.CPU_THREADS, f"compute with more threads: {used:.2g} of {most} CPUs are in use")


def fewer_threads(trace: Trace) -> str:
    """What keeps a server's own threads from taking each other's CPUs; empty where it was told to have one."""
    told = number(trace, Feature.CPU_THREADS)
    return "" if told is not None and told <= 1 else change(trace, Feature.CPU_THREADS, "cap thread pools")


def says_clients_see_more(trace: Trace) -> tuple[str, ...]:
    """Where the API server is late: what its own page cannot tell of what clients see."""
    if server_track(trace) is None:
        return ()
    return ("clients see longer latencies than its page has: answers wait after they are counted (not measured)",)


def room_in_kv(trace: Trace) -> str:
    """What lets more requests fit into the KV cache."""
    return one_of(
        switch_on(trace, Feature.KV_CACHE_DTYPE, "quantise the KV cache"),
        change(trace, Feature.GPU_MEMORY_SHARE, "give KV more of the GPU's memory"),
        change(trace, Feature.KV_BLOCKS, "give KV more blocks"),
        _more_gpus(trace) or "add a replica",
    )


def _more_gpus(trace: Trace) -> str:
    if not own_gpus(trace):
        return ""
    is_split = is_on(trace, Feature.TENSOR_PARALLEL)
    words = "split the model over more GPUs" if is_split is True else "split the model over several GPUs"
    return change(trace, Feature.TENSOR_PARALLEL, words) or "add GPUs"
