"""What the helper reports, as readings and stacks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from llmtop import procfs
from llmtop import vocabulary as v
from llmtop.collectors.thread_causes import cause_of_syscall
from llmtop.model import NS_PER_S, Metric, Reading, Stack
from llmtop.text import clean
from llmtop.vocabulary import ThreadCause

SOURCE = "eBPF"
ON_CPU = "on-cpu"
"""The state of stacks that were seen running; all others have a ThreadCause's value."""
WINDOW_NS = 30 * NS_PER_S
"""Stacks are summed up over so long: what was long ago is not where the server waits."""
MOST_STACKS = 400
"""Of a server with 800 different ones, these held 99.5 % of the time."""
LIGHTER_STACKS = "(lighter stacks, together)"
LOWEST_LOG2 = 8
LAST_SLOT = 27
"""Slots of latencies as programs/common.h has them: below 2^8 ns, 2^9 ns ... and all above."""
_STATES = {2: ThreadCause.UNINTERRUPTIBLE, 4: ThreadCause.STOPPED, 8: ThreadCause.STOPPED}
MOST_WAKERS = 16
"""Of so many wakers each thread tells."""
_NO_CALL = 0xFFFF
_OUTSIDE = 0xFFFFFFFF
"""A thread without an id in our PID namespace, as programs/common.h has it."""
_IN_SYNC = 0x100
"""Set in the state of a sleep within a synchronising call, as in programs/scheduler.c."""

_StackKey: TypeAlias = "tuple[str, str, tuple[str, ...]]"
"""Track, state and frames."""


def _together(light: Iterable[tuple[_StackKey, float]]) -> tuple[Stack, ...]:
    """One stack for each thread and state, which says that it stands for many: no time is lost."""
    sums: dict[tuple[str, str], float] = {}
    for (track, state, _), ns in light:
        sums[track, state] = sums.get((track, state), 0.0) + ns
    return tuple(Stack((LIGHTER_STACKS,), ns, "ns", state, track) for (track, state), ns in sums.items())


class Reports:
    """Turns counters of the helper into readings, and keeps the stacks of the last seconds.

    Args:
        file_of: What a file descriptor of a process points to.
        source: What the readings are said to come from: other tracers' helpers report alike.
    """

    def __init__(self, file_of: Callable[[int, int], str | None] | None = None, source: str = SOURCE) -> None:
        self._file_of = file_of or _file_of
        self._source = source
        self._told: dict[tuple[str, str], float] = {}
        self._metrics: dict[tuple[str, str], Metric] = {}
        self._buckets: dict[tuple[str, int], Metric] = {}
        self._wakers: dict[str, set[str]] = {}
        self._slept: dict[tuple[int, int, int], int] = {}
        self._blocked: dict[tuple[str, ThreadCause], int] = {}
        self._stacks: deque[tuple[int, dict[_StackKey, float]]] = deque()
        self._names: dict[str, str] = {}
        self._observed: Mapping[str, int] = {}
        self._paused: set[str] = set()
        self._uncounted: frozenset[tuple[int, str]] = frozenset()
        """(pid, metric) of library functions without probes; all the series of that name are paused."""
        self._watched: set[int] = set()
        """Processes whose library calls had probes at the last report."""
        self._base: dict[tuple[str, str], float] = {}
        """Where counters stood when the helper was last started again."""
        self._slots: dict[tuple[str, str], dict[int, int]] = {}
        self._base_slots: dict[tuple[str, str], dict[int, int]] = {}
        self._is_resumed = False

    def readings(self, report: Mapping[str, Any]) -> tuple[Reading, ...]:
        """The readings of one sample.

        A counter that has not moved has no reading. One that appears had been 0 while it was looked for, so it is
        given that value at the sample before; one that was not looked for then begins with what it is.
        """
        t_ns, before_ns = int(report["t"]), int(report["t"]) - int(report["elapsed"])
        readings = self._pauses(report, t_ns, before_ns)
        if self._is_resumed:
            readings += self._standing(("",), before_ns)
            self._is_resumed = False
        uncounted, missed = _uncounted(report), self._uncounted
        for track, metric, counted in self._values(report):
            key = (track, metric.name)
            if missed and _is_of(key, missed):
                self._base[key] = self._told.setdefault(key, 0.0) - counted  # goes on from where it stood
                continue
            told, value = self._told.get(key), counted + self._base.get(key, 0.0)
            if told == value:
                continue
            if told is None and self._was_looked_for(key):
                readings.append(Reading(track, metric, before_ns, 0.0, self._source))
            if told is not None or value:
                readings.append(Reading(track, metric, t_ns, value, self._source))
            self._told[key] = value
        self._watched |= {pid for pid, _ in report.get("library_observed", ())}
        self._forget(set(gone_tracks(report)))
        # Probes come and go at the end of a look: what it has counted stands.
        readings += self._standing_of(missed - uncounted, t_ns) + self._gaps_of(uncounted - missed, t_ns + 1)
        self._uncounted = uncounted
        return tuple(readings)

    def stacks(self, report: Mapping[str, Any]) -> tuple[Stack, ...]:
        """The stacks of the last `WINDOW_NS`, the heaviest first, with one more report taken in."""
        self.keep_stacks(report)
        return self.summed_stacks(int(report["t"]))

    def keep_stacks(self, report: Mapping[str, Any]) -> None:
        """Take in the stacks of one more report."""
        self._stacks.append((int(report["t"]), self._weights(report)))

    def summed_stacks(self, now_ns: int) -> tuple[Stack, ...]:
        """The stacks of the last `WINDOW_NS`, the heaviest first."""
        while self._stacks and self._stacks[0][0] < now_ns - WINDOW_NS:
            self._stacks.popleft()
        sums: dict[_StackKey, float] = {}
        for _, weights in self._stacks:
            for key, ns in weights.items():
                sums[key] = sums.get(key, 0.0) + ns
        ranked = sorted(sums.items(), key=lambda item: -item[1])
        heaviest = tuple(Stack(frames, ns, "ns", state, track) for (track, state, frames), ns in ranked[:MOST_STACKS])
        return heaviest + _together(ranked[MOST_STACKS:])

    def gaps(self, t_ns: int, prefixes: tuple[str, ...]) -> tuple[Reading, ...]:
        """Readings without a value for all series of these names: their probes were taken off."""
        return tuple(
            Reading(track, Metric(name, "", counter=True), t_ns, None, self._source)
            for track, name in self._told
            if name.startswith(prefixes)
        )

    def _pauses(self, report: Mapping[str, Any], t_ns: int, before_ns: int) -> list[Reading]:
        """A gap where a count by thread stops because its probes came off, and where it stood when they are back."""
        paused = self._paused_counts(report)
        stopped, resumed = paused - self._paused, self._paused - paused
        self._paused = paused
        readings = list(self.gaps(t_ns, tuple(stopped))) if stopped else []
        return readings + self._standing(tuple(resumed), before_ns)

    def _was_looked_for(self, key: tuple[str, str]) -> bool:
        """Whether a counter would have been seen at the report before."""
        return not key[1].startswith(_OF_LIBRARIES) or _pid(key[0]) in self._watched

    def _gaps_of(self, uncounted: frozenset[tuple[int, str]], t_ns: int) -> list[Reading]:
        return [
            Reading(key[0], Metric(key[1], "", counter=True), t_ns, None, self._source)
            for key in (self._told if uncounted else ())
            if _is_of(key, uncounted)
        ]

    def _standing_of(self, counted: frozenset[tuple[int, str]], t_ns: int) -> list[Reading]:
        return [
            Reading(key[0], Metric(key[1], "", counter=True), t_ns, value, self._source)
            for key, value in (self._told.items() if counted else ())
            if _is_of(key, counted)
        ]

    def _standing(self, prefixes: tuple[str, ...], t_ns: int) -> list[Reading]:
        """Where the series of these names stand, to go on from after a gap."""
        return [
            Reading(track, Metric(name, "", counter=True), t_ns, value, self._source)
            for (track, name), value in self._told.items()
            if name.startswith(prefixes)
        ]

    def resume(self, t_ns: int, is_kept: Callable[[str], bool]) -> tuple[Reading, ...]:
        """The helper has ended and another one will count from 0: ours will go on from where they stand.

        Args:
            t_ns: When it ended.
            is_kept: Whether a track still is what it was.

        Returns:
            The gaps in what is kept.
        """
        self._forget({track for track, _ in self._told if not is_kept(track)})
        by_growth = {(track, f"{v.THREAD_BLOCKED.name}|{cause.value}") for track, cause in self._blocked}
        buckets = {metric.name for metric in self._buckets.values()}
        self._base = {key: value for key, value in self._told.items() if key not in by_growth and key[1] not in buckets}
        self._base_slots = {key: dict(slots) for key, slots in self._slots.items()}
        self._slept.clear()
        self._observed, self._paused, self._is_resumed = {}, set(), True
        self._uncounted, self._watched = frozenset(), set()
        return self.gaps(t_ns, ("",))

    def _paused_counts(self, report: Mapping[str, Any]) -> set[str]:
        observed = report.get("observed", {})
        was_off = "calls" in observed and observed["calls"] == self._observed.get("calls", 0)
        self._observed = observed
        return {v.THREAD_SPINS.name} if was_off else set()

    def _values(self, report: Mapping[str, Any]) -> Iterator[tuple[str, Metric, float]]:
        yield from self._system_calls(report)
        yield from self._sleeps(report.get("waits", ()))
        for pid, tid, cause, ns in report.get("blocked", ()):
            yield f"thread:{pid}/{tid}", self._labelled(v.THREAD_BLOCKED, cause), float(ns)
        for pid, slots in report.get("queue", ()):
            yield from self._distribution(f"process:{pid}", v.PROCESS_RUN_QUEUE_LATENCY, slots)
        for pid, tid, waker, count in report.get("wakes", ()):
            if self._is_told_of(f"thread:{pid}/{tid}", _waker(waker)):
                yield f"thread:{pid}/{tid}", self._labelled(v.THREAD_WAKES, _waker(waker)), float(count)
        for pid, count in report.get("switch_timeouts", ()):
            yield f"process:{pid}", v.PROCESS_GIL_WAITS, float(count)
        for pid, tid, kind, count in report.get("spins", ()):
            yield f"thread:{pid}/{tid}", self._labelled(v.THREAD_SPINS, kind), float(count)
        for pid, tid, launches, sync_ns in report.get("in_libraries", ()):
            yield f"thread:{pid}/{tid}", v.THREAD_LAUNCHES, float(launches)
            yield f"thread:{pid}/{tid}", v.THREAD_CUDA_SYNC, float(sync_ns)
        for pid, ns in report.get("library_observed", ()):
            yield f"process:{pid}", v.LIBRARY_OBSERVED, float(ns)
        yield from self._library_calls(report.get("functions", ()))
        hits = report.get("hits")
        if hits:
            yield "self", v.SELF_PROBE_HITS, float(sum(hits.values()))

    def _system_calls(self, report: Mapping[str, Any]) -> Iterator[tuple[str, Metric, float]]:
        names = {int(number): clean(name) for number, name in report.get("names", {}).items()}
        for pid, call, count, errors, ns, slots in report.get("calls", ()):
            track, name = f"process:{pid}", names.get(call, f"syscall_{call}")
            yield track, self._labelled(v.SYSCALL_COUNT, name), float(count)
            if slots or ns:  # else it was counted only
                if errors is not None:
                    yield track, self._labelled(v.SYSCALL_ERRORS, name), float(errors)
                yield track, self._labelled(v.SYSCALL_TIME, name), float(ns)
                yield from self._distribution(track, self._labelled(v.SYSCALL_LATENCY, name), slots)
        observed = report.get("observed", {})
        for pid in {entry[0] for part in ("calls", "waits", "blocked") for entry in report.get(part, ())}:
            for part, metric in _OBSERVED.items():
                yield f"process:{pid}", metric, float(observed.get(part, 0))

    def _library_calls(self, functions: Iterable[list[Any]]) -> Iterator[tuple[str, Metric, float]]:
        for pid, name, count, ns, slots in functions:
            track, label = f"process:{pid}", clean(name)
            yield track, self._labelled(v.LIBRARY_COUNT, label), float(count)
            yield track, self._labelled(v.LIBRARY_TIME, label), float(ns)
            yield from self._distribution(track, self._labelled(v.LIBRARY_LATENCY, label), slots)

    def _sleeps(self, waits: Iterable[list[int]]) -> Iterator[tuple[str, Metric, float]]:
        """Sums by cause. Growth is added to today's cause: the same call may sleep on another file tomorrow."""
        grown: set[tuple[str, ThreadCause]] = set()
        for pid, tid, call, state, descriptor, ns in waits:
            place = (tid, call, state)
            more = ns - self._slept.get(place, 0)
            self._slept[place] = ns
            key = (f"thread:{pid}/{tid}", self._cause(pid, call, state, descriptor))
            self._blocked[key] = self._blocked.get(key, 0) + max(0, more)
            grown.add(key)
        for track, cause in grown:
            yield track, self._labelled(v.THREAD_BLOCKED, cause.value), float(self._blocked[track, cause])

    def _distribution(
        self, track: str, metric: Metric, slots: Mapping[str, int]
    ) -> Iterator[tuple[str, Metric, float]]:
        """Counts at or below each bound, from the one below the first slot with any to the last."""
        key = (track, metric.name)
        counts = dict(self._base_slots.get(key, {}))
        for slot, count in slots.items():
            counts[int(slot)] = counts.get(int(slot), 0) + count
        if not counts:
            return
        self._slots[key] = counts
        running = 0
        for place in range(max(0, min(counts) - 1), min(max(counts) + 1, LAST_SLOT)):
            running += counts.get(place, 0)
            yield track, self._bucket(metric, place), float(running)
        yield track, self._bucket(metric, LAST_SLOT), float(sum(counts.values()))

    def _weights(self, report: Mapping[str, Any]) -> dict[tuple[str, str, tuple[str, ...]], float]:
        weights: dict[tuple[str, str, tuple[str, ...]], float] = {}
        for pid, tid, call, state, descriptor, frames, ns in report.get("stacks", ()):
            cause = self._cause(pid, call, state, descriptor).value
            key = (f"thread:{pid}/{tid}", cause, self._clean(frames))
            weights[key] = weights.get(key, 0.0) + ns
        for pid, tid, cause_name, frames, ns in report.get("asleep", ()):
            key = (f"thread:{pid}/{tid}", cause_name, self._clean(frames))
            weights[key] = weights.get(key, 0.0) + ns
        for pid, tid, frames, ns in report.get("running", ()):
            key = (f"thread:{pid}/{tid}", ON_CPU, self._clean(frames))
            weights[key] = weights.get(key, 0.0) + ns
        return weights

    def _cause(self, pid: int, call: int, state: int, descriptor: int) -> ThreadCause:
        """What a sleep is about: the call first, then the state it sleeps in."""
        if state & ~_IN_SYNC in (4, 8):
            return ThreadCause.STOPPED
        if state & _IN_SYNC:
            return ThreadCause.CUDA_SYNC
        if call != _NO_CALL:
            found = cause_of_syscall(f"{call} {descriptor:x}", lambda number: self._file_of(pid, number))
            if found is not None:
                return found
        return _STATES.get(state, ThreadCause.OTHER)

    def _clean(self, frames: Iterable[str]) -> tuple[str, ...]:
        names = self._names
        return tuple(names.get(frame) or names.setdefault(frame, clean(frame)) for frame in frames)

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

    def _is_told_of(self, track: str, waker: str) -> bool:
        """Whether a waker is one of the first that a thread had.

        A server with a thread for each request has no end of them, and each would be a series of its own.
        """
        known = self._wakers.setdefault(track, set())
        if len(known) < MOST_WAKERS:
            known.add(waker)
        return waker in known

    def _forget(self, gone: set[str]) -> None:
        """Drop what ended: ids are used again, and threads may come and go by the thousand."""
        if not gone:
            return
        for book in (self._told, self._base, self._slots, self._base_slots):
            for key in [key for key in book if key[0] in gone]:
                del book[key]
        self._wakers = {track: known for track, known in self._wakers.items() if track not in gone}
        self._watched -= {_pid(track) for track in gone if track.startswith("process:")}
        self._blocked = {key: ns for key, ns in self._blocked.items() if key[0] not in gone}
        ended = {int(track.rpartition("/")[2]) for track in gone if track.startswith("thread:")}
        self._slept = {place: ns for place, ns in self._slept.items() if place[0] not in ended}


def gone_tracks(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The tracks of processes and threads that have ended since the report before."""
    threads = tuple(f"thread:{pid}/{tid}" for pid, tid in report.get("ended", ()))
    return (*threads, *(f"process:{pid}" for pid in report.get("gone", ())))


def _uncounted(report: Mapping[str, Any]) -> frozenset[tuple[int, str]]:
    """What library calls are not known for lack of probes, as (pid, name of a metric)."""
    functions = {
        (pid, f"{metric.name}|{clean(name)}")
        for pid, names in report.get("uncounted", ())
        for name in names
        for metric in (v.LIBRARY_COUNT, v.LIBRARY_TIME, v.LIBRARY_LATENCY)
    }
    return frozenset(functions | {(pid, _BY_THREAD[kind]) for pid, kinds in report.get("unseen", ()) for kind in kinds})


def _is_of(key: tuple[str, str], uncounted: frozenset[tuple[int, str]]) -> bool:
    """Whether a series is one of these; buckets of a distribution have one label more."""
    track, name = key
    if not name.startswith(_OF_LIBRARIES):
        return False
    pid = _pid(track)
    return (pid, name) in uncounted or (pid, name.rpartition("|")[0]) in uncounted


def _pid(track: str) -> int:
    return int(track.partition(":")[2].partition("/")[0])


_BY_THREAD = {"launches": v.THREAD_LAUNCHES.name, "sync": v.THREAD_CUDA_SYNC.name}
_OF_LIBRARIES = (
    v.LIBRARY_COUNT.name,
    v.LIBRARY_TIME.name,
    v.LIBRARY_LATENCY.name,
    v.THREAD_LAUNCHES.name,
    v.THREAD_CUDA_SYNC.name,
)
_OBSERVED = {"calls": v.SYSCALL_OBSERVED, "timed": v.SYSCALL_TIMED, "scheduler": v.SCHEDULER_OBSERVED}


def upper_bound(slot: int) -> float:
    """The longest duration in ns that a slot holds.

    >>> upper_bound(0), upper_bound(27)
    (256.0, inf)
    """
    return math.inf if slot >= LAST_SLOT else float(1 << (LOWEST_LOG2 + slot))


def _waker(tid: int) -> str:
    return "outside" if tid == _OUTSIDE else str(tid)


def _file_of(pid: int, descriptor: int) -> str | None:
    return procfs.read_link(f"/proc/{pid}/fd/{descriptor}")
