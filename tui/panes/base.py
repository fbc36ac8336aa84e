"""What a pane is: a numbered, bordered part of a screen that draws one view of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar, Final, Generic

from rich.style import Style
from textual.binding import Binding
from textual.color import Color
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.style import Style as Colours
from textual.widget import Widget

from llmtop.analysis.series.ages import age_text, old_s
from llmtop.model import NS_PER_S, Unknown
from llmtop.tui.aside import ANALYSING, Analysed, analyse_on_thread
from llmtop.tui.contents import Contents
from llmtop.tui.edges import Edges
from llmtop.tui.faults import FaultBorder, fault_text
from llmtop.tui.panes.view import Context, V, View
from llmtop.tui.render.lines import Part, cut, explain, fill, prose, spelled, width_of
from llmtop.tui.render.look import Look
from llmtop.tui.textual_private import note_changes, put_title, title_of

if TYPE_CHECKING:
    from rich.segment import Segment

    from llmtop.analysis.views import TableView
    from llmtop.model import Trace, TrackKind

ROW_KEYS: Final = (
    Binding("up,k", "move(-1)", "move", show=False, tooltip="Move the cursor"),
    Binding("down,j", "move(1)", "move", show=False, tooltip="Move the cursor"),
    Binding("pageup", "page(-1)", "page", show=False, tooltip="A page up or down"),
    Binding("pagedown", "page(1)", "page", show=False, tooltip="A page up or down"),
    Binding("home,g", "edge(-1)", "first", show=False, tooltip="First or last row"),
    Binding("end,G", "edge(1)", "last", show=False, tooltip="First or last row"),
)
"""Of whatever has rows or lines and moves by them."""
CALM_NS = NS_PER_S * 9 // 10
"""For panes that are drawn once a second at most; a tenth less, because frames jitter."""
SLOW_NS = NS_PER_S * 18 // 10
"""For panes of means over ten seconds and more, which go through all threads: every other second, unless zoomed."""
STARTING_NS = 2 * NS_PER_S
"""So long each look brings what was not known before, and every pane is drawn with every frame."""
_WORTH_A_MOVE = 16
"""Unchanged cells that are sent rather than jumped over: a jump is some forty bytes of place and colour."""
_BORDER_LEAD = 4
"""Cells of corner and spaces around a title in a border."""


def look_of(widget: Widget) -> Look:
    """The look of the running program over a widget's own background; the fixed table outside of `LlmtopApp`."""
    look_over = getattr(widget.app, "look_over", None)
    if look_over is None:
        return Look()
    look: Look = look_over(widget.background_colors[1])
    return look


def in_roles(parts: Sequence[Part], look: Look) -> Content:
    """Parts of a border's title in the colours of their roles; those without one are as the title."""
    return Content.assemble(
        *((text, Colours(foreground=_colour(role, look)) if role else Colours()) for text, role in parts)
    )


def _colour(role: str, look: Look) -> Color | None:
    colour = look.style(role).color
    return None if colour is None else Color.from_rich_color(colour)


def changed_spans(old: Strip, new: Strip) -> list[tuple[int, int]]:
    """The cells, as [start, stop) from left to right, in which two lines of the same width differ.

    Textual sends every cell of what it is told to refresh, so telling it less is what keeps a slow link usable.
    """
    if old is new:
        return []
    before, after = list(old), list(new)
    same = _alike(before, after)
    if same == len(before) == len(after):
        return []
    first = sum(segment.cell_length for segment in before[:same])
    before, after = before[same:], after[same:]
    # A number in the middle of a line: what follows it is mostly as it was, and need not be looked at by the cell.
    rest = _alike(before[::-1], after[::-1])
    was, now = _cells(before[: len(before) - rest]), _cells(after[: len(after) - rest])
    if len(was) != len(now):
        return [(first, max(old.cell_length, new.cell_length))]
    spans: list[tuple[int, int]] = []
    for i, (a, b) in enumerate(zip(was, now, strict=True), first):
        if a == b:
            continue
        is_near = bool(spans) and i - spans[-1][1] < _WORTH_A_MOVE
        start = spans.pop()[0] if is_near else i
        spans.append((start, i + 1))
    return spans


def _alike(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """How many segments from the left on are the same."""
    same = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        same += 1
    return same


def _cells(segments: Iterable[Segment]) -> list[tuple[str, Style | None]]:
    cells: list[tuple[str, Style | None]] = []
    for segment in segments:
        cells.extend(_segment_cells(segment))
    return cells


def _segment_cells(segment: Segment) -> list[tuple[str, Style | None]]:
    text, style, _ = segment
    if text.isascii() or segment.cell_length == len(text):
        return list(zip(text, repeat(style)))
    # Wide and combined characters: the span must cover whole cells, so such a segment changes as a whole.
    return [(text, style)] * segment.cell_length


def retitle(widget: DiffedWidget, title: Content) -> None:
    """Put a title into a widget's border, and send of that line what has changed."""
    known = title_of(widget)
    old = known.plain if known else ""
    if old != title.plain:
        put_title(widget, title)
        pairs = enumerate(zip(old, title.plain, strict=False))
        same = next((i for i, (before, after) in pairs if before != after), min(len(old), len(title.plain)))
        start = width_of(old[:same])
        span = max(width_of(old), title.cell_length) - start + _BORDER_LEAD
        widget.note_changes((Region(start, -widget.gutter.top, span, 1),))


class DiffedWidget(FaultBorder):
    """A widget of lines that sends the terminal only the cells that changed since its last frame."""

    _strips: tuple[Strip, ...] = ()
    _backgrounds: tuple[Color, Color] | None = None
    _edges: Edges | None = None

    @property
    def background_colors(self) -> tuple[Color, Color]:
        """Textual's, kept: it adds up those of all that is below, twenty times a frame, and they hardly ever change."""
        if self._backgrounds is None:
            self._backgrounds = super().background_colors
        return self._backgrounds

    def notify_style_update(self) -> None:
        """The style sheet was applied anew, here and below: another theme, another class above."""
        self._backgrounds = self._edges = None
        super().notify_style_update()

    def send_frame(self, strips: Sequence[Strip]) -> None:
        """Keep the new frame and refresh the cells in which it differs from the last one.

        Textual counts regions from the content's corner, inside the border.
        """
        old, self._strips = self._strips, tuple(strips)
        if [strip.cell_length for strip in old] != [strip.cell_length for strip in self._strips]:
            self.refresh()
            return
        pairs = enumerate(zip(old, self._strips, strict=True))
        regions = [Region(start, y, stop - start, 1) for y, pair in pairs for start, stop in changed_spans(*pair)]
        if regions:
            self.note_changes(regions)

    def note_changes(self, regions: Sequence[Region]) -> None:
        """Have cells of the content sent, which have changed."""
        self.refresh(*regions)

    def redraw(self) -> None:
        """Draw again what is known: the colours changed, a cursor moved."""
        raise NotImplementedError

    def show_fault(self, said: str) -> None:
        width, height = self.size
        look = look_of(self)
        self.send_frame(fill(prose(said, width, look, "bad"), width, height, look) if width and height else ())

    def render_lines(self, crop: Region) -> list[Strip]:
        """Of lines that have changed only what stands between the edges is made anew."""
        known = None if self._edges is None else self._edges.around(self, crop)
        if known is not None:
            return known
        lines = super().render_lines(crop)
        self._edges = Edges.of(self, crop, lines) or self._edges
        return lines

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, look_of(self).style("text"))


class FrameSync:
    """Keeps panes of the same pace in step: what their views share is then made for one trace, and not for several."""

    def __init__(self) -> None:
        self._drawn_ns: dict[int, int] = {}
        self.is_still = False
        """One moment is shown for a while: then by every pane the same, whatever its pace."""
        self.is_sent_at_once = False
        """What is drawn now is sent as soon as all panes are drawn."""
        self.stretch = 1.0
        """By how much longer panes that need not follow each frame wait, where frames cost much."""

    def note(self, pace_ns: int, t_ns: int) -> None:
        """A pane that is drawn every `pace_ns` draws the trace of this moment."""
        self._drawn_ns[pace_ns] = t_ns

    def is_on(self, pace_ns: int, t_ns: int) -> bool:
        """Whether another pane of this pace draws it."""
        return self._drawn_ns.get(pace_ns) == t_ns


class Pane(DiffedWidget, View[V], Generic[V], can_focus=True):
    """A part of a screen that draws one view of the newest trace.

    A subclass gives `number`, `title`, `view` and `draw`; the last two are pure. Only what changed between two
    frames is sent to the terminal, and a pane that is not seen does no work.
    """

    context = Context()

    ages_of: ClassVar[TrackKind | None] = None
    """Whose numbers it shows: where they are older than two intervals, their age stands beside the title."""

    is_urgent: ClassVar[bool] = False
    """Whether it keeps its pace however much frames cost."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._trace: Trace | None = None
        self._stale = False
        self._is_unpainted = False
        self._view: V | Unknown = Unknown("nothing has been read yet")
        self._age = ""
        self._failure = ""
        self.frame_sync = FrameSync()
        """That of all panes that are shown together."""

    def rows_of(self, trace: Trace) -> TableView | Unknown:
        if trace is not self._trace or self._stale or isinstance(self._view, Unknown):
            return super().rows_of(trace)
        return self.rows(self._view, trace)

    def draw(self, view: V, width: int, height: int, look: Look) -> list[Strip]:
        """The view as at most `height` lines of `width` cells."""
        raise NotImplementedError

    def subtitle(self, view: V) -> Content:
        """What stands in the border after the title: the source, the selection."""
        return Content("")

    def contents(self) -> Contents | Unknown:
        """What it holds, in words; and the rows that it opens into."""
        if self._failure:
            return Unknown("the pane has failed")
        if isinstance(self._view, Unknown):
            return self._view
        rows = Unknown("nothing has been read yet") if self._trace is None else self.rows_of(self._trace)
        return Contents(self.heading, self.text_lines(), None if isinstance(rows, Unknown) else rows)

    def text_lines(self) -> list[str]:
        """Its text: what is drawn of it; all lines, where they are a text that may be longer than the screen."""
        return [strip.text for strip in self._strips]

    @property
    def is_seen(self) -> bool:
        """Whether it is on the screen now: not zoomed away, not in a tab behind."""
        return self.is_attached and self.size.area > 0 and self.is_on_screen

    def show(self, trace: Trace) -> None:
        """Take the newest trace; draw it if the pane is seen, else when it next is."""
        if self._is_new_enough(trace):
            return
        self._trace = trace
        self._stale = True
        if self.is_seen:
            self._renew()

    def _is_new_enough(self, trace: Trace) -> bool:
        """Whether what is shown may stay for this frame: never of a pane that knows nothing yet."""
        is_starting = trace.end_ns - trace.start_ns < STARTING_NS
        if self._trace is None or self._stale or is_starting or isinstance(self._view, Unknown):
            return False
        if self.frame_sync.is_still:
            return trace is self._trace
        pace_ns = self._pace_ns
        return 0 < trace.end_ns - self._trace.end_ns < pace_ns and not self.frame_sync.is_on(pace_ns, trace.end_ns)

    @property
    def _pace_ns(self) -> int:
        if self.is_zoomed:
            return min(self.least_ns, CALM_NS)
        return self.least_ns if self.is_urgent else int(self.least_ns * self.frame_sync.stretch)

    def note_changes(self, regions: Sequence[Region]) -> None:
        if self.frame_sync.is_sent_at_once:
            note_changes(self, regions)
        else:
            super().note_changes(regions)

    def redraw(self) -> None:
        self._is_unpainted = True
        if self.is_seen:
            self._paint()

    def on_mount(self) -> None:
        self._name_border("", look_of(self))

    def on_show(self) -> None:
        # A resize, which comes first where there is one, has drawn it already.
        if self._stale or self._is_unpainted or len(self._strips) != self.size.height:
            self._renew()

    def on_resize(self) -> None:
        self._renew()

    def _renew(self) -> None:
        if self._stale and self._trace is not None:
            self._stale = False
            self._failure = ""
            if self.context.is_still:
                self._view = ANALYSING
                analyse_on_thread(self, self._trace, self.view_of)
            else:
                self._look_at(self._trace)
        self._paint()

    def _look_at(self, trace: Trace) -> None:
        self.frame_sync.note(self._pace_ns, trace.end_ns)
        try:
            self._age = "" if self.ages_of is None else age_text(old_s(trace, self.ages_of))
            self._view = self.view_of(trace)
        except Exception as error:  # the border: a fault in a view costs only its pane
            self._lose_view(error)

    def on_analysed(self, message: Analysed) -> None:
        if message.of is not self._trace:
            return
        if isinstance(message.result, Exception):
            self._lose_view(message.result)
        else:
            self._view = message.result
        self._paint()

    def _lose_view(self, error: Exception) -> None:
        """Say so until there is a view of another trace; what a fault in drawing costs is only that frame."""
        self._failure = fault_text(error)
        self.fail(error)

    def _paint(self) -> None:
        width, height = self.size
        if not width or not height:
            return
        self._is_unpainted = False
        look = look_of(self)
        with self.border():
            self.send_frame(fill(self._drawn(width, height, look), width, height, look))

    def _drawn(self, width: int, height: int, look: Look) -> list[Strip]:
        if self._failure:
            return prose(self._failure, width, look, "bad")
        if isinstance(self._view, Unknown):
            self._name_border("", look)
            return explain(self._view, width, height, look)
        strips = self.draw(self._view, width, height, look)
        self._name_border(self.subtitle(self._view), look)
        return strips

    def _name_border(self, subtitle: Content | str, look: Look) -> None:
        """Number and title in the border, then the subtitle."""
        head = f"{self.heading}  {self._age}" if self._age else self.heading
        full = Content(f"{head}  ") + subtitle if subtitle else Content(head)
        # Textual would end a long title in a character that ASCII terminals lack.
        room = self.size.width - _BORDER_LEAD
        if look.glyphs.ascii:
            full = full if full.plain.isascii() else Content(spelled(full.plain, look), list(full.spans))
            title = full if width_of(full.plain) <= room else Content(cut(full.plain, room, look))
        else:
            title = full
        retitle(self, title)
