"""A timeline to move about in: its rows, the lines of each, made when they are first looked at, and single spans."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from llmtop.analysis.timeline.claims import Claims, claims_of
from llmtop.analysis.timeline.gaps import Gaps
from llmtop.analysis.timeline.levels import SampleLine, SpanLine
from llmtop.analysis.timeline.rows import TimelineRow, in_usual_order, rows_by_track, timeline_rows
from llmtop.columns import in_order, is_long, picked, shifted
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from llmtop.model import SpanTable, Trace, TrackId

    LabelOf: TypeAlias = Callable[[str, str], str]

_SHIFT: Final = 40
"""Bits of a span's code that are its row; those above are the place of its kind among all."""
_ROW: Final = (1 << _SHIFT) - 1
_EMPTY: Final = SpanLine(array("q"), array("q"), array("q"))


@frozen
class TimelinePlace:
    """A line on the screen.

    Attributes:
        depth: Which of the row's lines; -1 for one that has all its spans.
        level: How far it is indented.
    """

    row: TimelineRow
    depth: int = -1
    level: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What it is, whatever stands above it."""
        return self.row.key, max(0, self.depth)


class TraceTimeline:
    """The spans and samples of a trace by row.

    The spans that nothing is concluded from are there where they are wanted (`with_more`): reading them takes time.
    Lines are made by `prepare`, on any thread, and looked up by `line`: of those that are not made yet, None.

    Attributes:
        start_ns, end_ns: The capture's.
        first_ns, last_ns: From the first span of all to the end of the last one: OS calls may lie outside the capture.
        has_more: Whether the file has spans that nothing is concluded from, shown or not (`Trace.more_spans`).
        gaps: Why GPUs had nothing to do; None until `explain_gaps` was called.
        claims: Whose ranges calls lie in; None until then.
    """

    def __init__(self, trace: Trace, *, with_more: bool = False) -> None:
        self.trace = trace
        self.has_more = bool(trace.more_spans)
        kinds = (*trace.spans, *(trace.more_spans if with_more else ()))
        tables = {kind: trace.spans[kind] if kind in trace.spans else trace.more_spans[kind] for kind in kinds}
        self.tables = {kind: tables[kind] for kind in in_usual_order(tables) if len(tables[kind])}
        self._names = tuple(self.tables)
        self._parts = {kind: rows_by_track(spans) for kind, spans in self.tables.items()}
        self.rows = timeline_rows(trace, self.tables, self._parts)
        first = min((spans.start_ns[0] for spans in self.tables.values()), default=trace.start_ns)
        last = max((max(spans.end_ns) for spans in self.tables.values()), default=trace.end_ns)
        sampled = [times for series in trace.series.values() if (times := series.times)]
        is_timed = trace.end_ns > trace.start_ns
        self.start_ns, self.end_ns = (trace.start_ns, trace.end_ns) if is_timed else (first, max(last, first + 1))
        self.first_ns = min(first, self.start_ns, *(times[0] for times in sampled))
        self.last_ns = max(last, self.end_ns, *(times[-1] for times in sampled))
        self._whole: dict[str, SpanLine] = {}
        self._lines: dict[str, tuple[SpanLine, ...]] = {}
        self._graphs: dict[str, SampleLine] = {}
        self.gaps: Gaps | None = None
        self.claims: Claims | None = None

    def explain_gaps(self) -> None:
        """Find out why GPUs had nothing to do, and who works for whom; of a long capture this takes the longest."""
        self.claims = claims_of(self.trace)
        self.gaps = Gaps(self.trace)

    # -- lines -------------------------------------------------------------------------------------------------

    def places(self, opened: Collection[str]) -> list[TimelinePlace]:
        """All lines from top to bottom, where the rows of these keys are open."""
        return [place for row in self.rows for place in self._places(row, opened, 0)]

    def _places(self, row: TimelineRow, opened: Collection[str], level: int) -> Iterator[TimelinePlace]:
        is_open = row.key in opened
        lines = self._lines.get(row.key, ()) if is_open and row.is_stacked and row.kinds else ()
        if len(lines) > 1:
            yield from (TimelinePlace(row, depth, level) for depth in range(len(lines)))
        else:
            yield TimelinePlace(row, -1, level)
        if is_open:
            for below in row.below:
                yield from self._places(below, opened, level + 1)

    def is_ready(self, row: TimelineRow) -> bool:
        """Whether there is nothing to prepare."""
        return row.key in self._lines or row.key in self._graphs or not (row.kinds or row.series)

    def can_open(self, row: TimelineRow) -> bool:
        """Whether it can be opened and closed."""
        return bool(row.below) or (row.is_stacked and row.key in self._whole and self._whole[row.key].overlaps)

    def prepare(self, row: TimelineRow) -> None:
        """Make the lines of a row."""
        if self.is_ready(row):
            return
        if row.series is not None:
            self._graphs[row.key] = SampleLine(row.series.times, row.series.values)
            return
        whole = self._spans(row)
        self._whole[row.key] = whole
        self._lines[row.key] = whole.by_depth() if row.is_stacked else (whole,)

    def line(self, place: TimelinePlace) -> SpanLine | None:
        """The spans of a line; None where they are not prepared, or where it is none of spans."""
        if place.depth < 0:
            return self._whole.get(place.row.key)
        lines = self._lines.get(place.row.key, ())
        return lines[place.depth] if place.depth < len(lines) else None

    def graph(self, row: TimelineRow) -> SampleLine | None:
        """The samples of a row, once they are prepared."""
        return self._graphs.get(row.key)

    def gpu_line(self, gpu: TrackId) -> SpanLine | None:
        """All work of a GPU, once it is prepared."""
        return self._whole.get(gpu)

    @property
    def gpus(self) -> tuple[TimelineRow, ...]:
        """The rows of whole GPUs that had work."""
        return tuple(row for row in self.rows if row.gpu is not None)

    def _spans(self, row: TimelineRow) -> SpanLine:
        parts = [columns for kind in row.kinds if kind in self.tables for columns in self._columns(row, kind)]
        if not parts:
            return _EMPTY
        if len(parts) == 1:
            return SpanLine(*parts[0])
        together = [array("q"), array("q"), array("q")]
        for columns in parts:
            for column, part in zip(together, columns, strict=True):
                column.extend(part)
        return SpanLine(*in_order(together))

    def _columns(self, row: TimelineRow, kind: str) -> Iterator[tuple[array[int], array[int], Sequence[int]]]:
        """Start, end and code of a kind's spans on the row's tracks; a table that is all of one track is not copied."""
        spans, first_code = self.tables[kind], self.code(kind, 0)
        for track in row.tracks:
            rows = self._parts[kind].get(track, range(0))
            if row.names is not None:
                rows = array("q", (one for one in rows if spans.name_id[one] in row.names))
            if len(rows) == len(spans):
                yield spans.start_ns, spans.end_ns, range(first_code, first_code + len(spans))
            elif isinstance(rows, array) and rows:
                yield picked(spans.start_ns, rows), picked(spans.end_ns, rows), shifted(rows, first_code)

    # -- spans -------------------------------------------------------------------------------------------------

    def span(self, code: int) -> tuple[SpanTable, int]:
        """The table and the row of a span."""
        return self.tables[self._names[code >> _SHIFT]], code & _ROW

    def name(self, code: int) -> tuple[str, str]:
        """The kind and the name of a span."""
        spans, row = self.span(code)
        return spans.kind, spans.names[spans.name_id[row]]

    def code(self, kind: str, row: int) -> int:
        """What lines call a span."""
        return (self._names.index(kind) << _SHIFT) | row

    def code_of(self, track: TrackId, start_ns: int, end_ns: int) -> int | None:
        """The span of a track that is from one moment to another, or None."""
        begun = self.begun(self.tables, track, start_ns, start_ns + 1)
        return next((code for code in begun if self.times(code)[1] == end_ns), None)

    def begun(self, kinds: Iterable[str], track: TrackId, since_ns: int, until_ns: int) -> Iterator[int]:
        """The spans of these kinds on a track that begin from one moment on and before another, kind by kind."""
        for kind in kinds:
            starts, rows = self.tables[kind].start_ns, self._parts[kind].get(track, range(0))
            for at in range(bisect_left(rows, since_ns, key=starts.__getitem__), len(rows)):
                if starts[rows[at]] >= until_ns:
                    break
                yield self.code(kind, rows[at])

    def times(self, code: int) -> tuple[int, int]:
        """When a span begins and ends."""
        spans, row = self.span(code)
        return spans.start_ns[row], spans.end_ns[row]

    def way_to(self, code: int) -> tuple[TimelineRow, ...]:
        """The rows from the outermost to the one that has a span; () where none has it."""
        spans, row = self.span(code)
        kind, track, name = spans.kind, spans.tracks[spans.track_id[row]], spans.name_id[row]
        ways = [way for top in self.rows for way in _ways(top) if _has(way[-1], kind, track, name)]
        return min(ways, key=lambda way: len(way[-1].tracks), default=())

    def place_of(self, code: int, opened: Collection[str]) -> TimelinePlace | None:
        """The line that shows a span, where the rows of these keys are open and prepared; the innermost that does."""
        way, start = self.way_to(code), self.times(code)[0]
        keys = {row.key for row in way}
        found = None
        for place in self.places(opened):
            line = self.line(place)
            if place.row.key in keys and line is not None and line.place_of(code, start) is not None:
                found = place
        return found

    # -- search ------------------------------------------------------------------------------------------------

    def search(self, text: str, label_of: LabelOf | None = None) -> Matches:
        """All spans whose name, or what `label_of` makes of their kind and name, has a text, whatever its case."""
        wanted = text.casefold()
        by_kind = {
            kind: frozenset(
                i
                for i, name in enumerate(spans.names)
                if wanted in name.casefold() or (label_of and wanted in label_of(kind, name).casefold())
            )
            for kind, spans in self.tables.items()
        }
        return Matches(self, {kind: names for kind, names in by_kind.items() if names})


def _ways(row: TimelineRow) -> Iterator[tuple[TimelineRow, ...]]:
    yield (row,)
    for below in row.below:
        yield from ((row, *way) for way in _ways(below))


def _has(row: TimelineRow, kind: str, track: TrackId, name: int) -> bool:
    return kind in row.kinds and track in row.tracks and (row.names is None or name in row.names)


class Matches:
    """Spans of some names, by time.

    Attributes:
        names: The numbers of the names, by kind.
    """

    def __init__(self, timeline: TraceTimeline, names: dict[str, frozenset[int]]) -> None:
        self._timeline = timeline
        self.names = names

    @cached_property
    def _found(self) -> tuple[array[int], array[int]]:
        starts, codes = array("q"), array("q")
        for kind, names in self.names.items():
            spans = self._timeline.tables[kind]
            rows = _rows_of(spans, names)
            starts.extend(picked(spans.start_ns, rows))
            codes.extend(shifted(rows, self._timeline.code(kind, 0)))
        in_time = in_order([starts, codes])
        return in_time[0], in_time[1]

    def __len__(self) -> int:
        return len(self._found[0])

    def beside(self, t_ns: int, code: int, step: int) -> tuple[int, int] | None:
        """The next match (1) or the last one (-1) from a moment and a span on, with its number from 0 on.

        After the last one comes the first again. None where there is no match.
        """
        starts, codes = self._found
        if not starts:
            return None
        place = bisect_left(starts, t_ns)
        while place < len(starts) and starts[place] == t_ns and codes[place] != code:
            place += 1
        is_on_one = place < len(starts) and starts[place] == t_ns
        if not is_on_one:
            place = bisect_left(starts, t_ns)
        place = place + step if is_on_one or step < 0 else place
        return codes[place % len(codes)], place % len(codes)


def _rows_of(spans: SpanTable, names: frozenset[int]) -> array[int]:
    if not is_long(len(spans)):
        return array("q", (row for row, name in enumerate(spans.name_id) if name in names))
    import numpy as np

    is_wanted = np.zeros(len(spans.names), bool)
    is_wanted[list(names)] = True
    return array("q", np.flatnonzero(is_wanted[np.asarray(spans.name_id)]).tobytes())
