"""Where the server's threads spend their time: on a CPU, waiting for one, or blocked, and on what.

On-CPU and run-queue time are exact: the kernel counts them in /proc/PID/task/TID/schedstat (Linux
Documentation/scheduler/sched-stats). What is left of the wall time is blocked; its causes are measured at each sleep
where probes are attached to the scheduler, else sampled at each poll.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import FRESH_NS, counter_increase, latest, source, why_kind_missing
from llmtop.analysis.threads.cells import NOT_SAMPLED, spinning_share
from llmtop.analysis.threads.probes import (
    NOT_SEEN,
    ProbeSeries,
    cuda_sync_share,
    exact_causes,
    polling_share,
    probe_series,
    sliced_causes,
)
from llmtop.facts import ThreadFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Trace, Track, TrackId, TrackKind, Unknown, UnknownKind
from llmtop.vocabulary import ThreadCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llmtop.model import Series

WINDOW_NS = 10 * NS_PER_S
"""In which threads are the mean."""
SAMPLED = "sampled at each poll"
EXACT = "measured at each sleep"
_CLOSE = 0.02
"""Clocks and probes are read at different moments: what differs by no more than this share is the same."""
_NO_CLOCKS = Unknown("of its threads this trace tells no time on a CPU")
_MOSTLY = 0.5
"""Share from which on most is meant."""
_HARDLY = 0.03
"""Share of its time below which a thread hardly runs."""
HELD_UP = frozenset(
    {
        *(ThreadCause.DISK, ThreadCause.NETWORK_FS, ThreadCause.TERMINAL),
        *(ThreadCause.UNINTERRUPTIBLE, ThreadCause.CUDA_SYNC, ThreadCause.GPU_DRIVER),
    }
)
"""Nobody sleeps in these for want of work."""

ENGINE_ROLES = ("enginecore", "engine", "scheduler", "worker")
"""What roles of processes that drive GPUs have in their names, the one that leads the others first."""
API_ROLES = ("apiserver", "http_server", "tokenizer", "frontend", "router", "proxy")
"""What roles of processes (llmtop/servers) that serve requests and not a GPU have in their names: SGLang's detokenizer
and tokenizer workers too."""


@frozen
class Shares:
    """Shares of the window, 0 to 1; on_cpu + run_queue + the values of `blocked` make 1.

    Attributes:
        polling: The part of `on_cpu` that only passes the time (sched_yield, polls that do not wait); None where
            nothing tells.
        in_cuda_sync: The share spent within synchronising CUDA and NCCL calls, spinning (then it is a part of
            `on_cpu`) or asleep (then of `blocked`); None where no probe on those libraries tells.
        are_causes_exact: Whether most of `blocked` was measured at each sleep within this window; else its causes
            were sampled.
        looked: The share of the window in which its sleeps were measured, where causes are sampled by that; else None.
    """

    on_cpu: float
    run_queue: float
    blocked: tuple[tuple[str, float], ...]
    polling: float | None = None
    in_cuda_sync: float | None = None
    are_causes_exact: bool = False
    looked: float | None = None

    @property
    def how_causes_are_known(self) -> str:
        """In words."""
        if self.are_causes_exact:
            return EXACT
        return SAMPLED if self.looked is None else f"sampled: each sleep in {self.looked:.0%} of the time"

    @property
    def blocked_total(self) -> float:
        """The share blocked, whatever on."""
        return sum(share for _, share in self.blocked)

    @property
    def main_cause(self) -> str:
        """What it was blocked on most."""
        return self.blocked[0][0] if self.blocked else ""

    @property
    def spinning_in_sync(self) -> float:
        """The share on a CPU within synchronising calls: the GPU is what is waited for. 0 where nothing tells."""
        asleep = dict(self.blocked).get(ThreadCause.CUDA_SYNC, 0.0) if self.are_causes_exact else self.blocked_total
        awake = max(0.0, (self.in_cuda_sync or 0.0) - asleep)
        return spinning_share(awake, self.on_cpu, self.run_queue)

    @property
    def working(self) -> float:
        """The share on a CPU that is neither polling nor spinning in a synchronising call.

        An upper bound where `polling` or `in_cuda_sync` is not known. A thread can poll within such a call, so the
        larger one is taken off and not both.
        """
        return max(0.0, self.on_cpu - max(self.polling or 0.0, self.spinning_in_sync))


@frozen
class ThreadRow:
    """A thread over the window. `state` is what it was doing when it was last looked at."""

    pid: int
    tid: int
    name: str
    role: str
    shares: Shares | Unknown
    state: str = ""

    @property
    def track(self) -> TrackId:
        """The id of its track."""
        return ids.thread(self.pid, self.tid)


@frozen
class RoleTotal:
    """Threads of one role: `cores` is CPU seconds per second, `waiting` run-queue seconds per second.

    `rss` is the memory of their processes in bytes, shared pages counted in each; None where it is not read.
    """

    role: str
    threads: int
    cores: float
    waiting: float
    rss: float | None = None


@frozen
class ThreadsView:
    """All threads, the most interesting first.

    Attributes:
        source: Who read the clocks.
        causes: How the causes of blocking are known: "measured at each sleep (eBPF)" or `SAMPLED`, or both where it
            differs by thread.
    """

    rows: tuple[ThreadRow, ...]
    roles: tuple[RoleTotal, ...]
    window_s: float
    source: str
    causes: str = SAMPLED


def why_no_threads(trace: Trace) -> Unknown | None:
    """Why a trace does not tell where threads spend their time; None where it does of some."""
    tracks = trace.tracks_of(TrackKind.THREAD)
    if any(trace.get(track.id, v.THREAD_ON_CPU) is not None for track in tracks):
        return None
    return _NO_CLOCKS if tracks else why_kind_missing(trace, TrackKind.THREAD)


def threads_view(trace: Trace, window_ns: int = WINDOW_NS) -> ThreadsView | Unknown:
    """The threads of the server, or why none are known.

    Kept for the newest traces: several panes and rules ask for the same frame.
    """
    return _threads_view(trace, window_ns)


@lru_cache(maxsize=4)
def _threads_view(trace: Trace, window_ns: int) -> ThreadsView | Unknown:
    # Apart, because the cache would take a window that is left out for another one than the same by name.
    tracks = trace.tracks_of(TrackKind.THREAD)
    if not tracks:
        return why_kind_missing(trace, TrackKind.THREAD)
    # Of a look that is shorter than the window, half of what there is must have been seen by the probes.
    window_ns = min(window_ns, max(NS_PER_S, trace.end_ns - trace.start_ns))
    series = probe_series(trace)
    rows = [thread_row(trace, track, window_ns, series) for track in tracks]
    rows.sort(key=_interest)
    where = source(trace, tracks[0].id, v.THREAD_ON_CPU)
    causes = _how_causes_are_known(trace, rows)
    return ThreadsView(tuple(rows), _role_totals(trace, rows), window_ns / NS_PER_S, where, causes)


def thread_row(trace: Trace, track: Track, window_ns: int, series: ProbeSeries) -> ThreadRow:
    """One thread; `series` says what there is about it."""
    asleep = _asleep_as_before(trace, track.id, window_ns)
    if asleep is None:
        return _row(track, _shares(trace, track.id, window_ns, series))
    if asleep.told is None or asleep.told[0] is not track:  # a track tells name, role and state, and is never changed
        asleep.told = track, _row(track, asleep.shares)
    return asleep.told[1]


def _row(track: Track, shares: Shares | Unknown) -> ThreadRow:
    role, state = track.facts.get(ThreadFact.ROLE, ""), track.facts.get(ThreadFact.STATE, "")
    return ThreadRow(ids.pid(track.id), ids.tid(track.id), track.name, _text(role), shares, _text(state))


@lru_cache(maxsize=4)
def engine_thread(trace: Trace, window_ns: int = WINDOW_NS) -> ThreadRow | Unknown:
    """The thread that drives the GPU: the busiest one of the engine's scheduler process.

    In vLLM that is the EngineCore's main thread, in SGLang the scheduler's. Where no process has such a role
    (a server that is one process) it is the busiest thread of all. Kept for the newest traces, as the view is.
    """
    view = threads_view(trace, window_ns)
    if isinstance(view, Unknown):
        return view
    for wanted in (*ENGINE_ROLES, ""):
        if (busiest := main_thread(threads_of_role(view, wanted))) is not None:
            return busiest
    return Unknown("not enough samples yet", "wait for two polls", UnknownKind.PASSING)


def gpu_thread(trace: Trace, gpu: TrackId, window_ns: int = WINDOW_NS) -> ThreadRow | Unknown:
    """The thread that drives one GPU (a track id): the busiest of the process with the most memory on it.

    Where no process of the server is known to be on it (no driver, a container of its own), it is `engine_thread`.
    """
    view = threads_view(trace, window_ns)
    if isinstance(view, Unknown):
        return view
    rows_by_pid: dict[int, list[ThreadRow]] = {}
    for row in view.rows:
        rows_by_pid.setdefault(row.pid, []).append(row)
    users = [track for track in trace.tracks_of(TrackKind.GPU_PROCESS) if ids.is_gpu_process(track.id, gpu)]
    by_memory = sorted(users, key=lambda track: -_memory(trace, track))
    for track in by_memory:
        pid = ids.pid(track.id)
        if (busiest := main_thread(rows_by_pid.get(pid, ()))) is not None:
            return busiest
    return engine_thread(trace, window_ns)


def threads_of_role(view: ThreadsView, *parts: str) -> tuple[ThreadRow, ...]:
    """The threads of processes whose role has one of `parts` in its name, whatever the case; the view's order."""
    return tuple(row for row in view.rows if _is_of_role(row.role, parts))


def api_threads(trace: Trace, window_ns: int = WINDOW_NS) -> tuple[ThreadRow, ...]:
    """The threads that take and answer requests: API servers, tokenisers, routers. None of a one-process server."""
    view = threads_view(trace, window_ns)
    return () if isinstance(view, Unknown) else threads_of_role(view, *API_ROLES)


def process_threads(trace: Trace, pid: int, window_ns: int = WINDOW_NS) -> tuple[ThreadRow, ...]:
    """The threads of one process, the most interesting first."""
    view = threads_view(trace, window_ns)
    return () if isinstance(view, Unknown) else tuple(row for row in view.rows if row.pid == pid)


_ROLE_IN_NAME = 8
"""Letters of a role with which the name of a thread may begin: the kernel keeps 15 of a name."""


def thread_label(row: ThreadRow) -> str:
    """What people call a thread: the role of its process; of one beside the main thread, with its own name."""
    if row.role and row.tid == row.pid:
        return row.role
    return row.name if not row.role or row.name.startswith(row.role[:_ROLE_IN_NAME]) else f"{row.role}/{row.name}"


def track_label(track: Track) -> str:
    """The same of a thread of which only the track is at hand."""
    return thread_label(_row(track, _NOT_ASKED))


_NOT_ASKED = Unknown("nobody asked")


def main_thread(rows: Iterable[ThreadRow]) -> ThreadRow | None:
    """The one that asks most for a CPU: of several threads the one that limits its process; None without shares.

    Of those that ask alike (in steps of 5 %) the first of its process: it would be another one in each frame else.
    """
    return max((row for row in rows if isinstance(row.shares, Shares)), key=_demand, default=None)


def leading_rows(view: ThreadsView) -> tuple[ThreadRow, ...]:
    """The threads that tokens and requests go through: the engine's main one and the API server's, where there are."""
    found = (
        next((row for part in parts if (row := main_thread(threads_of_role(view, part))) is not None), None)
        for parts in (ENGINE_ROLES, API_ROLES)
    )
    return tuple(row for row in found if row is not None)


def is_asleep(row: ThreadRow) -> bool:
    """Whether it neither ran nor was held up by a device in the window: nothing can be seen of it but that it waits."""
    if not isinstance(row.shares, Shares):
        return False
    return _active(row) < _HARDLY and row.shares.main_cause not in HELD_UP


def is_polling(shares: Shares) -> bool:
    """Whether most of what the thread did on a CPU was to poll: it seems busy and is not."""
    return bool(shares.polling) and (shares.polling or 0.0) >= _MOSTLY * shares.on_cpu


def causes_text(shares: Shares, least: float = 0.01) -> str:
    """The causes of blocking in words, the largest first: "futex 61 %, epoll 12 %"."""
    return ", ".join(f"{cause} {share:.0%}".replace("%", " %") for cause, share in shares.blocked if share >= least)


@dataclass(slots=True)
class _Asleep:
    """What was made of a thread that did not run in the window.

    Attributes:
        clock: Its time on a CPU, by which it is known again: the columns of another trace are others.
        ran: What that stood at, and `queued` its time in the run queue.
        t_ns: When that was.
        told: The track of its last row, and that row.
    """

    clock: Series
    ran: float
    queued: float
    t_ns: int
    window_ns: int
    shares: Shares
    told: tuple[Track, ThreadRow] | None = None


_asleep: dict[str, _Asleep] = {}
"""Of a server's hundreds of threads most sleep for good. One that has not run since is in the same sleep."""
_MOST_ASLEEP = 4096
"""Threads whose sleep is remembered; then all are looked at anew."""


def _asleep_as_before(trace: Trace, track: TrackId, window_ns: int) -> _Asleep | None:
    """What was made of a thread that sleeps on since then; None where it has to be made anew.

    That is done all the same once in a window: how its causes are known may change.
    """
    known = _asleep.get(track)
    clock, queued = trace.get(track, v.THREAD_ON_CPU), trace.get(track, v.THREAD_RUN_QUEUE)
    if known is None or clock is None or queued is None or not clock.shares_columns(known.clock):
        return None
    is_recent = 0 <= trace.end_ns - known.t_ns < WINDOW_NS and window_ns == known.window_ns
    is_read = trace.end_ns - (clock.last_t_ns or 0) <= FRESH_NS
    return known if is_recent and is_read and (clock.last, queued.last) == (known.ran, known.queued) else None


def _remember_sleep(trace: Trace, track: TrackId, window_ns: int, shares: Shares) -> None:
    clock, queued = trace.get(track, v.THREAD_ON_CPU), trace.get(track, v.THREAD_RUN_QUEUE)
    if clock is None or queued is None or clock.last is None or queued.last is None:
        return
    if len(_asleep) >= _MOST_ASLEEP:
        _asleep.clear()
    _asleep[track] = _Asleep(clock, clock.last, queued.last, trace.end_ns, window_ns, shares)


def _shares(trace: Trace, track: TrackId, window_ns: int, series: ProbeSeries) -> Shares | Unknown:
    on_cpu = counter_increase(trace, track, v.THREAD_ON_CPU, window_ns)
    run_queue = counter_increase(trace, track, v.THREAD_RUN_QUEUE, window_ns)
    if isinstance(on_cpu, Unknown):
        return on_cpu
    if isinstance(run_queue, Unknown):
        return run_queue
    running, waiting = (grown.per_second / NS_PER_S for grown in (on_cpu, run_queue))
    # The kernel brings both counters up to date at different moments, so short windows can add up to more than 1.
    excess = max(1.0, running + waiting)
    running, waiting = running / excess, waiting / excess
    blocked = max(0.0, 1.0 - running - waiting)
    measured = exact_causes(trace, track, series, window_ns)
    is_exact = measured is not None and (blocked <= _CLOSE or sum(measured.values()) >= _MOSTLY * blocked)
    causes = () if measured is None else _measured(measured, blocked)
    looked: float | None = None
    if measured is None and (split := sliced_causes(trace, track, series, window_ns, _MOSTLY * blocked)):
        looked, causes = split.looked, tuple((cause, blocked * share) for cause, share in split.causes)
    elif not is_exact:  # no probes, or it slept and they did not see in what: they shed what tells
        sampled = _sampled(trace, track, window_ns, series.sampled, blocked)
        causes = sampled if not causes or sampled[0][0] != NOT_SAMPLED else causes
    polling = polling_share(trace, track, series, window_ns)
    shares = Shares(
        running,
        waiting,
        causes,
        None if polling is None else min(running, polling),
        cuda_sync_share(trace, track, series, window_ns),
        are_causes_exact=is_exact,
        looked=looked,
    )
    if not running and not waiting:
        _remember_sleep(trace, track, window_ns, shares)
    return shares


def _measured(causes: dict[str, float], share: float) -> tuple[tuple[str, float], ...]:
    """The blocked share by measured causes; what these do not cover is `NOT_SEEN`."""
    total = sum(causes.values())
    covered = share if total and total >= share - _CLOSE else total
    by_share = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    scaled = [(cause, part * covered / total) for cause, part in by_share]
    return (*scaled, (NOT_SEEN, share - covered)) if covered < share else tuple(scaled)


def _how_causes_are_known(trace: Trace, rows: Iterable[ThreadRow]) -> str:
    """In words, for the legend: by how most is known first."""
    known = [(row.pid, row.shares) for row in rows if isinstance(row.shares, Shares)]
    exact = [(pid, shares) for pid, shares in known if shares.are_causes_exact]
    measured = exact or [(pid, shares) for pid, shares in known if shares.looked is not None]
    if not measured:
        return SAMPLED
    pid, shares = measured[0]
    told = f"{shares.how_causes_are_known} ({source(trace, ids.process(pid), v.SCHEDULER_OBSERVED)})"
    others = len(known) - len(measured)
    return f"{told}; of {others} threads {SAMPLED}" if others else told


@lru_cache(maxsize=256)
def _is_of_role(role: str, parts: tuple[str, ...]) -> bool:
    """Kept, because every rule asks it of every thread, and a server has few roles."""
    folded = role.casefold()
    return any(part.casefold() in folded for part in parts)


def _sampled(
    trace: Trace, track: TrackId, window_ns: int, causes: Mapping[TrackId, list[str]], share: float
) -> tuple[tuple[str, float], ...]:
    """Split the blocked share by how often each cause was seen; all of it is `NOT_SAMPLED` when none was."""
    seen: dict[str, float] = {}
    for cause in causes.get(track, ()):
        grown = counter_increase(trace, track, v.labelled(v.THREAD_STATE_SAMPLES, cause), window_ns)
        if not isinstance(grown, Unknown) and grown.amount > 0:
            seen[cause] = grown.amount
    samples = sum(seen.values())
    if not samples:
        return ((NOT_SAMPLED, share),)
    by_share = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    return tuple((cause, share * count / samples) for cause, count in by_share)


def _interest(row: ThreadRow) -> tuple[float, int, int]:
    """Run-queue wait counts threefold: it is the trouble. Steps of 5 % keep rows from swapping at every poll."""
    return -round((_on_cpu(row) + 3 * _run_queue(row)) * 20), row.pid, row.tid


def _demand(row: ThreadRow) -> tuple[int, bool, float]:
    active = _active(row)
    return round(active * 20), row.tid == row.pid, active


def _active(row: ThreadRow) -> float:
    return 0.0 if isinstance(row.shares, Unknown) else row.shares.on_cpu + row.shares.run_queue


def _role_totals(trace: Trace, rows: Iterable[ThreadRow]) -> tuple[RoleTotal, ...]:
    by_role: dict[str, list[ThreadRow]] = {}
    for row in rows:
        by_role.setdefault(row.role or "other", []).append(row)
    totals = [
        RoleTotal(role, len(members), sum(map(_on_cpu, members)), sum(map(_run_queue, members)), _rss(trace, members))
        for role, members in by_role.items()
    ]
    return tuple(sorted(totals, key=lambda total: (-total.cores, total.role)))


def _rss(trace: Trace, rows: Iterable[ThreadRow]) -> float | None:
    """Memory of the processes that threads belong to; None unless it is known of each."""
    sizes = [latest(trace, ids.process(pid), v.PROCESS_RSS) for pid in {row.pid for row in rows}]
    known = [size for size in sizes if not isinstance(size, Unknown)]
    return sum(known) if known and len(known) == len(sizes) else None


def _on_cpu(row: ThreadRow) -> float:
    return 0.0 if isinstance(row.shares, Unknown) else row.shares.on_cpu


def _run_queue(row: ThreadRow) -> float:
    return 0.0 if isinstance(row.shares, Unknown) else row.shares.run_queue


def _memory(trace: Trace, track: Track) -> float:
    used = latest(trace, track.id, v.GPU_PROCESS_MEMORY)
    return 0.0 if isinstance(used, Unknown) else used


def _text(fact: object) -> str:
    return "" if isinstance(fact, Unknown) else str(fact)
