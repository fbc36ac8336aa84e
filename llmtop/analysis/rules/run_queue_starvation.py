"""The engine's thread is ready to run and gets no CPU, and the GPU waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.advice import fewer_threads, says_clients_see_more
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.cgroup_throttled import throttled_share
from llmtop.analysis.rules.cpu_room import cores, ready_threads, room
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.needs import lacks_activity, lacks_threads
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import Signal, gpu_activity, is_gpu_waiting, says_idle, says_waiting
from llmtop.analysis.rules.thread_signals import (
    ServerThread,
    StarvedFrontend,
    crowding,
    held_off,
    loops,
    says_own_cost,
    says_spent,
    starved_frontend,
    tireless_front,
)
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import own_gpus
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.configuration import one_of
from llmtop.analysis.server.processes import is_front as is_front_role
from llmtop.analysis.server.processes import watched
from llmtop.analysis.threads.neighbours import STEAL_PERCENT, count_cpus, host, neighbours, neighbours_cores, says_who
from llmtop.facts import ProcessFact, ThreadFact
from llmtop.model import NS_PER_S, Finding, Severity, Trace, TrackKind, Unknown

id = "run-queue-starvation"
summary = "The engine loop waits for a CPU: every step is late by that much."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"

_MOST = 0.5
"""Share of the machine's cores that the server uses, up to which its own threads cannot be what crowds them; and of the
time that loops wait for input, from which they wait for the thread that takes requests."""


_SOME = 0.25
"""Share of the CPUs that it may use, of which its threads have to have had so much to be what crowds them."""
_ONE_OF_THEM = 0.9
"""Share of what all threads of a process wait that is one thread's: then it is told as that one's time."""
_NOTABLE = 0.2
"""Share of what server and neighbours use together, from which a neighbour is in the server's way."""
_A_CORE_FREE = 0.5
"""Cores at rest, of the whole machine, from which a thread that waits for a CPU could have had another one."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Run-queue wait of an engine's or a worker's thread, and GPUs that idle meanwhile.

    Where no source tells of the GPUs or of the requests, the second signal is that others queue for CPUs too.
    """
    waiting, front = is_gpu_waiting(trace), starved_frontend(trace)
    late = _late(trace, front)
    if late is None or (waiting is False and front is None):
        yield from unjudged(id, lacks_threads(trace)) if waiting is not False and is_watched(trace) else ()
        return
    is_front = front is not None and late is front.thread
    wait = _front_wait(trace, front) if front is not None and is_front else held_off(trace, late)
    crowd = crowding(trace, late) if wait is not None else ()
    if waiting is False and not is_front:
        return
    if wait is not None and not (waiting or crowd or is_front):
        yield from unjudged(id, lacks_activity(trace))
    elif wait is not None:
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=late.name,
            message=_message(trace, late, wait.value, is_front=is_front) + _idle(trace, waiting),
            evidence=(
                wait.text,
                says_spent(trace, late),
                *says_waiting(trace),
                *says_idle(trace),
                *crowd,
                *says_who(trace),
                *says_own_cost(trace),
                *(says_clients_see_more(trace) if late.row.role and is_front_role(late.row.role) else ()),
                *_says_cores(trace),
                *_says_allowed(trace, late),
            ),
            action=_action(trace, late),
            next_command=_next_command(trace, late),
            source=source,
            share=max(0.0, min(1.0, wait.value) - throttled_share(trace)),  # a throttled thread counts as queued
        )


def _message(trace: Trace, late: ServerThread, waits: float, *, is_front: bool) -> str:
    who = _who(trace, late)
    said = (
        f"{late.row.role or late.name} is short of CPUs: its threads wait {waits:.1f} s in each second"
        if is_front and late.shares.run_queue < _ONE_OF_THEM * waits
        else f"{late.name} waits for a CPU {100 * waits:.0f} % of the time"
    )
    return f"{said}: {who}" if who else said


def _late(trace: Trace, short: StarvedFrontend | None) -> ServerThread | None:
    """The loop that waits most for a CPU; or the process that takes requests, where it waits more or is waited for."""
    waiting = loops(trace)
    late = max(waiting, key=lambda thread: thread.shares.run_queue, default=None)
    if short is not None and (late is None or short.queued > late.shares.run_queue):
        return short.thread
    front = tireless_front(trace)
    if front is None or late is None or not all(thread.input_wait >= _MOST for thread in waiting):
        return late
    return max(front, late, key=lambda thread: thread.shares.run_queue)


def _front_wait(trace: Trace, front: StarvedFrontend) -> Signal:
    where = source_of(trace, front.thread.track, v.THREAD_ON_CPU)
    name = front.thread.row.role or front.thread.name
    text = f"{name}: all its threads wait {front.queued:.2f} s for a CPU in each second, and have {front.cores:.2f} s"
    return Signal(front.queued, f"{text} ({where})")


def _idle(trace: Trace, waiting: bool | None) -> str:
    activity = gpu_activity(trace)
    return f", GPU {activity.value:.0f} % busy" if waiting and activity is not None else ""


def _who(trace: Trace, late: ServerThread) -> str:
    """Who has the CPU meanwhile, in half a sentence; empty where that is not known."""
    if _is_pinned(trace, late):
        if (since := _let_go(trace, late)) is not None:
            return f"it could run on CPU {_cpus(trace, late)} only, until {_ago(trace, since)}, and others were free"
        return f"it may run on CPU {_cpus(trace, late)} only, and others are free"
    if stolen := _stolen(trace):
        return f"the hypervisor takes {stolen:.0f} % of all CPU time"
    all_cores = cores(trace)[1]
    if low := _low(trace, late):
        return low
    if _crowd_each_other(trace, late):
        count = room(trace, late)
        ready = ready_threads(trace, late.row.pid)
        of_all = f" of {all_cores:.0f}" if _is_confined(trace, late) else ""
        return f"{ready} of its own threads are ready at once, for {count} CPU{'s' * (count > 1)}{of_all}"
    if _could_run_elsewhere(trace):
        return f"{host(trace, v.HOST_CPU):.2g} of {all_cores:.0f} CPUs are in use, others are free"
    found, others = neighbours(trace), neighbours_cores(trace) or 0.0
    if not found or not _may_hold_off(trace, late, others):
        return ""
    of_all = f" of {all_cores:.0f} cores" if all_cores else " cores"
    if found[0].cores >= _MOST * others:
        return f"{found[0].who} takes {found[0].cores:.2g}{of_all}"
    return f"others take {others:.2g}{of_all}, most of all {found[0].who}"


def _may_hold_off(trace: Trace, late: ServerThread, others: float) -> bool:
    """Whether others can be what a thread waits for: while it does, somebody else is on each CPU that it may use."""
    own, all_cores = cores(trace)
    is_much = others >= max(_NOTABLE * (own + others), _MOST * late.shares.run_queue) > 0
    return is_much and not _is_one_free(trace, own + others, all_cores)


def _crowd_each_other(trace: Trace, late: ServerThread) -> bool:
    """More threads of the late one's process are ready to run than there are CPUs, and the server has most of these."""
    places, own = room(trace, late), cores(trace)[0]
    return 0 < places < ready_threads(trace, late.row.pid) and own >= _SOME * places


def _low(trace: Trace, late: ServerThread) -> str:
    """What makes others come first, in half a sentence, where the server has little of the CPUs; else empty."""
    own, all_cores = cores(trace)
    what, found = _lesser(trace, late), neighbours(trace)
    if not what or own >= _MOST * all_cores or _could_run_elsewhere(trace):
        return ""
    busiest = f": {found[0].who} takes {found[0].cores:.2g} of {all_cores:.0f} cores" if found else ""
    return f"others come first ({what}){busiest}"


def _lesser(trace: Trace, late: ServerThread) -> str:
    """What gives a thread less of a CPU than others: the weight of its cgroup, which its root stands for, or nice."""
    process = trace.tracks[ids.process(late.row.pid)]
    groups = [one for one in (process, *trace.tracks_of(TrackKind.PROCESS)) if ProcessFact.CGROUP in one.facts]
    if groups and (weight := groups[0].facts.get(ProcessFact.CPU_WEIGHT_SET)):
        return str(weight)
    nice = process.facts.get(ProcessFact.NICE)
    return f"nice {nice}" if nice else ""


def _could_run_elsewhere(trace: Trace) -> bool:
    """Whether the machine was looked at and has a CPU free while a thread waits: one that is stolen is none."""
    if isinstance(host(trace, v.HOST_CPU), Unknown) or _stolen(trace):
        return False
    return _is_one_free(trace, *cores(trace))


def _stolen(trace: Trace) -> float:
    """Per cent of all CPU time that the hypervisor takes; 0 where that is not worth a line, or not known."""
    stolen = host(trace, v.HOST_STEAL)
    return 0.0 if isinstance(stolen, Unknown) or stolen < STEAL_PERCENT else stolen


def _is_confined(trace: Trace, late: ServerThread) -> bool:
    """Whether its affinity or cpuset leaves CPUs out."""
    return 0 < count_cpus(_cpus(trace, late)) < cores(trace)[1]


def _is_pinned(trace: Trace, late: ServerThread) -> bool:
    """Whether it may not run where there is room: of the CPUs that are left out one is free."""
    return _is_confined(trace, late) and _is_one_free(trace, *cores(trace))


def _is_one_free(trace: Trace, known_use: float, all_cores: float) -> bool:
    """Whether a CPU of the machine is free: by what all programs use, else by what those that are known do."""
    used = host(trace, v.HOST_CPU)
    return (known_use if isinstance(used, Unknown) else used) <= all_cores - _A_CORE_FREE


def _cpus(trace: Trace, late: ServerThread) -> str:
    """Those that it might run on while it waited."""
    name = ThreadFact.CPUS if _let_go(trace, late) is None else ThreadFact.CPUS_BEFORE
    return str(trace.tracks[late.track].facts.get(name, ""))


def _let_go(trace: Trace, late: ServerThread) -> int | None:
    """When its CPUs were changed, where it had waited mostly before that; None where those of now explain it."""
    since, waited = trace.tracks[late.track].facts.get(ThreadFact.CPUS_SINCE), v.THREAD_RUN_QUEUE
    start_ns = trace.end_ns - WINDOW_NS
    if not isinstance(since, int) or since <= start_ns:
        return None
    series = trace.get(late.track, waited)
    before, after = (step_increase(series, *span) for span in ((start_ns, since), (since, trace.end_ns)))
    return since if before > after else None


def _ago(trace: Trace, t_ns: int) -> str:
    return f"{max(1.0, (trace.end_ns - t_ns) / NS_PER_S):.0f} s ago"


def _action(trace: Trace, late: ServerThread) -> str:
    """Whether the server's own threads are too many, or other programs take its CPUs, or it may not have others.

    Beside free CPUs none is known to be: its affinity may have been another while it waited, or threads wake together.
    """
    if _is_pinned(trace, late) and _let_go(trace, late) is not None:
        return "its CPUs were changed since: see who had set them (taskset, numactl, a cpuset), so that it stays so"
    if _is_pinned(trace, late):
        return _wider(trace, late)
    if _stolen(trace):
        return "the host of this virtual machine has too little: dedicated CPUs, or another host"
    if _low(trace, late):
        if _lesser(trace, late).startswith("nice"):
            return f"take its nice back: ls /proc/{late.row.pid}/task | xargs sudo renice -n 0 -p"
        return "give its group the weight that it needs (cpu.weight, cpu.shares; Kubernetes: a CPU request)"
    if _crowd_each_other(trace, late):
        fewer = fewer_threads(trace)
        fewer = fewer and f"{fewer}: at most {room(trace, late)}"
        if _is_confined(trace, late):
            return one_of(_wider(trace, late), fewer)
        return f"{fewer}, or give it more CPUs" if fewer else "give the server more CPUs"
    if _could_run_elsewhere(trace):
        where = f"taskset -pc {late.row.tid}, its cpuset"
        move = (
            f"see which CPUs it may run on ({where}) and who runs there: move one of them away"
            if _is_confined(trace, late) or not _cpus(trace, late)
            else "it may run on every CPU, and shares one in bursts: see with whom (next command), and move that away"
        )
        return one_of(move, fewer_threads(trace))
    own, all_cores = cores(trace)
    others = neighbours_cores(trace)
    if own < all_cores * _MOST if others is None else _may_hold_off(trace, late, others):
        own_cores = f"give the {watched(trace)} cores of its own (see taskset -p, cpuset)"
        return f"others take the CPUs: move them away, or {own_cores}"
    at_least = " (at least 2 + one per GPU)" if own_gpus(trace) else ""
    return one_of(f"give the {watched(trace)} more cores{at_least}", fewer_threads(trace), "move neighbours away")


def _wider(trace: Trace, late: ServerThread) -> str:
    return f"let it run on more CPUs: taskset -apc 0-{cores(trace)[1] - 1:.0f} {late.row.pid}, or its cpuset"


def _next_command(trace: Trace, late: ServerThread) -> str:
    if _could_run_elsewhere(trace) or _is_confined(trace, late):
        return commands.same_cpu(late.row.tid)
    return commands.queueing(trace)


def _says_allowed(trace: Trace, late: ServerThread) -> tuple[str, ...]:
    cpus = _cpus(trace, late) if _could_run_elsewhere(trace) or _is_confined(trace, late) else ""
    if (since := _let_go(trace, late)) is not None:
        now = trace.tracks[late.track].facts.get(ThreadFact.CPUS)
        return (f"{late.name} could run on CPU {cpus}, and on {now} since {_ago(trace, since)} (/proc/PID/status)",)
    return (f"{late.name} may run on CPU {cpus}, when last looked at (/proc/PID/status)",) if cpus else ()


def _says_cores(trace: Trace) -> tuple[str, ...]:
    own, all_cores = cores(trace)
    said = f"all threads of the {watched(trace)} together: {own:.2g} of {all_cores:.0f} cores (schedstat)"
    return (said,) if all_cores else ()
