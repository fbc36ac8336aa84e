"""Where the server's threads spend their time: on a CPU, waiting for one, or blocked, and on what.

On-CPU and run-queue time are exact: the kernel counts them in /proc/PID/task/TID/schedstat (Linux
Documentation/scheduler/sched-stats). What is left of the wall time is blocked; its causes are sampled at each poll.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.readings import counter_increase, source, why_kind_missing
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.model import NS_PER_S, Trace, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

WINDOW_NS = 10 * NS_PER_S
NOT_SAMPLED = "not sampled"


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the window, 0 to 1; on_cpu + run_queue + the values of `blocked` make 1.

    Attributes:
        polling: The part of `on_cpu` that only passes the time (sched_yield, polls that do not wait); None where
            nothing tells.
        in_cuda_sync: The share spent within synchronising CUDA and NCCL calls, spinning (then it is a part of
            `on_cpu`) or asleep (then of `blocked`); None where no probe on those libraries tells.
        are_causes_exact: Whether `blocked` is measured at each sleep; else its causes were sampled.
    """

    on_cpu: float
    run_queue: float
    blocked: tuple[tuple[str, float], ...]
    polling: float | None = None
    in_cuda_sync: float | None = None
    are_causes_exact: bool = False

    @property
    def blocked_total(self) -> float:
        """The share blocked, whatever on."""
        return sum(share for _, share in self.blocked)

    @property
    def main_cause(self) -> str:
        """What it was blocked on most."""
        return self.blocked[0][0] if self.blocked else ""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread over the window. `state` is what it was doing when it was last looked at."""

    pid: int
    tid: int
    name: str
    role: str
    shares: Shares | Unknown
    state: str = ""


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """Threads of one role: `cores` is CPU seconds per second, `waiting` run-queue seconds per second."""

    role: str
    threads: int
    cores: float
    waiting: float


@dataclass(frozen=True, slots=True)
class ThreadsView:
    """All threads, the most interesting first."""

    rows: tuple[ThreadRow, ...]
    roles: tuple[RoleTotal, ...]
    window_s: float
    source: str


@lru_cache(maxsize=4)
def threads_view(trace: Trace, window_ns: int = WINDOW_NS) -> ThreadsView | Unknown:
    """The threads of the server, or why none are known.

    Kept for the newest traces: several panes and rules ask for the same frame.
    """
    tracks = trace.tracks_of(TrackKind.THREAD)
    if not tracks:
        return why_kind_missing(trace, TrackKind.THREAD)
    causes = _causes_by_track(trace)
    rows = [thread_row(trace, track, window_ns, causes.get(track.id, ())) for track in tracks]
    rows.sort(key=_interest)
    where = source(trace, tracks[0].id, v.THREAD_ON_CPU)
    return ThreadsView(tuple(rows), _role_totals(rows), window_ns / NS_PER_S, where)


def thread_row(trace: Trace, track: Track, window_ns: int, causes: Iterable[str]) -> ThreadRow:
    """One thread; `causes` are the labels its state samples are counted under."""
    pid, tid = (int(part) for part in track.id.removeprefix("thread:").split("/"))
    role, state = track.facts.get("role", ""), track.facts.get("state", "")
    shares = _shares(trace, track.id, window_ns, causes)
    return ThreadRow(pid, tid, track.name, _text(role), shares, _text(state))


def engine_thread(trace: Trace, window_ns: int = WINDOW_NS) -> ThreadRow | Unknown:
    """The thread that drives the GPU: the busiest one of the engine's scheduler process.

    In vLLM that is the EngineCore's main thread, in SGLang the scheduler's. Where no process has such a role
    (a server that is one process) it is the busiest thread of all.
    """
    view = threads_view(trace, window_ns)
    if isinstance(view, Unknown):
        return view
    for wanted in ("enginecore", "engine", "scheduler", "worker", ""):
        rows = [row for row in view.rows if wanted in row.role.lower() and isinstance(row.shares, Shares)]
        if rows:
            return max(rows, key=lambda row: _on_cpu(row) + _run_queue(row))
    return Unknown("not enough samples yet", "wait for two polls")


def threads_table(view: ThreadsView) -> RowTable:
    """One row a thread, for the zoomed pane."""
    columns = (
        Column("name", "thread", width=18),
        Column("role", "role", width=14, shrink=2),
        Column("pid", "pid", "1", width=8, shrink=4),
        Column("tid", "tid", "1", width=8, shrink=3),
        Column("on_cpu", "on-CPU", "ratio", width=7, help="share of the window on a CPU (schedstat)"),
        Column("run_queue", "run-q", "ratio", width=7, help="share of the window ready, waiting for a CPU (schedstat)"),
        Column("blocked", "blocked", "ratio", width=8, help="the rest of the window"),
        Column("causes", "blocked on (sampled at each poll)", width=0),
    )
    return RowTable(columns, tuple(_cells(row) for row in view.rows), tuple((row.pid, row.tid) for row in view.rows))


def causes_text(shares: Shares, least: float = 0.01) -> str:
    """The causes of blocking in words, the largest first: "futex 61 %, epoll 12 %"."""
    return ", ".join(f"{cause} {share:.0%}".replace("%", " %") for cause, share in shares.blocked if share >= least)


def _cells(row: ThreadRow) -> tuple[str | int | float | Unknown, ...]:
    shares = row.shares
    if isinstance(shares, Unknown):
        return (row.name, row.role, row.pid, row.tid, shares, shares, shares, shares)
    numbers = (shares.on_cpu, shares.run_queue, shares.blocked_total)
    return (row.name, row.role, row.pid, row.tid, *numbers, causes_text(shares))


def _shares(trace: Trace, track: str, window_ns: int, causes: Iterable[str]) -> Shares | Unknown:
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
    return Shares(running, waiting, _blocked(trace, track, window_ns, causes, max(0.0, 1.0 - running - waiting)))


def _blocked(
    trace: Trace, track: str, window_ns: int, causes: Iterable[str], share: float
) -> tuple[tuple[str, float], ...]:
    """Split the blocked share by how often each cause was seen; all of it is `NOT_SAMPLED` when none was."""
    seen: dict[str, float] = {}
    for cause in causes:
        grown = counter_increase(trace, track, v.labelled(v.THREAD_STATE_SAMPLES, cause), window_ns)
        if not isinstance(grown, Unknown) and grown.amount > 0:
            seen[cause] = grown.amount
    samples = sum(seen.values())
    if not samples:
        return ((NOT_SAMPLED, share),)
    by_share = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    return tuple((cause, share * count / samples) for cause, count in by_share)


def _causes_by_track(trace: Trace) -> dict[str, list[str]]:
    prefix = f"{v.THREAD_STATE_SAMPLES.name}|"
    causes: dict[str, list[str]] = {}
    for track, name in trace.series:
        if name.startswith(prefix) and (cause := name[len(prefix) :]) != v.ThreadCause.RUNNING:
            causes.setdefault(track, []).append(cause)
    return causes


def _interest(row: ThreadRow) -> tuple[float, int, int]:
    """Run-queue wait counts threefold: it is the trouble. Steps of 5 % keep rows from swapping at every poll."""
    return -round((_on_cpu(row) + 3 * _run_queue(row)) * 20), row.pid, row.tid


def _role_totals(rows: Iterable[ThreadRow]) -> tuple[RoleTotal, ...]:
    by_role: dict[str, list[ThreadRow]] = {}
    for row in rows:
        by_role.setdefault(row.role or "other", []).append(row)
    totals = [
        RoleTotal(role, len(members), sum(map(_on_cpu, members)), sum(map(_run_queue, members)))
        for role, members in by_role.items()
    ]
    return tuple(sorted(totals, key=lambda total: (-total.cores, total.role)))


def _on_cpu(row: ThreadRow) -> float:
    return 0.0 if isinstance(row.shares, Unknown) else row.shares.on_cpu


def _run_queue(row: ThreadRow) -> float:
    return 0.0 if isinstance(row.shares, Unknown) else row.shares.run_queue


def _text(fact: object) -> str:
    return "" if isinstance(fact, Unknown) else str(fact)
