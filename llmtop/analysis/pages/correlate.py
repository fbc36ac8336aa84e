"""Which series of the CPU side move with the GPU's idle time, by how much later, and whether that can be chance.

A correlation is no cause. It says where to look first, and the lag says who moved first. How the numbers are made is
in `llmtop.analysis.series.lag`; all that were tried are corrected together (Holm 1979).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import counter_steps, gauge_steps, on_grid, probe_steps, usual_step_ns
from llmtop.analysis.series.lag import LEAST_SAMPLES, Lagged, best_lag, holm, ranked
from llmtop.analysis.series.readings import gpu_tracks, server_track, source
from llmtop.analysis.threads.cells import (
    COLLECTING,
    CUDA_SYNC,
    ON_CPU,
    POLLING,
    RUN_QUEUE,
    THROTTLED,
    WORKING,
    cause_of,
    thread_cells,
)
from llmtop.analysis.threads.gpu_idle import IdleCells, gpu_idle
from llmtop.analysis.threads.probes import library_watch
from llmtop.analysis.threads.shares import api_threads, gpu_thread, process_threads, thread_label
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown, UnknownKind
from llmtop.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llmtop.analysis.series.grid import Cells, Grid, Step
    from llmtop.analysis.threads.cells import ThreadCells
    from llmtop.analysis.threads.shares import ThreadRow
    from llmtop.model import Metric, Series, Trace

WINDOW_NS = 120 * NS_PER_S
"""At one sample a second a minute has few independent ones; much more than two is not "now"."""
LONGEST_LAG_NS = 5 * NS_PER_S
"""By how much one series may come before another."""
SIGNIFICANT = 0.05
"""The p below which chance alone is called unlikely (Fisher)."""
_MOST_THREADS = 16
"""Threads whose queueing is added up, the most interesting first: the others of a large pool hardly run."""
_LEAST_SHARE = 0.01
"""A cause that takes less of the time than this explains no idle GPU."""


@frozen
class Correlation:
    """How one series moves with the GPU's idle share.

    Attributes:
        lag_ns: Positive: the GPU's idle time follows the series by so much. Known to `resolution_ns`.
        r: Spearman's rank correlation at that lag.
        p: How likely chance alone gives as strong a one, corrected for all lags and series that were tried.
        n_effective: As how many independent samples the `samples` count.
        is_control: The series is an effect of a busy GPU, not a cause of an idle one (tokens).
    """

    title: str
    source: str
    lag_ns: int
    resolution_ns: int
    r: float
    p: float
    n_effective: float
    samples: int
    is_control: bool = False

    @property
    def is_significant(self) -> bool:
        """Whether chance alone is unlikely (`SIGNIFICANT`)."""
        return self.p < SIGNIFICANT

    @property
    def direction(self) -> str:
        """The sign and the lag in words: "rises 2 s before the GPU idles"."""
        verb = "rises" if self.r > 0 else "falls"
        if abs(self.lag_ns) < self.resolution_ns:
            return f"{verb} as the GPU idles"
        return f"{verb} {duration(abs(self.lag_ns))} {'before' if self.lag_ns > 0 else 'after'} the GPU idles"

    @property
    def evidence(self) -> str:
        """The strength, never without its significance: "r 0.83, p 0.002, 120 samples count as 41"."""
        p = "p < 0.001" if self.p < 0.001 else f"p {min(self.p, 1.0):.2g}"
        verdict = "" if self.is_significant else ": may be chance"
        return f"r {self.r:+.2f}, {p}, {self.samples} samples count as {self.n_effective:.0f}{verdict}"


@frozen
class Correlations:
    """All series of the window against the GPU's idle share, the surest first; Unknown says why one cannot be judged.

    Attributes:
        gpu: What the GPU is called: "GPU 0"; `idle_source` says what its idle share was read from.
        rows: (title, correlation) pairs.
    """

    gpu: str
    idle_source: str
    window_s: float
    step_s: float
    rows: tuple[tuple[str, Correlation | Unknown], ...]

    @property
    def against(self) -> str:
        """What all series are held against: "GPU 0 idle, SM activity (GPM)"."""
        return f"{self.gpu} idle, {self.idle_source}"

    @property
    def significant(self) -> tuple[Correlation, ...]:
        """What chance alone hardly explains, the strongest first."""
        known = [row for _, row in self.rows if isinstance(row, Correlation) and row.is_significant]
        return tuple(sorted(known, key=lambda one: -abs(one.r)))

    @property
    def sentence(self) -> str:
        """One line for a pane: what rises before or as the GPU idles, else what moves with it otherwise, else none."""
        others = [one for one in self.significant if not one.is_control]
        found = next((one for one in others if one.r > 0 and one.lag_ns >= 0), next(iter(others), None))
        if found is None:
            judged = sum(isinstance(row, Correlation) for _, row in self.rows)
            return f"none of {judged} series moves with the GPU's idle time beyond chance"
        return f"{found.title} {found.direction} ({found.evidence})"


@frozen
class _Candidate:
    """A series to hold against the GPU. `step_ns` is how often its source is read."""

    title: str
    source: str
    cells: Cells
    step_ns: int
    is_control: bool = False


def correlations(trace: Trace, gpu: TrackId | None = None, window_ns: int = WINDOW_NS) -> Correlations | Unknown:
    """Every series of the CPU side against the idle share of one GPU (a track id; the first where None).

    Unknown where the GPU is not read, idles always alike, or has not been read for long enough. Kept for the newest
    traces: rules and panes ask for the same.
    """
    tracks = gpu_tracks(trace)
    return _correlations(trace, gpu or (tracks[0].id if tracks else None), window_ns)


@lru_cache(maxsize=2)
def _correlations(trace: Trace, gpu: TrackId | None, window_ns: int) -> Correlations | Unknown:
    idle = gpu_idle(trace, gpu, window_ns)
    if isinstance(idle, Unknown):
        return idle
    target = ranked(idle.shares)
    if isinstance(target, Unknown):
        return _of_the_gpu(target, idle)
    most = max(1, LONGEST_LAG_NS // idle.grid.step_ns)
    rows: list[tuple[str, Correlation | Unknown]] = []
    for candidate in _candidates(trace, idle):
        series = ranked(candidate.cells)
        found = series if isinstance(series, Unknown) else best_lag(series, target, most)
        told = (
            _patience(found, candidate.cells, idle.grid)
            if isinstance(found, Unknown)
            else _told(candidate, found, idle)
        )
        rows.append((candidate.title, told))
    window_s = idle.grid.cells * idle.grid.step_s
    return Correlations(idle.title, idle.source, window_s, idle.grid.step_s, _corrected(rows))


def _told(candidate: _Candidate, found: Lagged, idle: IdleCells) -> Correlation:
    return Correlation(
        candidate.title,
        candidate.source,
        found.lag * idle.grid.step_ns,
        max(1, round(candidate.step_ns / idle.grid.step_ns)) * idle.grid.step_ns,
        found.r,
        found.p,
        found.n_effective,
        found.samples,
        candidate.is_control,
    )


def _corrected(rows: Iterable[tuple[str, Correlation | Unknown]]) -> tuple[tuple[str, Correlation | Unknown], ...]:
    """Probabilities corrected for the number of series; the surest first, those without one last."""
    judged = [row for _, row in rows if isinstance(row, Correlation)]
    unknown = [(title, row) for title, row in rows if isinstance(row, Unknown)]
    corrected = [replace(one, p=p) for one, p in zip(judged, holm([one.p for one in judged]), strict=True)]
    corrected.sort(key=lambda one: (one.p, -abs(one.r)))
    return (*((one.title, one) for one in corrected), *unknown)


def _of_the_gpu(why: Unknown, idle: IdleCells) -> Unknown:
    """Why nothing can be held against this GPU."""
    why = _patience(why, idle.shares, idle.grid)
    return replace(why, reason=f"{idle.title}'s idle share: {why.reason}")


def _patience(why: Unknown, cells: Cells, grid: Grid) -> Unknown:
    """The same, with how long to wait where samples are all that is missing."""
    lacking = LEAST_SAMPLES - sum(value is not None for value in cells)
    return Unknown(why.reason, f"wait {lacking * grid.step_s:.0f} s more", UnknownKind.PASSING) if lacking > 0 else why


def _candidates(trace: Trace, idle: IdleCells) -> Iterator[_Candidate]:
    thread = gpu_thread(trace, idle.gpu)
    if not isinstance(thread, Unknown):
        yield from _of_thread(trace, thread, idle.grid)
        yield from _of_process(trace, thread, idle.grid)
    yield from _of_api(trace, idle.grid)
    yield from _of_server(trace, idle.grid)


_THREAD_TITLES = {
    WORKING: "CPU work",
    ON_CPU: "CPU time",
    COLLECTING: "garbage collection",
    POLLING: "polling",
    RUN_QUEUE: "run queue",
    THROTTLED: "quota stops",
    CUDA_SYNC: "CUDA sync",
}


def _of_thread(trace: Trace, row: ThreadRow, grid: Grid) -> Iterator[_Candidate]:
    """What the GPU's thread did, instant by instant."""
    track, name = row.track, thread_label(row)
    did = thread_cells(trace, track, grid)
    where, step_ns = source(trace, track, v.THREAD_ON_CPU), usual_step_ns(trace.get(track, v.THREAD_ON_CPU))
    how = "" if did.are_causes_exact else ", sampled"
    for kind, cells in _kinds(did).items():
        known = [share for share in cells if share is not None]
        if sum(known) >= _LEAST_SHARE * len(known):
            cause = cause_of(kind)
            title = _THREAD_TITLES[kind] if cause is None else f"{cause} sleep"
            yield _Candidate(f"{title} of {name}", where + (how if cause is not None else ""), cells, step_ns)
    launches = trace.get(track, v.THREAD_LAUNCHES)
    if launches is not None:
        yield _probed(f"launches of {name}", launches, library_watch(trace, ids.process(row.pid)), grid)


def _kinds(did: ThreadCells) -> dict[str, Cells]:
    """What the thread did, the most frequent first; work that is only sometimes told from the rest is not split."""
    kinds = {kind: did.of(kind) for kind in did.kinds}
    if ON_CPU in kinds:
        pairs = zip(kinds.pop(WORKING, (0.0,) * did.grid.cells), kinds[ON_CPU], strict=True)
        kinds[ON_CPU] = tuple(None if other is None else (told or 0.0) + other for told, other in pairs)
    return kinds


def _of_process(trace: Trace, row: ThreadRow, grid: Grid) -> Iterator[_Candidate]:
    """What the process of the GPU's thread did beside it."""
    process, name = ids.process(row.pid), row.role or row.name
    others = [one for one in process_threads(trace, row.pid) if one.tid != row.tid][:_MOST_THREADS]
    yield from _summed(trace, f"run queue beside {name}", others, v.THREAD_RUN_QUEUE, grid)
    yield from _summed(trace, f"CPU time beside {name}", others, v.THREAD_ON_CPU, grid)
    observed = trace.get(process, v.SYSCALL_OBSERVED)
    for metric, title in (
        (v.PROCESS_GIL_WAITS, "GIL waits"),
        (v.labelled(v.SYSCALL_COUNT, v.SpinKind.YIELD), v.SpinKind.YIELD.value),
    ):
        series = trace.get(process, metric)
        if series is not None:
            yield _probed(f"{title} of {name}", series, observed, grid)


def _of_api(trace: Trace, grid: Grid) -> Iterator[_Candidate]:
    """What takes and answers requests."""
    threads = api_threads(trace)[:_MOST_THREADS]
    yield from _summed(trace, "CPU time of API threads", threads, v.THREAD_ON_CPU, grid)
    yield from _summed(trace, "run queue of API threads", threads, v.THREAD_RUN_QUEUE, grid)
    for pid in sorted({row.pid for row in threads}):
        series = trace.get(ids.process(pid), v.PROCESS_GIL_WAITS)
        if series is not None:
            observed = trace.get(ids.process(pid), v.SYSCALL_OBSERVED)
            yield _probed(f"GIL waits of API {pid}", series, observed, grid)


def _of_server(trace: Trace, grid: Grid) -> Iterator[_Candidate]:
    """What the server says of itself; its tokens are a control, because an idle GPU makes none."""
    server = server_track(trace)
    if server is None:
        return
    for metric, title in ((v.SERVER_WAITING, "requests waiting"), (v.SERVER_RUNNING, "requests running")):
        series = trace.get(server.id, metric)
        if series is not None:
            yield _candidate(title, series, gauge_steps(series, grid.start_ns, grid.end_ns), grid)
    for metric, title, is_control in (
        (v.SERVER_PROMPT_TOKENS, "prompt tokens", False),
        (v.SERVER_PREEMPTIONS, "preemptions", False),
        (v.SERVER_OUTPUT_TOKENS, "output tokens", True),
    ):
        series = trace.get(server.id, metric)
        if series is not None:
            steps = counter_steps(series, grid.start_ns, grid.end_ns)
            yield replace(_candidate(title, series, steps, grid), is_control=is_control)


def _probed(title: str, series: Series, observed: Series | None, grid: Grid) -> _Candidate:
    """A counter of probes: its readings are as far apart as those of the time it was looked at."""
    steps = probe_steps(series, observed, grid.start_ns, grid.end_ns)
    return replace(_candidate(title, series, steps, grid), step_ns=usual_step_ns(observed))


def _candidate(title: str, series: Series, steps: list[Step], grid: Grid) -> _Candidate:
    return _Candidate(title, series.source, on_grid(steps, grid), usual_step_ns(series))


def _summed(trace: Trace, title: str, rows: Iterable[ThreadRow], metric: Metric, grid: Grid) -> Iterator[_Candidate]:
    """A clock over several threads together; a cell is known where one of them is."""
    found = [series for row in rows if (series := trace.get(row.track, metric)) is not None]
    if not found:
        return
    columns = [on_grid(counter_steps(series, grid.start_ns, grid.end_ns), grid) for series in found]
    cells = tuple(
        sum(known) if (known := [value for value in row if value is not None]) else None
        for row in zip(*columns, strict=True)
    )
    yield _Candidate(title, found[0].source, cells, usual_step_ns(found[0]))
