"""Python threads of one process take turns on one core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.needs import lacks_threads
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import Signal, is_gpu_waiting, says_idle, says_waiting
from llmtop.analysis.rules.thread_signals import ServerThread, found_at_gil, gil_waits, threads
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import source as read_by
from llmtop.analysis.series.readings import told_why_absent
from llmtop.analysis.server.configuration import change, one_of
from llmtop.analysis.server.processes import watched
from llmtop.model import Feature, Finding, Metric, Severity, Trace, TrackId, Unknown
from llmtop.units import percent, quantity

id = "gil-bound"
summary = "Python threads of one process wait for each other's GIL: more cores do not help."
source = "CPython, Python/ceval_gil.c (switch interval of 5 ms); vLLM pull requests 9826 and 10634 (gaps of 5 to 6 ms)"

_EACH = 0.02
"""Share of one core, or of the looks at the GIL's owner, from which a thread counts as one that fights for it: in a
herd of forty each has as much."""
_RIVALS = 0.1
"""What all but the first of them must have together: one thread that nearly always has it is what computes."""
_ONE_CORE = (0.8, 1.1)
"""What threads that take turns make together, in cores."""
_IN_FUTEX = 0.5
"""Of the time that such a thread sleeps, it waits for the GIL: the largest part."""
_LOOKS = 5
"""Fewer looks at the owner say nothing of how it goes round."""
_HELD = 0.8
"""Share of the looks in which somebody had the GIL."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Threads that take turns, and wait for the GIL: in calls that probes timed, or where each look finds them."""
    if is_gpu_waiting(trace) is False or not is_watched(trace):
        return
    yield from unjudged(id, lacks_threads(trace))
    everyone = sorted(threads(trace), key=lambda thread: thread.row.pid)
    for pid, members in groupby(everyone, key=lambda thread: thread.row.pid):
        turns = _turns(trace, list(members))
        if turns is None:
            continue
        timed, found = gil_waits(trace, pid), found_at_gil(trace, turns[0])
        if timed is not None or found is not None:
            yield _finding(trace, pid, timed, found, turns)
        else:
            yield from unjudged(id, _lacks_waits(trace, pid))


def _finding(
    trace: Trace, pid: int, timed: Signal | None, found: Signal | None, turns: tuple[Sequence[ServerThread], str]
) -> Finding:
    rivals, text = turns
    name = rivals[0].row.role or rivals[0].name
    waiting = sum(one.blocked_on((v.ThreadCause.FUTEX,)) for one in rivals) / len(rivals)
    waits = f"each waits {100 * waiting:.0f} % of the time" if timed is None else quantity(timed.value, "waits/s")
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=name,
        message=f"GIL-bound: {len(rivals)} Python threads of {name} share one core, {waits}",
        evidence=(
            *(one.text for one in (timed, found) if one is not None),
            text,
            *says_waiting(trace),
            *says_idle(trace),
        ),
        action=f"move work out of the process: {_outside(trace)}",
        next_command=commands.profile(trace, pid, "--gil "),
        source=source,
        share=waiting,
    )


def _outside(trace: Trace) -> str:
    """Where its Python can run instead; of a program that is no server nobody knows what it computes."""
    if watched(trace) != "server":
        return one_of("processes in the place of threads", "native code that releases the GIL", "a Python without one")
    return one_of(
        change(trace, Feature.API_SERVERS, "more API server processes"),
        "tokenising and detokenising in their own",
        "no Python callbacks per token",
    )


def _lacks_waits(trace: Trace, pid: int) -> Unknown | None:
    """Threads that share one core were seen: whether it is the GIL, only their waits tell."""
    if _grown(trace, ids.process(pid), v.SYSCALL_TIMED) > 0:
        return None
    return told_why_absent(trace, ids.process(pid), v.SYSCALL_TIMED) or Unknown("no probe times its futex calls")


def _turns(trace: Trace, members: Sequence[ServerThread]) -> tuple[Sequence[ServerThread], str] | None:
    """Who takes turns, and how that is known: by looks at the GIL's owner, else by the threads' clocks."""
    return _owners(trace, members) or _one_core(members)


def _owners(trace: Trace, members: Sequence[ServerThread]) -> tuple[Sequence[ServerThread], str] | None:
    looks, held = (
        {one.track: _grown(trace, one.track, metric) for one in members}
        for metric in (v.THREAD_GIL_SAMPLES, v.labelled(v.THREAD_GIL_SAMPLES, v.GIL_OWNER))
    )
    most = max(looks.values(), default=0.0)
    if most < _LOOKS or sum(held.values()) < _HELD * most:
        return None
    rivals = sorted((one for one in members if held[one.track] >= _EACH * most), key=lambda one: -held[one.track])
    if sum(held[one.track] for one in rivals[1:]) < _RIVALS * most:
        return None
    where = read_by(trace, rivals[0].track, v.labelled(v.THREAD_GIL_SAMPLES, v.GIL_OWNER))
    shown = ", ".join(f"{one.row.name} {percent(100 * held[one.track] / most)}" for one in rivals[:4])
    return rivals, f"the GIL goes round: {shown} of {most:.0f} looks ({where})"


def _one_core(members: Iterable[ServerThread]) -> tuple[Sequence[ServerThread], str] | None:
    rivals = [one for one in members if one.shares.on_cpu >= _EACH and _waits_in_futex(one)]
    rivals.sort(key=lambda one: -one.shares.on_cpu)
    cores = sum(one.shares.on_cpu for one in rivals)
    least, most = _ONE_CORE
    # One that has the GIL and is put off its CPU keeps it, so that all stand still: queued time is taken as well.
    if sum(one.shares.on_cpu for one in rivals[1:]) < _RIVALS:
        return None
    if cores > most or sum(one.awake for one in rivals) < least:
        return None
    shown = ", ".join(f"{one.row.name} {percent(100 * one.shares.on_cpu)}" for one in rivals[:4])
    return rivals, f"{len(rivals)} threads make {cores:.2f} cores together and else wait in futex: {shown} (schedstat)"


def _waits_in_futex(thread: ServerThread) -> bool:
    asleep = thread.shares.blocked_total
    return thread.blocked_on((v.ThreadCause.FUTEX,)) >= _IN_FUTEX * asleep > 0


def _grown(trace: Trace, track: TrackId, metric: Metric) -> float:
    return step_increase(trace.get(track, metric), trace.end_ns - WINDOW_NS, trace.end_ns)
