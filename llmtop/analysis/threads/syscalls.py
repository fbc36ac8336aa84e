"""System calls of the server: how often, how long, what kind of work they are, and what to look at next."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.commands import profiling
from llmtop.analysis.series.histograms import Distribution, Quantile
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.latency_counters import LatencyCounters
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import told_why_unseen
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown, UnknownKind
from llmtop.remedies import PROGRAM
from llmtop.units import bounds

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace

WINDOW_NS = 10 * NS_PER_S
"""In which system calls are counted."""
NOT_TIMED = Unknown("not timed: these calls are only counted", "calls that do not wait say nothing by their length")
_SHED = Unknown(
    "not timed in this window: the probes would cost too much", "it is tried again by itself", UnknownKind.PASSING
)
_NONE = Unknown("system calls have not been read yet", "wait for the first report of the probes", UnknownKind.PASSING)


@frozen
class Category:
    """A kind of system call.

    Attributes:
        name: Few letters, for a column.
        meaning: What a server does with them.
        next_step: Where to look when there are many, with a command.
    """

    name: str
    meaning: str
    next_step: str


SPIN = Category(
    "spin",
    "a thread asks again and again without waiting: its CPU time is not work",
    "see whether the run queue is long or cores are short: perf stat -e context-switches,cpu-migrations -p PID",
)
DATA = Category(
    "data",
    "bytes are moved between buffers: sockets, pipes, files",
    "hold it against requests per second; see which files: perf trace -e read,write -p PID",
)
MEMORY = Category(
    "memory",
    "address space is taken, given back or protected",
    "look for an allocator that gives memory back at every step: perf trace -F all --no-syscalls -p PID",
)
THREADS = Category(
    "threads",
    "threads are made and wait for each other",
    "look at the thread counts of the tokenizer and OpenMP, and at wake-up delays: perf sched record -- sleep 1",
)
WAIT = Category(
    "wait",
    "a thread waits for an event: normal for one that has nothing to do",
    "see what the thread that should be busy waits for: the stall flame",
)
SLEEP = Category(
    "sleep", "a thread sleeps by the clock", "look for polling with pauses: the stall flame names who sleeps"
)
DRIVER = Category(
    "driver",
    "requests to device drivers: on a GPU server mostly memory and synchronisation of the GPU's",
    "see the library calls behind them: nsys profile --trace=cuda,osrt COMMAND",
)
FILES = Category("files", "files are looked up and opened", "see which: perf trace -e openat -p PID")
OTHER = Category("other", "", "")

_PATTERNS = tuple(
    (re.compile(pattern), category)
    for pattern, category in (
        (r"sched_yield|.*\(no wait\)", SPIN),
        (r"(p?(read|write)v?(64)?2?|(recv|send)(from|to|m?msg|file)?|splice|copy_file_range)\Z", DATA),
        (r"mmap|munmap|mprotect|mremap|madvise|brk|mbind|mlock", MEMORY),
        (r"futex|clone|v?fork|sched_|set_robust_list|rseq|exit", THREADS),
        (r"(e?p?poll|p?select|wait|accept|io_uring|io_getevents|pause|rt_sig(timedwait|suspend)|eventfd)", WAIT),
        (r"(clock_)?nanosleep", SLEEP),
        (r"ioctl", DRIVER),
        (r"open|close|[fl]?stat|newfstat|access|faccess|lseek|getdents|readlink|f?(data)?sync", FILES),
    )
)


def category_of(name: str) -> Category:
    """The kind of a system call, by its name as `vocabulary.SYSCALL_COUNT` is labelled.

    >>> [category_of(name).name for name in ("sched_yield", "epoll_wait (no wait)", "epoll_wait", "pread64", "futex")]
    ['spin', 'spin', 'wait', 'data', 'threads']
    >>> category_of("epoll_pwait").name, category_of("close_range").name, category_of("getpid").name
    ('wait', 'files', 'other')
    """
    return next((category for pattern, category in _PATTERNS if pattern.match(name)), OTHER)


@frozen
class Syscall:
    """One system call over the window, all processes of the server together. Times in ns.

    Probes count latencies by powers of two, so that quantiles are mostly bounds.
    """

    name: str
    count: float
    per_second: float
    errors: float | Unknown
    total_ns: float | Unknown
    p50: Quantile | Unknown
    p99: Quantile | Unknown

    @property
    def category(self) -> Category:
        """What kind of work it is."""
        return category_of(self.name)


@frozen
class SyscallsView:
    """All system calls seen in the window, the longest in total first.

    Attributes:
        pids: The processes that made them, as commands take several.
        program: The server's command line; `COMMAND` where it is not known.
    """

    calls: tuple[Syscall, ...]
    observed_s: float
    source: str
    pids: str = "PID"
    program: str = PROGRAM


@dataclass(slots=True)
class _Sums:
    """One system call while processes are added up."""

    count: float = 0.0
    per_second: float = 0.0
    errors: float = 0.0
    ns: float = 0.0
    timed: float = 0.0
    slots: dict[float, float] = field(default_factory=dict)


@lru_cache(maxsize=4)
def syscalls_view(trace: Trace, window_ns: int = WINDOW_NS) -> SyscallsView | Unknown:
    """What the server asked of the kernel lately, or why it is not known."""
    start_ns = trace.end_ns - window_ns
    sums: dict[str, _Sums] = {}
    observed_ns = 0.0
    for track, names in _names_by_track(trace).items():
        observed = step_increase(trace.get(track, v.SYSCALL_OBSERVED), start_ns, trace.end_ns)
        observed_ns = max(observed_ns, observed)
        for name, uppers in names.items():
            _add(sums.setdefault(name, _Sums()), trace, track, name, uppers, start_ns, observed)
    if not observed_ns:
        return told_why_unseen(trace, whats.SYSCALLS) or _NONE
    calls = [_syscall(name, one, trace) for name, one in sums.items() if one.count]
    calls.sort(key=lambda call: -(call.total_ns if isinstance(call.total_ns, float) else 0.0))
    pids = ",".join(dict.fromkeys(str(ids.pid(track)) for track in _names_by_track(trace)))
    return SyscallsView(tuple(calls), observed_ns / NS_PER_S, _source(trace), pids, profiling.program(trace))


def _source(trace: Trace) -> str:
    """Who looked."""
    clocks = (trace.get(track, v.SYSCALL_OBSERVED) for track in _names_by_track(trace))
    return next((clock.source for clock in clocks if clock is not None), "")


def _names_by_track(trace: Trace) -> dict[TrackId, dict[str, list[float]]]:
    """The system calls of each process that was looked at, with the bounds of their latencies."""
    found: dict[TrackId, dict[str, list[float]]] = {
        track: {} for track, metric in trace.series if metric == v.SYSCALL_OBSERVED.name
    }
    for track, names in labels(trace, v.SYSCALL_COUNT).items():
        found.setdefault(track, {}).update((name, []) for name in names)
    for track, buckets in labels(trace, v.SYSCALL_LATENCY).items():
        uppers = found.setdefault(track, {})
        for name, upper in map(v.without_bound, buckets):
            uppers.setdefault(name, []).append(float(upper))
    return found


def _add(
    sums: _Sums, trace: Trace, track: TrackId, name: str, uppers: list[float], start_ns: int, observed_ns: float
) -> None:
    """Add one process's share of a system call."""

    def grown(metric: Metric) -> float:
        return step_increase(trace.get(track, metric), start_ns, trace.end_ns)

    count = grown(v.labelled(v.SYSCALL_COUNT, name))
    sums.count += count
    sums.per_second += count * NS_PER_S / observed_ns if observed_ns else 0.0
    sums.errors += grown(v.labelled(v.SYSCALL_ERRORS, name))
    sums.ns += grown(v.labelled(v.SYSCALL_TIME, name))
    latency = v.labelled(v.SYSCALL_LATENCY, name)
    bounds = [(upper, one) for upper in sorted(uppers) if (one := trace.get(track, v.bucket(latency, upper)))]
    if bounds:
        counters = LatencyCounters(*zip(*bounds, strict=True))
        slots = counters.grown(start_ns, trace.end_ns) or [0.0] * len(bounds)
        for upper, slot in zip(counters.uppers, slots, strict=True):
            sums.slots[upper] = sums.slots.get(upper, 0.0) + slot
        sums.timed += sum(slots)


def _syscall(name: str, sums: _Sums, trace: Trace) -> Syscall:
    """One row. Tracers that only sum times up say so; some count no errors either."""
    no_latency = trace.why_missing(whats.metric(v.SYSCALL_LATENCY))
    if not sums.timed and sums.ns and no_latency:
        errors = trace.why_missing(whats.metric(v.SYSCALL_ERRORS)) or sums.errors
        return Syscall(name, sums.count, sums.per_second, errors, sums.ns, no_latency, no_latency)
    if not sums.timed:
        why = NOT_TIMED if category_of(name) is SPIN else _SHED
        return Syscall(name, sums.count, sums.per_second, why, why, why, why)
    latencies = _distribution(sums.slots)
    p50, p99 = latencies.quantile(0.5), latencies.quantile(0.99)
    return Syscall(name, sums.count, sums.per_second, sums.errors, sums.ns, p50, p99)


def _distribution(slots: Mapping[float, float]) -> Distribution:
    """Counts at or below each bound, over all processes."""
    uppers = sorted(slots)
    counts, below = [], 0.0
    for upper in uppers:
        below += slots[upper]
        counts.append(below)
    return Distribution(tuple(uppers), tuple(counts))


def longest(found: Quantile | Unknown) -> float | Unknown:
    """The upper bound of a quantile, in ns: what a narrow column has room for."""
    if isinstance(found, Unknown):
        return found
    return Unknown(f"longer than {bounds(found.low, math.inf, 'ns')[2:]}") if found.is_lower_bound else found.high


def syscalls_table(view: SyscallsView) -> RowTable:
    """One row a system call."""
    columns = (
        Column("name", "system call", width=22),
        Column("rate", "calls/s", "1", width=9),
        Column("total", "time", "ns", width=9, shrink=1, help="summed over all threads; most of it is waiting"),
        Column("p50", "p50 <", "ns", width=9, shrink=3, help="upper bound: latencies are counted by powers of two"),
        Column("p99", "p99 <", "ns", width=9, shrink=2, help="upper bound: latencies are counted by powers of two"),
        Column("errors", "errors", "1", width=8, shrink=4),
        Column("category", "kind", width=8, shrink=5),
        Column("next", "look at next", shrink=6),
    )
    return RowTable(columns, tuple(_cells(view)), tuple(call.name for call in view.calls))


def _cells(view: SyscallsView) -> Iterable[tuple[Cell, ...]]:
    for call in view.calls:
        kind = call.category
        errors = call.errors if isinstance(call.errors, Unknown) else round(call.errors)
        numbers = (call.per_second, call.total_ns, longest(call.p50), longest(call.p99), errors)
        step = kind.next_step.replace("PID", view.pids).replace(PROGRAM, view.program)
        yield (call.name, *numbers, kind.name, f"{kind.meaning}: {step}" if kind.meaning else "")
