"""The GPU's idle time by what the thread that drives it did at the same instant.

Both sides are read about once a second. In each interval the GPU's idle time is split in the proportions of what the
thread did in it: which microsecond of one met which of the other is not known, so every split is an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import gauge_steps, on_grid
from llmtop.analysis.series.readings import server_track, source
from llmtop.analysis.threads.cells import (
    COLLECTING,
    CUDA_SYNC,
    ON_CPU,
    POLLING,
    RUN_QUEUE,
    THROTTLED,
    WORKING,
    ThreadCells,
    cause_of,
    thread_cells,
)
from llmtop.analysis.threads.gpu_idle import IdleCells, gpu_idle
from llmtop.analysis.threads.shares import ThreadRow, engine_thread, gpu_thread, thread_label
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown
from llmtop.vocabulary import ThreadCause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.analysis.series.grid import Grid
    from llmtop.model import Trace

WINDOW_NS = 60 * NS_PER_S
"""In which idle time is explained."""
NO_REQUEST = "no_request"
UNKNOWN = "unknown"
ESTIMATE = "an estimate: within each sampling interval idle time is split in proportion"

_WORDS = {
    ON_CPU: "was on the CPU",
    WORKING: "worked on the CPU",
    COLLECTING: "collected Python's garbage",
    POLLING: "polled without work",
    RUN_QUEUE: "waited for a CPU",
    THROTTLED: "was stopped by its CPU quota",
    CUDA_SYNC: "waited for the GPU in a CUDA call",
}
_OF_THE_GPU = {ThreadCause.GPU_DRIVER, ThreadCause.DISK, ThreadCause.UNINTERRUPTIBLE, ThreadCause.CUDA_SYNC}
"""Waits that are not for another thread of the server."""
_NOTABLE = 0.05
"""Share of the time, and of the idle time, from which on it is worth a word."""
_MOST_IN_SENTENCE = 3
"""Causes that a sentence names."""


@frozen
class IdleCause:
    """One cause of idle time.

    Attributes:
        cause: "no_request", "throttled", "run_queue", "working", "on_cpu", "collecting", "polling", "cuda_sync",
            "blocked:<cause>" or "unknown".
        thread: The thread it is about: "EngineCore"; empty where it is about none.
        words: What the thread did: "worked on the CPU"; or, without a thread, what was so.
        idle_s: Seconds of the GPU's time.
        of_idle: Share of all idle time, 0 to 1; `of_window` likewise of the time that was looked at.
    """

    cause: str
    thread: str
    words: str
    idle_s: float
    of_idle: float
    of_window: float

    @property
    def title(self) -> str:
        """With who it was: "EngineCore worked on the CPU"."""
        return f"{self.thread} {self.words}" if self.thread else self.words

    @property
    def is_demand(self) -> bool:
        """Whether it is no fault of the server: there was nothing to do."""
        return self.cause == NO_REQUEST


@frozen
class IdleCauses:
    """The idle time of one GPU, split up; the rows add up to `idle_s`.

    Attributes:
        gpu: The track; `title` is what it is called.
        rows: The largest first.
        observed_s: Seconds of the window in which the GPU was read; all shares are of these.
        covered_s: Of these, seconds in which a cause could be told.
        sources: Who read what: "SM activity (GPM)", "EngineCore: schedstat".
        notes: What is an estimate, and what could not be told apart.
    """

    gpu: TrackId
    title: str
    rows: tuple[IdleCause, ...]
    window_s: float
    observed_s: float
    covered_s: float
    idle_s: float
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the time that was looked at."""
        return self.idle_s / self.observed_s if self.observed_s else 0.0

    @property
    def coverage(self) -> float:
        """The share of the window in which both sides were read."""
        return self.covered_s / self.window_s if self.window_s else 0.0

    @property
    def sentence(self) -> str:
        """One line: "GPU 0 idle 62 % of the last 60 s: 71 % of it EngineCore worked on the CPU, 20 % ..."."""
        head = f"{self.title} idle {self.idle_share * 100:.0f} % of the last {self.window_s:.0f} s"
        told = [row for row in self.rows if row.of_idle >= _NOTABLE][:_MOST_IN_SENTENCE]
        if self.idle_share < _NOTABLE or not told:
            return head
        parts, who = [], ""
        for i, row in enumerate(told):
            words = row.words if who and row.thread == who else row.title
            parts.append(f"{row.of_idle * 100:.0f} %{' of it' if i == 0 else ''} {words}")
            who = row.thread
        return f"{head}: {', '.join(parts)}"


def idle_causes(trace: Trace, gpu: TrackId | None = None, window_ns: int = WINDOW_NS) -> IdleCauses | Unknown:
    """Why one GPU (a track id; the first where None) was idle; Unknown where the GPU or its thread is not read."""
    idle = gpu_idle(trace, gpu, window_ns)
    if isinstance(idle, Unknown):
        return idle
    drivers = _drivers(trace, idle.gpu)
    if isinstance(drivers, Unknown):
        return drivers
    threads = [thread_cells(trace, row.track, idle.grid) for row in drivers]
    names = [thread_label(row) for row in drivers]
    demand = _is_without_request(trace, idle.grid)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    observed = covered = 0
    for i, share in enumerate(idle.shares):
        if share is None:
            continue
        observed += 1
        split = {(NO_REQUEST, ""): 1.0} if demand[i] else _split(i, threads, names)
        covered += split is not _NOT_KNOWN
        for key, part in split.items():
            seconds[key] += share * part * idle.grid.step_s
    return _result(idle, seconds, observed, covered, _sources(trace, drivers), tuple(_notes(threads, demand)))


_NOT_KNOWN: Mapping[tuple[str, str], float] = {(UNKNOWN, ""): 1.0}


def _drivers(trace: Trace, gpu: TrackId) -> tuple[ThreadRow, ...] | Unknown:
    """The GPU's thread, and the engine's where that is another one: the first waits for the second."""
    worker, engine = gpu_thread(trace, gpu), engine_thread(trace)
    if isinstance(worker, Unknown):
        return worker
    if isinstance(engine, Unknown) or (engine.pid, engine.tid) == (worker.pid, worker.tid):
        return (worker,)
    return worker, engine


def _split(i: int, threads: Sequence[ThreadCells], names: Sequence[str]) -> Mapping[tuple[str, str], float]:
    """Shares of one cell's idle time by cause and thread; they sum to 1.

    What a worker waits for is another thread's doing: its waits are shared out over what the engine did meanwhile.
    """
    doing = threads[0].cells[i]
    if doing is None:
        return _NOT_KNOWN
    behind = threads[1].cells[i] if len(threads) > 1 else None
    if not behind:
        return {(what, names[0]): share for what, share in doing.items()}
    split = {(what, names[0]): share for what, share in doing.items() if not _waits_for_others(what)}
    waiting = sum(share for what, share in doing.items() if _waits_for_others(what))
    for what, share in behind.items():
        key = (what, names[1])
        split[key] = split.get(key, 0.0) + waiting * share
    return split


def _waits_for_others(what: str) -> bool:
    cause = cause_of(what)
    return what == POLLING or (cause is not None and cause not in _OF_THE_GPU)


def _is_without_request(trace: Trace, grid: Grid) -> list[bool | None]:
    """Whether each cell was without any request, running or waiting; None where the server does not tell."""
    server = server_track(trace)
    if server is None:
        return [None] * grid.cells
    columns = [
        on_grid(gauge_steps(trace.get(server.id, metric), grid.start_ns, grid.end_ns), grid)
        for metric in (v.SERVER_RUNNING, v.SERVER_WAITING)
    ]
    return [None if a is None or b is None else a == b == 0 for a, b in zip(*columns, strict=True)]


def _result(
    idle: IdleCells,
    seconds: Mapping[tuple[str, str], float],
    observed: int,
    covered: int,
    sources: tuple[str, ...],
    notes: tuple[str, ...],
) -> IdleCauses:
    idle_s, observed_s = sum(seconds.values()), observed * idle.grid.step_s
    rows = (
        IdleCause(cause, who, _words(cause), s, s / idle_s, s / observed_s)
        for (cause, who), s in seconds.items()
        if s > 0
    )
    return IdleCauses(
        idle.gpu,
        idle.title,
        tuple(sorted(rows, key=lambda row: (-row.idle_s, row.title))),
        idle.grid.cells * idle.grid.step_s,
        observed_s,
        covered * idle.grid.step_s,
        idle_s,
        (idle.source, *sources),
        notes,
    )


def _words(cause: str) -> str:
    if cause == NO_REQUEST:
        return "there was no request"
    if cause == UNKNOWN:
        return "what the thread did is not known"
    return _WORDS.get(cause) or f"was blocked ({cause_of(cause)})"


def _sources(trace: Trace, drivers: Sequence[ThreadRow]) -> tuple[str, ...]:
    return tuple(
        f"{thread_label(row)}: {source(trace, ids.thread(row.pid, row.tid), v.THREAD_ON_CPU)}" for row in drivers
    )


def _notes(threads: Sequence[ThreadCells], demand: Sequence[bool | None]) -> Iterator[str]:
    yield ESTIMATE
    if all(cell is None for cell in demand):
        yield "the server's requests are not known: idle time without any is among the causes"
    if not all(one.are_causes_exact for one in threads):
        yield "causes of blocking are sampled"
    if not all(one.knows_polling for one in threads):
        yield "polling cannot be told from work"
    if not all(one.knows_sync for one in threads):
        yield "waiting for the GPU on the CPU cannot be told from work"
