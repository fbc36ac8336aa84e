"""Requests are at hand, and the engine sleeps: where its time goes says for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.needs import (
    has_gpu,
    lacks_activity,
    lacks_requests,
    lacks_threads,
)
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import (
    GPU_STARVED_PERCENT,
    gpu_activity,
    requests,
    says_idle,
    share_at_hand,
    unadmitted_requests,
    work_at_hand,
)
from llmtop.analysis.rules.thread_signals import (
    GPU_WAITS,
    RUN_QUEUE_SHARE,
    ServerThread,
    found_at_gil,
    fronts,
    herd,
    loop,
    loops,
    says_spent,
    serial_frontends,
    spent_text,
    starved_frontend,
    threads,
    tireless_front,
)
from llmtop.analysis.series.readings import told_why_absent
from llmtop.analysis.threads.cells import NOT_SAMPLED
from llmtop.analysis.threads.neighbours import says_who
from llmtop.model import Finding, Severity, Trace, Unknown

id = "engine-starved"
summary = "Requests are at hand, the GPU idles (or there is none) and no CPU is short: the engine sleeps."
source = "vLLM documentation, CPU Resources for GPU Deployments; arXiv:2603.22774"

_INPUT = "nothing tells it to go on: see what the API server does, and the threads that feed the engine"
_ACTIONS = {
    v.ThreadCause.DISK: "see what it reads or writes: model or LoRA weights, KV offloading, swap; use a faster disk",
    v.ThreadCause.NETWORK_FS: "a network file system is slow or silent: keep weights and logs on a local disk",
    v.ThreadCause.TERMINAL: "its terminal takes no more: Ctrl+S, a pager or a closed laptop; let it log to a file",
    v.ThreadCause.UNINTERRUPTIBLE: "it waits in the kernel: a disk, a network file system, a driver; dmesg says more",
    v.ThreadCause.SOCKET: "see what it waits for on the network: another rank, KV transfer, a remote store",
    v.ThreadCause.FUTEX: "find what holds the lock or fills the queue it waits for: the GIL, another thread or rank",
    v.ThreadCause.CHILD: "it waits for processes that it starts: start them once, not at every step",
    v.ThreadCause.PIPE: "it waits at a pipe, for another process: one that it starts, or a rank",
    v.ThreadCause.NANOSLEEP: "it sleeps by its own will: find the sleep, a retry or a polling interval, and its reason",
    v.ThreadCause.STOPPED: "it was stopped, and goes on: find who stops it (kill -STOP, Ctrl+Z, gdb, docker pause)",
    v.ThreadCause.EPOLL: _INPUT,
    v.ThreadCause.POLL: _INPUT,
} | dict.fromkeys(
    GPU_WAITS, "it waits for a GPU that hardly works: see PCIe and NVLink rates, copies, another rank or node"
)
_UNREAD = Unknown("in what the engine's threads wait cannot be read", "run llmtop with sudo")
_OTHERWISE = "find what the engine waits for: tokeniser, detokeniser, a lock or another rank"
_MOSTLY = 0.7
"""Share of the samples with a request, from which on they tell for how long there were any."""
_ASLEEP = 0.5
"""Share of the time asleep from which that is what a loop does."""
_HELPS = 0.02
"""Share of one core from which a thread beside the loop takes part in what it waits for."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Requests all the time, a GPU that idles half of it (or none at all), and loops that sleep or cannot be seen.

    A loop that waits for a thread of the API server that never rests is explained by that one.
    """
    known = loops(trace)
    if not is_watched(trace) or any(thread.shares.blocked_total < _ASLEEP for thread in known):
        return
    yield from unjudged(
        id, lacks_requests(trace), lacks_activity(trace), None if has_gpu(trace) else lacks_threads(trace)
    )
    thread = loop(trace)
    if not _has_work(trace, known) or _may_work(trace) or not (known or has_gpu(trace)):
        return
    if thread is not None and thread.shares.main_cause == NOT_SAMPLED:
        yield from unjudged(id, told_why_absent(trace, thread.track, v.THREAD_STATE_SAMPLES) or _UNREAD)
    elif thread is None or thread.input_wait < _ASLEEP or not _waits_for_front(trace):
        yield _finding(trace, thread)


def _has_work(trace: Trace, known: Sequence[ServerThread]) -> bool:
    """Requests all the time; or most of it, and loops that sleep for half of the time longer than without any."""
    share = share_at_hand(trace)
    sleep_too_much = all(thread.shares.blocked_total - (1 - share) >= _ASLEEP for thread in known)
    return work_at_hand(trace) is not None or (
        requests(trace) is not None and bool(known) and share >= _MOSTLY and sleep_too_much
    )


def _waits_for_front(trace: Trace) -> bool:
    is_serial = unadmitted_requests(trace) is not None and any(serial_frontends(trace))
    return is_serial or tireless_front(trace) is not None or starved_frontend(trace) is not None


def _may_work(trace: Trace) -> bool:
    """Whether a GPU works half of the time, or that cannot be told."""
    if not has_gpu(trace):
        return False
    activity = gpu_activity(trace)
    return activity is None or activity.value >= GPU_STARVED_PERCENT


def _finding(trace: Trace, thread: ServerThread | None) -> Finding:
    load, activity = requests(trace), gpu_activity(trace)
    signals = [signal for signal in (load, activity) if signal is not None]
    gpu = "" if activity is None else f"GPU {activity.value:.0f} % busy, "
    count = "" if load is None else load.brief
    at_gil = None if thread is None else found_at_gil(trace, [thread])
    beside = () if thread is None else tuple(_others(trace, thread))
    spent = () if thread is None else (says_spent(trace, thread), *([at_gil.text] if at_gil else []), *beside)
    crowd = says_who(trace) if thread is not None and thread.shares.run_queue >= RUN_QUEUE_SHARE else ()
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject="engine" if thread is None else thread.name,
        message=f"{_says(trace, thread, at_gil is not None)} ({gpu}{count})",
        evidence=(*spent, *(signal.text for signal in signals), *says_idle(trace), *crowd),
        action=_action(thread, at_gil is not None),
        next_command="" if thread is None else commands.stacks(trace, thread.row.pid),
        source=source,
        share=None if thread is None else thread.shares.blocked_total,
    )


def _says(trace: Trace, thread: ServerThread | None, is_gil: bool) -> str:
    if thread is None:
        return "the CPU side does not feed the GPU"
    if is_gil:
        return f"{thread.name} waits: {spent_text(thread).replace('futex', 'the GIL', 1)}"
    rivals = _rivals(thread, _helpers(trace, thread))
    turns = f"; {len(rivals)} threads take turns on one core, as for the GIL or a lock" if rivals else ""
    return f"{thread.name} waits: {spent_text(thread)}{turns}"


def _action(thread: ServerThread | None, is_gil: bool) -> str:
    if thread is None:
        return "look at the engine's threads: which one is on a CPU, which one waits"
    if is_gil:
        return "find what holds the GIL: Python threads of its process, or an extension that sleeps or computes with it"
    return next((text for cause, text in _ACTIONS.items() if cause == thread.shares.main_cause), _OTHERWISE)


def _others(trace: Trace, waits: ServerThread) -> Iterator[str]:
    """Who may be waited for: threads of the same process beside the loop, and the API server's busiest."""
    helpers = _helpers(trace, waits)
    is_locked = waits.shares.main_cause == v.ThreadCause.FUTEX
    if is_locked and helpers:
        yield _take_turns(_rivals(waits, helpers)) or says_spent(trace, helpers[0])
    if not is_locked and (front := max(fronts(trace), key=lambda one: one.awake, default=None)) is not None:
        yield says_spent(trace, front)


def _helpers(trace: Trace, waits: ServerThread) -> Sequence[ServerThread]:
    beside = [one for one in threads(trace) if one.row.pid == waits.row.pid and one.track != waits.track]
    return sorted((one for one in beside if one.awake >= _HELPS), key=lambda one: -one.awake)


def _rivals(waits: ServerThread, helpers: Sequence[ServerThread]) -> Sequence[ServerThread]:
    """Threads that make one core together and else wait for a futex: the GIL's mark, but a lock's too."""
    taking_turns = herd((waits, *helpers))
    return [one for one in (waits, *helpers) if one in taking_turns]


def _take_turns(rivals: Sequence[ServerThread]) -> str:
    if not rivals:
        return ""
    cores = sum(one.shares.on_cpu for one in rivals)
    names = ", ".join(one.row.name for one in rivals[:4])
    return f"{len(rivals)} threads take turns on {cores:.2f} cores (schedstat), as for the GIL or one lock: {names}"
