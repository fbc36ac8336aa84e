"""GPUs send and receive while they compute nothing; often one of them lets the others wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.communication import Communication, communication, described
from llmtop.analysis.kernels.names import kernel_label
from llmtop.analysis.rules import idle, stakes
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.clock_words import clocks_text
from llmtop.analysis.timeline.work import gpu_title
from llmtop.frozen import frozen
from llmtop.model import Finding, TrackId
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace

id = "exposed-communication"
summary = "GPUs communicate while they compute nothing."
source = "Machine Learning Systems, Performance Engineering (exposed time: T_comm - T_overlap)"

_FOUND_SHARE = 0.02
"""Of the capture; as of idle time."""
_ONE_SIDED = 2 / 3
"""Of all waiting for others: what is for one GPU alone makes that one the straggler."""
_MORE = 1.05
"""Times the computing time of any other GPU: less is scatter. Ours."""
_NAMES = 3
"""Kernels that are named."""
_GPUS = 2
"""GPUs that have a line of their own."""
_TOLD_SHARE = 0.25
"""Of the exposed time: less waiting is only evidence."""

_OVERLAP = (
    "overlap it with computation (a stream of its own, prefetching), or send less: fewer GPUs for each model, messages "
    "fused or quantised, a custom all-reduce for small ones"
)
MORE_WORK = (
    "give it less work (shards, experts, batches of the same size), or find why its kernels are slower (clocks: power, "
    "heat, other processes on it)"
)
_LATE_CPU = "its CPU side is late, see its idle time"
_IMBALANCE = (
    "the GPUs come late in turn: give all of them the same work and the same CPU time, and synchronise less often"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU with the most of it."""
    gpus = sorted(communication(trace), key=lambda gpu: -gpu.exposed_ns)
    if gpus and stakes.share(trace, gpus[0].exposed_ns) >= _FOUND_SHARE:
        worst = gpus[0]
        share = percent(100 * stakes.share(trace, worst.exposed_ns))
        advice = _advice(trace, gpus)
        yield stakes.finding(
            trace,
            advice.at_stake_ns,
            advice.basis,
            rule=id,
            subject=gpu_title(worst.gpu),
            message=f"communication that no computation covers: {share} of the capture{_waiting(worst)}",
            evidence=_evidence(trace, gpus),
            action=advice.action,
            next_command=advice.next_command,
            no_command=advice.no_command,
            source=source,
        )


@frozen
class _Advice:
    """What to do, and the time that this can save: less waiting wins the waiting, overlap all that is exposed."""

    action: str
    at_stake_ns: int
    basis: str
    next_command: str
    no_command: str


def _advice(trace: Trace, gpus: Sequence[Communication]) -> _Advice:
    worst = gpus[0]
    if 2 * worst.exposed_waiting_ns <= worst.exposed_ns:
        basis = f"all communication of {gpu_title(worst.gpu)} that no computation covers"
        return _Advice(_OVERLAP, worst.exposed_ns, basis, *_of_transport(trace, worst))
    basis = f"what {gpu_title(worst.gpu)} waits for the last GPU to come, and computes nothing meanwhile"
    late = _late(gpus)
    works_more, action = _straggler(late, gpus) if late else (False, _IMBALANCE)
    command = (profiling.clocks(trace), "") if works_more else profiling.of_threads(trace)
    return _Advice(action, worst.exposed_waiting_ns, basis, *command)


def _of_transport(trace: Trace, gpu: Communication) -> tuple[str, str]:
    """What NCCL says of the way it takes; other libraries have no such switch in common."""
    if any("nccl" in name.casefold() for name in gpu.names):
        return f"NCCL_DEBUG=INFO {profiling.program(trace)}", ""
    return "", "which way the data take is not NCCL's to say here, and nsys records no more of it"


def _late(gpus: Sequence[Communication]) -> TrackId:
    """The GPU that the others wait for; empty where it is this one now and that one then."""
    waits = _waits(gpus)
    for other, ns in waits.most_common(1):
        if ns >= _ONE_SIDED * waits.total():
            return other
    return ids.NONE


def _waits(gpus: Sequence[Communication]) -> Counter[TrackId]:
    """How long others wait for each GPU, all of them together."""
    waits: Counter[TrackId] = Counter()
    for gpu in gpus:
        waits.update(dict(gpu.waits_for))
    return waits


def _waiting(gpu: Communication) -> str:
    if not gpu.waits_for or gpu.waiting_ns < _TOLD_SHARE * gpu.exposed_ns:
        return ""
    other, _ = gpu.waits_for[0]
    return f", {percent(100 * gpu.waiting_ns / gpu.exposed_ns)} of it waiting, mostly for {gpu_title(other)}"


def _computing(late: str, gpus: Sequence[Communication]) -> tuple[int, int, str]:
    """How long the late GPU computes, how long the one of the others that does most, and what to call that."""
    own = next(gpu.computing_ns for gpu in gpus if gpu.gpu == late)
    (most, ns), *rest = _ranked({gpu.gpu: gpu.computing_ns for gpu in gpus if gpu.gpu != late})
    return own, ns, "any other" if rest else gpu_title(most)


def _straggler(late: TrackId, gpus: Sequence[Communication]) -> tuple[bool, str]:
    """Whether the late GPU computes more than the others, and what to do about it."""
    own, other, whose = _computing(late, gpus)
    times = f"{duration(own)} to {duration(other)}"
    difference = percent(100 * abs(own - other) / max(1, other))
    if own > _MORE * other:
        return True, f"{gpu_title(late)} computes {difference} longer than {whose} ({times}): {MORE_WORK}"
    than = f"only {difference} longer than" if own > other else f"{difference} less than"
    how = f"{than} {whose} ({times})" if duration(own) != duration(other) else f"as long as {whose} ({duration(own)})"
    return False, f"{gpu_title(late)} is waited for longest, and computes {how}: {_LATE_CPU}"


def _evidence(trace: Trace, gpus: Sequence[Communication]) -> Iterator[str]:
    for gpu in gpus[:_GPUS]:
        yield f"{gpu_title(gpu.gpu)}: {described(gpu)} (nsys)"
    if len(gpus) > _GPUS:
        yield f"exposed on {idle.of_others([(gpu.gpu, gpu.exposed_ns) for gpu in gpus[_GPUS:]])} (nsys)"
    matched = max(gpu.matched for gpu in gpus)
    if matched:
        last = ", ".join(f"{gpu_title(gpu.gpu)} {count(gpu.last)}" for gpu in gpus if gpu.last)
        yield f"comes last, of {count(matched)} operations: {last} (nsys)"
        yield f"waited for: {idle.of_others(_waits(gpus).most_common())} (nsys)"
        yield f"computing: {idle.of_others(_ranked({gpu.gpu: gpu.computing_ns for gpu in gpus}))} (nsys)"
        nothing = {gpu.gpu: gpu.idle_ns for gpu in idle_account(trace).gpus}
        yield f"with nothing to do: {idle.of_others(_ranked(nothing))} (nsys)"
    if trace.parts:
        yield f"clocks: {clocks_text(trace)}"
    names = dict.fromkeys(kernel_label(name) for name in gpus[0].names)
    yield f"kernels: {', '.join(list(names)[:_NAMES])}"


def _ranked(amounts: Mapping[TrackId, int]) -> list[tuple[TrackId, int]]:
    return sorted(amounts.items(), key=lambda pair: -pair[1])
