"""The time of each thread, as the kernel's clocks tell it, divided over the stacks that it was seen in.

How long a thread ran, queued for a CPU and slept is counted in /proc, whatever probes are attached; stacks tell only in
which functions. So the stall flame says the same as the threads' pane, has a run queue, and stands without probes too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.threads.python_frames import is_python
from llmtop.analysis.threads.shares import API_ROLES, ENGINE_ROLES, HELD_UP, WINDOW_NS, Shares, threads_view
from llmtop.facts import ThreadFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Stack, Trace, TrackId, Unknown
from llmtop.vocabulary import ON_CPU, STACKS_WINDOW_NS, PythonState, ThreadCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from llmtop.model import Track

RUN_QUEUE = "run queue"
"""The state of time in which a thread was ready to run and no CPU was free."""
_LEAST = 0.0005
"""Smaller shares of a thread's time are noise of its clocks."""
_BUSY_SHARE = 0.1
"""The first thread of a process that runs and queues for less than this of its time sleeps for want of work."""
_BUSY_HELPER = 0.25
"""So does any other: pools, event loops of libraries and helpers hold dozens, each as wide as the one thread that the
server waits for. What they do on a CPU is drawn in any case."""
_ALIKE = 0.05
"""Of the time, in steps of which threads are put in order: they do not change places at each look."""
AWAKE = frozenset({ON_CPU, RUN_QUEUE, PythonState.RUNNING}) | HELD_UP
"""The states of time that is not slept by design."""
_FOR_WORK = frozenset({ThreadCause.EPOLL, ThreadCause.POLL, ThreadCause.SIGNAL, ThreadCause.CHILD})
"""What the first thread of a process sleeps in for want of work: an event loop, or `pause`."""


@lru_cache(maxsize=4)
def timed_stacks(trace: Trace) -> Sequence[Stack]:
    """Stacks that weigh ns of the last `threads.WINDOW_NS`; those of interpreters as they are.

    A trace that knows no thread's clocks keeps the stacks that it has. Threads that have ended have no clocks any more:
    theirs are of a longer window and shrink with it.
    """
    view = threads_view(trace)
    rows = () if isinstance(view, Unknown) else view.rows
    clocks = {row.track: row.shares for row in rows if isinstance(row.shares, Shares)}
    if not clocks:
        return trace.stacks
    by_thread = _native_by_thread(trace.stacks)
    made = [one for track, shares in clocks.items() for one in _timed(track, shares, by_thread.get(track, ()))]
    ended = (one for track, of_one in by_thread.items() if track not in trace.tracks for one in of_one)
    scale = WINDOW_NS / min(STACKS_WINDOW_NS, max(NS_PER_S, trace.stacks_end_ns - trace.start_ns))
    made += [_weighing(one, one.weight * scale) for one in ended if one.unit == "ns"]
    return (*made, *(stack for stack in trace.stacks if is_python(stack)))


def _native_by_thread(stacks: Iterable[Stack]) -> Mapping[TrackId, list[Stack]]:
    """Times where there are any of a thread: they and numbers of samples do not add up."""
    found: defaultdict[TrackId, list[Stack]] = defaultdict(list)
    for stack in stacks:
        if not is_python(stack):
            found[stack.track].append(stack)
    return {track: [one for one in of_one if one.unit == "ns"] or of_one for track, of_one in found.items()}


@dataclass(slots=True)
class _Sleep:
    """What was made of a thread of whose stacks nothing is told, and of which these shares were.

    Attributes:
        activity: None as long as nobody asked for it.
    """

    shares: Shares
    stacks: Sequence[Stack]
    activity: _Activity | None = None


_sleeps: dict[TrackId, _Sleep] = {}
"""By thread. `threads_view` gives one that sleeps on the very same shares again: most of a server's hundreds."""
_MOST_SLEEPS = 4096
"""Sleeps that are remembered; then all are made anew."""


def _timed(track: TrackId, shares: Shares, stacks: Sequence[Stack]) -> Iterable[Stack]:
    if stacks:
        return _over_stacks(track, shares, stacks)
    known = _sleeps.get(track)
    if known is None or known.shares is not shares:
        if len(_sleeps) >= _MOST_SLEEPS:
            _sleeps.clear()
        states = ((ON_CPU, shares.on_cpu), (RUN_QUEUE, shares.run_queue), *shares.blocked)
        made = tuple(_without_functions(track, state, share) for state, share in states if share >= _LEAST)
        known = _sleeps[track] = _Sleep(shares, made)
    return known.stacks


def _over_stacks(track: TrackId, shares: Shares, stacks: Sequence[Stack]) -> Iterator[Stack]:
    yield from _divided(track, ON_CPU, shares.on_cpu, [one for one in stacks if one.state == ON_CPU])
    yield from _divided(track, RUN_QUEUE, shares.run_queue, ())
    waits = [one for one in stacks if one.state != ON_CPU]
    if waits and not shares.are_causes_exact:
        # Each sleep has its stack, and the shares of the causes are of a few looks.
        yield from _divided(track, "", shares.blocked_total, waits)
        return
    for cause, share in shares.blocked:
        yield from _divided(track, cause, share, [one for one in waits if one.state == cause])


def _divided(track: TrackId, state: str, share: float, stacks: Sequence[Stack]) -> Iterator[Stack]:
    """A share of the window in one state, over the stacks seen in it; one without functions where there are none."""
    if share < _LEAST:
        return
    total = sum(one.weight for one in stacks)
    if not total:
        yield _without_functions(track, state, share)
    for one in stacks if total else ():
        yield _weighing(one, share * WINDOW_NS * one.weight / total)


def _without_functions(track: TrackId, state: str, share: float) -> Stack:
    return Stack((), share * WINDOW_NS, "ns", state, track)


def _weighing(stack: Stack, ns: float) -> Stack:
    return Stack(stack.frames, ns, "ns", stack.state, stack.track)


# -- who works and who sleeps by design --------------------------------------------------------------------------


@frozen
class _Activity:
    """What a thread did with its time: the share on a CPU or ready for one, how long that was, and all of it."""

    active: float
    active_time: float
    time: float
    main_cause: str


def resting_threads(*moments: Trace) -> frozenset[TrackId]:
    """Threads that sleep by design, for want of work, at all of the moments: ids of tracks.

    Of these only the time that they are `AWAKE` is a part of what the server's work waits for. The thread that drives
    an engine process is never one, nor the first of a process that serves requests and is blocked on anything but its
    event loop: a server that hangs is seen by what it waits for. None where no other is left.
    """
    seen = [_activities(trace) for trace in moments]
    awake: set[TrackId] = set()
    for trace, activities in zip(moments, seen, strict=True):
        awake |= {track for track, one in activities.items() if not _rests(track, one, trace)}
        awake |= critical_threads(trace)
    everyone = {track for activities in seen for track in activities}
    return frozenset(everyone - awake) if everyone & awake else frozenset()


@lru_cache(maxsize=4)
def critical_threads(trace: Trace) -> frozenset[TrackId]:
    """The threads that the server's tokens depend on: of each engine process, or else of all, the most active one.

    Of those alike its first one: an idle server has dozens that run for a moment now and then.
    """
    activities = _activities(trace)
    by_process: defaultdict[TrackId, list[TrackId]] = defaultdict(list)
    for track in activities:
        by_process[ids.process_of(track)].append(track)
    engines = [threads for threads in by_process.values() if _has_role(trace.tracks, threads[0], ENGINE_ROLES)]
    groups = engines or ([list(activities)] if activities else [])
    busiest = (_most_active(group, activities) for group in groups)
    return frozenset(one for one in busiest if activities[one].active_time or ids.is_first_thread(one))


def leading_thread(trace: Trace) -> TrackId:
    """The most active of the critical threads; empty where no thread is known."""
    activities = _activities(trace)
    critical = sorted(critical_threads(trace))
    return _most_active(critical, activities) if critical else ids.NONE


def _most_active(tracks: Sequence[TrackId], activities: Mapping[TrackId, _Activity]) -> TrackId:
    """In steps of `_ALIKE` of the time that was looked at."""
    step = _ALIKE * max(activities[track].time for track in tracks)

    def lead(track: TrackId) -> tuple[int, bool, float]:
        active = activities[track].active_time
        return round(active / step), ids.is_first_thread(track), active

    return max(tracks, key=lead)


@lru_cache(maxsize=4)
def _activities(trace: Trace) -> Mapping[TrackId, _Activity]:
    """By thread; from looks at interpreters where nothing tells times."""
    stacks = timed_stacks(trace)
    by_thread: defaultdict[TrackId, list[Stack]] = defaultdict(list)
    for stack in [one for one in stacks if not is_python(one)] or stacks:
        by_thread[stack.track].append(stack)
    return {track: _activity_as_before(track, of_one) for track, of_one in by_thread.items()}


def _activity_as_before(track: TrackId, stacks: Sequence[Stack]) -> _Activity:
    """Made anew unless the stacks are those of a sleep that goes on."""
    sleep = _sleeps.get(track)
    if sleep is None or len(sleep.stacks) != len(stacks) or sleep.stacks[0] is not stacks[0]:
        return _activity(stacks)
    sleep.activity = sleep.activity or _activity(stacks)
    return sleep.activity


def _activity(stacks: Iterable[Stack]) -> _Activity:
    states: defaultdict[str, float] = defaultdict(float)
    for stack in stacks:
        states[stack.state] += stack.weight
    total = sum(states.values()) or 1.0
    active = sum(states.get(state, 0.0) for state in (ON_CPU, RUN_QUEUE, PythonState.RUNNING))
    return _Activity(active / total, active, total, max(states, key=lambda state: states[state]))


def _rests(track: TrackId, activity: _Activity, trace: Trace) -> bool:
    if activity.active >= (_BUSY_SHARE if ids.is_first_thread(track) else _BUSY_HELPER):
        return False
    return (
        not ids.is_first_thread(track)
        or activity.main_cause in _FOR_WORK
        or not _has_role(trace.tracks, track, API_ROLES)
    )


def _has_role(tracks: Mapping[TrackId, Track], thread: TrackId, parts: Iterable[str]) -> bool:
    process = ids.process_of(thread)
    roles = [str(tracks[one].facts.get(ThreadFact.ROLE, "")) for one in (thread, process) if one in tracks]
    return any(part in role.casefold() for role in roles for part in parts)
