"""What a recording's report shows before its numbers: where a step's time goes, the engine's steps, and its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.analysis.pages.token_budget import TokenBudget, token_budget
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.server.counted_steps import counted_steps
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.analysis.tables import RowTable, csv_of_rows, fitted, numbered
from llmtop.analysis.threads.shares import Shares, ThreadsView, causes_text, threads_view, why_no_threads
from llmtop.analysis.threads.table import threads_table
from llmtop.analysis.views import Column
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.cli.snapshot_json import budget_of, thread_of
from llmtop.cli.snapshot_steps import steps_of
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.units import counted, duration, number, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from llmtop.analysis.pages.budget_terms import BudgetTerm
    from llmtop.analysis.server.step_causes import SlowStep
    from llmtop.analysis.views import Cell
    from llmtop.model import Trace

_TERMS = (
    Column("name", "part", width=14),
    Column("time", "time", "ns", 10),
    Column("share", "of the step", "ratio", 11),
    Column("quality", "how sure", width=12),
    Column("source", "from", width=0, shrink=1),
)
_CAUSES = (
    Column("name", "slow by", width=36),
    Column("steps", "steps", "1", 10),
    Column("excess", "longer by", "ns", 10, help="all of them together, than as many median steps"),
    Column("longest", "longest", "ns", 10),
)
_OF_CAUSES = ("cause", "slow_steps", "excess_s", "longest_s")
_OF_THREADS = ("name", "role", "pid", "tid", "on_cpu", "run_queue", "blocked", "sync", "causes")
"""Columns of the pane that are of interest once it is over."""
_NO_RECORDING = Unknown("it is told of recordings alone", "llmtop record --attach PID -o FILE")
_LEAST = 0.01
"""Share of its time on a CPU, or ready for one, below which a thread has no row where there are many."""
_MANY = 12
"""So many threads are shown whatever they do. A lock and a pool without work look alike."""


def budget_of_recording(trace: Trace, wanted: WantedTable) -> PartTable[TokenBudget]:
    """The parts of a mean step."""
    found = _of_tools(trace) or told_of(trace, token_budget(trace, trace.target, _window_ns(trace)))
    return PartTable(
        "Where a step's time goes",
        trace.origin.path,
        found,
        rows_of=_terms,
        document_of=lambda view: {"by": wanted.by, **budget_of(view)},
        csv_of=lambda view: csv_of_rows(_term_records(view)),
        said=lambda: [str(found)] if isinstance(found, Unknown) else list(_budget_said(found)),
        more=_all_of(wanted),
    )


def steps_of_recording(trace: Trace, wanted: WantedTable) -> PartTable[StepsView]:
    """The engine's steps; those that stand out by their causes."""
    found = _of_tools(trace) or told_of(trace, steps_view(trace, _window_ns(trace)))
    return PartTable(
        "Engine steps",
        trace.origin.path,
        found,
        rows_of=_causes,
        document_of=lambda view: {"by": wanted.by, **steps_of(view)},
        csv_of=lambda view: csv_of_rows(_cause_records(view), _OF_CAUSES),
        said=lambda: list(_counted_said(trace, found) if isinstance(found, Unknown) else _steps_said(found)),
        more=_all_of(wanted),
    )


def threads_of_recording(trace: Trace, wanted: WantedTable) -> PartTable[ThreadsView]:
    """Where each thread's time went."""
    window_ns = _window_ns(trace)
    found = why_no_threads(trace) or told_of(trace, threads_view(trace, window_ns))
    return PartTable(
        "Threads",
        trace.origin.path,
        found,
        rows_of=lambda view: _threads(trace, view),
        document_of=lambda view: {
            "by": wanted.by,
            "window_s": view.window_s,
            "rows": [thread_of(trace, row, window_ns) for row in view.rows],
        },
        csv_of=lambda view: csv_of_rows(_thread_records(view)),
        said=lambda: [str(found)] if isinstance(found, Unknown) else list(_threads_said(found)),
        more=_all_of(wanted),
    )


OBSERVED: Mapping[str, Callable[[Trace, WantedTable], PartTable[Any]]] = {
    "budget": budget_of_recording,
    "engine-steps": steps_of_recording,
    "threads": threads_of_recording,
}
"""By the value of `--by`."""


def observed_by(trace: Trace, wanted: WantedTable) -> PartTable[Any]:
    """One of them."""
    return OBSERVED[wanted.by](trace, wanted)


def observed_parts(trace: Trace) -> tuple[PartTable[Any], ...]:
    """What stands before the numbers of a recording that has threads, or a server."""
    kinds = {
        "budget": TrackKind.SERVER,
        "engine-steps": TrackKind.SERVER,
        "threads": TrackKind.THREAD,
    }
    return tuple(observed_by(trace, WantedTable(by)) for by, kind in kinds.items() if trace.tracks_of(kind))


def _window_ns(trace: Trace) -> int:
    """All of the time that is reported."""
    return max(NS_PER_S, trace.end_ns - trace.start_ns)


def _of_tools(trace: Trace) -> Unknown | None:
    return None if trace.origin.is_observed else _NO_RECORDING


def _all_of(wanted: WantedTable) -> str:
    return f"--by {wanted.by} --format csv"


# -- the budget


def _terms(view: TokenBudget) -> RowTable:
    return numbered(_TERMS, [tuple(_cells(term, view.step_s)) for term in view.terms])


def _cells(term: BudgetTerm, step_s: float) -> Iterator[Cell]:
    yield from (term.part, term.seconds * NS_PER_S, term.seconds / step_s, term.quality, term.source)


def _term_records(view: TokenBudget) -> Iterator[dict[str, Cell]]:
    for term in view.terms:
        told: dict[str, Cell] = {"part": term.part, "seconds": term.seconds, "share": term.seconds / view.step_s}
        yield {**told, "quality": term.quality, "source": term.source}


def _budget_said(view: TokenBudget) -> Iterator[str]:
    yield f"{view.sentence}; batch {number(view.batch)}, mean of {view.window_s:.0f} s"
    for gain in view.gains:
        source = f" ({gain.source})" if gain.source else ""
        share = percent(100 * gain.high / view.step_s)
        yield f"{gain.text} ({share}) less with {gain.change}: {gain.how}{source}"
    yield from view.notes


# -- steps


def _by_cause(view: StepsView) -> Iterator[tuple[str, list[SlowStep]]]:
    """Those that are slow for longest together first."""
    found: dict[str, list[SlowStep]] = {}
    for one in view.slow:
        found.setdefault(one.cause, []).append(one)
    yield from sorted(found.items(), key=lambda item: -_excess_ns(item[1]))


def _excess_ns(slow: list[SlowStep]) -> float:
    return sum(one.excess_ns for one in slow)


def _longest_ns(slow: list[SlowStep]) -> float:
    return max(one.step.time_ns for one in slow)


def _causes(view: StepsView) -> RowTable:
    rows = [(cause, len(slow), _excess_ns(slow), _longest_ns(slow)) for cause, slow in _by_cause(view)]
    return numbered(_CAUSES, rows)


def _cause_records(view: StepsView) -> Iterator[dict[str, Cell]]:
    for cause, slow in _by_cause(view):
        told = (cause, len(slow), _excess_ns(slow) / NS_PER_S, _longest_ns(slow) / NS_PER_S)
        yield dict(zip(_OF_CAUSES, told, strict=True))


def _steps_said(view: StepsView) -> Iterator[str]:
    times = f"p50 {duration(view.p50_ns)}, p99 {duration(view.p99_ns)}, {number(view.per_s)} /s"
    gpu = percent(100 * view.gpu_share)
    seen = f"{len(view.newest)} steps of {quantity(view.span_s, 's')}"
    yield f"{view.loop.name}: {times}, waits for the GPU {gpu} of the median step; {len(view.slow)} of {seen} stand out"
    if view.others:
        yield f"{counted(view.others, 'other thread')} that make steps are not in it"
    if view.tail is not None:
        yield view.tail.sentence
    yield from view.notes


def _counted_said(trace: Trace, why: Unknown) -> Iterator[str]:
    """Why no step was seen by itself, and what the server's own counter tells."""
    yield str(why)
    view = counted_steps(trace, _window_ns(trace))
    if not isinstance(view, Unknown):
        yield f"by the server's own counter ({view.source}): mean {duration(view.mean_ns)}, {number(view.per_s)} /s"
        yield from view.notes


# -- threads


def _threads(trace: Trace, view: ThreadsView) -> RowTable:
    """Where there are many those that did anything: most of a server's threads sleep for good."""
    table = threads_table(trace, view)
    cpu, queue = (next(i for i, one in enumerate(table.columns) if one.key == key) for key in ("on_cpu", "run_queue"))
    places = [i for i, column in enumerate(table.columns) if column.key in _OF_THREADS]
    is_whole = len(view.rows) <= _MANY
    pairs = zip(table.keys, table.rows, strict=True)
    told = [(key, row) for key, row in pairs if is_whole or _active(row[cpu], row[queue])]
    several = next(i for i, one in enumerate(table.columns) if one.key == "tid")
    rows = [[None if i == several and isinstance(row[i], Unknown) else row[i] for i in places] for _, row in told]
    columns, widest = fitted([table.columns[i] for i in places], rows)
    return RowTable(columns, tuple(rows), tuple(key for key, _ in told), widest)


def _active(*shares: Cell) -> bool:
    """Whether they make up anything; what is not known may."""
    known = [share for share in shares if isinstance(share, int | float)]
    return len(known) < len(shares) or sum(known) >= _LEAST


def _threads_said(view: ThreadsView) -> Iterator[str]:
    yield f"shares of {quantity(view.window_s, 's')} ({view.source}); blocked: {view.causes}"
    if len(view.rows) > _MANY:
        yield (
            f"of several threads in one row on-CPU and run-q are sums; those below {percent(100 * _LEAST)} are left "
            f"out of {counted(len(view.rows), 'thread')} (--by threads --format csv lists all)"
        )


def _thread_records(view: ThreadsView) -> Iterator[dict[str, Cell]]:
    for row in view.rows:
        named: dict[str, Cell] = {"pid": row.pid, "tid": row.tid, "name": row.name, "role": row.role}
        yield {**named, **dict(zip(_SHARES, _share_cells(row.shares), strict=True))}


_SHARES = ("on_cpu", "run_queue", "blocked", "blocked_on")


def _share_cells(shares: Shares | Unknown) -> tuple[Cell, ...]:
    if isinstance(shares, Unknown):
        return (shares,) * len(_SHARES)
    return shares.on_cpu, shares.run_queue, shares.blocked_total, causes_text(shares, least=0.0)
