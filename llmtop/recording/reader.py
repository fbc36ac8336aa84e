"""Reads a recording: the trace of any moment, as it stood then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from llmtop import ids
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
)
from llmtop.recording.documents import WRONG_SHAPE, MisfitError, parsed, value_of
from llmtop.recording.layout import FORMAT, STOPPED
from llmtop.recording.row_reader import DamagedRowError, RowReader, StoredRow
from llmtop.recording.stretches import LARGEST, SampleColumns, StoredStretch, columns_of, expanded, unpack_stretch
from llmtop.recording.tracks import MAY_TELL_CPUS, ChangingTracks, known_facts, with_former_cpus
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
_LATEST_NS: Final = 1 << 62
"""Moments lie between 0 and this: no clock reaches it in a century."""
_LARGEST_WINDOW: Final = 2 * LARGEST
"""Bytes that the stretches of a window may take: two hundred seconds of ten thousand series that all move."""
_MOST_NAMED: Final = 8
"""Things that a message lists."""
_MOST_FRAMES: Final = 4096
"""Of a stack: perf ends at 127, py-spy at 1024."""
_UNPACKED_TIMES: Final = 50
"""By how much all stretches may be larger than the file, plus one stretch: idle servers compress by 30."""
_FIRST_LOOK_NS: Final = 2 * NS_PER_S
"""A session writes a second after it was started what it has looked at first, on a busy machine a little later."""
_ALL: Final = 2**62
_FORMER_NS: Final = 60 * NS_PER_S
"""How far into a stretch it is told what held in the one before: no verdict is about a longer time."""
Key = tuple[TrackId, str]
_T = TypeVar("_T")
_Windows = Sequence[tuple[StackWindow, bool]]
"""Stacks, and whether they are kept for later."""


@frozen
class _SeriesRow:
    """Defines a series: `continues` is the number of the one that it goes on from."""

    id: int
    track: TrackId
    metric: str
    unit: str
    counter: bool
    title: str
    source: str
    continues: int | None = None


@frozen
class _FrameRow:
    id: int
    name: str


@frozen
class _StackRow:
    id: int
    track: TrackId
    state: str
    unit: str
    frames: tuple[int, ...]


class _Definition(NamedTuple):
    """What samples are of, by their number."""

    track: TrackId
    metric: Metric
    source: str


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


_NOTHING: Final = (-1, _State())
"""Before the first moment of a stretch."""


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
        self._keys: dict[int, Key] = {}
        self._defined_at: list[tuple[int, int]] = []
        """Row and number of each definition."""
        self._continued: dict[int, int] = {}
        self._frames: dict[int, str] = {}
        self._stacks: dict[int, Stack] = {}
        self._marks: list[tuple[int, Mark]] = []
        self._targets: list[tuple[int, Target]] = []
        self._verdicts: list[int] = []
        self._stretch_rows: list[list[StoredRow]] = []
        self._unknown: dict[str, set[int]] = {}
        """Rows with what this version does not know, by what it is."""
        self._misshapen: set[int] = set()
        """Moments that say something else than moments do."""
        self._sizes: dict[int, int] = {}
        """Bytes of the stretches that were unpacked."""
        self._is_cut_short = False
        """Whether a window was asked for that is longer than one may be."""
        self._last_row = 0
        """The row that was taken last."""
        self._is_torn = True
        """Whether a row is missing since the stretch began: what follows in it cannot be unpacked."""
        for row in self._rows.rows:
            self._take(row)
        self._moments = [(s, m, row) for s, rows in enumerate(self._stretch_rows) for m, row in enumerate(rows)]
        if not self._moments:
            raise ValueError("no moment of it is left")
        self._unpacked: dict[int, StoredStretch] = {}
        """The stretches that were asked for last, the newest behind."""
        self._states: dict[int, tuple[int, _State]] = {}
        """The moment of each stretch that was asked for last, and what held then."""
        self._former: tuple[int, Mapping[TrackId, Track]] = (-1, {})
        """The stretch before the one that was asked for last, and what threads might run on at its end."""
        self._joined: tuple[tuple[int, int], SampleColumns] = ((0, -1), SampleColumns())

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
        stretches = self._stretches(first, s)
        first = s + 1 - len(stretches)
        return Trace(
            origin=state.origin,
            start_ns=state.start_ns,
            end_ns=row.t_ns,
            tracks=self._tracks(s, row.t_ns, state.tracks),
            series=self._series(state, self._columns(first, s), _ALL if m == len(stretches[-1].told) - 1 else row.t_ns),
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
    def is_cut(self) -> bool:
        """Whether it is a copy that is shorter than the recording was."""
        return self._rows.cut_bytes > 0

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What is wrong with the file."""
        found = []
        if self._rows.cut_bytes:
            missing = binary_bytes(self._rows.cut_bytes)
            said = f"the last {missing} of the recording are not there: the copy was cut, and what came later is lost"
            found.append(Issue(Severity.ERROR, "recording-cut", f"{said}; copy it again"))
        if reason := self.about.get(STOPPED):
            said = f"the recording stopped before its end: {reason}; what came later is lost"
            found.append(Issue(Severity.ERROR, "recording-stopped", said))
        if self._is_cut_short:
            said = "the window shown is shorter than the one recorded: unpacked it takes more memory than llmtop allows"
            found.append(Issue(Severity.WARNING, "recording-too-large", said))
        if self._lost:
            said = (
                "parts of the recording cannot be read: it was cut, or it is damaged; what is before and after is shown"
            )
            found.append(Issue(Severity.ERROR, "recording-damaged", said, self._lost))
        if self._unknown:
            kinds = sorted(self._unknown)
            kinds[_MOST_NAMED:] = ["more"] if len(kinds) > _MOST_NAMED else []
            said = f"a newer llmtop has written what this one does not know: {listed(kinds)}"
            found.append(Issue(Severity.INFO, "recording-newer", said, sum(map(len, self._unknown.values()))))
        elif self._rows.format > FORMAT:
            said = f"a newer llmtop has written it (format {self._rows.format}); this one knows format {FORMAT}"
            found.append(Issue(Severity.INFO, "recording-newer", said))
        return tuple(found)

    def _at(self, t_ns: int) -> int:
        return max(0, bisect_right(self._moments, t_ns, key=lambda moment: moment[2].t_ns) - 1)

    # -- rows --------------------------------------------------------------------------------------------------

    def _take(self, row: StoredRow) -> None:
        """Note what a row says; blocks are unpacked later."""
        is_next, self._last_row = row.id == self._last_row + 1, row.id
        self._is_torn |= not is_next
        if row.kind in ("stretch", "moment"):
            last_ns = self._stretch_rows[-1][-1].t_ns if self._stretch_rows else 0
            is_in_order = last_ns <= row.t_ns < _LATEST_NS
            self._is_torn = not is_in_order or (self._is_torn and row.kind == "moment")
            if self._is_torn:
                self._rows.lost += 1
            elif row.kind == "stretch":
                self._stretch_rows.append([row])
            else:
                self._stretch_rows[-1].append(row)
        elif (take := _TAKERS.get(row.kind)) is not None:
            try:
                take(self, row, parsed(self._rows.data(row)))
            except MisfitError:
                self._note_unknown(row, row.kind)
            except (DamagedRowError, *WRONG_SHAPE):
                self._rows.lost += 1
        elif row.kind not in _KNOWN and self._rows.format > FORMAT:
            self._note_unknown(row, row.kind)
        elif row.kind not in _KNOWN:
            self._is_torn = True
            self._rows.lost += 1

    def _take_about(self, row: StoredRow, document: dict[str, Any]) -> None:
        facts = dict(known_facts(document, lambda _: None))
        utc_ns = facts.get("utc_ns", 0)
        if not isinstance(utc_ns, int) or not 0 <= utc_ns < _LATEST_NS:
            del facts["utc_ns"]
        self.about = facts

    def _take_target(self, row: StoredRow, document: dict[str, Any]) -> None:
        target = value_of(Target, document, lambda name: self._note_unknown(row, f"the server's {name}"))
        self._targets.append((row.id, target))

    def _take_mark(self, row: StoredRow, document: dict[str, Any]) -> None:
        mark = value_of(Mark, document)
        if not ids.is_well_formed(mark.track) or not 0 <= mark.t_ns < _LATEST_NS:
            raise MisfitError
        self._marks.append((row.id, mark))

    def _take_verdict(self, row: StoredRow, document: dict[str, Any]) -> None:
        self._verdicts.append(row.t_ns)

    def _take_series(self, row: StoredRow, document: dict[str, Any]) -> None:
        told = value_of(_SeriesRow, document)
        if not ids.is_well_formed(told.track):
            raise MisfitError
        metric = Metric(told.metric, told.unit, told.counter, told.title)
        self._definitions[told.id] = _Definition(told.track, metric, told.source)
        self._keys[told.id] = told.track, metric.name
        self._defined_at.append((row.id, told.id))
        if told.continues is not None:
            self._continued[told.id] = told.continues

    def _take_frame(self, row: StoredRow, document: dict[str, Any]) -> None:
        told = value_of(_FrameRow, document)
        self._frames[told.id] = told.name

    def _take_stack(self, row: StoredRow, document: dict[str, Any]) -> None:
        told = value_of(_StackRow, document)
        if len(told.frames) > _MOST_FRAMES or not ids.is_well_formed(told.track):
            raise MisfitError
        frames = tuple(map(self._frames.__getitem__, told.frames))
        self._stacks[told.id] = Stack(frames, 0.0, told.unit, told.state, told.track)

    def _note_unknown(self, row: StoredRow, kind: str) -> None:
        """Note what of a row this version does not know; a row may be looked at several times."""
        self._unknown.setdefault(kind, set()).add(row.id)

    # -- moments -----------------------------------------------------------------------------------------------

    @property
    def _lost(self) -> int:
        return self._rows.lost + sum(self._undone.values()) + len(self._misshapen)

    def _blocks(self, s: int) -> Iterator[bytes]:
        """The blocks of a stretch up to the first that is damaged."""
        for row in self._stretch_rows[s]:
            try:
                block = self._rows.data(row)
            except DamagedRowError:
                return
            if isinstance(block, bytes):
                yield block

    def _stretch(self, s: int) -> StoredStretch:
        """A stretch, unpacked. What keeps them refers to no reader: one that is let go is freed at once."""
        stretch = self._unpacked.pop(s, None)
        if stretch is None:
            stretch = self._unpack(s)
        self._unpacked[s] = stretch
        while len(self._unpacked) > _STRETCHES_KEPT or self._kept_size() > _LARGEST_WINDOW:
            oldest = next(iter(self._unpacked))
            if oldest == s:
                break
            self._unpacked.pop(oldest)
            self._states.pop(oldest, None)
        return stretch

    def _kept_size(self) -> int:
        return sum(stretch.size for stretch in self._unpacked.values())

    def _stretches(self, first: int, last: int) -> list[StoredStretch]:
        """Those of a window, as many of the newest ones as may be in memory together."""
        found, size = list[StoredStretch](), 0
        for s in range(last, first - 1, -1):
            stretch = self._stretch(s)
            size += stretch.size
            if found and size > _LARGEST_WINDOW:
                self._is_cut_short = True
                break
            found.insert(0, stretch)
        return found

    def _unpack(self, s: int) -> StoredStretch:
        if sum(self._sizes.values()) > LARGEST + _UNPACKED_TIMES * self._rows.size:
            self._undone[s] = len(self._stretch_rows[s])
            return StoredStretch()
        stretch = unpack_stretch(self._blocks(s), self._stacks)
        self._sizes[s] = stretch.size
        if lost := len(self._stretch_rows[s]) - len(stretch.told):
            self._undone[s] = lost
        return stretch

    def _readable(self, s: int, m: int) -> tuple[int, int]:
        """A moment, or the newest one before it that can be unpacked; -1 where there is none."""
        m = min(m, len(self._stretch(s).told) - 1)
        while m < 0 < s:
            s -= 1
            m = len(self._stretch(s).told) - 1
        return s, m

    def _state(self, s: int, m: int) -> _State:
        """What held at a moment of a stretch."""
        made, state = self._states.get(s, _NOTHING)
        if made > m:
            made, state = _NOTHING
        if made < m:
            state = self._later_state(state, s, range(made + 1, m + 1))
            self._states[s] = m, state
        return state

    def _later_state(self, state: _State, s: int, moments: Iterable[int]) -> _State:
        """What held after some more moments of a stretch."""
        stretch, tracks = self._stretch(s), ChangingTracks(state.tracks)
        for m in moments:
            row = self._stretch_rows[s][m]
            try:
                told = parsed(stretch.told[m])
                tracks.take(told, row.t_ns, partial(self._note_unknown, row))
                state = self._next_state(state, s, m, told, stretch.stacks[m])
            except WRONG_SHAPE:
                self._misshapen.add(row.id)
        return replace(state, tracks=tracks.now())

    def _tracks(self, s: int, t_ns: int, tracks: Mapping[TrackId, Track]) -> Mapping[TrackId, Track]:
        """Tracks with what threads might run on in the stretch before: each begins with what holds then alone."""
        begun_ns = self._stretch_rows[s][0].t_ns
        if not s or t_ns - begun_ns > _FORMER_NS:
            return tracks
        if self._former[0] != s - 1:
            self._former = s - 1, self._last_cpus(s - 1)
        last = self._former[1]
        if not last:
            return tracks
        return {id: with_former_cpus(track, last.get(id, track), begun_ns) for id, track in tracks.items()}

    def _last_cpus(self, s: int) -> Mapping[TrackId, Track]:
        """Threads at the end of a stretch of which it is known what they might run on: little else is read for it."""
        tracks = ChangingTracks({})
        for row, told in zip(self._stretch_rows[s], self._stretch(s).told, strict=False):
            if any(word in told for word in MAY_TELL_CPUS):
                try:
                    tracks.take(parsed(told), row.t_ns, partial(self._note_unknown, row))
                except WRONG_SHAPE:
                    self._misshapen.add(row.id)
        return {id: track for id, track in tracks.now().items() if ThreadFact.CPUS in track.facts}

    def _next_state(self, before: _State, s: int, m: int, told: Mapping[str, Any], stacks: _Windows) -> _State:
        """What held after one more, but for the tracks."""
        row, start_ns = self._stretch_rows[s][m], told["start_ns"]
        if not isinstance(start_ns, int) or not -_LATEST_NS < start_ns <= row.t_ns:
            raise MisfitError
        return _State(
            start_ns=start_ns,
            tracks=before.tracks,
            numbers=self._changed_numbers(before.numbers, s, m, told),
            origin=self._origin(told["origin"]) if "origin" in told else before.origin,
            missing=self._missing(row, told["missing"]) if "missing" in told else before.missing,
            issues=self._known(row, Issue, told["issues"]) if "issues" in told else before.issues,
            sources=Sources(self._known(row, Source, told["sources"])) if "sources" in told else before.sources,
            stacks=next((window for window, is_kept in reversed(stacks) if not is_kept), before.stacks),
        )

    def _missing(self, row: StoredRow, documents: Iterable[Any]) -> tuple[Missing, ...]:
        """What was missing, without what would only have helped who looked then."""
        return tuple(Missing(one.what, one.why.recorded) for one in self._known(row, Missing, documents))

    def _known(self, row: StoredRow, kind: type[_T], documents: Iterable[Any]) -> tuple[_T, ...]:
        """Values of which this version knows all; the others are noted."""
        found = []
        for document in documents:
            try:
                found.append(value_of(kind, document))
            except MisfitError:
                self._note_unknown(row, kind.__name__.lower())
        return tuple(found)

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
            numbers = expanded(told["series"], len(self._keys))
        else:
            ended = frozenset(told.get("ended", ()))
            since = bisect_right(self._defined_at, (self._stretch_rows[s][m - 1].id,))
            until = bisect_right(self._defined_at, (row.id,))
            if not ended and since == until:
                return before
            numbers = [number for number in before.values() if number not in ended]
            numbers += [number for _, number in self._defined_at[since:until]]
        return {self._keys[number]: number for number in numbers if number in self._keys}

    def _columns(self, first: int, last: int) -> SampleColumns:
        """The samples of several stretches in one piece each, by the newest number of their series."""
        if self._joined[0] != (first, last):
            joined = columns_of(self._stretch(s) for s in range(first, last + 1))
            for number, before in self._continued.items():
                joined.join(number, before)
            self._joined = ((first, last), joined)
        return self._joined[1]

    def _series(self, state: _State, columns: SampleColumns, end_ns: int) -> dict[Key, Series]:
        """The window of each series: what is not older than it, and one sample before."""
        series, bounds = {}, dict[int, tuple[int, int]]()
        for key, number in state.numbers.items():
            times = columns.times.get(number)
            if times is None:
                continue
            track, metric, source = self._definitions[number]
            if (bound := bounds.get(id(times))) is None:  # series that are read together have one array of times
                start = max(0, bisect_left(times, state.start_ns) - 1)
                bound = bounds[id(times)] = start, bisect_right(times, end_ns, start)
            series[key] = Series(track, metric, source, times, columns.values[number], *bound)
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


def _kept_stacks(stretches: Sequence[StoredStretch], m: int) -> Iterator[StackWindow]:
    """Those kept for later up to a moment of the last stretch."""
    for stretch in stretches:
        moments = stretch.stacks[: m + 1] if stretch is stretches[-1] else stretch.stacks
        yield from (window for windows in moments for window, is_kept in windows if is_kept)
