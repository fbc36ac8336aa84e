"""What a thread did in each cell of a grid: the same shares as over a whole window, instant by instant.

How a cell divides is measured; when within the cell is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import counter_steps, on_grid, probe_steps
from llmtop.analysis.threads.probes import (
    NOT_SEEN,
    library_watch,
    polling_cells,
    probe_series,
    sync_is_known,
    sync_watch,
)
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Trace, TrackId, TrackKind
from llmtop.vocabulary import ThreadCause

if TYPE_CHECKING:
    from llmtop.analysis.series.grid import Cells, Grid
    from llmtop.analysis.threads.probes import ProbeSeries
    from llmtop.model import Series

WORKING = "working"
ON_CPU = "on_cpu"
"""Instead of WORKING where polling or waiting for the GPU cannot be told from it."""
COLLECTING = "collecting"
"""On a CPU in Python's garbage collector; within WORKING or ON_CPU where no probe sees it."""
POLLING = "polling"
RUN_QUEUE = "run_queue"
THROTTLED = "throttled"
CUDA_SYNC = "cuda_sync"
_BLOCKED = "blocked:"
NOT_SAMPLED = "not sampled"
_LEAST_COVERED = 0.5
"""Measured sleeps that make up less than this of a cell's blocked time do not speak for the rest of it."""

_CLOSE = 0.02
"""Of a cell: clocks and probes are read at different moments."""

Doing: TypeAlias = "Mapping[str, float]"
"""Shares of a cell by what was done (WORKING ... `sleeping_in(cause)`); they sum to 1."""


def sleeping_in(cause: str) -> str:
    """The name of sleeping in one cause of `ThreadCause`."""
    return f"{_BLOCKED}{cause}"


def cause_of(kind: str) -> str | None:
    """The cause of a sleep; None of what is no sleep.

    >>> cause_of(sleeping_in("futex")), cause_of(WORKING)
    ('futex', None)
    """
    return kind.removeprefix(_BLOCKED) if kind.startswith(_BLOCKED) else None


@frozen
class ThreadCells:
    """What one thread did in each cell of a grid; None where its clocks were not read.

    Attributes:
        are_causes_exact: Whether sleeps were measured in most cells; else sampled.
        knows_polling: Whether polling could be told from work in most cells; `knows_sync` likewise.
    """

    grid: Grid
    cells: tuple[Doing | None, ...]
    are_causes_exact: bool
    knows_polling: bool
    knows_sync: bool

    def of(self, what: str) -> Cells:
        """The share of one thing in each cell."""
        return tuple(None if doing is None else doing.get(what, 0.0) for doing in self.cells)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Everything that the thread ever did, the most frequent first."""
        sums: dict[str, float] = {}
        for doing in self.cells:
            for what, share in (doing or {}).items():
                sums[what] = sums.get(what, 0.0) + share
        return tuple(sorted(sums, key=lambda what: -sums[what]))


def thread_cells(trace: Trace, thread: TrackId, grid: Grid, series: ProbeSeries | None = None) -> ThreadCells:
    """What a thread (a track id) did in each cell."""
    series = series or probe_series(trace)
    window = grid.start_ns, grid.end_ns
    on_cpu, queued = (
        on_grid(counter_steps(trace.get(thread, clock), *window), grid)
        for clock in (v.THREAD_ON_CPU, v.THREAD_RUN_QUEUE)
    )
    throttled = on_grid(counter_steps(_throttle_counter(trace, thread), *window), grid)
    polling = polling_cells(trace, thread, series, grid)
    sync = _sync_cells(trace, thread, series, grid)
    collecting = _collecting_cells(trace, thread, grid)
    sleeps = _measured_sleeps(trace, thread, series, grid)
    samples = _sampled_causes(trace, thread, series, grid)
    told = [_speaks_for(*cell) for cell in zip(sleeps, on_cpu, queued, strict=True)]
    if any(samples):  # else the little that was seen is all there is
        sleeps = [slept if is_told else None for slept, is_told in zip(sleeps, told, strict=True)]
    cells = tuple(
        None
        if ran is None or waited is None
        else _doing(
            ran / NS_PER_S, waited / NS_PER_S, (held or 0.0) / NS_PER_S, collected, polled, synced, slept, sampled
        )
        for ran, waited, held, collected, polled, synced, slept, sampled in zip(
            on_cpu, queued, throttled, collecting, polling, sync, sleeps, samples, strict=True
        )
    )
    read = [i for i, cell in enumerate(cells) if cell is not None]
    return ThreadCells(
        grid,
        cells,
        are_causes_exact=_mostly_known([is_told or None for is_told in told], read),
        knows_polling=_mostly_known(polling, read),
        knows_sync=_mostly_known(sync, read),
    )


def _doing(
    ran: float,
    waited: float,
    held: float,
    collected: float,
    polled: float | None,
    synced: float | None,
    slept: Mapping[str, float] | None,
    sampled: Mapping[str, float],
) -> Doing:
    """The shares of one cell.

    A thread that its cgroup holds is queued for a CPU: the kernel's run-queue clock has that time too (measured on
    Linux 6.18: 0.70 s a second of both under a quota of 0.3 cores). cpu.stat adds up over CPUs, so no more than the
    run-queue time can be this thread's.
    """
    excess = max(1.0, ran + waited)
    ran, waited = ran / excess, waited / excess
    throttled = min(waited, held)
    blocked = _blocked(max(0.0, 1.0 - ran - waited), slept, sampled)
    asleep_in_sync, awake_in_sync = _in_sync(synced or 0.0, blocked, is_measured=slept is not None)
    spinning = spinning_share(awake_in_sync, ran, waited)
    is_told = polled is not None and synced is not None
    polled = min(ran - spinning, polled or 0.0)
    collected = min(ran - spinning - polled, spinning_share(collected, ran, waited))
    doing = {
        WORKING if is_told else ON_CPU: ran - spinning - polled - collected,
        COLLECTING: collected,
        POLLING: polled,
        RUN_QUEUE: waited - throttled,
        THROTTLED: throttled,
        CUDA_SYNC: spinning + asleep_in_sync,
    }
    doing |= {sleeping_in(cause): share for cause, share in blocked.items()}
    return {what: share for what, share in doing.items() if share > 0}


def _speaks_for(slept: Mapping[str, float] | None, ran: float | None, waited: float | None) -> bool:
    """Whether the probes saw in what the thread slept for most of its blocked time; it may be that they shed that."""
    blocked = max(0.0, 1.0 - ((ran or 0.0) + (waited or 0.0)) / NS_PER_S)
    return slept is not None and sum(slept.values()) >= _LEAST_COVERED * blocked - _CLOSE


def _mostly_known(cells: Sequence[object], read: Sequence[int]) -> bool:
    return sum(cells[i] is not None for i in read) >= _LEAST_COVERED * len(read)


def spinning_share(awake: float, ran: float, waited: float) -> float:
    """How much of the time awake in some calls was on a CPU: in them a thread queues as often as elsewhere.

    >>> spinning_share(0.4, 0.6, 0.2), spinning_share(0.4, 0.0, 0.2)
    (0.3, 0.0)
    """
    return min(ran, awake * ran / (ran + waited)) if ran else 0.0


def _in_sync(synced: float, blocked: dict[str, float], *, is_measured: bool) -> tuple[float, float]:
    """How much of the time in synchronising calls was slept, which is taken off `blocked`, and how much was not.

    Where sleeps are measured they are told as such. Where not, as much as possible was slept: what is called awake is
    then a lower bound.
    """
    if is_measured:
        asleep = blocked.pop(ThreadCause.CUDA_SYNC, 0.0)
        return asleep, max(0.0, synced - asleep)
    total = sum(blocked.values())
    asleep = min(synced, total)
    for cause in blocked:
        blocked[cause] *= 1 - asleep / total if total else 0.0
    return asleep, synced - asleep


def _blocked(share: float, slept: Mapping[str, float] | None, sampled: Mapping[str, float]) -> dict[str, float]:
    """The blocked share of a cell by cause: measured, else by the samples that were taken."""
    if slept is None:
        return {cause: share * part for cause, part in (sampled or {NOT_SAMPLED: 1.0}).items()}
    total = sum(slept.values())
    covered = share if total >= _LEAST_COVERED * share else total
    causes = {cause: part * covered / total for cause, part in slept.items()} if total else {}
    return causes if covered == share else causes | {NOT_SEEN: share - covered}


def _measured_sleeps(
    trace: Trace, thread: TrackId, series: ProbeSeries, grid: Grid
) -> Sequence[Mapping[str, float] | None]:
    """Share of each cell slept, by cause; None where no probe was on the scheduler, or none ever saw this thread."""
    causes = series.exact.get(thread, ())
    observed = trace.get(ids.process_of(thread), v.SCHEDULER_OBSERVED)
    columns = [
        on_grid(
            probe_steps(trace.get(thread, v.labelled(v.THREAD_BLOCKED, cause)), observed, grid.start_ns, grid.end_ns),
            grid,
        )
        for cause in causes
    ]
    if not columns:
        return [None] * grid.cells
    return [
        {cause: (ns or 0.0) / NS_PER_S for cause, ns in zip(causes, row, strict=True) if ns}
        if row[0] is not None
        else None
        for row in zip(*columns, strict=True)
    ]


def _sampled_causes(trace: Trace, thread: TrackId, series: ProbeSeries, grid: Grid) -> Sequence[Mapping[str, float]]:
    """The causes sampled in each cell; where none was, those of the whole window: an estimate."""
    causes = series.sampled.get(thread, ())
    columns = [
        on_grid(
            counter_steps(trace.get(thread, v.labelled(v.THREAD_STATE_SAMPLES, cause)), grid.start_ns, grid.end_ns),
            grid,
        )
        for cause in causes
    ]
    if not columns:
        return [{}] * grid.cells
    rows = [[count or 0.0 for count in row] for row in zip(*columns, strict=True)]
    whole = _proportions(causes, [sum(column) for column in zip(*rows, strict=True)])
    return [_proportions(causes, row) or whole for row in rows]


def _proportions(causes: Sequence[str], counts: Sequence[float]) -> dict[str, float]:
    total = sum(counts)
    return {cause: count / total for cause, count in zip(causes, counts, strict=True) if count} if total else {}


def _sync_cells(trace: Trace, thread: TrackId, series: ProbeSeries, grid: Grid) -> Cells:
    """Share of each cell within synchronising calls; None where no probe looks at them."""
    if not sync_is_known(trace, thread, series, grid.end_ns - grid.start_ns):
        return (None,) * grid.cells
    observed = sync_watch(trace, ids.process_of(thread), series)
    steps = probe_steps(trace.get(thread, v.THREAD_CUDA_SYNC), observed, grid.start_ns, grid.end_ns)
    return tuple(None if ns is None else min(1.0, ns / NS_PER_S) for ns in on_grid(steps, grid))


def _collecting_cells(trace: Trace, thread: TrackId, grid: Grid) -> Sequence[float]:
    """Share of each cell in Python's collector; 0 too where no probe sees it."""
    process = ids.process_of(thread)
    watch = library_watch(trace, process) or trace.get(process, v.SCHEDULER_OBSERVED)
    steps = probe_steps(trace.get(thread, v.THREAD_COLLECTING), watch, grid.start_ns, grid.end_ns)
    return [0.0 if ns is None else min(1.0, ns / NS_PER_S) for ns in on_grid(steps, grid)]


def _throttle_counter(trace: Trace, thread: TrackId) -> Series | None:
    """The quota's counter: it is read for the server's root process, whose cgroup holds the others."""
    own = trace.get(ids.process_of(thread), v.CGROUP_THROTTLED)
    others = (trace.get(track.id, v.CGROUP_THROTTLED) for track in trace.tracks_of(TrackKind.PROCESS))
    return own or next((counter for counter in others if counter is not None), None)
