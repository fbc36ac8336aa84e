"""Where one stands in a timeline, and how one moves: a window of time, open rows, a cursor, marks, a search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.span_facts import first_launched, partners_of
from llmtop.analysis.timeline.window import ShownTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.timeline.levels import SpanLine
    from llmtop.analysis.timeline.rows import TimelineRow
    from llmtop.analysis.timeline.spans import LabelOf, Matches, TimelinePlace, TraceTimeline
    from llmtop.model import Stretch

_MARKS = 2
"""Between which time is measured."""


class TimelineCursor:
    """The state of a view of a timeline; `columns` is how many cells time has.

    Attributes:
        window: The time that is shown.
        opened: The keys of open rows.
        t_ns: The moment of the cursor.
        pinned: The span that was gone to; without one, the longest span in the cursor's cell counts.
        marks: Moments between which time is measured: none, one or two.
        search: What is searched for; `matches` are the spans, `match` the number of the one that was gone to.
    """

    def __init__(self, timeline: TraceTimeline) -> None:
        self.timeline = timeline
        self.columns = 1
        first, last = timeline.first_ns, timeline.last_ns
        self.window = ShownTime(timeline.start_ns, timeline.end_ns, first, last)
        self.opened = {row.key for row in _all(timeline.rows) if row.is_open}
        self.t_ns = timeline.start_ns
        self.pinned: int | None = None
        self.marks: tuple[int, ...] = ()
        self.search = ""
        self.matches: Matches | None = None
        self.match: int | None = None
        self._key: tuple[str, int] | None = None
        self._at = 0
        self._is_placed = False

    def onto(self, timeline: TraceTimeline) -> TimelineCursor:
        """The same place in a timeline of more or fewer spans of the same trace."""
        other = TimelineCursor(timeline)
        other.columns, other.window, other.t_ns = (
            self.columns,
            replace(self.window, first_ns=timeline.first_ns, last_ns=timeline.last_ns),
            self.t_ns,
        )
        other.marks, other._key = self.marks, self._key
        other.find(self.search)
        return other

    # -- where it is -------------------------------------------------------------------------------------------

    def places(self) -> list[TimelinePlace]:
        """All lines, as rows are open now."""
        return self.timeline.places(self.opened)

    def at(self, places: list[TimelinePlace]) -> int:
        """Which of these lines the cursor is on: that of the pinned span, else where it was."""
        if self.pinned is not None and not self._is_placed:
            place = self.timeline.place_of(self.pinned, self.opened)
            self._key, self._is_placed = (self._key, False) if place is None else (place.key, True)
        keys = [place.key for place in places]
        if self._key not in keys and self._key is not None and (self._key[0], 0) in keys:
            self._key = self._key[0], 0  # its row was closed, or is not prepared yet
        self._at = keys.index(self._key) if self._key in keys else max(0, min(self._at, len(keys) - 1))
        self._key = keys[self._at] if keys else None
        return self._at

    def place(self) -> TimelinePlace | None:
        """The cursor's line; None of a timeline without any."""
        places = self.places()
        return places[self.at(places)] if places else None

    def line(self) -> SpanLine | None:
        """The spans of the cursor's line."""
        place = self.place()
        return None if place is None else self.timeline.line(place)

    def cell(self) -> tuple[int, int]:
        """From when to when the cursor's cell is."""
        edges = self.window.edges(self.columns)
        column = max(0, min(self.window.column_of(self.t_ns, self.columns), self.columns - 1))
        return edges[column], edges[column + 1]

    def span(self) -> int | None:
        """The span that the cursor stands on."""
        line = self.line()
        if line is None:
            return None
        if self.pinned is not None and line.place_of(self.pinned, self.timeline.times(self.pinned)[0]) is not None:
            return self.pinned
        place = line.longest(*self.cell())
        return None if place is None else line.codes[place]

    # -- time --------------------------------------------------------------------------------------------------

    def zoom(self, factor: float, at_ns: int | None = None) -> None:
        """Show so many times as much time, with a moment (the cursor's) where it was."""
        self.window = self.window.zoomed(self.t_ns if at_ns is None else at_ns, factor, self.columns)
        self._stay()

    def pan(self, share: float) -> None:
        """Move the window by a share of its width; the cursor stays at its moment as long as that is shown."""
        self.window = self.window.moved(round(self.window.length_ns * share))
        self._stay()

    def step(self, cells: int) -> None:
        """Move the cursor by cells, and the window where that ends."""
        start, end = self.cell()
        self._stand_at(start + cells * max(1, end - start))
        self.window = self.window.around(self.t_ns, self.t_ns + 1)

    def edge(self, side: int) -> None:
        """Show the beginning or the end."""
        window = self.window
        self.window = window.moved(window.first_ns - window.start_ns if side < 0 else window.last_ns - window.end_ns)
        self._stand_at(self.window.start_ns if side < 0 else self.window.end_ns - 1)

    def whole(self) -> None:
        """Show the whole capture; again, all that lies around it too."""
        timeline, window = self.timeline, self.window
        is_whole = (window.start_ns, window.end_ns) == (timeline.start_ns, timeline.end_ns)
        start, end = (window.first_ns, window.last_ns) if is_whole else (timeline.start_ns, timeline.end_ns)
        self.window = ShownTime(start, end, window.first_ns, window.last_ns)
        self._stay()

    def fit(self) -> None:
        """Show the cursor's span, or the time between the marks, over the whole width."""
        code = self.span()
        if len(self.marks) == _MARKS:
            self.window = self.window.of(min(self.marks), max(self.marks), self.columns)
        elif code is not None:
            self.pinned, self._is_placed = code, True
            self.window = self.window.of(*self.timeline.times(code), self.columns)
        self._stay()

    def _stay(self) -> None:
        """Keep the cursor where it is shown."""
        held = max(self.window.start_ns, min(self.t_ns, self.window.end_ns - 1))
        if held != self.t_ns:
            self._stand_at(held)

    def _stand_at(self, t_ns: int) -> None:
        self.t_ns = max(self.window.first_ns, min(t_ns, self.window.last_ns - 1))
        self.pinned = None

    # -- rows --------------------------------------------------------------------------------------------------

    def move(self, lines: int) -> None:
        """Go to the line so many further down."""
        places = self.places()
        if places:
            to = max(0, min(self.at(places) + lines, len(places) - 1))
            self.pinned, self._at, self._key = None, to, places[to].key

    def stand(self, place: TimelinePlace, column: int) -> None:
        """Go to a cell."""
        self._key = place.key
        self._stand_at(self.window.edges(self.columns)[max(0, min(column, self.columns - 1))])

    def fold(self) -> bool:
        """Close the cursor's row, or open it; whether there is anything to close or to open."""
        place = self.place()
        if place is None or not self.timeline.can_open(place.row):
            return False
        self.pinned = None
        self.opened ^= {place.row.key}
        return True

    # -- spans -------------------------------------------------------------------------------------------------

    def beside(self, step: int) -> bool:
        """Go to the next span of the line, or the last one; whether there is one."""
        line = self.line()
        place = None if line is None else line.beside(self.t_ns, step)
        if line is None or place is None:
            return False
        self._go(line.codes[place])
        self._is_placed = True  # on this line, whichever other shows it too
        return True

    def partner(self) -> int | None:
        """What launched the cursor's span, or what that launched."""
        code = self.span()
        partners = () if code is None else partners_of(self.timeline, code)
        return partners[0] if partners else None

    def launched(self) -> int | None:
        """The first work that was launched within the cursor's span."""
        code = self.span()
        return None if code is None else first_launched(self.timeline, code)

    def jump(self, code: int) -> None:
        """Go to a span wherever it is, opening what it is in."""
        way = self.timeline.way_to(code)
        self.opened |= {row.key for row in way[:-1]}
        self._key = (way[-1].key, 0) if way else self._key
        self._go(code)

    def show_stretch(self, stretch: Stretch) -> None:
        """Show a stretch of time with half as much on either side, the cursor on the span that it is of.

        What is no span, such as a gap, is marked at both ends, with the cursor in its middle on the row of its track.
        """
        start, end = stretch.start_ns, stretch.end_ns
        code = None if stretch.track is None else self.timeline.code_of(stretch.track, start, end)
        self.marks = (start, end) if code is None and end > start else ()
        if code is not None:
            self.jump(code)
        else:
            self._key = (stretch.track, 0) if stretch.track is not None else self._key
            self._stand_at((start + end) // 2)
        half = (end - start) // 2
        around = self.window.of(start - half, end + half, self.columns)
        self.window = around if end > start else self.window.around(start, start + 1)

    def _go(self, code: int) -> None:
        start, end = self.timeline.times(code)
        self.window = self.window.around(start, max(end, start + 1))
        self._stand_at(start)
        self.pinned, self._is_placed = code, False

    # -- marks and search --------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Mark the cursor's moment; a third mark begins anew."""
        kept = self.marks if len(self.marks) < _MARKS else ()
        self.marks = (*kept, self.t_ns)

    def find(self, text: str, label_of: LabelOf | None = None) -> None:
        """Search for spans by a part of their names, or of what their bars are labelled with; nothing ends it."""
        self.search, self.match = text, None
        self.matches = self.timeline.search(text, label_of) if text else None

    def next_match(self, step: int) -> bool:
        """Go to the next span that was searched for, or the last one; whether there is one."""
        code = self.pinned if self.pinned is not None else self.span()
        found = None if self.matches is None else self.matches.beside(self.t_ns, -1 if code is None else code, step)
        if found is None:
            return False
        self.jump(found[0])
        self.match = found[1]
        return True


def _all(rows: tuple[TimelineRow, ...]) -> Iterator[TimelineRow]:
    for row in rows:
        yield row
        yield from _all(row.below)
