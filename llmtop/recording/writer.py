"""Writes a recording: each trace that it is given as what has changed since the one before.

It knows the model and nothing of who makes traces or looks at them. What rows hold is told in docs/recording.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, compress, count
from typing import TYPE_CHECKING, Any, Final

from llmtop.model import NS_PER_S, Finding, Mark, Series, StackWindow, Target, Trace, Track, TrackId
from llmtop.recording.blocks import BlockWriter, packed_row
from llmtop.recording.documents import text_of
from llmtop.recording.layout import STOPPED
from llmtop.recording.row_writer import RowWriter

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Fact, Stack

STRETCH_NS: Final = 60 * NS_PER_S
"""How often all is written that is known, so that a reader may begin there."""
_Key = tuple[TrackId, str]
_LONG_AGO: Final = -(2**62)
_MOST_STACKS: Final = 2_000
STACKS_NS: Final = 10 * NS_PER_S
"""How often the stacks of the moment are written: as often as the live screen keeps them for later."""


@dataclass(slots=True)
class _Written:
    """A series as it was when it was last written."""

    number: int
    source: str
    series: Series
    last_ns: int


@dataclass(slots=True)
class _NewSamples:
    """New samples of series that were read together: at the same times."""

    times: array[int]
    numbers: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """All of the first series, then all of the second one, and so on."""

    def rows(self) -> Iterator[array[float]]:
        """The values of all series at one time, for each time."""
        count = len(self.times)
        return (array("d", self.values[i::count]) for i in range(count))


@dataclass(slots=True)
class _WrittenGroup:
    """Series that were read together, as far as a stretch has them."""

    number: int
    last: int | None = None
    """Their newest values as one integer; None before the first."""
    moving: list[int] = field(default_factory=list)
    """Places of the series that have had more than one value in the stretch."""

    def pack(self, rows: Iterable[array[float]]) -> tuple[list[int], list[bytes]]:
        """What has changed from row to row; of the first one all, then of the series that move alone.

        Returns:
            Places of the series that move from here on, and the rows.
        """
        is_first = self.last is None
        first, changes = [], [self._changed(row) for row in rows]
        if is_first:
            first = [packed_row(changes.pop(0).tobytes())]
        moved = set(chain.from_iterable(compress(count(), change) for change in changes))
        new = sorted(moved.difference(self.moving))
        self.moving += new
        moving = (array("Q", map(change.__getitem__, self.moving)) for change in changes)
        return new, first + [packed_row(change.tobytes()) for change in moving]

    def _changed(self, row: array[float]) -> array[int]:
        """The numbers of a row, XORed with the ones before."""
        now = int.from_bytes(row.tobytes(), "little")
        changed = array("Q", (now ^ (self.last or 0)).to_bytes(row.itemsize * len(row), "little"))
        self.last = now
        return changed


@dataclass(slots=True)
class _Stretch:
    """What the blocks of one compression refer to."""

    start_ns: int
    blocks: BlockWriter = field(default_factory=BlockWriter)
    groups: dict[bytes, _WrittenGroup] = field(default_factory=dict)
    """By the numbers of their series."""

    def columns(self, samples: Iterable[_NewSamples]) -> tuple[dict[str, Any], list[bytes]]:
        """Samples as columns, and the directory of what stands where in them."""
        columns, told, new = [], [], []
        for one in samples:
            numbers = array("I", one.numbers).tobytes()
            group = self.groups.get(numbers)
            if group is None:
                group = self.groups[numbers] = _WrittenGroup(len(self.groups))
                new.append(ranges(one.numbers))
            moved, rows = group.pack(one.rows())
            told.append((group.number, len(one.times), ranges(moved)))
            columns += [one.times.tobytes(), *rows]
        return {"groups": new, "samples": told}, columns


class RecordingWriter:
    """Writes traces to a new file, one moment after another.

    Args:
        about: What is told of the recording as a whole.

    Raises:
        FileExistsError: There is such a file.
        OSError: It cannot be written; what is in it stays whole.
        ForeignChangeError: The file is no longer what was written.
    """

    def __init__(self, path: Path, about: Mapping[str, Fact]) -> None:
        self._rows = RowWriter(path)
        self._about = about
        self._series: dict[_Key, _Written] = {}
        self._numbers = 0
        self._tracks: dict[TrackId, Track] = {}
        self._names: dict[TrackId, str] = {}
        self._told: dict[str, object] = {}
        """What a trace has as a whole, by the name of its field, as it was last written."""
        self._marks: tuple[Mark, ...] = ()
        self._target: Target | None = None
        self._verdict: object = None
        self._frames: dict[str, int] = {}
        self._stacks: dict[tuple[object, ...], int] = {}
        self._stack_numbers = 0
        self._kept_ns = -1
        """When the newest of the stacks that are kept for later were."""
        self._current = StackWindow(-1, ())
        """The stacks of the moment, as they were last written."""
        self._stretch: _Stretch | None = None
        self._rows.append("about", 0, text_of(about))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._rows.size

    def check(self) -> None:
        """See that the file is where it was made, and as it was written.

        Raises:
            ForeignChangeError: It is not.
        """
        self._rows.check()

    def sync(self) -> None:
        """Have the disk take all that was written; may block for as long as the disk does."""
        self._rows.sync()

    def note_stop(self, reason: str) -> None:
        """Write why nothing follows, where what was written leaves room: the disk may be full."""
        with suppress(OSError):
            self._rows.give_up()
            self._rows.append("about", 0, text_of({**self._about, STOPPED: reason}))

    def close(self) -> None:
        """Leave the file as it is."""
        self._rows.close()

    def write(self, trace: Trace, target: Target | None = None, *, is_last: bool = False) -> None:
        """Write a moment: a trace that follows the ones before it.

        Args:
            trace: As the recorder freezes it.
            target: The server under observation.
            is_last: No other one follows: what is written only now and then is written too.

        Raises:
            OSError: It cannot be written; the moments before stay whole.
        """
        t_ns = trace.end_ns
        if target is not None and target != self._target:
            self._target = target
            self._rows.append("target", t_ns, text_of(target))
        for mark in _new_marks(trace.marks, self._marks):
            self._rows.append("mark", mark.t_ns, text_of(mark))
        self._marks = trace.marks
        is_first = self._begin_stretch(t_ns)
        assert self._stretch is not None
        tracks = self._track_changes(trace.tracks)
        samples, ended = self._new_samples(trace, is_first=is_first)
        told = self._changes(trace, ended, tracks)
        directory, columns = self._stretch.columns(samples)
        for window, is_kept in self._new_stacks(trace, is_first=is_first, is_last=is_last):
            directory.setdefault("stacks", []).append((window.end_ns, len(window.stacks), is_kept))
            columns += self._stack_columns(window.stacks)
        if is_first:
            told["series"] = ranges(one.number for one in self._series.values())
        block = self._stretch.blocks.pack(told, directory, columns)
        self._rows.append("stretch" if is_first else "moment", t_ns, block)

    def judge(self, t_ns: int, verdict: str, findings: Iterable[Finding]) -> None:
        """Write what was found at a moment, unless it is what was found before."""
        said = {"verdict": verdict, "findings": tuple(findings)}
        if said != self._verdict:
            self._verdict = said
            self._rows.append("verdict", t_ns, text_of(said))

    def _begin_stretch(self, t_ns: int) -> bool:
        """Begin a new compression when it is time for that; whether it was."""
        old = self._stretch
        if old is not None and t_ns - old.start_ns < STRETCH_NS:
            return False
        self._stretch = _Stretch(t_ns)
        self._told, self._tracks = {}, {}
        return True

    def _changes(self, trace: Trace, ended: Sequence[int], tracks: Mapping[str, Any]) -> dict[str, Any]:
        """What is told of a moment beside numbers."""
        document: dict[str, Any] = {"start_ns": trace.start_ns}
        if ended:
            document["ended"] = ended
        document |= tracks
        whole = {"origin": trace.origin, "missing": trace.missing, "issues": (*trace.issues,)}
        for name, value in (whole | {"sources": trace.sources.all}).items():
            if self._told.get(name) != value:
                document[name] = self._told[name] = value
        return document

    # -- numbers -----------------------------------------------------------------------------------------------

    def _new_samples(self, trace: Trace, *, is_first: bool) -> tuple[Iterable[_NewSamples], list[int]]:
        """What has come since the last moment, of series that were read together, and numbers of series that are over.

        Of a thousand series most have one new sample: for these nothing else is done, nor is anything called twice.
        """
        known, found, ended = self._series, dict[int | bytes, _NewSamples](), list[int]()
        for key, one in trace.series.items():
            written = known.get(key)
            if written is not None and written.series is one and not is_first:
                continue
            if written is None or written.source != one.source or not (new := one.next_after(written.last_ns)):
                ended += self._add_any(found, key, one, is_first=is_first)
                continue
            written.series, (written.last_ns, value) = one, new
            if (samples := found.get(new[0])) is None:
                samples = found[new[0]] = _NewSamples(array("q", new[:1]))
            samples.numbers.append(written.number)
            samples.values.append(value)
        if len(known) > len(trace.series):
            ended += [known.pop(key).number for key in known.keys() - trace.series.keys()]
        return found.values(), ended

    def _add_any(
        self, found: dict[int | bytes, _NewSamples], key: _Key, one: Series, *, is_first: bool
    ) -> Iterable[int]:
        """Add what has come of a series, any number of samples; the number that it had until it began once more.

        Where a stretch begins it has once more the last sample of what nothing has come of: whoever begins to read
        there would not know it.
        """
        written = self._series.get(key)
        ended: Sequence[int] = ()
        times, values = one.after(_LONG_AGO if written is None else written.last_ns)
        if written is not None and written.last_ns > _LONG_AGO and times and len(one) == len(times):
            ended, written = (self._series.pop(key).number,), None  # nothing is left of what was written of it
        if written is None or written.source != one.source:
            written = self._series[key] = self._define(one, written)
        written.series, written.last_ns = one, times[-1] if times else written.last_ns
        if is_first and not times:
            times, values = one.newest(1).times, one.newest(1).values
        if times:
            at = times.tobytes() if len(times) > 1 else times[0]
            if (samples := found.get(at)) is None:
                samples = found[at] = _NewSamples(times)
            samples.numbers.append(written.number)
            samples.values += values
        return ended

    def _define(self, one: Series, before: _Written | None) -> _Written:
        """Number a series, once more where another source reads it by now."""
        self._numbers += 1
        metric = one.metric
        told = {"id": self._numbers, "track": one.track, "metric": metric.name, "unit": metric.unit}
        told |= {"counter": metric.counter, "title": metric.title, "source": one.source}
        if before is not None:
            told["continues"] = before.number
        self._rows.append("series", one.last_t_ns or 0, text_of(told))
        return _Written(self._numbers, one.source, one, _LONG_AGO if before is None else before.last_ns)

    # -- tracks ------------------------------------------------------------------------------------------------

    def _track_changes(self, tracks: Mapping[TrackId, Track]) -> dict[str, Any]:
        """Which tracks are new, are no more, or say something else of themselves."""
        known, self._tracks = self._tracks, dict(tracks)
        gone = [id for id in known if id not in tracks]
        if [id for id in known if id in tracks] != list(tracks)[: len(known) - len(gone)]:
            gone, known = list(known), {}  # one has ended and come back meanwhile: it stands behind the others
        changed = {id: _track_change(known.get(id), track) for id, track in tracks.items() if known.get(id) != track}
        for id in changed:
            self._tell_track(tracks[id])
        return ({"gone": gone} if gone else {}) | ({"tracks": changed} if changed else {})

    def _tell_track(self, track: Track) -> None:
        """A row for those who ask by SQL."""
        if self._names.get(track.id) != track.name:
            self._names[track.id] = track.name
            self._rows.append("track", 0, text_of(track))

    # -- stacks ------------------------------------------------------------------------------------------------

    def _new_stacks(self, trace: Trace, *, is_first: bool, is_last: bool) -> Iterator[tuple[StackWindow, bool]]:
        """Those that are kept for later, and now and then those of the moment; whether they are kept."""
        for window in trace.past_stacks:
            if window.end_ns > self._kept_ns:
                self._kept_ns = window.end_ns
                yield window, True
        now, before = StackWindow(trace.stacks_end_ns, trace.stacks), self._current
        is_new = now.stacks is not before.stacks and bool(now.stacks or before.stacks)
        is_due = is_last or now.end_ns - before.end_ns >= STACKS_NS or not now.stacks
        if (is_first and now.stacks) or (is_new and is_due):
            self._current = now
            yield now, False

    def _stack_columns(self, stacks: Sequence[Stack]) -> list[bytes]:
        numbers = array("I", map(self._stack_number, stacks))
        return [numbers.tobytes(), packed_row(array("d", (one.weight for one in stacks)).tobytes())]

    def _stack_number(self, stack: Stack) -> int:
        """The number of a stack without its weight; a new one is written down."""
        key = (stack.frames, stack.unit, stack.state, stack.track)
        number = self._stacks.get(key)
        if number is None:
            if len(self._stacks) >= _MOST_STACKS:  # a server that runs for days calls from ever new places
                self._stacks.clear()
            self._stack_numbers += 1
            number = self._stacks[key] = self._stack_numbers
            told = {"id": number, "track": stack.track, "state": stack.state, "unit": stack.unit}
            told["frames"] = [self._frame_number(frame) for frame in stack.frames]
            self._rows.append("stack", 0, text_of(told))
        return number

    def _frame_number(self, frame: str) -> int:
        number = self._frames.get(frame)
        if number is None:
            number = self._frames[frame] = len(self._frames) + 1
            self._rows.append("frame", 0, text_of({"id": number, "name": frame}))
        return number


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as (first, how many) of those that follow each other.

    >>> ranges([1, 2, 3, 7, 5, 6])
    [(1, 3), (7, 1), (5, 2)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


def _new_marks(marks: Sequence[Mark], before: Sequence[Mark]) -> list[Mark]:
    """Those that were not there before; two of one moment may say the same."""
    known = set(map(id, before))
    return [mark for mark in marks if id(mark) not in known]


def _track_change(old: Track | None, new: Track) -> dict[str, Any]:
    """A track, or only what of its facts is another by now."""
    if (
        old is None
        or (old.kind, old.name, old.parent) != (new.kind, new.name, new.parent)
        or old.facts.keys() - new.facts.keys()
    ):
        return {"kind": new.kind, "name": new.name, "parent": new.parent, "facts": new.facts}
    return {
        "facts": {name: fact for name, fact in new.facts.items() if name not in old.facts or old.facts[name] != fact}
    }
