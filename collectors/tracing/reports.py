"""What the helper reports, as readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing.causes import FileOf, file_of
from llmtop.collectors.tracing.counters import Counters
from llmtop.collectors.tracing.round_series import RoundSeries
from llmtop.collectors.tracing.wire import Observed, Sample
from llmtop.model import Metric, Reading, TrackId, TrackKind
from llmtop.text import clean

SOURCE = "eBPF"
SAMPLED = ", sampled"
"""Behind the source of what was counted now and then, and stands for all."""
_BY_THREAD = {
    "launches": (v.THREAD_LAUNCHES.name,),
    "sync": (v.THREAD_CUDA_SYNC.name,),
    "collections": (v.THREAD_COLLECTING.name, v.THREAD_COLLECTIONS.name),
}
_OF_LIBRARIES = (
    v.LIBRARY_COUNT.name,
    v.LIBRARY_TIME.name,
    v.LIBRARY_LATENCY.name,
    v.THREAD_LAUNCHES.name,
    v.THREAD_CUDA_SYNC.name,
    v.THREAD_COLLECTING.name,
    v.THREAD_COLLECTIONS.name,
)


class Reports:
    """Turns counters of the helper into readings, with gaps where nobody counted.

    Args:
        file_of: What a file descriptor of a process points to.
        source: What the readings are said to come from: other tracers' helpers report alike.
    """

    def __init__(self, file_of: FileOf = file_of, source: str = SOURCE) -> None:
        self._counters = Counters(file_of)
        self._rounds = RoundSeries(source)
        self._source = source
        self._told: dict[tuple[TrackId, str], float] = {}
        self._observed: Observed | None = None
        self._paused: set[str] = set()
        self._uncounted: frozenset[tuple[int, str]] = frozenset()
        """(pid, metric) of library functions without probes; all the series of that name are paused."""
        self._watched: set[int] = set()
        """Processes whose library calls had probes at the last report."""
        self._base: dict[tuple[TrackId, str], float] = {}
        """Where counters stood when the helper was last started again."""
        self._is_resumed = False

    def readings(self, report: Sample) -> tuple[Reading, ...]:
        """The readings of one sample.

        A counter that has not moved has no reading. One that appears had been 0 while it was looked for, so it is
        given that value at the sample before; one that was not looked for then begins with what it is.
        """
        t_ns, before_ns = int(report["t"]), int(report["t"]) - int(report["elapsed"])
        readings = self._pauses(report, t_ns, before_ns)
        if self._is_resumed:
            readings += self._standing(("",), before_ns)
            self._is_resumed = False
        uncounted, missed, sampled = _uncounted(report), self._uncounted, _sampled(report)
        for track, metric, counted in self._counters.values(report):
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
                source = f"{self._source}{SAMPLED}" if sampled and _is_of(key, sampled) else self._source
                readings.append(Reading(track, metric, t_ns, value, source))
            self._told[key] = value
        readings += self._rounds.readings(report.get("gpu_rounds", ()))
        self._watched |= {pid for pid, _ in report.get("library_observed", ())}
        self._forget(set(gone_tracks(report)))
        # Probes come and go at the end of a look: what it has counted stands.
        readings += self._standing_of(missed - uncounted, t_ns) + self._gaps_of(uncounted - missed, t_ns + 1)
        self._uncounted = uncounted
        return tuple(readings)

    def gaps(self, t_ns: int, prefixes: tuple[str, ...]) -> tuple[Reading, ...]:
        """Readings without a value for all series of these names: their probes were taken off."""
        return tuple(
            Reading(track, Metric(name, "", counter=True), t_ns, None, self._source)
            for track, name in self._told
            if name.startswith(prefixes)
        )

    def _pauses(self, report: Sample, t_ns: int, before_ns: int) -> list[Reading]:
        """A gap where a count by thread stops because its probes came off, and where it stood when they are back."""
        paused = self._paused_counts(report)
        stopped, resumed = paused - self._paused, self._paused - paused
        self._paused = paused
        readings = list(self.gaps(t_ns, tuple(stopped))) if stopped else []
        return readings + self._standing(tuple(resumed), before_ns)

    def _was_looked_for(self, key: tuple[TrackId, str]) -> bool:
        """Whether a counter would have been seen at the report before."""
        return not key[1].startswith(_OF_LIBRARIES) or ids.pid(key[0]) in self._watched

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

    def resume(self, t_ns: int, is_kept: Callable[[TrackId], bool]) -> tuple[Reading, ...]:
        """The helper has ended and another one will count from 0: ours will go on from where they stand.

        Args:
            t_ns: When it ended.
            is_kept: Whether a track still is what it was.

        Returns:
            The gaps in what is kept.
        """
        self._forget({track for track, _ in self._told if not is_kept(track)})
        self._base = {key: self._told[key] for key in self._counters.resume(self._told)}
        self._observed, self._paused, self._is_resumed = None, set(), True
        self._uncounted, self._watched = frozenset(), set()
        return self.gaps(t_ns, ("",))

    def _paused_counts(self, report: Sample) -> set[str]:
        observed = report.get("observed")
        was_off = observed is not None and observed["calls"] == (self._observed["calls"] if self._observed else 0)
        self._observed = observed
        return {v.THREAD_SPINS.name} if was_off else set()

    def _forget(self, gone: set[TrackId]) -> None:
        """Drop what ended: ids are used again, and threads may come and go by the thousand."""
        if not gone:
            return
        for book in (self._told, self._base):
            for key in [key for key in book if key[0] in gone]:
                del book[key]
        self._watched -= {ids.pid(track) for track in gone if ids.kind(track) is TrackKind.PROCESS}
        self._counters.forget(gone)
        self._rounds.forget(gone)


def gone_tracks(report: Sample) -> tuple[TrackId, ...]:
    """The tracks of processes and threads that have ended since the report before."""
    threads = tuple(ids.thread(pid, tid) for pid, tid in report.get("ended", ()))
    return (*threads, *(ids.process(pid) for pid in report.get("gone", ())))


def _uncounted(report: Sample) -> frozenset[tuple[int, str]]:
    """What library calls are not known for lack of probes, as (pid, name of a metric)."""
    return _series(report.get("uncounted", ()), report.get("unseen", ()))


def _sampled(report: Sample) -> frozenset[tuple[int, str]]:
    """Likewise, what was counted now and then. Waits by thread are never told so."""
    sampled = report.get("sampled", ())
    kinds = ((pid, [kind for kind in kinds if kind == "launches"]) for pid, _, kinds in sampled)
    return _series(((pid, names) for pid, names, _ in sampled), kinds)


def _series(functions: Iterable[Sequence[Any]], by_thread: Iterable[Sequence[Any]]) -> frozenset[tuple[int, str]]:
    """(pid, name of a metric) of the counts of functions, and of the sums that are kept by thread."""
    names = {
        (pid, v.labelled(metric, clean(name)).name)
        for pid, several in functions
        for name in several
        for metric in (v.LIBRARY_COUNT, v.LIBRARY_TIME, v.LIBRARY_LATENCY)
    }
    return frozenset(names | {(pid, name) for pid, kinds in by_thread for kind in kinds for name in _BY_THREAD[kind]})


def _is_of(key: tuple[TrackId, str], uncounted: frozenset[tuple[int, str]]) -> bool:
    """Whether a series is one of these; buckets of a distribution have one label more."""
    track, name = key
    if not name.startswith(_OF_LIBRARIES):
        return False
    pid = ids.pid(track)
    return (pid, name) in uncounted or (pid, v.without_bound(name)[0]) in uncounted
