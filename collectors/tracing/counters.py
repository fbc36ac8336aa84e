"""What helpers count, as series with names: sums since the helper was started, or since an earlier one was."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing.causes import FileOf, cause_of_sleep, file_of
from llmtop.collectors.tracing.wire import (
    LAST_SLOT,
    LOWEST_LOG2,
    CallTotal,
    CauseTotal,
    FunctionTotal,
    Sample,
    SleepTotal,
)
from llmtop.model import Metric, TrackId, TrackKind
from llmtop.text import clean
from llmtop.vocabulary import ThreadCause

MOST_WAKERS = 16
"""Of so many wakers each thread tells."""
_OUTSIDE = 0xFFFFFFFF
"""A thread without an id in our PID namespace, as programs/common.h has it."""


class Counters:
    """The counters of a report by their names.

    Args:
        file_of: What a file descriptor of a process points to.
    """

    def __init__(self, file_of: FileOf = file_of) -> None:
        self._file_of = file_of
        self._metrics: dict[tuple[str, str], Metric] = {}
        self._buckets: dict[tuple[str, int], Metric] = {}
        self._wakers: dict[TrackId, set[str]] = {}
        self._slept: dict[tuple[int, int, int], int] = {}
        self._blocked: dict[tuple[TrackId, ThreadCause], int] = {}
        self._slots: dict[tuple[TrackId, str], dict[int, int]] = {}
        self._base_slots: dict[tuple[TrackId, str], dict[int, int]] = {}

    def values(self, report: Sample) -> Iterator[tuple[TrackId, Metric, float]]:
        """Track, metric and sum."""
        yield from self._system_calls(report)
        yield from self._sleeps(report.get("waits", ()))
        for pid, tid, cause, ns in report.get("blocked", ()):
            yield ids.thread(pid, tid), self._labelled(v.THREAD_BLOCKED, cause), float(ns)
        for pid, slots in report.get("queue", ()):
            yield from self._distribution(ids.process(pid), v.PROCESS_RUN_QUEUE_LATENCY, slots)
        for pid, tid, waker, count in report.get("wakes", ()):
            if self._is_told_of(ids.thread(pid, tid), _waker(waker)):
                yield ids.thread(pid, tid), self._labelled(v.THREAD_WAKES, _waker(waker)), float(count)
        for pid, count in report.get("switch_timeouts", ()):
            yield ids.process(pid), v.PROCESS_GIL_WAITS, float(count)
        for pid, tid, kind, count in report.get("spins", ()):
            yield ids.thread(pid, tid), self._labelled(v.THREAD_SPINS, kind), float(count)
        for pid, tid, launches, sync_ns in report.get("in_libraries", ()):
            yield ids.thread(pid, tid), v.THREAD_LAUNCHES, float(launches)
            yield ids.thread(pid, tid), v.THREAD_CUDA_SYNC, float(sync_ns)
        for pid, tid, ns, times in report.get("collecting", ()):
            yield ids.thread(pid, tid), v.THREAD_COLLECTING, float(ns)
            yield ids.thread(pid, tid), v.THREAD_COLLECTIONS, float(times)
        for pid, ns in report.get("library_observed", ()):
            yield ids.process(pid), v.LIBRARY_OBSERVED, float(ns)
        yield from self._library_calls(report.get("functions", ()))
        hits = report.get("hits")
        if hits:
            yield ids.SELF, v.SELF_PROBE_HITS, float(sum(hits.values()))

    def _system_calls(self, report: Sample) -> Iterator[tuple[TrackId, Metric, float]]:
        names = {number: clean(name) for number, name in report.get("names", {}).items()}
        for pid, call, count, errors, ns, slots in report.get("calls", ()):
            track, name = ids.process(pid), names.get(call, f"syscall_{call}")
            yield track, self._labelled(v.SYSCALL_COUNT, name), float(count)
            if slots or ns:  # else it was counted only
                if errors is not None:
                    yield track, self._labelled(v.SYSCALL_ERRORS, name), float(errors)
                yield track, self._labelled(v.SYSCALL_TIME, name), float(ns)
                yield from self._distribution(track, self._labelled(v.SYSCALL_LATENCY, name), slots)
        rows: list[CallTotal | SleepTotal | CauseTotal]
        rows = [*report.get("calls", ()), *report.get("waits", ()), *report.get("blocked", ())]
        observed = report.get("observed", {"calls": 0, "timed": 0, "scheduler": 0})
        for pid in {row.pid for row in rows}:
            yield ids.process(pid), v.SYSCALL_OBSERVED, float(observed["calls"])
            yield ids.process(pid), v.SYSCALL_TIMED, float(observed["timed"])
            yield ids.process(pid), v.SCHEDULER_OBSERVED, float(observed["scheduler"])

    def _library_calls(self, functions: Iterable[FunctionTotal]) -> Iterator[tuple[TrackId, Metric, float]]:
        for pid, name, count, ns, slots in functions:
            track, label = ids.process(pid), clean(name)
            yield track, self._labelled(v.LIBRARY_COUNT, label), float(count)
            yield track, self._labelled(v.LIBRARY_TIME, label), float(ns)
            yield from self._distribution(track, self._labelled(v.LIBRARY_LATENCY, label), slots)

    def _sleeps(self, waits: Iterable[SleepTotal]) -> Iterator[tuple[TrackId, Metric, float]]:
        """Sums by cause. Growth is added to today's cause: the same call may sleep on another file tomorrow.

        Of sums that have not grown nothing is told again, nor looked up: most threads of a server sleep on and on.
        """
        grown: set[tuple[TrackId, ThreadCause]] = set()
        for pid, tid, call, state, descriptor, ns in waits:
            place = (tid, call, state)
            before = self._slept.get(place)
            if before == ns:
                continue
            more = ns - (before or 0)
            self._slept[place] = ns
            key = (ids.thread(pid, tid), cause_of_sleep(pid, call, state, descriptor, self._file_of))
            self._blocked[key] = self._blocked.get(key, 0) + max(0, more)
            grown.add(key)
        for track, cause in grown:
            yield track, self._labelled(v.THREAD_BLOCKED, cause.value), float(self._blocked[track, cause])

    def _distribution(
        self, track: TrackId, metric: Metric, slots: Mapping[int, int]
    ) -> Iterator[tuple[TrackId, Metric, float]]:
        """Counts at or below each bound, from the one below the first slot with any to the last; none as before."""
        key = (track, metric.name)
        counts = dict(self._base_slots.get(key, {}))
        for slot, count in slots.items():
            counts[slot] = counts.get(slot, 0) + count
        if not counts or counts == self._slots.get(key):
            return
        self._slots[key] = counts
        running = 0
        for place in range(max(0, min(counts) - 1), min(max(counts) + 1, LAST_SLOT)):
            running += counts.get(place, 0)
            yield track, self._bucket(metric, place), float(running)
        yield track, self._bucket(metric, LAST_SLOT), float(sum(counts.values()))

    def _labelled(self, metric: Metric, label: str) -> Metric:
        key = (metric.name, label)
        found = self._metrics.get(key)
        if found is None:
            found = self._metrics[key] = v.labelled(metric, label)
        return found

    def _bucket(self, metric: Metric, slot: int) -> Metric:
        key = (metric.name, slot)
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = v.bucket(metric, upper_bound(slot))
        return found

    def _is_told_of(self, track: TrackId, waker: str) -> bool:
        """Whether a waker is one of the first that a thread had.

        A server with a thread for each request has no end of them, and each would be a series of its own.
        """
        known = self._wakers.setdefault(track, set())
        if len(known) < MOST_WAKERS:
            known.add(waker)
        return waker in known

    def resume(self, told: Iterable[tuple[TrackId, str]]) -> set[tuple[TrackId, str]]:
        """Another helper counts from 0: what is added up here goes on from where it stands.

        Args:
            told: All series, as (track, name).

        Returns:
            Those that do not: the helper's own sums.
        """
        self._base_slots = {key: dict(slots) for key, slots in self._slots.items()}
        self._slept.clear()
        grown = {(track, v.labelled(v.THREAD_BLOCKED, cause.value).name) for track, cause in self._blocked}
        buckets = {metric.name for metric in self._buckets.values()}
        return {key for key in told if key not in grown and key[1] not in buckets}

    def forget(self, gone: set[TrackId]) -> None:
        """Drop the tracks that have ended."""
        for book in (self._slots, self._base_slots):
            for key in [key for key in book if key[0] in gone]:
                del book[key]
        self._wakers = {track: known for track, known in self._wakers.items() if track not in gone}
        self._blocked = {key: ns for key, ns in self._blocked.items() if key[0] not in gone}
        ended = {ids.tid(track) for track in gone if ids.kind(track) is TrackKind.THREAD}
        self._slept = {place: ns for place, ns in self._slept.items() if place[0] not in ended}


def upper_bound(slot: int) -> float:
    """The longest duration in ns that a slot holds.

    >>> upper_bound(0), upper_bound(27)
    (256.0, inf)
    """
    return math.inf if slot >= LAST_SLOT else float(1 << (LOWEST_LOG2 + slot))


def _waker(tid: int) -> str:
    return v.OUTSIDE if tid == _OUTSIDE else str(tid)
