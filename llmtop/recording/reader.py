"""Reads a recording: the trace of any moment, as it stood then."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from llmtop.facts import OriginFact, ThreadFact
from llmtop.frozen import frozen
from llmtop.model import (
    NS_PER_S,
    RECORDING,
    Issue,
    Mark,
    Metric,
    Missing,
    Origin,
    Series,
    Severity,
    Source,
    Sources,
    Stack,
    StackWindow,
    Target,
    Trace,
    Track,
    TrackId,
    Unknown,
)
from llmtop.recording.documents import MisfitError, value_of
from llmtop.recording.layout import FORMAT
from llmtop.recording.row_reader import DamagedRowError, RowReader, StoredRow
from llmtop.recording.stretches import SampleColumn, StoredMoment, StoredStretch, columns_of, expanded, unpack_stretch
from llmtop.text import listed
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Fact

_KNOWN: Final = frozenset(
    {"about", "target", "track", "series", "mark", "frame", "stack", "verdict", "stretch", "moment"}
)
_STRETCHES_KEPT: Final = 24
"""That many, unpacked, take 40 MB of a server with a thousand series: more than a window of ten minutes has."""
_FIRST_LOOK_NS: Final = 2 * NS_PER_S
"""A session writes a second after it was started what it has looked at first, on a busy machine a little later."""
_PLAIN: Final = frozenset({str, int, float})
"""Facts that are as they stand in JSON."""
_ALL: Final = 2**62
_FORMER_NS: Final = 60 * NS_PER_S
"""How far into a stretch it is told what held in the one before: no verdict is about a longer time."""
Key = tuple[TrackId, str]
_T = TypeVar("_T")


class _Definition(NamedTuple):
    """What samples are of, by their number."""

    track: TrackId
    metric: Metric
    source: str

    @property
    def key(self) -> Key:
        return self.track, self.metric.name


@frozen
class _State:
    """What holds at a moment beside its samples."""

    start_ns: int = 0
    tracks: Mapping[TrackId, Track] = field(default_factory=dict)
    numbers: Mapping[Key, int] = field(default_factory=dict)
    """Of the series that there are."""
    origin: Origin = field(default_factory=lambda: Origin(RECORDING))
    missing: tuple[Missing, ...] = ()
    issues: tuple[Issue, ...] = ()
    sources: Sources = field(default_factory=Sources)
    stacks: StackWindow = field(default_factory=lambda: StackWindow(0, ()))


class RecordingReader:
    """A recording as far as it was written when it was opened. Moments are unpacked when they are asked for.

    Raises:
        OSError: It cannot be read.
        ValueError: Not one moment of it is left.
    """

    def __init__(self, path: Path) -> None:
        self._rows = RowReader(path)
        self._undone: dict[int, int] = {}
        """Blocks that could not be unpacked, by stretch."""
        self.about: Mapping[str, Fact] = {}
        self._definitions: dict[int, _Definition] = {}
        self._defined_at: list[tuple[int, int]] = []
        """Row and number of each definition."""
        self._continued: dict[int, int] = {}
        self._frames: dict[int, str] = {}
        self._stacks: dict[int, Stack] = {}
        self._marks: list[tuple[int, Mark]] = []
        self._targets: list[tuple[int, Target]] = []
        self._verdicts: list[int] = []
        self._stretch_rows: list[list[StoredRow]] = []
        self._unknown: dict[str, int] = {}
        for row in self._rows.rows:
            self._take(row)
        self._moments = [(s, m, row) for s, rows in enumerate(self._stretch_rows) for m, row in enumerate(rows)]
        if not self._moments:
            raise ValueError("no moment of it is left")
        self._stretch = lru_cache(maxsize=_STRETCHES_KEPT)(self._unpack)
        self._states: dict[int, list[_State]] = {}
        self._joined: tuple[tuple[int, int], dict[int, SampleColumn]] = ((0, -1), {})

    @property
    def times(self) -> Sequence[int]:
        """The moments that there are, in ns on the clock of the trace, oldest first."""
        return [row.t_ns for _, _, row in self._moments]

    @cached_property
    def begin_ns(self) -> int:
        """From when on its places are counted, in ns on the clock of the trace.

        A first moment tells of the time since the look before it, and so begins then. What was kept from before a
        recording was begun, or before its condition held, is longer: then it begins with its first moment.
        """
        first_ns, start_ns = self.times[0], self._state(*self._readable(0, 0)).start_ns
        return start_ns if not self.trigger and 0 <= first_ns - start_ns <= _FIRST_LOOK_NS else first_ns

    @property
    def marks(self) -> Sequence[Mark]:
        """All events, in the order in which they were told."""
        return [mark for _, mark in self._marks]

    @property
    def verdict_times(self) -> Sequence[int]:
        """When the rules began to find something else than before, in ns."""
        return self._verdicts

    def target(self, t_ns: int) -> Target | None:
        """The server under observation at a moment."""
        row = self._moments[self._at(t_ns)][2]
        return next((target for id, target in reversed(self._targets) if id < row.id), None)

    def trace(self, t_ns: int) -> Trace:
        """What was known at a moment, or at the newest one before it; the first one for all times before."""
        s, m = self._readable(*self._moments[self._at(t_ns)][:2])
        row, state = self._stretch_rows[s][max(m, 0)], self._state(s, m)
        first = max(0, bisect_right(self._stretch_rows, state.start_ns, key=lambda rows: rows[0].t_ns) - 1)
        stretches = [self._stretch(i) for i in range(first, s + 1)]
        return Trace(
            origin=state.origin,
            start_ns=state.start_ns,
            end_ns=row.t_ns,
            tracks=self._tracks(s, row.t_ns, state.tracks),
            series=self._series(
                state, self._columns(first, s), _ALL if m == len(stretches[-1].moments) - 1 else row.t_ns
            ),
            stacks=state.stacks.stacks[:],
            marks=tuple(mark for id, mark in self._marks if id < row.id and mark.t_ns >= state.start_ns),
            issues=(*state.issues, *self.issues),
            missing=state.missing,
            stacks_end_ns=state.stacks.end_ns,
            past_stacks=tuple(window for window in _kept_stacks(stretches, m) if window.end_ns >= state.start_ns),
            sources=state.sources,
            target=self.target(row.t_ns),
        )

    def report(self, t_ns: int) -> Trace:
        """The same, and in the facts of its origin where in the recording it is, unless it is all of a recording."""
        trace, times = self.trace(t_ns), self.times
        if not self.trigger and trace.start_ns <= times[0] and trace.end_ns == times[-1]:
            return trace
        place = {OriginFact.MOMENT_S: trace.end_ns - self.begin_ns, OriginFact.RECORDED_S: times[-1] - self.begin_ns}
        facts = {name: length_ns / NS_PER_S for name, length_ns in place.items()}
        return replace(trace, origin=replace(trace.origin, facts={**trace.origin.facts, **facts}))

    @property
    def trigger(self) -> str:
        """The condition that held at the first moment, and by which it was recorded; empty where a user began to."""
        told = self.about.get(OriginFact.TRIGGER)
        return told if isinstance(told, str) else ""

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What is wrong with the file."""
        found = []
        if self._rows.cut_bytes:
            missing = binary_bytes(self._rows.cut_bytes)
            said = f"the last {missing} of the recording are not there: the copy was cut, and what came later is lost"
            found.append(Issue(Severity.WARNING, "recording-cut", f"{said}; copy it again"))
        if self._lost:
            said = (
                "parts of the recording cannot be read: it was cut, or it is damaged; what is before and after is shown"
            )
            found.append(Issue(Severity.WARNING, "recording-damaged", said, self._lost))
        if self._unknown:
            said = f"a newer llmtop has written what this one does not know: {listed(sorted(self._unknown))}"
            found.append(Issue(Severity.INFO, "recording-newer", said, sum(self._unknown.values())))
        elif self._rows.format > FORMAT:
            said = f"a newer llmtop has written it (format {self._rows.format}); this one knows format {FORMAT}"
            found.append(Issue(Severity.INFO, "recording-newer", said))
        return tuple(found)

    def _at(self, t_ns: int) -> int:
        return max(0, bisect_right(self._moments, t_ns, key=lambda moment: moment[2].t_ns) - 1)

    # -- rows --------------------------------------------------------------------------------------------------

    def _take(self, row: StoredRow) -> None:
        """Note what a row says; blocks are unpacked later."""
        if row.kind == "stretch":
            self._stretch_rows.append([row])
        elif row.kind == "moment":
            if self._stretch_rows:
                self._stretch_rows[-1].append(row)
        elif (take := _TAKERS.get(row.kind)) is not None:
            try:
                take(self, row, json.loads(self._rows.data(row)))
            except MisfitError:
                self._note_unknown(row.kind)
            except (DamagedRowError, KeyError, ValueError, TypeError):
                self._rows.lost += 1
        elif row.kind not in _KNOWN:
            self._note_unknown(row.kind)

    def _take_about(self, row: StoredRow, document: dict[str, Any]) -> None:
        self.about = document

    def _take_target(self, row: StoredRow, document: dict[str, Any]) -> None:
        target = value_of(Target, document, lambda name: self._note_unknown(f"the server's {name}"))
        self._targets.append((row.id, target))

    def _take_mark(self, row: StoredRow, document: dict[str, Any]) -> None:
        self._marks.append((row.id, value_of(Mark, document)))

    def _take_verdict(self, row: StoredRow, document: dict[str, Any]) -> None:
        self._verdicts.append(row.t_ns)

    def _take_series(self, row: StoredRow, document: dict[str, Any]) -> None:
        number = document["id"]
        metric = Metric(document["metric"], document["unit"], document["counter"], document["title"])
        self._definitions[number] = _Definition(document["track"], metric, document["source"])
        self._defined_at.append((row.id, number))
        if "continues" in document:
            self._continued[number] = document["continues"]

    def _take_frame(self, row: StoredRow, document: dict[str, Any]) -> None:
        self._frames[document["id"]] = document["name"]

    def _take_stack(self, row: StoredRow, document: dict[str, Any]) -> None:
        frames = tuple(map(self._frames.__getitem__, document["frames"]))
        self._stacks[document["id"]] = Stack(frames, 0.0, document["unit"], document["state"], document["track"])

    def _note_unknown(self, kind: str) -> None:
        self._unknown[kind] = self._unknown.get(kind, 0) + 1

    # -- moments -----------------------------------------------------------------------------------------------

    @property
    def _lost(self) -> int:
        return self._rows.lost + sum(self._undone.values())

    def _blocks(self, s: int) -> Iterator[bytes]:
        """The blocks of a stretch up to the first that is damaged."""
        for row in self._stretch_rows[s]:
            try:
                block = self._rows.data(row)
            except DamagedRowError:
                return
            if isinstance(block, bytes):
                yield block

    def _unpack(self, s: int) -> StoredStretch:
        stretch = unpack_stretch(self._blocks(s), self._stacks)
        if lost := len(self._stretch_rows[s]) - len(stretch.moments):
            self._undone[s] = lost
        return stretch

    def _readable(self, s: int, m: int) -> tuple[int, int]:
        """A moment, or the newest one before it that can be unpacked; -1 where there is none."""
        m = min(m, len(self._stretch(s).moments) - 1)
        while m < 0 < s:
            s -= 1
            m = len(self._stretch(s).moments) - 1
        return s, m

    def _state(self, s: int, m: int) -> _State:
        """What held at a moment of a stretch."""
        moments = self._stretch(s).moments
        states = self._states.setdefault(s, [])
        for i in range(len(states), m + 1):
            states.append(self._next_state(states[-1] if states else _State(), s, i, moments[i]))
        return states[m] if states else _State()

    def _tracks(self, s: int, t_ns: int, tracks: Mapping[TrackId, Track]) -> Mapping[TrackId, Track]:
        """Tracks with what threads might run on in the stretch before: each begins with what holds then alone."""
        begun_ns = self._stretch_rows[s][0].t_ns
        if not s or t_ns - begun_ns > _FORMER_NS:
            return tracks
        last = self._state(s - 1, len(self._stretch(s - 1).moments) - 1).tracks
        return {id: _with_former_cpus(track, last.get(id, track), begun_ns) for id, track in tracks.items()}

    def _next_state(self, before: _State, s: int, m: int, moment: StoredMoment) -> _State:
        told = json.loads(moment.told)
        return _State(
            start_ns=told["start_ns"],
            tracks=self._changed_tracks(before.tracks, told, self._stretch_rows[s][m].t_ns),
            numbers=self._changed_numbers(before.numbers, s, m, told),
            origin=self._origin(told["origin"]) if "origin" in told else before.origin,
            missing=self._missing(told["missing"]) if "missing" in told else before.missing,
            issues=self._known(Issue, told["issues"]) if "issues" in told else before.issues,
            sources=Sources(self._known(Source, told["sources"])) if "sources" in told else before.sources,
            stacks=moment.stacks[-1][0] if moment.stacks else before.stacks,
        )

    def _missing(self, documents: Iterable[Any]) -> tuple[Missing, ...]:
        """What was missing, without what would only have helped who looked then."""
        return tuple(Missing(one.what, one.why.recorded) for one in self._known(Missing, documents))

    def _known(self, kind: type[_T], documents: Iterable[Any]) -> tuple[_T, ...]:
        """Values of which this version knows all; the others are noted."""
        found = []
        for document in documents:
            try:
                found.append(value_of(kind, document))
            except MisfitError:
                self._note_unknown(kind.__name__.lower())
        return tuple(found)

    def _changed_tracks(
        self, before: Mapping[TrackId, Track], told: Mapping[str, Any], t_ns: int
    ) -> Mapping[TrackId, Track]:
        """Tracks without those that are gone, with what is new of the others."""
        if "tracks" not in told and "gone" not in told:
            return before
        gone = frozenset(told.get("gone", ()))
        tracks = {id: track for id, track in before.items() if id not in gone}
        for id, document in told.get("tracks", {}).items():
            if not isinstance(document, dict):
                self._note_unknown("track")
                continue
            old = tracks.get(id)
            if old is not None and "kind" not in document:
                facts = self._facts(document.get("facts", {}))
                track = Track(old.id, old.kind, old.name, old.parent, {**old.facts, **facts})
                tracks[id] = _with_former_cpus(track, old, t_ns)
            else:
                facts = self._facts(document.get("facts", {}))
                for track in self._known(Track, [{**document, "id": id, "facts": {}}]):
                    told_anew = Track(track.id, track.kind, track.name, track.parent, facts)
                    tracks[id] = _with_former_cpus(told_anew, old or told_anew, t_ns)
        return tracks

    def _facts(self, told: Any) -> Mapping[str, Fact]:
        """Facts: most are plain, and need no look at what else they could be."""
        facts: dict[str, Any] = {}
        if not isinstance(told, dict):
            self._note_unknown("fact")
            return facts
        for name, value in told.items():
            if value.__class__ in _PLAIN:
                facts[name] = value
                continue
            try:
                facts[name] = value_of(Unknown, value).recorded
            except MisfitError:
                self._note_unknown("fact")
        return facts

    def _origin(self, document: Any) -> Origin:
        """Where it is from, as a recording: on whose clock, and which machine's."""
        host, utc_ns = map(self.about.get, ("host", "utc_ns"))
        origin = value_of(Origin, document)
        return replace(
            origin,
            kind=RECORDING,
            facts={**origin.facts, OriginFact.TRIGGER: self.trigger} if self.trigger else origin.facts,
            host=host if isinstance(host, str) else "",
            utc_ns=utc_ns if isinstance(utc_ns, int) else None,
        )

    def _changed_numbers(self, before: Mapping[Key, int], s: int, m: int, told: Mapping[str, Any]) -> Mapping[Key, int]:
        """The series that there are, after some have ended and others were defined."""
        row = self._stretch_rows[s][m]
        if "series" in told:
            numbers = expanded(told["series"])
        else:
            ended = frozenset(told.get("ended", ()))
            since = bisect_right(self._defined_at, (self._stretch_rows[s][m - 1].id,))
            until = bisect_right(self._defined_at, (row.id,))
            if not ended and since == until:
                return before
            numbers = [number for number in before.values() if number not in ended]
            numbers += [number for _, number in self._defined_at[since:until]]
        return {self._definitions[number].key: number for number in numbers if number in self._definitions}

    def _columns(self, first: int, last: int) -> dict[int, SampleColumn]:
        """The samples of several stretches in one piece each, by the newest number of their series."""
        if self._joined[0] != (first, last):
            joined = columns_of(self._stretch(s) for s in range(first, last + 1))
            for number, before in self._continued.items():
                if number in joined and before in joined:
                    whole = SampleColumn(joined[before].times[:], joined[before].values[:])
                    whole.add(joined[number].times, joined[number].values)
                    joined[number] = whole
            self._joined = ((first, last), joined)
        return self._joined[1]

    def _series(self, state: _State, columns: Mapping[int, SampleColumn], end_ns: int) -> dict[Key, Series]:
        """The window of each series: what is not older than it, and one sample before."""
        series = {}
        for key, number in state.numbers.items():
            column = columns.get(number)
            if column is None:
                continue
            track, metric, source = self._definitions[number]
            start = max(0, bisect_left(column.times, state.start_ns) - 1)
            stop = bisect_right(column.times, end_ns, start)
            series[key] = Series(track, metric, source, column.times, column.values, start, stop)
        return series


_TAKERS = {
    "about": RecordingReader._take_about,
    "target": RecordingReader._take_target,
    "mark": RecordingReader._take_mark,
    "verdict": RecordingReader._take_verdict,
    "series": RecordingReader._take_series,
    "frame": RecordingReader._take_frame,
    "stack": RecordingReader._take_stack,
}


def _with_former_cpus(track: Track, old: Track, t_ns: int) -> Track:
    """A thread with the CPUs that it might run on before, where these changed and whoever wrote it did not say so."""
    cpus, former = track.facts.get(ThreadFact.CPUS), old.facts.get(ThreadFact.CPUS)
    is_told = track.facts.get(ThreadFact.CPUS_SINCE) not in (None, old.facts.get(ThreadFact.CPUS_SINCE))
    if cpus is None or former is None or is_told:
        return track
    told = {name: old.facts[name] for name in (ThreadFact.CPUS_BEFORE, ThreadFact.CPUS_SINCE) if name in old.facts}
    if cpus != former:
        told = {ThreadFact.CPUS_BEFORE: former, ThreadFact.CPUS_SINCE: t_ns}
    return replace(track, facts={**track.facts, **told}) if told else track


def _kept_stacks(stretches: Sequence[StoredStretch], m: int) -> Iterator[StackWindow]:
    """Those kept for later up to a moment of the last stretch."""
    for stretch in stretches:
        moments = stretch.moments[: m + 1] if stretch is stretches[-1] else stretch.moments
        yield from (window for moment in moments for window, is_kept in moment.stacks if is_kept)
