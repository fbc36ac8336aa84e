"""The live screen: a header, panes over one trace, and the line that says what to do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container

from llmtop.analysis.rules.core_dump import newest_dump
from llmtop.errors import FileError
from llmtop.model import DEMO, Unknown
from llmtop.tui.app import LlmtopApp
from llmtop.tui.pace import FramePace
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import FrameSync, Pane, look_of
from llmtop.tui.panes.events import EventsPane
from llmtop.tui.panes.findings import FindingsLine
from llmtop.tui.panes.folded import RECORDED, FoldedLine
from llmtop.tui.panes.header import HeaderLine
from llmtop.tui.panes.heatmap import HeatmapPane
from llmtop.tui.panes.lines import SearchedPane
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.table import TablePane
from llmtop.tui.panes.view import (
    LAST_DIGIT,
    NO_ROWS,
    CollectionWanted,
    Context,
    DumpWanted,
    EventWanted,
    GpuWanted,
    MomentWanted,
    View,
    WindowWanted,
)
from llmtop.tui.screens.beyond import NumberedScreen, ViewBeyond
from llmtop.tui.screens.diagnosis import DiagnosisScreen
from llmtop.tui.screens.live_layout import (
    Arrangement,
    Focus,
    Form,
    Room,
    arrangement,
    folded_places,
    gpu_lines,
)
from llmtop.tui.screens.live_panes import LivePanes
from llmtop.tui.screens.live_state import LiveRates, live_state
from llmtop.tui.screens.live_time import TimeCursor
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.widget import Widget

    from llmtop.analysis.views import TableView
    from llmtop.model import CoreDump, Issue, Target, Trace
    from llmtop.servers.launch import Launched
    from llmtop.session_recording import SessionRecording
    from llmtop.tui.panes.view import Place
    from llmtop.tui.render.lines import Part
    from llmtop.tui.screens.watched import Watched

_RECORDING_TOLD_S = 1.0
"""How often the header says how large a recording has become."""
_CONTAINERS = ("right", "top", "middle")
"""Innermost first."""


class LiveScreen(NumberedScreen):
    """Panes over the session's newest trace, or over an earlier moment of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "zoom", "zoom", tooltip="Zoom the focused pane, or back"),
        Binding("d", "diagnosis", "diagnosis", tooltip="Findings with evidence; what cannot be seen"),
        Binding("e", "events", "events", tooltip="What happened: faults, clock limits, restarts; Enter goes there"),
        Binding("o", "open_dump", "core dump", tooltip="Open the newest core dump of the server's GPU"),
        Binding("h", "heatmap", "heatmap", tooltip="Latencies over time: run queue (4), system calls (8)"),
        Binding("r", "record", "record", tooltip="Keep what was and go on recording; again: stop"),
        Binding("space", "pause", "pause", key_display="space", tooltip="Stop drawing; collecting goes on"),
        Binding("left", "scrub(-1)", "back", key_display="left", tooltip="Go 5 s back or forward in time"),
        Binding("right", "scrub(1)", "on", key_display="right", show=False, tooltip="Go 5 s back or forward in time"),
        # Before the table's own binding: its filter is cleared first, here.
        Binding("escape", "live", "live", show=False, priority=True, tooltip="Back to now, and out of a zoomed pane"),
        Binding("tab", "step_pane(1)", "next", show=False, tooltip="The next pane, or the one before (Shift)"),
        Binding("shift+tab", "step_pane(-1)", "last", show=False, tooltip="The next pane, or the one before (Shift)"),
        Binding("n", "next_gpu", "next GPU", show=False, tooltip="The next GPU in roofline and lanes, then all"),
        *(
            Binding(
                str(place.number), f"pane({place.number})", "pane", show=False, tooltip="Focus a pane by its number"
            )
            for place in sorted((view.place for view in LIVE_VIEWS), key=lambda place: place.number)
            if place.number <= LAST_DIGIT
        ),
    ]

    def __init__(self, session: Watched, target: Target | None, launched: Launched | None = None) -> None:
        super().__init__()
        self.session = session
        self.panes = LivePanes(Context(target, launched))
        self.header = HeaderLine().within(self.panes.watched)
        self.findings = FindingsLine(id="findings")
        self.table: ListPane[Any] = ListPane(id="table").within(self.panes.watched)
        self.events = EventsPane(id="events").within(self.panes.watched)
        self.heatmap = HeatmapPane()
        is_demo = target is not None and target.kind == DEMO
        self.folded = FoldedLine(self.panes.names_of_gpu_panes(), RECORDED if is_demo else "")
        self.frame_sync = FrameSync()
        self.pace = FramePace()
        self._parts: tuple[View[Any], ...] = (
            self.header,
            *self.panes.values(),
            self.heatmap,
            self.findings,
            self.folded,
        )
        """All that shows the same moment."""
        self._tables = [one for one in (*self.panes.values(), self.table, self.events) if isinstance(one, TablePane)]
        for pane in self._parts:
            if isinstance(pane, Pane):
                pane.frame_sync = self.frame_sync
        self.time = TimeCursor()
        self.where = Focus()
        self._shown: Trace | None = None
        self._latest: Trace | None = None
        self._gpus = 0
        self._dump: CoreDump | None = None
        """The newest one of the moment that is shown."""
        self.recording: SessionRecording | None = None
        """The one that is written, or the last one."""

    def compose(self) -> ComposeResult:
        """A grid that becomes one pane when there is little room."""
        yield self.header
        yield self.folded
        with Container(id="body"):
            with Container(id="top"):
                yield from self.panes.standing_in("top")
                with Container(id="right"):
                    yield from self.panes.standing_in("right")
            with Container(id="middle"):
                yield from self.panes.standing_in("middle")
            yield from self.panes.standing_in("body")
            yield self.table
            yield self.heatmap
            yield self.events
        yield self.findings
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self._arrange()
        self.panes[self.where.number].wanting_keys.focus()

    def _offer(self, dump: CoreDump | None) -> None:
        """Name the key of what can be opened."""
        if dump != self._dump:
            self._dump = dump
            self.refresh_bindings()

    # -- frames ------------------------------------------------------------------------------------------------

    def refresh_trace(self) -> None:
        """Draw the newest trace, or the moment that was gone to."""
        self._follow()
        self._show_moment(self._newest())

    def send_frame(self) -> bool:
        """Draw the newest moment and send what has changed with it, as `FullScreen.send_at_once` has it."""
        has_rows = any(one.display for one in self._tables)  # these are told of their rows by messages
        self.frame_sync.is_sent_at_once = not has_rows
        try:
            self.refresh_trace()
        finally:
            self.frame_sync.is_sent_at_once = False
        if not has_rows and self.send_at_once(self._parts):
            return True
        for pane in self._parts:
            pane.check_idle()
        return False

    def refresh_diagnosis(self, above: DiagnosisScreen) -> None:
        """Give the diagnosis, which covers this screen, the moment that would be drawn here."""
        self._follow()
        newest = self._latest = self._newest()
        self._shown = self.time.shown(newest)
        above.show(self._shown, self._state(newest), self._issues)

    def on_screen_resume(self) -> None:
        """Nothing was drawn here below another screen."""
        if self._latest is not None:
            self.refresh_trace()

    @property
    def _issues(self) -> Sequence[Issue]:
        return self.app.issues if isinstance(self.app, LlmtopApp) else ()

    def _follow(self) -> None:
        """Show the server that the session watches by now: another one after a restart."""
        target = self.session.target
        if target is not None and target is not self.panes.watched.target:
            self.panes.follow(target)
            self.header.within(self.panes.watched)

    def _newest(self) -> Trace:
        return self.time.newest(self.session.trace())

    def _show_moment(self, newest: Trace) -> None:
        """Give all parts of the screen the same moment; those with a time axis also what came after."""
        self._latest = newest
        moment = self.time.moment(newest)
        self._shown = moment.shown
        self._offer(newest_dump(moment.shown))
        self.frame_sync.is_still = self._stands_still
        self.frame_sync.stretch = self.pace.stretch(self.session.interval_s)
        with self.border():
            self._gpus = gpu_lines(moment.shown)
            if self.is_mounted and self.panes.find_places(self._room, self._shown):
                self._arrange()
            self._tell_style(self._room)
        for pane in self._parts:
            with pane.border():
                pane.show_moment(moment)
        self._fill_rows()
        with self.header.border():
            self.header.say(*self._state(newest))

    @property
    def _stands_still(self) -> bool:
        """Whether one moment is shown for a while: then by every pane, whatever its pace."""
        return self.time.is_held or self.time.at_ns is not None

    def _state(self, newest: Trace) -> Part:
        """Which moment is shown; of now, whether the server lives."""
        glyphs = look_of(self).glyphs
        if said := self.time.said(newest, "<" if glyphs.ascii else "◀"):
            return said, "selected"
        launched, interval_s = self.panes.watched.launched, self.session.interval_s
        exit_code = launched.poll() if launched is not None else None
        rates = LiveRates(interval_s, interval_s * self.session.look_stretch, self.pace.apart_s(interval_s))
        return live_state(newest, exit_code, rates, glyphs)

    def _fill_rows(self) -> None:
        """The rows of a zoomed pane; or the log, which goes on to now whatever moment is shown."""
        if self.where.is_log_open:
            with self.events.border():
                self.events.show(self._newest())
        elif self.table.display and self._shown is not None:
            with self.table.border():
                self.table.open(self.panes[self.where.number]).show(self._shown)

    @property
    def _place(self) -> Place:
        return self.panes.places[self.where.number]

    def _rows(self) -> TableView | Unknown:
        """The rows that the pane in focus opens into; an empty table would hide why there are none."""
        pane = self.panes[self.where.number]
        return NO_ROWS if self._shown is None or isinstance(pane, ListPane) else pane.rows_of(self._shown)

    @property
    def _has_rows(self) -> bool:
        """Whether the pane in focus opens into rows; those that cannot be made say so in their table."""
        try:
            return not isinstance(self._rows(), Unknown)
        except Exception:  # the border; it is said where the table is filled
            return True

    # -- what is where -----------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        around = [one for one in event.widget.ancestors_with_self if isinstance(one, View)]
        if around and around[0] in self.panes.values():
            self.where = replace(self.where, number=around[0].number)

    @property
    def _room(self) -> Room:
        return Room(self.size.width, self.size.height, self._gpus)

    def _arrange(self) -> None:
        """Show the panes that there is room for: all, the zoomed one, or the one in focus."""
        room = self._room
        self.panes.find_places(room, self._shown)
        self.where = self.where.back_in_place(self.panes.of_use)
        folded = folded_places(self.panes.watched, self._shown)
        laid = arrangement(
            self.where,
            room,
            self.panes.of_use,
            folded,
            has_table=self.where.is_zoomed and not self.where.is_log_open and self._has_rows,
            keeps_pane=self._place.keeps_pane,
        )
        if laid.focus != self.where:  # its pane has been folded away
            self.where = laid.focus
            self.call_later(lambda: self.set_focus(self._wanting_keys()))
        self.set_class(bool(folded), "-no-gpu")
        self.set_class(laid.has_rows_below, "-rows-below")
        self._tell_style(room)
        self._display(laid)
        self.query_one(KeyBar).display = room.has_keys

    def _display(self, laid: Arrangement) -> None:
        for number, pane in self.panes.items():
            pane.display = number in laid.shown
            pane.is_zoomed = laid.focus.is_zoomed
        self.folded.display = laid.has_folded
        self.table.display = laid.form is Form.TABLE
        self.heatmap.display = laid.form is Form.HEATMAP
        self.events.display = laid.form is Form.EVENTS
        for name in _CONTAINERS:
            container = self.query_one(f"#{name}", Container)
            container.display = any(child.display for child in container.children)

    def _tell_style(self, room: Room) -> None:
        """Tell the style sheet how much room there is."""
        for name, is_so in room.classes().items():
            self.set_class(is_so, name)

    # -- keys --------------------------------------------------------------------------------------------------

    def action_pane(self, number: int) -> None:
        """Focus a pane; where one is alone on the screen, it takes that one's place."""
        if number in self.panes:
            self._go(self.where.on_pane(number, self.panes.of_use))

    def views_beyond(self) -> list[ViewBeyond]:
        numbers = [number for number in self.panes.places if number > LAST_DIGIT and number in self.panes]
        here = self.where.number
        return [ViewBeyond(self.panes[one].title, one == here, partial(self.action_pane, one)) for one in numbers]

    def action_step_pane(self, step: int) -> None:
        """The pane after or before the one in focus, also where only one is shown at a time."""
        is_alone = self.where.is_zoomed or self._room.is_small
        self.action_pane(self.panes.beside(self.where.number, step, is_alone=is_alone))

    def action_zoom(self) -> None:
        """Give the focused pane the whole screen, or take it back."""
        if self.where.is_lent:  # it has the screen already: with its digit, for want of a place
            self.where = self.where.zoomed()
        else:
            self._go(self.where.among_others(self.panes.of_use) if self.where.is_zoomed else self.where.zoomed())

    def action_heatmap(self) -> None:
        """Latencies over time instead of the rows of the pane in focus, or the rows again."""
        source = self._place.heatmap
        if source is None:
            return
        rows = self.table.table.rows
        is_on_call = self.table.display and rows is not None and len(rows) > 0 and source.has_choices
        choice = rows.key(self.table.table.cursor) if is_on_call and rows is not None else None
        self.heatmap.open(source, str(choice) if choice is not None else None)
        self._go(Focus(self.where.number, is_zoomed=True, is_heatmap=not self.heatmap.display))

    def action_events(self) -> None:
        """Open the event log, or close it."""
        self._go(replace(self.where, is_log_open=not self.where.is_log_open))

    def _go(self, focus: Focus) -> None:
        """Arrange the screen for another focus, and put it there."""
        self.where = focus
        self._arrange()
        self._fill_rows()
        own = self.panes[focus.number]
        if isinstance(own, ListPane) and self._shown is not None:
            with own.border():
                own.show(self._shown)
        self.table.table.border_title = self._place.rows_title or own.border_title
        # Not by focus(), which waits its turn behind the keys that are already typed: they would go elsewhere.
        self.set_focus(self._wanting_keys())

    def _wanting_keys(self) -> Widget:
        """What the keys are for: the log, a heatmap, a table, or the pane itself."""
        if self.where.is_log_open:
            return self.events.table
        if self.heatmap.display:
            return self.heatmap
        is_table = self.table.display and not self._place.keeps_pane
        return (self.table if is_table else self.panes[self.where.number]).wanting_keys

    def on_moment_wanted(self, message: MomentWanted) -> None:
        """The cursor of a pane with a time axis has moved, or an event was chosen: the other panes jump there."""
        if self._latest is None:
            return
        self.time.go_to(message.t_ns, self._latest)
        if self.where.is_log_open:
            self.action_events()
        self._show_moment(self._latest)

    def on_window_wanted(self, message: WindowWanted) -> None:
        """Show as much time in every pane that has an axis."""
        self.time.window_ns = message.window_ns
        if self._latest is not None:
            self._show_moment(self._latest)

    def on_event_wanted(self, message: EventWanted) -> None:
        """Open the event log on the event of a mark."""
        self.action_events()
        self.events.go_to(message.t_ns)

    def action_record(self) -> None:
        """Keep what the window has in a file and go on recording, or end that."""
        if self.recording is not None and self.recording.is_running:
            self.recording.end()
            return
        from llmtop.session_recording import begin_recording  # no first frame waits for it

        try:
            self.recording = begin_recording(self.session)
        except FileError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._tell_recording()
        self._recording_timer = self.set_interval(_RECORDING_TOLD_S, self._tell_recording)

    def _tell_recording(self) -> None:
        """Say in the header that a recording is written; and once what became of it."""
        recording = self.recording
        if recording is None:
            return
        if recording.is_running:
            self.header.note(f"rec {binary_bytes(recording.size)} {recording.path.name}", "bad")
            return
        self._recording_timer.stop()
        self.header.note("", "")
        said, severity = recording.end_said
        self.notify(said, severity=severity, markup=False)

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest."""
        self.time.toggle_hold(self.session.trace())
        self.refresh_trace()

    def action_scrub(self, step: int) -> None:
        """Go back or forward in time; forward past the newest moment is live again."""
        self.time.step(step, self._newest())
        self.refresh_trace()

    def action_live(self) -> None:
        """Clear a filter; or else close the log; or else back to now; or else out of a zoomed pane."""
        filtering = next((one for one in self._tables if one.display and one.has_class("-filtering")), None)
        if filtering is not None:
            filtering.action_clear_filter()
        elif self.where.is_log_open:
            self.action_events()
        elif self.time.back_to_now():
            self.refresh_trace()
        elif self.where.is_zoomed:
            self._go(self.where.among_others(self.panes.of_use))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a pane takes text, Escape is its own; few panes have a heatmap."""
        if action == "live" and isinstance(self.focused, SearchedPane) and self.focused.is_searching:
            return False
        if action == "heatmap":
            return self._place.heatmap is not None and not self.where.is_log_open
        if action == "open_dump":
            return self._dump is not None
        return super().check_action(action, parameters)

    def action_next_gpu(self) -> None:
        """Show the next GPU in the panes of one; after the last one those that can show all together."""
        if self._shown is not None:
            self.panes.choose_next_gpu(self._shown)
            self.refresh_trace()

    def on_gpu_wanted(self, message: GpuWanted) -> None:
        """The pinned GPU is the one that panes of one GPU are of."""
        self.panes.choose_gpu(message.gpu)
        self.refresh_trace()

    def on_collection_wanted(self, message: CollectionWanted) -> None:
        """Have collectors take, or leave, what is taken on demand only."""
        self.session.ask(message.what, message.is_wanted)

    def action_open_dump(self) -> None:
        """Open the newest core dump of the moment that is shown."""
        if self._dump is not None:
            self.app.post_message(DumpWanted(self._dump))

    def action_diagnosis(self) -> None:
        """Open the diagnosis of the moment that is shown."""
        if self._shown is not None and self._latest is not None:
            self.app.push_screen(DiagnosisScreen(self._shown, self._state(self._latest), self._issues))
