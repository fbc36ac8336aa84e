"""What probes tell of a thread beyond its clocks: exact causes of its sleeps, polling, and CUDA synchronisation.

Counters of probes have a sample only where they moved, and count only while the probes were attached.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from functools import lru_cache
from operator import lt
from typing import TYPE_CHECKING, Any, Final, TypeVar

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import Grid, counter_steps, grid_of, on_grid, probe_steps
from llmtop.analysis.series.labels import labelled
from llmtop.analysis.series.rates import step_increase
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, TrackKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from llmtop.analysis.series.grid import Cells
    from llmtop.analysis.series.labels import Keys
    from llmtop.model import Series, Trace

_Any = TypeVar("_Any")
NOT_SEEN = "not seen by the probes"
"""Blocked time for which no probe has a cause: sleeps that began before the probes, events that found no room."""
LEAST_OBSERVED = 0.5
"""Share of the window in which the scheduler's probes must have been attached to speak for all of it."""
_FEWEST_LOOKS = 4
"""In a window, to take what threads did while the scheduler's probes were attached for what they do all the time."""
_STILL_NS = 120 * NS_PER_S
"""How long a thread that was seen polling is taken to go on: a quarter to a half of the probes' longest rest."""
_POLLING_STEP_NS = 2 * NS_PER_S
"""In which polling is told from work."""
_LAST_TOLD_NS = 6 * NS_PER_S
"""Of a server with hundreds of threads, those that sleep on are told of every fifth second."""

AWAKE = 0.9
"""Share of its time from which on a thread never sleeps."""
YIELDS_PER_S = 50_000
EMPTY_POLLS_PER_S = 5_000
"""Thresholds of polling. A thread that is awake 90 % of the time, makes more than 50,000 sched_yield or 5,000 polls
without a wait in a second on the CPU, and launches nothing, only passes the time: readers of vLLM's shm_broadcast spin
on sched_yield (vllm-project/vllm issue 19036), SGLang's idle scheduler made 11,800 empty polls a second at 97 % CPU
(sgl-project/sglang issue 1730). Awake is on the CPU or queued for it: a thread that polls on a shared core still polls.
"""

_FEWEST_SPINS = 1_000
"""Fewer in a whole window are no polling: at the lower limit they pass a fifth of a second."""
_NO_CAUSES = (v.ThreadCause.RUNNING, v.ThreadCause.UNSEEN)
SPIN_LIMITS: Final[Mapping[str, int]] = {v.SpinKind.YIELD: YIELDS_PER_S, v.SpinKind.POLL: EMPTY_POLLS_PER_S}
"""Calls per second on a CPU, by kind."""
_LAUNCH_CALLS = ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cudaLaunchKernel", "cudaGraphLaunch")
"""What probes on launches are on; of calls within calls one is enough."""


@frozen
class ProbeSeries:
    """Which series of probes a trace has: found in one pass, because traces have thousands of series.

    Attributes:
        sampled: By thread, the causes that its state samples are counted under.
        exact: By thread, the causes that its sleeps are measured under.
        spins: By thread, the kinds of its spins.
        spin_calls: By process, the names of the system calls that only pass the time.
        spinning: Processes with a thread whose spins are counted.
        sees_libraries: Whether the library calls of some process are looked at.
        sees_launches: Whether no probe on launches is missing.
        of_process: Kept while one trace is looked at.
    """

    sampled: dict[TrackId, list[str]] = field(default_factory=lambda: defaultdict(list))
    exact: dict[TrackId, list[str]] = field(default_factory=lambda: defaultdict(list))
    spins: dict[TrackId, list[str]] = field(default_factory=lambda: defaultdict(list))
    spin_calls: dict[TrackId, list[str]] = field(default_factory=lambda: defaultdict(list))
    spinning: set[TrackId] = field(default_factory=set)
    sees_libraries: bool = False
    sees_launches: bool = True
    of_process: dict[tuple[str, TrackId, int], Any] = field(default_factory=dict)
    """What is the same for all threads of a process, and a server has hundreds: see `_once`."""


def probe_series(trace: Trace) -> ProbeSeries:
    """What there is, by track."""
    return replace(
        _labels_of(labelled(trace)),
        sees_libraries=any(library_watch(trace, one.id) is not None for one in trace.tracks_of(TrackKind.PROCESS)),
        sees_launches=not _any_missing(trace, _LAUNCH_CALLS),
        of_process={},
    )


@lru_cache(maxsize=2)
def _labels_of(names: Keys) -> ProbeSeries:
    """Kept, because a live trace mostly has the series of the one before."""
    found = ProbeSeries()
    by_metric = {
        v.THREAD_STATE_SAMPLES.name: found.sampled,
        v.THREAD_BLOCKED.name: found.exact,
        v.THREAD_SPINS.name: found.spins,
        v.SYSCALL_COUNT.name: found.spin_calls,
    }
    for track, name in names:
        metric, label = v.parted(name)
        if label and (labels := by_metric.get(metric)) is not None:
            labels[track].append(label)
    for labels in (found.sampled, found.exact):
        for causes in labels.values():
            causes[:] = [cause for cause in causes if cause not in _NO_CAUSES]
    found.spinning.update(map(ids.process_of, found.spins))
    for calls in found.spin_calls.values():
        calls[:] = [call for call in calls if call == v.SpinKind.YIELD or call.endswith("(no wait)")]
    return found


def library_watch(trace: Trace, process: TrackId) -> Series | None:
    """How long library calls were looked at; functions that lost their probes meanwhile have gaps of their own."""
    return trace.get(process, v.LIBRARY_OBSERVED)


def launch_rate(trace: Trace, threads: Iterable[TrackId], window_ns: int) -> float | None:
    """Launches a second of some threads together; None where those of one thread are mostly not seen.

    A mean over the time in which they were seen: at thousands a second their probes come back for moments only.
    """
    grid = grid_of(trace.end_ns - window_ns, trace.end_ns, min(NS_PER_S, window_ns))
    total: float | None = None
    for thread in threads:
        if (series := trace.get(thread, v.THREAD_LAUNCHES)) is None:
            continue
        watch = library_watch(trace, ids.process_of(thread))
        cells = on_grid(probe_steps(series, watch, grid.start_ns, grid.end_ns), grid)
        known = [cell for cell in cells if cell is not None]
        first = next((place for place, cell in enumerate(cells) if cell is not None), grid.cells)
        if not known or len(known) < LEAST_OBSERVED * (grid.cells - first):
            return None
        total = (total or 0.0) + sum(known) / len(known)
    return total


def exact_causes(trace: Trace, thread: TrackId, probes: ProbeSeries, window_ns: int) -> dict[str, float] | None:
    """Share of the time in which the probes looked that the thread slept, by cause; None where none looked.

    Sleep that goes on is told late where there are hundreds of threads, so the window ends when the thread was last
    told of.
    """
    observed = _observed_ns(trace, ids.process_of(thread), probes, window_ns)
    if observed < LEAST_OBSERVED * window_ns:
        return None
    series = {cause: trace.get(thread, v.labelled(v.THREAD_BLOCKED, cause)) for cause in probes.exact.get(thread, ())}
    last_told = max((one.last_t_ns or 0 for one in series.values() if one is not None), default=0)
    end_ns = max(last_told, trace.end_ns - _LAST_TOLD_NS)
    grown = {cause: step_increase(one, end_ns - window_ns, end_ns) for cause, one in series.items()}
    return {cause: min(1.0, ns / observed) for cause, ns in grown.items() if ns > 0}


@frozen
class SlicedCauses:
    """What a thread slept in while the scheduler's probes were attached now and then.

    Attributes:
        causes: Shares of its sleep, which make 1, the greatest first.
        looked: The share of the window that was looked at.
    """

    causes: tuple[tuple[str, float], ...]
    looked: float


def sliced_causes(
    trace: Trace, thread: TrackId, probes: ProbeSeries, window_ns: int, least: float
) -> SlicedCauses | None:
    """How a thread's sleep divides, by several looks within the window.

    None where there were too few of them, or less than the share `least` of them was slept: it does something else.
    """
    process, start_ns = ids.process_of(thread), trace.end_ns - window_ns
    observed = _observed_ns(trace, process, probes, window_ns)
    if (
        not observed
        or _once(probes, "looks", process, window_ns, lambda: _looks(trace, process, window_ns)) < _FEWEST_LOOKS
    ):
        return None
    grown = {
        cause: step_increase(trace.get(thread, v.labelled(v.THREAD_BLOCKED, cause)), start_ns, trace.end_ns)
        for cause in probes.exact.get(thread, ())
    }
    slept = sum(grown.values())
    if slept <= 0 or slept < least * observed:
        return None
    by_share = sorted(
        ((cause, ns / slept) for cause, ns in grown.items() if ns > 0), key=lambda item: (-item[1], item[0])
    )
    return SlicedCauses(tuple(by_share), min(1.0, observed / window_ns))


def _looks(trace: Trace, process: TrackId, window_ns: int) -> int:
    """In how many reports of the window the scheduler's probes had looked since the one before."""
    watch = trace.get(process, v.SCHEDULER_OBSERVED)
    if watch is None:
        return 0
    _, values = watch.stretch(trace.end_ns - window_ns, trace.end_ns)
    return sum(map(lt, values, values[1:]))


def polling_share(trace: Trace, thread: TrackId, series: ProbeSeries, window_ns: int) -> float | None:
    """Share of the window in which the thread was on a CPU only to poll; None where nothing tells.

    Every two seconds are polling as a whole or not at all. With a launch in them they are not: how their time divides
    is not known, so the share is a lower bound.
    """
    grid = grid_of(trace.end_ns - window_ns, trace.end_ns, min(_POLLING_STEP_NS, window_ns))
    kinds, process = series.spins.get(thread, ()), ids.process_of(thread)
    if not kinds or not _has_spun(trace, thread, kinds, grid):
        share = _once(series, "unspun", process, window_ns, lambda: _share_of(_unspun(trace, process, series, grid)))
        return share if not kinds or series.sees_launches else None
    return _share_of(polling_cells(trace, thread, series, grid))


def _share_of(cells: Cells) -> float | None:
    """The mean of what is known, where that is most of it."""
    known = [share for share in cells if share is not None]
    return min(1.0, sum(known) / len(known)) if len(known) >= LEAST_OBSERVED * len(cells) else None


def polling_cells(trace: Trace, thread: TrackId, series: ProbeSeries, grid: Grid) -> Cells:
    """On-CPU share of each cell in which the thread did nothing but poll; None where nothing tells.

    Calls by the ten thousand are what the budget of the probes cannot bear: they are counted for two seconds, and
    again minutes later. A thread that was seen polling and has not slept nor launched since still polls.
    """
    kinds = series.spins.get(thread, ())
    process = ids.process_of(thread)
    if kinds and not series.sees_launches:
        return (None,) * grid.cells
    if not _has_spun(trace, thread, kinds, grid):
        return _unspun(trace, process, series, grid)
    if not _are_spins_told(trace, process, series, grid):
        return (None,) * grid.cells
    before = _STILL_NS // grid.step_ns if _may_poll(trace, thread, grid) else 0
    longer = Grid(grid.start_ns - before * grid.step_ns, grid.step_ns, grid.cells + before)
    shares: list[float | None] = []
    is_polling = False
    for ran, is_awake, seen in _polling_seen(trace, thread, kinds, longer):
        is_polling = is_awake and is_polling if seen is None else seen
        is_known = ran is not None and (seen is not None or is_polling)
        shares.append((ran if is_polling else 0.0) if is_known else None)
    return tuple(shares[before:])


def _may_poll(trace: Trace, thread: TrackId, grid: Grid) -> bool:
    """Whether it was awake for as long as it takes to poll in one cell: else what it did before does not matter."""
    clocks = (trace.get(thread, clock) for clock in (v.THREAD_ON_CPU, v.THREAD_RUN_QUEUE))
    awake_ns = sum(step_increase(one, grid.start_ns - grid.step_ns, grid.end_ns) for one in clocks)
    return awake_ns >= AWAKE * grid.step_ns


def _unspun(trace: Trace, process: TrackId, series: ProbeSeries, grid: Grid) -> Cells:
    """The cells of a thread that has not spun: 0 wherever that would have been seen."""
    if not _are_spins_told(trace, process, series, grid):
        return (None,) * grid.cells
    calls = trace.get(process, v.SYSCALL_OBSERVED)
    watched = on_grid(probe_steps(None, calls, grid.start_ns, grid.end_ns), grid)
    return tuple(None if nothing is None else 0.0 for nothing in watched)


def _observed_ns(trace: Trace, process: TrackId, series: ProbeSeries, window_ns: int) -> float:
    """For how long the scheduler's probes have looked at a process within the window."""
    start_ns, watch = trace.end_ns - window_ns, trace.get(process, v.SCHEDULER_OBSERVED)
    return _once(series, "observed", process, window_ns, lambda: step_increase(watch, start_ns, trace.end_ns))


def _watched_ns(trace: Trace, process: TrackId, series: ProbeSeries, window_ns: int) -> float:
    """For how long waits for the GPU would have been seen within the window."""
    start_ns, watch = trace.end_ns - window_ns, sync_watch(trace, process, series)
    return _once(series, "watched", process, window_ns, lambda: step_increase(watch, start_ns, trace.end_ns))


def _once(series: ProbeSeries, what: str, process: TrackId, window_ns: int, make: Callable[[], _Any]) -> _Any:
    """What is the same for all threads of a process, made for the first of them."""
    key = (what, process, window_ns)
    if key not in series.of_process:
        series.of_process[key] = make()
    made: _Any = series.of_process[key]
    return made


def _polling_seen(
    trace: Trace, thread: TrackId, kinds: Sequence[str], grid: Grid
) -> Iterator[tuple[float | None, bool, bool | None]]:
    """For each cell the share on a CPU, whether the thread was awake, and whether it was seen polling or working."""
    window = grid.start_ns, grid.end_ns
    process = ids.process_of(thread)
    calls, library = trace.get(process, v.SYSCALL_OBSERVED), library_watch(trace, process)
    on_cpu, queued = (
        on_grid(counter_steps(trace.get(thread, clock), *window), grid)
        for clock in (v.THREAD_ON_CPU, v.THREAD_RUN_QUEUE)
    )
    launches = on_grid(probe_steps(trace.get(thread, v.THREAD_LAUNCHES), library, *window), grid)
    spins = [
        on_grid(probe_steps(trace.get(thread, v.labelled(v.THREAD_SPINS, kind)), calls, *window), grid)
        for kind in kinds
    ]
    limits = [SPIN_LIMITS.get(kind, YIELDS_PER_S) / NS_PER_S for kind in kinds]
    for ran, waited, launched, *rates in zip(on_cpu, queued, launches, *spins, strict=True):
        if ran is None or waited is None:
            yield None, False, None
            continue
        is_awake = ran + waited >= AWAKE * NS_PER_S
        seen: bool | None = None
        if launched:
            seen = False
        elif rates[0] is not None:
            seen = is_awake and any((rate or 0.0) >= limit * ran > 0 for rate, limit in zip(rates, limits, strict=True))
        yield ran / NS_PER_S, is_awake, seen


def cuda_sync_share(trace: Trace, thread: TrackId, series: ProbeSeries, window_ns: int) -> float | None:
    """Share of the time in which they were seen that went by within synchronising calls of CUDA and NCCL.

    None where no probe looks at them, or for less than half of the window.
    """
    start_ns = trace.end_ns - window_ns
    watched_ns = _watched_ns(trace, ids.process_of(thread), series, window_ns)
    if watched_ns < LEAST_OBSERVED * window_ns:
        return None
    return min(1.0, step_increase(trace.get(thread, v.THREAD_CUDA_SYNC), start_ns, trace.end_ns) / watched_ns)


def sync_is_known(trace: Trace, thread: TrackId, series: ProbeSeries, window_ns: int) -> bool:
    """Whether the thread's waits for the GPU would have been seen in some of the window: only then none means 0."""
    watch = sync_watch(trace, ids.process_of(thread), series)
    return step_increase(watch, trace.end_ns - window_ns, trace.end_ns) > 0


def sync_watch(trace: Trace, process: TrackId, series: ProbeSeries) -> Series | None:
    """How long waits for the GPU would have been seen.

    A process that maps none of the libraries makes no such calls: where those of others are looked at, it is known as
    long as its own sleeps are.
    """
    watch = library_watch(trace, process)
    if watch is None and series.sees_libraries:
        return trace.get(process, v.SCHEDULER_OBSERVED)
    return watch


def _are_spins_told(trace: Trace, process: TrackId, series: ProbeSeries, grid: Grid) -> bool:
    """Whether spins of this process are told by thread: there are some, or the process has none at all."""
    if process in series.spinning:
        return True
    calls = (v.labelled(v.SYSCALL_COUNT, call) for call in series.spin_calls.get(process, ()))
    return not any(_grew(trace.get(process, call), grid.start_ns, grid.end_ns) for call in calls)


def _has_spun(trace: Trace, thread: TrackId, kinds: Sequence[str], grid: Grid) -> bool:
    """Whether there are enough spins to look closer: most threads make a few polls that do not wait."""
    counters = (trace.get(thread, v.labelled(v.THREAD_SPINS, kind)) for kind in kinds)
    return any(step_increase(one, grid.start_ns - _STILL_NS, grid.end_ns) >= _FEWEST_SPINS for one in counters)


def _grew(series: Series | None, start_ns: int, end_ns: int) -> bool:
    return step_increase(series, start_ns, end_ns) > 0


def _any_missing(trace: Trace, parts: tuple[str, ...]) -> bool:
    """Whether the probes on library calls are missing, all or those of functions with one of `parts` in the name."""
    return any(
        one.what in (whats.LIBRARY, whats.LIBRARY_CALLS) or any(part in whats.function_of(one.what) for part in parts)
        for one in trace.missing
    )
