"""A timeline: a ruler, a line for each row's spans or samples, a legend, and what is under the cursor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from llmtop.analysis.series.summary import value_said
from llmtop.analysis.timeline.causes import TITLES
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, SpanKind
from llmtop.tui.render.lines import Part, cut_middle, fill, line, pad, spelled, width_of
from llmtop.tui.render.ruler import ruler_line
from llmtop.tui.render.timeline_words import RANGES, cause_role, colour_of, fill_of, fitted, label_of
from llmtop.units import percent

if TYPE_CHECKING:
    from llmtop.analysis.timeline.gaps import Gaps
    from llmtop.analysis.timeline.levels import Run, SpanLine
    from llmtop.analysis.timeline.spans import TimelinePlace, TraceTimeline
    from llmtop.analysis.timeline.window import ShownTime
    from llmtop.model import TrackId
    from llmtop.tui.render.look import Look

_REVERSE = Style(reverse=True, dim=False)
_UNDERLINED = Style(underline=True)
_LEAST_LEFT, _MOST_LEFT = 14, 32
_EIGHTHS = 8
_TALL, _MOST_LEGEND = 30, 3
"""Lines from which on the legend has two, and how many it has where rows leave them."""
_GROUPS = _GPU, _THREADS, _IDLE = "GPU", "threads", "idle"
"""What colours are of: the same one means something else in each."""
_ON_GPUS = frozenset((*GPU_WORK, SpanKind.SYNC, SpanKind.PAGE_FAULT, SpanKind.ALLOCATION))
_TITLES = 2
"""Of one colour, that a legend has room for."""


@frozen
class TimelinePicture:
    """All that a frame shows.

    Attributes:
        places: The lines from the first on the screen on.
        at: Which of them the cursor is on.
        cursor_ns: The moment that it stands at.
        selected: The span that it stands on; `partner` is what launched that or was launched by it.
        marks: Moments between which time is measured.
        found: The numbers of names that were searched for, by kind; None where nothing is.
        opened: The keys of rows that are open.
        gaps: Why GPUs had nothing to do, once that is known.
        below: What is said of the cursor, a line each.
    """

    timeline: TraceTimeline
    window: ShownTime
    places: Sequence[TimelinePlace]
    at: int
    cursor_ns: int
    selected: int | None = None
    partner: int | None = None
    marks: tuple[int, ...] = ()
    found: Mapping[str, frozenset[int]] | None = None
    opened: frozenset[str] = frozenset()
    gaps: Gaps | None = None
    below: Sequence[Sequence[Part]] = ()


def left_of(width: int) -> int:
    """The cells that the titles of rows take."""
    return max(_LEAST_LEFT, min(_MOST_LEFT, width * 3 // 10))


def columns_of(width: int) -> int:
    """The cells that time has."""
    return max(1, width - left_of(width))


def rows_of(height: int, below: int, rows: int) -> int:
    """How many of so many rows there is room for: what is left by ruler, legend and the lines below."""
    return max(1, height - 1 - _legend_lines(height, below, rows) - below)


def _legend_lines(height: int, below: int, rows: int) -> int:
    """What the rows leave is the legend's too."""
    usual = 2 if height >= _TALL else 1
    return max(usual, min(_MOST_LEGEND, height - 1 - below - rows))


def draw_timeline(picture: TimelinePicture, width: int, height: int, look: Look) -> list[Strip]:
    """The picture in `width` x `height` cells."""
    drawn = _Drawing(picture, width, look)
    below, shown = len(picture.below), len(picture.places)
    rows = rows_of(height, below, shown)
    lines = [drawn.row(place, i) for i, place in enumerate(picture.places[:rows])]
    body = fill(lines, width, rows, look)
    told = [line(parts, width, look) for parts in picture.below]
    return [drawn.ruler(), *body, *drawn.legend(_legend_lines(height, below, shown)), *told][:height]


@dataclass(slots=True)
class _Drawing:
    """What all lines of one frame have in common."""

    picture: TimelinePicture
    width: int
    look: Look
    left: int = 0
    edges: Sequence[int] = ()
    colours: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Of the bars that were drawn what they are of, their role and what they are called; how often."""
    has_merged: bool = False
    has_selected: bool = False

    def __post_init__(self) -> None:
        self.left = left_of(self.width)
        self.edges = self.picture.window.edges(columns_of(self.width))

    @property
    def _columns(self) -> int:
        return len(self.edges) - 1

    # -- above and below ---------------------------------------------------------------------------------------

    def ruler(self) -> Strip:
        """Times, the cursor and the marks."""
        window, glyphs = self.picture.window, self.look.glyphs
        marked: dict[int, Part] = {}
        marks = sorted(window.column_of(mark, self._columns) for mark in self.picture.marks)
        if len(marks) > 1:
            between = range(max(0, marks[0] + 1), min(self._columns, marks[-1]))
            marked |= dict.fromkeys(between, (glyphs.horizontal, "selected"))
        marked |= dict.fromkeys(marks, (glyphs.vertical, "selected"))
        marked[window.column_of(self.picture.cursor_ns, self._columns)] = (glyphs.down, "title")
        return ruler_line(window, self.picture.timeline.start_ns, self.left, self._columns, self.look, marked)

    def legend(self, lines: int) -> list[Strip]:
        """The colours that are on the screen and what they stand for: of each group what is there most often first.

        Where there is no room for all, no group is left out for another's further ones.
        """
        glyphs = self.look.glyphs
        several = [[(f" {glyphs.merged[2]}{glyphs.merged[-1]}", "text"), (" several", "text")]]
        groups = [several if self.has_merged else [], *(list(self._entries(group)) for group in _GROUPS)]
        shown: list[list[list[Part]]] = [[] for _ in groups]
        full: set[int] = set()
        for round_ in zip_longest(*groups):
            for i, entry in enumerate(round_):
                if entry is None or i in full:
                    continue
                shown[i].append(entry)
                if len(self._legend_rows(shown)) > lines:
                    shown[i].pop()
                    full.add(i)
        rows = [line(row, self.width, self.look) for row in self._legend_rows(shown)]
        return fill(rows, self.width, lines, self.look)

    def _legend_rows(self, groups: Iterable[Iterable[list[Part]]]) -> list[list[Part]]:
        """The entries one after the other, each in one line."""
        rows: list[list[Part]] = [[]]
        room = self.width
        for entry in chain.from_iterable(groups):
            size = sum(width_of(text) for text, _ in entry)
            if size > room:
                rows.append([])
                room = self.width
            rows[-1] += entry
            room -= size
        return rows

    def _entries(self, group: str) -> Iterator[list[Part]]:
        """One for each colour; the first says too what all are of."""
        titles: dict[str, list[str]] = {}
        for (of, role, title), _ in self.colours.most_common():
            if of == group:
                titles.setdefault(role, []).append(title)
        head = [(f"  {group}", "dim")]
        for role, several in titles.items():
            if self.look.glyphs.shades or group == _IDLE:
                glyph = self.look.glyphs.idle if group == _IDLE else self.look.glyphs.eighths[-1]
                shown = [[(f" {glyph * 2}", role), (f" {', '.join(several[:_TITLES])}", "text")]]
            else:
                shown = [[(f" {fill_of(one, self.look) * 2}", role), (f" {one}", "text")] for one in several]
            yield [*head, *shown[0]]
            yield from shown[1:]
            head = []

    # -- rows --------------------------------------------------------------------------------------------------

    def row(self, place: TimelinePlace, i: int) -> Strip:
        """One line: its title, then time."""
        is_here = i == self.picture.at
        own = self.picture.timeline.line(place)
        segments = self._spans(place, own, i) if own is not None else self._other(place)
        return Strip([Segment(*self._title(place, own, is_here=is_here)), *segments], self.width)

    def _title(self, place: TimelinePlace, own: SpanLine | None, *, is_here: bool) -> tuple[str, Style]:
        row, glyphs = place.row, self.look.glyphs
        fold = glyphs.opened if row.key in self.picture.opened else glyphs.closed
        fold = fold if self.picture.timeline.can_open(row) else " "
        title = row.title if place.depth <= 0 else ""
        head = f"{' ' * place.level}{fold if place.depth <= 0 else ' '}{title}"
        told = self._told(place, own)
        room = self.left - 1 - (width_of(told) + 1 if told else 0)
        shown = pad(cut_middle(spelled(head, self.look), room, self.look), room, self.look)
        text = f"{shown}{' ' if told else ''}{told} "
        role = "cursor" if is_here else "title" if place.level == 0 else "text"
        return text, self.look.style(role)

    def _told(self, place: TimelinePlace, own: SpanLine | None) -> str:
        """A number at the end of a title: of a GPU how much of the time it worked, of samples their value."""
        graph = self.picture.timeline.graph(place.row)
        if graph is not None and place.row.series is not None:
            value = graph.value(self.picture.cursor_ns, self.picture.cursor_ns + 1)
            return "" if value is None else spelled(value_said(place.row.series.metric, value), self.look)
        if own is None or place.row.gpu is None:
            return ""
        busy = own.cover.within(self.edges[0], self.edges[-1])
        return percent(100 * busy / (self.edges[-1] - self.edges[0])).replace(" ", "")

    def _other(self, place: TimelinePlace) -> list[Segment]:
        """A graph of samples, a remark, or that the row is being read."""
        graph, row = self.picture.timeline.graph(place.row), place.row
        if graph is None or row.series is None:
            said = row.note if self.picture.timeline.is_ready(row) else f"reading{self.look.glyphs.ellipsis}"
            return [Segment(pad(spelled(said, self.look), self._columns, self.look), self.look.style("dim"))]
        low, high = min(0.0, graph.low or 0.0), graph.high or 0.0
        high = 100.0 if row.series.metric.unit == "%" and high <= 100 else high
        levels = self.look.glyphs.spark
        span = (high - low) or 1.0
        text = "".join(
            " " if value is None else levels[round((len(levels) - 1) * (value - low) / span)]
            for value in graph.values(self.edges)
        )
        return [Segment(text, self.look.style("series1"))]

    def _spans(self, place: TimelinePlace, own: SpanLine, i: int) -> list[Segment]:
        segments: list[Segment] = []
        at, gpu = 0, place.row.gpu
        for run in own.runs(self.edges):
            if run.first > at:
                segments += self._free(at, run.first, gpu)
            segments += self._run(run, own, i)
            at = run.stop
        if at < self._columns:
            segments += self._free(at, self._columns, gpu)
        if i == self.picture.at:
            return self._with_cursor(segments)
        return segments

    def _with_cursor(self, segments: list[Segment]) -> list[Segment]:
        """The cursor's cell marked, where its span is not drawn: there is none, or a longer one stands for it."""
        column = self.picture.window.column_of(self.picture.cursor_ns, self._columns)
        if self.has_selected or not 0 <= column < self._columns:
            return segments
        strip = Strip(segments, self._columns)
        text = strip.crop(column, column + 1).text
        mark = self.look.glyphs.vertical if text in (" ", self.look.glyphs.idle) else text
        marked = Strip([Segment(mark, self.look.style("cursor"))], 1)
        return list(Strip.join([strip.crop(0, column), marked, strip.crop(column + 1)]))

    # -- cells -------------------------------------------------------------------------------------------------

    def _free(self, first: int, stop: int, gpu: TrackId | None) -> list[Segment]:
        """Cells without a span; of a GPU in the colours of why it had nothing to do."""
        if gpu is None or self.picture.gaps is None:
            return [Segment(" " * (stop - first), self.look.style("text"))]
        segments = []
        for role, run in groupby(range(first, stop), key=lambda column: self._cause(gpu, column)):
            glyph = self.look.glyphs.idle if role else " "
            segments.append(Segment(glyph * len(list(run)), self.look.style(role or "text")))
        return segments

    def _cause(self, gpu: TrackId, column: int) -> str:
        """The role of the cause of a gap; empty outside of the capture."""
        start, end = self.edges[column], self.edges[column + 1]
        timeline = self.picture.timeline
        if self.picture.gaps is None or end <= timeline.start_ns or start >= timeline.end_ns:
            return ""
        gap = self.picture.gaps.at(gpu, max(start, timeline.start_ns))
        if gap is None:
            return ""
        role = cause_role(gap.cause)
        self.colours[_IDLE, role, TITLES[gap.cause]] += 1
        return role

    def _run(self, run: Run, own: SpanLine, i: int) -> list[Segment]:
        code = own.codes[run.place]
        kind, name = self.picture.timeline.name(code)
        role, title = colour_of(kind, name)
        if title == RANGES:
            title = self.picture.timeline.trace.origin.range_term.removesuffix(" range")
        self.colours[_GPU if kind in _ON_GPUS else _THREADS, role, title] += 1
        self.has_merged |= run.count > 1
        self.has_selected |= i == self.picture.at and code == self.picture.selected
        style = self._style(code, role)
        if run.count > 1:
            return [Segment(self._merged(run), style)]
        whole = fill_of(title, self.look) if code != self.picture.selected else self.look.glyphs.horizontal
        text, begins = self._bar(run, own.starts[run.place], own.ends[run.place], whole)
        if code == self.picture.partner:
            text = self._arrow(i) + text[1:]
        label = fitted(spelled(label_of(kind, name), self.look), run.stop - run.first - 1, self.look)
        is_ground = code == self.picture.selected
        return self._labelled(text, label, style, style if is_ground else style + _REVERSE, begins=begins)

    def _style(self, code: int, role: str) -> Style:
        picture = self.picture
        if code == picture.selected:
            return self.look.style("cursor") + _UNDERLINED
        if code == picture.partner:
            return self.look.style("selected")
        if picture.found is not None:
            spans, row = picture.timeline.span(code)
            if spans.name_id[row] not in picture.found.get(spans.kind, ()):
                return self.look.style("dim")
        return self.look.style(role)

    def _merged(self, run: Run) -> str:
        """The height of a cell that several spans share: full only where no nanosecond is free."""
        length = self.edges[run.stop] - self.edges[run.first]
        levels = self.look.glyphs.merged
        return levels[-1] if run.busy_ns >= length else levels[_eighth(run.busy_ns, length)]

    def _bar(self, run: Run, start: int, end: int, whole: str) -> tuple[str, bool]:
        """A span that has its cells to itself, and whether its first cell is to be seen in reverse.

        There the ink is what is free before the span: an eighth as an edge, and more where something is free.
        """
        glyphs, edges = self.look.glyphs, self.edges
        cells = [whole] * (run.stop - run.first)
        begins, free = start >= edges[run.first], start - edges[run.first]
        if begins:
            length = edges[run.first + 1] - edges[run.first]
            cells[0] = glyphs.partial[max(1, _eighth(free, length))] if free else glyphs.edge
        last, until = edges[run.stop - 1], edges[run.stop]
        if end < until:
            cells[-1] = glyphs.partial[_eighth(end - max(start, last), until - last)]
            begins = begins and len(cells) > 1
        return "".join(cells), begins

    def _arrow(self, i: int) -> str:
        return self.look.glyphs.up if i > self.picture.at else self.look.glyphs.down

    def _labelled(self, text: str, label: str, style: Style, ground: Style, *, begins: bool) -> list[Segment]:
        """A bar's cells with the label on a ground of its colour; letters that fill a bar stand on that too."""
        segments = [Segment(text[0], ground if begins else style)]
        if label:
            segments.append(Segment(label, ground))
        rest = text[1 + width_of(label) :]
        ends = rest[-1:] in self.look.glyphs.partial
        body, end = (rest[:-1], rest[-1:]) if ends else (rest, "")
        fill_style = style if self.look.glyphs.shades else ground
        if label and body and not self.look.glyphs.shades:
            body = f"{self.look.glyphs.separator}{body[1:]}"  # letters that fill the bar are no part of the label
        return [*segments, *(Segment(part, how) for part, how in ((body, fill_style), (end, style)) if part)]


def _eighth(part: int, whole: int) -> int:
    """How many eighths a part is, less one: something is never none, and not all is never whole."""
    return max(0, min(_EIGHTHS - 2, round(_EIGHTHS * part / whole) - 1))
