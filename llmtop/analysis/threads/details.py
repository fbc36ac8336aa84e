"""All that is known of one thread, or of several that do the same: for who wants to act on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import counter_rate, latest, rate_history, told_why_absent, told_why_unseen
from llmtop.analysis.threads.events import events
from llmtop.analysis.threads.garbage import garbage_collection
from llmtop.analysis.threads.probes import LEAST_OBSERVED
from llmtop.analysis.threads.shares import WINDOW_NS, Shares, ThreadRow, causes_text, thread_label, threads_view
from llmtop.analysis.threads.stall_times import RUN_QUEUE, timed_stacks
from llmtop.facts import ThreadFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Fact, Metric, Trace, TrackId, TrackKind, Unknown
from llmtop.units import number, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HISTORY_NS = 60 * NS_PER_S
"""Of the small graphs."""
_MOST = 8
"""Stacks, wakers, members that are listed."""
_NO_WAKES = Unknown("no probe saw who wakes it")
_NO_CALLS = Unknown("no probe saw one in this window")


@frozen
class Detail:
    """A line: a text, or why there is none; `history` are its values over `HISTORY_NS`, up to `high`."""

    label: str
    text: str | Unknown
    history: tuple[float | None, ...] = ()
    high: float | None = None


@frozen
class ThreadDetails:
    """What stands above, and the parts below it."""

    title: str
    parts: tuple[tuple[str, tuple[Detail, ...]], ...]


def thread_details(trace: Trace, threads: Sequence[tuple[int, int]]) -> ThreadDetails | Unknown:
    """The details of threads, by PID and TID: of one, or of a crowd whose busiest speaks for the others."""
    view = threads_view(trace)
    if isinstance(view, Unknown):
        return view
    rows = [row for row in view.rows if (row.pid, row.tid) in set(threads)]
    if not rows:
        return Unknown("it has ended")
    row = rows[0]
    crowd = f" ×{len(rows)}, the busiest of them" if len(rows) > 1 else ""
    parts = [
        ("Thread", tuple(_identity(trace, row))),
        (f"The last {view.window_s:.0f} s", tuple(_time(trace, row))),
        ("Counted by the kernel and the processor", tuple(_counted(trace, row))),
        ("Woken by", tuple(_wakers(trace, row))),
        ("Where its time went", tuple(_stacks(trace, row))),
        ("System calls of its process", tuple(_calls(trace, ids.process(row.pid), v.SYSCALL_COUNT))),
        ("CUDA and NCCL calls of its process", tuple(_calls(trace, ids.process(row.pid), v.LIBRARY_COUNT))),
    ]
    if len(rows) > 1:
        parts.append(("The others", tuple(_others(rows[1:]))))
    return ThreadDetails(f"{thread_label(row)}{crowd}", tuple(parts))


def _identity(trace: Trace, row: ThreadRow) -> Iterator[Detail]:
    facts = trace.tracks[row.track].facts
    yield Detail("name", row.name)
    yield Detail("process", f"{row.role} (pid {row.pid})")
    yield Detail("tid", str(row.tid))
    yield Detail("CPU", _said(facts.get(ThreadFact.CPU)))
    yield Detail("may run on", _said(facts.get(ThreadFact.CPUS)))
    memory = latest(trace, ids.process(row.pid), v.PROCESS_RSS)
    yield Detail(
        "memory", memory if isinstance(memory, Unknown) else f"{quantity(memory, 'bytes')} resident, its process"
    )
    yield Detail(
        "now",
        f"{row.state} {facts.get(ThreadFact.WAIT_CHANNEL, '')}".strip() or Unknown("its state has not been read yet"),
    )


def _time(trace: Trace, row: ThreadRow) -> Iterator[Detail]:
    shares = row.shares
    if not isinstance(shares, Shares):
        yield Detail("time", shares)
        return
    for label, share, metric in (
        ("on-CPU", shares.on_cpu, v.THREAD_ON_CPU),
        ("run queue", shares.run_queue, v.THREAD_RUN_QUEUE),
    ):
        history = rate_history(trace, row.track, metric, HISTORY_NS)
        yield Detail(label, percent(100 * share), tuple(_share(rate) for _, rate in history), 1.0)
    how = shares.how_causes_are_known
    yield Detail("blocked", f"{percent(100 * shares.blocked_total)}: {causes_text(shares) or 'never'} ({how})")
    for label, metric in (("voluntary", v.THREAD_VOLUNTARY), ("involuntary", v.THREAD_INVOLUNTARY)):
        yield Detail(f"{label} switches", _rate(counter_rate(trace, row.track, metric, WINDOW_NS)))
    garbage = garbage_collection(trace, row.track)
    told = garbage if isinstance(garbage, Unknown) else f"{percent(100 * garbage.share)}, {number(garbage.per_s)} /s"
    yield Detail("garbage collection", told)


def _counted(trace: Trace, row: ThreadRow) -> Iterator[Detail]:
    """Why it is slower while it runs: memory that is touched first, another CPU, caches that hold something else."""
    for metric in (v.THREAD_MINOR_FAULTS, v.THREAD_MAJOR_FAULTS, v.THREAD_MIGRATIONS):
        yield Detail(metric.title, _rate(counter_rate(trace, row.track, metric, WINDOW_NS)))
    found = events(trace, row.track, WINDOW_NS)
    if isinstance(found, Unknown):
        yield Detail("processor", found)
        return
    yield Detail("instructions a cycle", number(found.per_cycle))
    yield Detail("last-level cache", f"{percent(100 * found.cache_miss_share)} of its accesses miss")
    yield Detail("data TLB", f"{number(found.dtlb_misses_per_1000)} misses of 1,000 instructions")


def _wakers(trace: Trace, row: ThreadRow) -> Iterator[Detail]:
    rates = _labelled_rates(trace, row.track, v.THREAD_WAKES)
    watch = trace.get(ids.process_of(row.track), v.SCHEDULER_OBSERVED)
    looked = step_increase(watch, trace.end_ns - WINDOW_NS, trace.end_ns) / WINDOW_NS
    for label, rate in rates:  # as often while nobody looked
        yield Detail(_waker(trace, label), quantity(rate / looked if 0 < looked < LEAST_OBSERVED else rate, "/s"))
    if not rates:
        yield Detail("", told_why_absent(trace, row.track, v.THREAD_WAKES) or _NO_WAKES)


def _labelled_rates(trace: Trace, track: TrackId, metric: Metric) -> list[tuple[str, float]]:
    """What a counter grew by a second under each of its labels, the most first, as far as it grew at all."""
    found = labels(trace, metric).get(track, ())
    rates = ((label, counter_rate(trace, track, v.labelled(metric, label), WINDOW_NS)) for label in found)
    known = [(label, rate) for label, rate in rates if not isinstance(rate, Unknown) and rate > 0]
    return sorted(known, key=lambda one: -one[1])[:_MOST]


def _waker(trace: Trace, label: str) -> str:
    if label == "0":
        return "a timer or an interrupt"
    if label == v.OUTSIDE:
        return "a thread of another container"
    threads = (track for track in trace.tracks_of(TrackKind.THREAD) if str(ids.tid(track.id)) == label)
    found = next(threads, None)
    return f"tid {label}" if found is None else f"{found.name} (tid {label})"


def _stacks(trace: Trace, row: ThreadRow) -> Iterator[Detail]:
    stacks = sorted((one for one in timed_stacks(trace) if one.track == row.track), key=lambda one: -one.weight)
    total = sum(one.weight for one in stacks if one.unit == "ns")
    for one in [one for one in stacks if one.unit == "ns"][:_MOST]:
        where = " > ".join(one.frames) or ("ready, no CPU was free" if one.state == RUN_QUEUE else "no stack seen")
        yield Detail(f"{percent(100 * one.weight / total)} {one.state}", where)
    if not total:
        yield Detail("", told_why_unseen(trace, whats.STACKS) or Unknown("no stack was seen"))


def _calls(trace: Trace, process: TrackId, metric: Metric) -> Iterator[Detail]:
    rates = _labelled_rates(trace, process, metric)
    for name, rate in rates:
        yield Detail(name, quantity(rate, "/s"))
    if not rates:
        yield Detail("", told_why_absent(trace, process, metric) or _NO_CALLS)


def _others(rows: Sequence[ThreadRow]) -> Iterator[Detail]:
    for row in rows:
        shares = row.shares
        if isinstance(shares, Shares):
            used = f"on-CPU {percent(100 * shares.on_cpu)}, run queue {percent(100 * shares.run_queue)}"
            yield Detail(f"tid {row.tid}", used)
        else:
            yield Detail(f"tid {row.tid}", shares)


def _said(fact: Fact | None) -> str | Unknown:
    if isinstance(fact, Unknown):
        return fact
    return Unknown("not read yet") if fact is None else str(fact)


def _share(rate: float | None) -> float | None:
    return None if rate is None else rate / NS_PER_S


def _rate(rate: float | Unknown) -> str | Unknown:
    return rate if isinstance(rate, Unknown) else quantity(rate, "/s")
