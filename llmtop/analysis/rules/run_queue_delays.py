"""Threads that were ready to run and waited for a CPU, as perf has recorded: what `run_queue_starvation` says live."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.threads.scheduling import SchedulingRow, began_at, scheduling_rows
from llmtop.model import NS_PER_S, Finding, Severity, Stretch, Trace, Unknown
from llmtop.units import percent, quantity

id = "run-queue-delays"
summary = "A thread is ready to run and gets no CPU: more threads want them than there are."
source = "Profiling guide, table 8 (context switches and scheduling latency: oversubscription, poor pinning)"

_QUEUED = 0.05
"""Share of the time in which it wanted a CPU; live the same share of all of the time is a verdict."""
_MUCH_NS = 0.02 * NS_PER_S
"""Queued in all: less than a step of an engine (20 ms) is felt by nobody."""
_ACTION = (
    "give it cores of its own (taskset, cpuset), or run fewer threads beside it; in a container raise its CPU limit"
)
_MOST = 5
"""Threads that are told."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the thread that was queued longest; what others were is evidence."""
    rows = scheduling_rows(trace)
    late = [] if isinstance(rows, Unknown) else [row for row in rows if _is_late(row)]
    if not late:
        return
    worst = late[0]
    others = "" if len(late) == 1 else f"; so were {len(late) - 1} others, {100 * _QUEUED:.0f} % and more"
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=_name(worst),
        message=f"{_name(worst)} was queued for a CPU {_share(worst)} of the time it wanted one{others}",
        evidence=tuple(line for row in late[:_MOST] for line in _evidence(row)),
        action=_ACTION,
        next_command="" if worst.tid is None else f"taskset -cp {worst.tid}",
        no_command="perf sched latency -p tells the threads of this name apart" if worst.tid is None else "",
        source=source,
        share=None if isinstance(worst.share, Unknown) else worst.share,
        place=_place(trace, worst),
    )


def _is_late(row: SchedulingRow) -> bool:
    if isinstance(row.share, Unknown) or isinstance(row.queued_ns, Unknown):
        return False
    return row.share >= _QUEUED and row.queued_ns >= _MUCH_NS


def _name(row: SchedulingRow) -> str:
    return row.name if row.tid is None else f"{row.name} ({row.tid})"


def _share(row: SchedulingRow) -> str:
    return "" if isinstance(row.share, Unknown) else percent(100 * row.share)


def _evidence(row: SchedulingRow) -> Iterator[str]:
    told = row.told
    if isinstance(row.queued_ns, Unknown) or isinstance(told.delay_mean_ns, Unknown):
        return
    ran, queued, mean = (quantity(ns, "ns") for ns in (told.ran_ns, row.queued_ns, told.delay_mean_ns))
    began = f" (began at {began_at(told)})" if told.delay_max_at_ns is not None else ""
    most = told.delay_max_ns
    longest = "" if isinstance(most, Unknown) else f", at most {quantity(most, 'ns')}{began}"
    yield f"{_name(row)}: ran {ran}, queued {queued}, {mean} each time{longest} (perf sched)"


def _place(trace: Trace, row: SchedulingRow) -> Stretch | None:
    told = row.told
    if not trace.spans or told.delay_max_at_ns is None or isinstance(told.delay_max_ns, Unknown):
        return None
    return Stretch(told.delay_max_at_ns, told.delay_max_at_ns + round(told.delay_max_ns), told.track)
