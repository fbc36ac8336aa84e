"""The timeline of a file: GPUs, streams, threads, ranges and metrics on one axis of time, to move about in."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.timeline.explore import TimelineCursor
from llmtop.analysis.timeline.span_facts import between, span_facts
from llmtop.analysis.timeline.span_table import SpansOfLine
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.model import Trace, Unknown
from llmtop.tui.aside import Analysed, analyse_on_thread
from llmtop.tui.contents import Contents
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.view import RECORDED
from llmtop.tui.render.lines import explain, in_room
from llmtop.tui.render.timeline import TimelinePicture, columns_of, draw_timeline, left_of, rows_of
from llmtop.tui.render.timeline_details import SharedCell, between_line, gap_line, span_lines
from llmtop.tui.render.timeline_words import label_of
from llmtop.units import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual import events
    from textual.strip import Strip

    from llmtop.analysis.timeline.spans import TimelinePlace
    from llmtop.model import Stretch
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look

_ZOOM: Final = 2.0
_WHEEL: Final = 1.25
_STEP, _PAGE = 0.125, 0.9
"""Of the window's width."""
_SCREENFUL = 60
"""Lines that are made before anything is drawn; others when they are first seen."""
_MOST_BELOW = 8
_LOW = 16
"""With fewer lines there is room for two below the rows."""


class TimelinePane(Pane[TraceTimeline]):
    """Moves by keys and by the mouse; what is under the cursor stands below."""

    number = 2
    title = "Timeline"
    is_of_reports = False
    context = RECORDED
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w,plus,equals_sign", "zoom(-1)", "closer", key_display="w", tooltip="Less time, the cursor stays"),
        Binding("s,minus", "zoom(1)", "wider", key_display="s", tooltip="More time, the cursor stays"),
        Binding("a,left", "pan(-1)", "earlier", key_display="a", tooltip="Move to earlier times"),
        Binding("d,right", "pan(1)", "later", key_display="d", tooltip="Move to later times"),
        Binding("A,shift+left", "page_time(-1)", "page", show=False, tooltip="A page earlier or later"),
        Binding("D,shift+right", "page_time(1)", "page", show=False, tooltip="A page earlier or later"),
        Binding("home", "edge(-1)", "start", show=False, tooltip="To the beginning or the end of all that is recorded"),
        Binding("end", "edge(1)", "end", show=False, tooltip="To the beginning or the end of all that is recorded"),
        Binding("0", "whole", "all", tooltip="The whole capture; again: what lies around it too"),
        Binding("f", "fit", "fit", tooltip="Give the span, or the time between two marks, the whole width"),
        Binding("up,k", "move(-1)", "row", show=False, tooltip="The row above or below"),
        Binding("down,j", "move(1)", "row", show=False, tooltip="The row above or below"),
        Binding("pageup", "move(-10)", "rows", show=False, tooltip="Ten rows up or down"),
        Binding("pagedown", "move(10)", "rows", show=False, tooltip="Ten rows up or down"),
        Binding("h", "step(-1)", "cell", show=False, tooltip="The cursor by a cell in time"),
        Binding("l", "step(1)", "cell", show=False, tooltip="The cursor by a cell in time"),
        Binding("comma", "span(-1)", "span", key_display=",", tooltip="The last or the next span of the row"),
        Binding("full_stop", "span(1)", "span", key_display=".", tooltip="The last or the next span of the row"),
        Binding("enter,space", "fold", "fold", tooltip="Open or close the row"),
        Binding("g", "partner", "launch/kernel", tooltip="From a launch, a range or an operator to its kernel; back"),
        Binding(
            "slash", "search", "search", key_display="/", tooltip="Spans by a part of their name: n and N go to them"
        ),
        Binding("n", "match(1)", "match", show=False, tooltip="The next or the last span that was searched for"),
        Binding("N", "match(-1)", "match", show=False, tooltip="The next or the last span that was searched for"),
        Binding("m", "mark", "mark", tooltip="Mark this moment; a second mark measures the time between"),
        Binding("i", "detail", "details", show=False, tooltip="All that is known of the span, or the first lines"),
        Binding("e", "more", "more", show=False, tooltip="Brief CUDA calls and threads without any too, or not"),
        Binding("escape", "leave", "clear", show=False, tooltip="Without marks and without a search"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor: TimelineCursor | None = None
        self._top = 0
        self._is_searching = False
        self._is_detailed = self._with_more = False
        self._is_working = False
        self._has_asked_why = False
        self._dragged_from: int | None = None
        self._wanted: Stretch | None = None

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.spans else Unknown("this file has no timeline")

    def view(self, trace: Trace) -> TraceTimeline | Unknown:
        timeline = TraceTimeline(trace, with_more=self._with_more)
        opened = TimelineCursor(timeline).opened
        for place in timeline.places(opened)[:_SCREENFUL]:
            timeline.prepare(place.row)
        return timeline

    def draw(self, view: TraceTimeline, width: int, height: int, look: Look) -> list[Strip]:
        cursor = self.cursor
        if cursor is None or cursor.timeline is not view:
            cursor = self.cursor = TimelineCursor(view) if cursor is None else cursor.onto(view)
            self._has_asked_why = False
        cursor.columns = columns_of(width)
        if self._wanted is not None:
            cursor.show_stretch(self._wanted)
            self._wanted = None
        places = cursor.places()
        if not places:
            return explain(Unknown("the capture has no spans and no samples"), width, height, look)
        at, code = cursor.at(places), cursor.span()
        room = self._most_below(height, len(places))
        below = [*in_room([*self._below(cursor, code, width, look)], width, room), *repeat((), room)][:room]
        rows = rows_of(height, len(below), len(places))
        self._top = max(0, min(max(self._top, at - rows + 1), at, len(places) - rows))
        picture = TimelinePicture(
            view, cursor.window, places[self._top : self._top + rows], at - self._top, cursor.t_ns, code,
            cursor.partner(), cursor.marks, None if cursor.matches is None else cursor.matches.names,
            frozenset(cursor.opened), view.gaps, below,
        )  # fmt: skip
        self._continue(view, picture.places)
        return draw_timeline(picture, width, height, look)

    def subtitle(self, view: TraceTimeline) -> Content:
        cursor = self.cursor
        if cursor is None:
            return Content("")
        shown = f"{duration(cursor.window.length_ns)} of {duration(view.end_ns - view.start_ns)}"
        return Content(f"{shown}{self._said_search(cursor)}")

    def _said_search(self, cursor: TimelineCursor) -> str:
        if not self._is_searching and cursor.matches is None:
            return ""
        text = f"  /{cursor.search}{'_' if self._is_searching else ''}"
        if cursor.matches is None:
            return text
        at = "" if cursor.match is None else f"{count(cursor.match + 1)} of "
        return f"{text}  {at}{count(len(cursor.matches))} spans"

    def contents(self) -> Contents | Unknown:
        """The spans of the cursor's line in the time that is shown; of a row without spans what is drawn."""
        drawn = super().contents()
        cursor = self.cursor
        line = None if cursor is None else cursor.line()
        if isinstance(drawn, Unknown) or cursor is None or line is None:
            return drawn
        code = cursor.span()
        table = SpansOfLine.within(cursor.timeline, line, cursor.window.start_ns, cursor.window.end_ns)
        at = None if code is None else table.row_of(code)
        return Contents(drawn.title, () if at is not None else drawn.lines, table, at)

    # -- what stands below -------------------------------------------------------------------------------------

    def _most_below(self, height: int, lines: int) -> int:
        """So many lines, whatever they say, so that nothing moves with the cursor; what rows leave is taken too."""
        usual = height // 2 if self._is_detailed else 2 if height < _LOW else 4 if height < 2 * _LOW else 6
        return max(usual, min(_MOST_BELOW, height - lines - 3))

    def _below(self, cursor: TimelineCursor, code: int | None, width: int, look: Look) -> Iterator[Sequence[Part]]:
        timeline, place, line = cursor.timeline, cursor.place(), cursor.line()
        if len(cursor.marks) > 1:
            yield between_line(between(timeline, *cursor.marks))
        elif cursor.marks:
            yield (("m: marks the other end of what is measured", "dim"),)
        start, end = cursor.cell()
        if code is not None and line is not None:
            share = line.cover.within(start, end) / (end - start)
            number = line.count(start, end)
            is_longest = line.longest(start, end) == line.place_of(code, timeline.times(code)[0])
            yield from span_lines(
                timeline, span_facts(timeline, code), SharedCell(number, share, is_longest), width, look
            )
        elif place is not None and place.row.gpu is not None and timeline.gaps is not None:
            gap = timeline.gaps.at(place.row.gpu, cursor.t_ns)
            if gap is not None:
                yield gap_line(gap, in_full=self._is_detailed)
        else:
            yield ((f"no span at {duration(cursor.t_ns - timeline.start_ns)}: . and , go to those beside", "dim"),)

    # -- work beside the screen --------------------------------------------------------------------------------

    def _continue(self, timeline: TraceTimeline, places: Sequence[TimelinePlace]) -> None:
        """Have the lines made that are on the screen and are not there yet; after all of them the causes of gaps."""
        wanted = [place.row for place in places if not timeline.is_ready(place.row)]
        if self._is_working or self._trace is None or not (wanted or not self._has_asked_why):
            return
        self._is_working = True
        self._has_asked_why = self._has_asked_why or not wanted

        def work(_: Trace) -> TraceTimeline:
            for row in wanted:
                timeline.prepare(row)
            if not wanted:
                timeline.explain_gaps()
            return timeline

        analyse_on_thread(self, self._trace, work)

    def on_analysed(self, message: Analysed) -> None:
        self._is_working = False
        if isinstance(message.result, Exception) and isinstance(self._view, TraceTimeline):
            self.count_fault(message.result)  # what was made stays on the screen
        else:
            super().on_analysed(message)

    def show_stretch(self, stretch: Stretch) -> None:
        self._wanted = stretch
        self.redraw()

    # -- keys --------------------------------------------------------------------------------------------------

    def _after(self) -> TimelineCursor | None:
        """The cursor, to be drawn once the key has moved it."""
        if self.cursor is not None:
            self.call_later(self.redraw)
        return self.cursor

    def action_zoom(self, step: int) -> None:
        """Show more or less time."""
        if cursor := self._after():
            cursor.zoom(_ZOOM**step)

    def action_pan(self, step: int) -> None:
        """Show earlier or later times."""
        if cursor := self._after():
            cursor.pan(step * _STEP)

    def action_page_time(self, step: int) -> None:
        """Show the times before or after these."""
        if cursor := self._after():
            cursor.pan(step * _PAGE)

    def action_edge(self, side: int) -> None:
        """Show the beginning or the end."""
        if cursor := self._after():
            cursor.edge(side)

    def action_whole(self) -> None:
        """Show the whole capture."""
        if cursor := self._after():
            cursor.whole()

    def action_fit(self) -> None:
        """Show one span."""
        if cursor := self._after():
            cursor.fit()

    def action_move(self, lines: int) -> None:
        """Go to another row."""
        if cursor := self._after():
            cursor.move(lines)

    def action_step(self, cells: int) -> None:
        """Go to another moment."""
        if cursor := self._after():
            cursor.step(cells)

    def action_span(self, step: int) -> None:
        """Go to the span beside this one."""
        if (cursor := self._after()) and not cursor.beside(step):
            self._say("no span of this row begins " + ("later" if step > 0 else "earlier"))

    def action_fold(self) -> None:
        """Open or close a row."""
        if (cursor := self._after()) and not cursor.fold():
            self._say("nothing stands below this row")

    def action_partner(self) -> None:
        """Go from a launch to its kernel, or back; from a range or an operator to the first that it launched."""
        if cursor := self._after():
            partner = cursor.partner()
            found = cursor.launched() if partner is None else partner
            if found is not None:
                cursor.jump(found)
            elif cursor.span() is None:
                self._say("there is no span under the cursor: . and , go to those beside")
            else:
                self._say("nothing in the capture joins this span to a launch or to work on a GPU")

    def action_mark(self) -> None:
        """Mark a moment."""
        if cursor := self._after():
            cursor.mark()

    def action_detail(self) -> None:
        """Say all of a span."""
        self._is_detailed = not self._is_detailed
        self.redraw()

    def action_more(self) -> None:
        """Read what nothing is concluded from too, or leave it out again."""
        if not isinstance(self._view, TraceTimeline) or self._trace is None:
            return
        if not self._view.has_more:
            self._say("the file has no brief calls and no threads beside these")
            return
        self._with_more = not self._with_more
        self.show(self._trace)

    def action_leave(self) -> None:
        """Clear marks and search."""
        if cursor := self._after():
            cursor.marks = ()
            cursor.find("")

    def action_search(self) -> None:
        """Take what is typed as a part of names, until Enter or Escape."""
        if cursor := self._after():
            self._is_searching = True
            cursor.find("")

    def action_match(self, step: int) -> None:
        """Go to a span that was searched for."""
        if (cursor := self._after()) and not cursor.next_match(step):
            self._say(f"no span is called {cursor.search}" if cursor.search else "/ searches for spans")

    def _say(self, what: str) -> None:
        self.notify(what, markup=False, timeout=2.5)

    async def on_key(self, event: events.Key) -> None:
        """While searching, keys are text."""
        cursor = self.cursor
        if not self._is_searching or cursor is None:
            return
        event.stop()
        event.prevent_default()
        if event.key in ("enter", "escape"):
            self._is_searching = False
            if event.key == "escape":
                cursor.find("")
            elif cursor.search:
                self.action_match(1)
        elif event.key == "backspace":
            cursor.find(cursor.search[:-1], label_of)
        elif event.is_printable and event.character:
            cursor.find(cursor.search + event.character, label_of)
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key of the pane does anything else while text is typed."""
        return not self._is_searching

    # -- the mouse ---------------------------------------------------------------------------------------------

    def _wheel(self, event: events.MouseEvent, step: int) -> None:
        cursor, offset = self._after(), event.get_content_offset(self)
        if cursor is None or offset is None:
            return
        column = offset.x - left_of(self.size.width)
        if column < 0:
            cursor.move(step)
        elif event.shift or event.ctrl:
            cursor.pan(step * _STEP)
        else:
            cursor.zoom(_WHEEL**step, cursor.window.edges(cursor.columns)[column])

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragged_from = event.x
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        cursor = self.cursor
        if self._dragged_from is not None and cursor is not None and event.x != self._dragged_from:
            cursor.pan((self._dragged_from - event.x) / cursor.columns)
            self._dragged_from = event.x
            self.redraw()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._dragged_from = None
        self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        """Stand where it was clicked; on the title of a row open or close that."""
        cursor, offset = self._after(), event.get_content_offset(self)
        places = [] if cursor is None else cursor.places()
        row = -1 if offset is None else offset.y - 1 + self._top
        if cursor is None or offset is None or not self._top <= row < len(places):
            return
        column = offset.x - left_of(self.size.width)
        if column >= 0:
            cursor.stand(places[row], column)
        else:
            cursor.move(row - cursor.at(places))
            cursor.fold()


VIEW: Final = TimelinePane
