"""The model runs on the server's CPUs, and they compute it all the time: how fast they are is how fast tokens come."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.advice import fewer_bytes, more_threads
from llmtop.analysis.rules.cpu_bound import model_loop, says_no_gpu
from llmtop.analysis.rules.cpu_room import cores, room
from llmtop.analysis.rules.signals import requests, says_waiting
from llmtop.analysis.rules.thread_signals import ServerThread, says_on_cpu
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.analysis.server.configuration import one_of
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent

id = "model-on-cpu"
summary = "No GPU is used: the CPUs compute the model, and that is what the time goes into."
source = "llama.cpp documentation, token generation performance tips (GPU layers, threads)"


def check(trace: Trace) -> Iterator[Finding]:
    """A loop that computes without a GPU, and requests. What is not known of it is what `cpu-bound` lacks, and says."""
    bound = model_loop(trace)
    if bound is None:
        return
    own, all_cores = cores(trace)
    of_all = f" of {all_cores:.0f}" if all_cores else ""
    load = requests(trace)
    yield Finding(
        rule=id,
        severity=Severity.INFO,
        subject=bound.name,
        message=f"the model runs on the CPU: {bound.name} computes {percent(100 * bound.shares.working)} of the time"
        + (f", {load.brief}" if load is not None else ""),
        evidence=(
            says_on_cpu(trace, bound),
            *says_waiting(trace),
            says_no_gpu(trace),
            f"all threads of the server together: {own:.2g}{of_all} cores (schedstat)",
        ),
        action=_action(trace, bound),
        next_command=commands.profile(trace, bound.row.pid),
        source=source,
    )


def _action(trace: Trace, bound: ServerThread) -> str:
    """A GPU of this machine first: it is there; then CPUs of it that are free."""
    has_gpus = bool(gpu_tracks(trace))
    use_it = "let it use this machine's GPU" if has_gpus else ""
    faster = one_of(use_it, more_threads(trace, room(trace, bound)), fewer_bytes(trace))
    return one_of(faster, "" if has_gpus else "a machine with a GPU or faster memory")
