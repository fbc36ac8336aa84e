"""The live screen: a header, panes over one trace, and the line that says what to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen

from llmtop.analysis.gpu_view import gpu_processes_table, gpu_rows
from llmtop.analysis.live_summary import lost_target
from llmtop.analysis.readings import as_of, gpu_tracks, target_gpus
from llmtop.analysis.syscalls import syscalls_table, syscalls_view
from llmtop.analysis.threads import threads_table, threads_view
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.text import shorten
from llmtop.tui.app import LlmtopApp, run_app
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.events import EventsPane
from llmtop.tui.panes.findings import FindingsLine
from llmtop.tui.panes.gpu import GpuPane
from llmtop.tui.panes.header import HeaderLine
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.panes.log import LogPane
from llmtop.tui.panes.roofline_live import ALL_GPUS, RooflinePane
from llmtop.tui.panes.server import ServerPane
from llmtop.tui.panes.stall_flame import StallFlamePane
from llmtop.tui.panes.syscalls import SyscallsPane
from llmtop.tui.panes.table import TablePane
from llmtop.tui.panes.threads import ThreadsPane
from llmtop.tui.screens.diagnosis import DiagnosisScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual import events
    from textual.app import ComposeResult

    from llmtop.analysis.views import TableView
    from llmtop.model import Target, Trace
    from llmtop.servers.launch import Launched
    from llmtop.session import Session

_SMALL = (60, 18)
"""Below this many columns or rows one pane is shown at a time."""
_WIDE = 100
_TALL = 36
"""Rows from which the findings get a second line."""
_KEYS_ROWS = 18
_MANY_GPUS, _CROWD = 4, 8
"""With more GPUs (MIG instances count too) than this a line for each needs more height than the server's numbers."""
_GPUS, _THREADS, _FLAME, _LANES, _LOG, _SYSCALLS = 3, 4, 5, 6, 7, 8
"""Panes by their digits, where the arrangement treats them apart."""
_OF_A_SERVER = (2, _THREADS)
"""Panes that give their room to the GPUs when there is no server to watch; their digits still work."""
_LARGE = (160, 50)
"""Columns and rows from which system calls have a place beside the others."""
_STEP_NS = 5 * NS_PER_S
_NO_ROWS = Unknown("no rows")
_NO_PROCESSES = Unknown("no process holds memory on a GPU, or the driver does not tell: see d")
_PROCESSES_TITLE = "Processes on the GPUs"
_FIRST_FRAMES_S = 0.25
"""At the start frames follow the news this closely, so that the first numbers show at once."""


class News(Message):
    """A collector has reported something."""

    def can_replace(self, message: Message) -> bool:
        """One is enough, however many collectors report between two frames."""
        return isinstance(message, News)


class LiveScreen(Screen[None]):
    """Panes over the session's newest trace, or over an earlier moment of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "zoom", "zoom", tooltip="Zoom the focused pane, or back"),
        Binding("d", "diagnosis", "diagnosis", tooltip="Findings with evidence; what cannot be seen"),
        Binding("e", "events", "events", tooltip="What happened: faults, clock limits, restarts; Enter goes there"),
        Binding("space", "pause", "pause", key_display="space", tooltip="Stop drawing; collecting goes on"),
        Binding("left", "scrub(-1)", "back", key_display="left", tooltip="Go 5 s back or forward in time"),
        Binding("right", "scrub(1)", "on", key_display="right", show=False, tooltip="Go 5 s back or forward in time"),
        # Before the table's own binding: its filter is cleared first, here.
        Binding("escape", "live", "live", show=False, priority=True, tooltip="Back to now, and out of a zoomed pane"),
        Binding("n", "next_gpu", "next GPU", show=False, tooltip="The next GPU in roofline and lanes, then all"),
        *(
            Binding(digit, f"pane({digit})", "pane", show=False, tooltip="Focus a pane by its number")
            for digit in "12345678"
        ),
    ]

    def __init__(self, session: Session, target: Target | None, launched: Launched | None = None) -> None:
        super().__init__()
        self.session = session
        self.target = target
        self.launched = launched
        self.header = HeaderLine(target)
        self.findings = FindingsLine(id="findings")
        self.table = TablePane("", id="table")
        self.events = EventsPane()
        self.roofline = RooflinePane(target)
        self.lanes = LanesPane(target)
        self.gpus = GpuPane(target)
        panes: list[Pane[Any]] = [
            self.roofline,
            ServerPane(target),
            self.gpus,
            ThreadsPane(target),
            StallFlamePane(target),
            self.lanes,
            SyscallsPane(target),
        ]
        if launched is not None:
            panes.append(LogPane(launched))
        self.panes = {pane.number: pane for pane in panes}
        self.at_ns: int | None = None
        """The moment that is shown; None for now."""
        self._held: Trace | None = None
        self._shown: Trace | None = None
        self._zoomed = False
        self._is_log_open = False
        self._probed: tuple[int, ...] = ()
        """Panes of what probes see that have something to show."""
        self._is_cramped = False
        """Whether lines for many GPUs need the room of the lanes."""
        self._current = 1

    def compose(self) -> ComposeResult:
        """A grid that becomes one pane when there is little room."""
        panes = self.panes
        yield self.header
        with Container(id="body"):
            with Container(id="top"):
                yield panes[1]
                with Container(id="right"):
                    yield panes[2]
                    yield panes[3]
            with Container(id="middle"):
                yield from (panes[number] for number in (_THREADS, _FLAME, _SYSCALLS, _LOG) if number in panes)
            yield self.lanes
            yield self.table
            yield self.events
        yield self.findings
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self._arrange()
        self.panes[self._current].focus()

    # -- frames ------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the picture stands still while collecting goes on."""
        return self._held is not None

    def refresh_trace(self) -> None:
        """Draw the newest trace, or the moment that was scrubbed to."""
        trace = self._held or self.session.trace()
        if self.at_ns is not None and self.at_ns <= trace.start_ns:
            self.at_ns = trace.start_ns
        self.show_trace(trace if self.at_ns is None else as_of(trace, self.at_ns))
        self._say_state(trace)

    def show_trace(self, trace: Trace) -> None:
        """Give all parts of the screen the same trace."""
        self._shown = trace
        gpus = len(gpu_tracks(trace)) + len(trace.tracks_of(TrackKind.GPU_INSTANCE))
        self.set_class(gpus > _MANY_GPUS and self.size.height >= _TALL, "-many-gpus")
        self.set_class(gpus > _CROWD and self.size.height >= _TALL, "-crowd")
        is_cramped = gpus > _MANY_GPUS and self.size.height < _TALL
        probed = tuple(self._find_probed(trace))
        if (probed, is_cramped) != (self._probed, self._is_cramped):
            self._probed, self._is_cramped = probed, is_cramped
            self.set_class(is_cramped, "-cramped")
            self._arrange()
        for pane in (self.header, *self.panes.values(), self.findings):
            pane.show(trace)
        self._fill_table()

    def _say_state(self, trace: Trace) -> None:
        glyphs = self.header_glyphs()
        code = self.launched.poll() if self.launched is not None else None
        if self.at_ns is not None:
            ago = (trace.end_ns - self.at_ns) / NS_PER_S
            self.header.say(f"{glyphs[0]} {ago:.0f} s ago (Esc: now)", "selected")
        elif self.is_paused:
            self.header.say("paused (space: go on)", "selected")
        elif code is not None:
            self.header.say(f"exited with code {code}", "bad" if code else "warn")
        elif (gone := lost_target(trace, self.target)) is not None:
            self.header.say(shorten(gone.reason, 44), "bad")
        else:
            self.header.say(f"{glyphs[1]} live {1 / self.session.interval_s:.2g} Hz", "good")

    def header_glyphs(self) -> tuple[str, str]:
        """The signs for the past and for now."""
        return ("<", "*") if getattr(self.app, "ascii_only", False) else ("◀", "●")

    def _find_probed(self, trace: Trace) -> Iterator[int]:
        """The panes of what probes see that have something to show and room for it."""
        if trace.stacks and self.size.width >= _WIDE:
            yield _FLAME
        is_large = self.size.width >= _LARGE[0] and self.size.height >= _LARGE[1]
        if is_large and _LOG not in self.panes and not isinstance(syscalls_view(trace), Unknown):
            yield _SYSCALLS

    def _fill_table(self) -> None:
        """The zoomed form of the panes that have more rows than a pane holds; the log, which goes on to now."""
        if self._is_log_open:
            self.events.show(self._held or self.session.trace())
        elif self.table.display and self._shown is not None:
            rows = self._rows(self._shown)
            if not isinstance(rows, Unknown):
                self.table.show_table(rows, _NO_PROCESSES if self._current == _GPUS else _NO_ROWS)

    def _rows(self, trace: Trace) -> TableView | Unknown:
        """The rows of the pane in focus."""
        if self._current == _GPUS:
            gpus = gpu_rows(trace, self.target)
            return gpus if isinstance(gpus, Unknown) else gpu_processes_table(gpus)
        if self._current == _THREADS:
            threads = threads_view(trace)
            return threads if isinstance(threads, Unknown) else threads_table(threads)
        if self._current == _SYSCALLS:
            calls = syscalls_view(trace)
            return calls if isinstance(calls, Unknown) else syscalls_table(calls)
        return _NO_ROWS

    # -- what is where -----------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget.number:
            self._current = event.widget.number

    @property
    def is_small(self) -> bool:
        """Whether there is room for one pane only."""
        return self.size.width < _SMALL[0] or self.size.height < _SMALL[1]

    def _arrange(self) -> None:
        """Show the panes that there is room for: all, the zoomed one, or the one in focus."""
        alone = self._zoomed or self.is_small or self._is_log_open
        as_table = self._zoomed and not self._is_log_open and self._has_table
        self.set_class(alone, "-alone")
        self.set_class(as_table and self._current == _GPUS, "-gpus-zoomed")
        self.set_class(self.size.width >= _WIDE, "-wide")
        self.set_class(self.size.height >= _TALL, "-tall")
        for number, pane in self.panes.items():
            is_alone = number == self._current and not self._is_log_open and (not as_table or number == _GPUS)
            pane.display = is_alone if alone else self._is_of_use(number)
            pane.set_class(pane.display, "-shown")
        self.gpus.is_zoomed = self._zoomed
        self.table.display = as_table
        self.events.display = self._is_log_open
        for container in self._inner_containers():
            container.display = any(child.display for child in container.children)
        self.query_one(KeyBar).display = self.size.height >= _KEYS_ROWS

    def _is_of_use(self, number: int) -> bool:
        """Whether a pane has a place beside the others."""
        if number in (_FLAME, _SYSCALLS):
            return number in self._probed
        if number == _LANES and self._is_cramped:
            return False
        return self.target is not None or number not in _OF_A_SERVER

    def _inner_containers(self) -> Iterator[Container]:
        """Innermost first."""
        for name in ("right", "top", "middle"):
            yield self.query_one(f"#{name}", Container)

    @property
    def _has_table(self) -> bool:
        """GPUs (their processes), threads and system calls have rows; an empty table would hide why there are none."""
        return self._shown is not None and not isinstance(self._rows(self._shown), Unknown)

    # -- keys --------------------------------------------------------------------------------------------------

    def action_pane(self, number: int) -> None:
        """Focus a pane; where one is alone on the screen, it takes that one's place."""
        if number not in self.panes:
            return
        self._current = number
        self._is_log_open = False
        self._zoomed = self._zoomed or not self._is_of_use(number)
        self._arrange()
        self._focus_current()

    def action_zoom(self) -> None:
        """Give the focused pane the whole screen, or take it back."""
        self._zoomed = not self._zoomed
        self._is_log_open = False
        if not self._zoomed and not self._is_of_use(self._current):
            self._current = next(number for number in self.panes if self._is_of_use(number))
        self._arrange()
        self._focus_current()

    def _focus_current(self) -> None:
        self._fill_table()
        if self._is_log_open:
            self.events.table.focus()
        elif self.table.display and self._current != _GPUS:
            self.table.table.border_title = self.panes[self._current].border_title
            self.table.table.focus()
        else:
            self.table.table.border_title = _PROCESSES_TITLE
            self.panes[self._current].focus()

    def action_events(self) -> None:
        """Open the event log, or close it."""
        self._is_log_open = not self._is_log_open
        self._arrange()
        self._focus_current()

    def on_events_pane_wanted(self, message: EventsPane.Wanted) -> None:
        """Show the moment of an event, in all panes."""
        trace = self._held or self.session.trace()
        self.at_ns = None if message.t_ns >= trace.end_ns else max(trace.start_ns, message.t_ns)
        self.action_events()
        self.refresh_trace()

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest."""
        self._held = None if self.is_paused else self.session.trace()
        self.refresh_trace()

    def action_scrub(self, step: int) -> None:
        """Go back or forward in time; forward past the newest moment is live again."""
        trace = self._held or self.session.trace()
        at_ns = (trace.end_ns if self.at_ns is None else self.at_ns) + step * _STEP_NS
        self.at_ns = None if at_ns >= trace.end_ns else max(trace.start_ns, at_ns)
        self.refresh_trace()

    def action_live(self) -> None:
        """Clear a filter; or else close the log; or else back to now; or else out of a zoomed pane."""
        tables = (self.table, self.events)
        filtering = next((one for one in tables if one.display and one.has_class("-filtering")), None)
        if filtering is not None:
            filtering.action_clear_filter()
        elif self._is_log_open:
            self.action_events()
        elif self.at_ns is not None or self.is_paused:
            self.at_ns = self._held = None
            self.refresh_trace()
        elif self._zoomed:
            self.action_zoom()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While the flame takes text, Escape is its own."""
        if action == "live" and isinstance(self.focused, StallFlamePane) and self.focused.is_searching:
            return False
        return super().check_action(action, parameters)

    def action_next_gpu(self) -> None:
        """Show the next GPU in the roofline and the lanes; after the last one the roofline is of all together."""
        if self._shown is None:
            return
        stops = [track.id for track in target_gpus(self._shown, self.target)]
        stops += [ALL_GPUS] if len(stops) > 1 else []
        if stops:
            at = stops.index(self.roofline.gpu) if self.roofline.gpu in stops else 0
            self._show_gpu(stops[(at + 1) % len(stops)])

    def on_gpu_pane_pinned(self, message: GpuPane.Pinned) -> None:
        """The pinned GPU is the one that the roofline and the lanes are of."""
        self._show_gpu(message.gpu)

    def _show_gpu(self, gpu: str | None) -> None:
        self.roofline.gpu = gpu
        self.lanes.gpu = None if gpu == ALL_GPUS else gpu
        self.refresh_trace()

    def action_diagnosis(self) -> None:
        """Open the diagnosis of the moment that is shown."""
        if self._shown is not None:
            issues = self.app.issues if isinstance(self.app, LlmtopApp) else ()
            self.app.push_screen(DiagnosisScreen(self._shown, issues))


class LiveApp(LlmtopApp):
    """Watches a session: one frame an interval, when the terminal has shown the last one.

    Args:
        session: Not yet started; the app starts and stops it.
        launched: The command that llmtop started, for the log pane and its end.
        seconds: Leave by itself after so long.
        clock: Seconds, for the distance between frames.
    """

    CSS_PATH: ClassVar[Any] = [LlmtopApp.CSS_PATH, LlmtopApp.CSS_PATH.with_name("live.tcss")]

    def __init__(
        self,
        session: Session,
        target: Target | None,
        *,
        launched: Launched | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock = clock
        self.session = session
        self.live = LiveScreen(session, target, launched)
        self._seconds = seconds
        self._is_news = False
        self._last_frame_s = float("-inf")
        self._started_s = clock()

    def get_default_screen(self) -> Screen[None]:
        """The live screen at the bottom of the stack."""
        return self.live

    def on_mount(self) -> None:
        self.session.on_news = self._tell
        self.session.start()
        # Half an interval: a frame is late by that much at most after the news that it shows.
        self.set_interval(min(_FIRST_FRAMES_S, self.session.interval_s / 2), self._frame_if_due)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)

    async def on_unmount(self) -> None:
        self.session.on_news = None
        self.session.stop()

    def _tell(self) -> None:
        """On a collector's thread: only a message crosses over."""
        self.post_message(News())

    def on_news(self, _: News) -> None:
        self._is_news = True
        self._frame_if_due()

    def _frame_if_due(self) -> None:
        """Draw when there is news, the interval has passed, and the terminal has kept up."""
        if not self._is_news or self.live.is_paused or not self.live.is_mounted:
            return
        now = self._clock()
        is_starting = now - self._started_s < 2 * self.session.interval_s
        least = _FIRST_FRAMES_S if is_starting else self.session.interval_s
        if now - self._last_frame_s < least * 0.95 or not self.gate.is_open:
            return
        self._is_news = False
        self._last_frame_s = now
        self.live.refresh_trace()
        self.frame_sent()


def watch_session(
    session: Session,
    target: Target | None,
    *,
    launched: Launched | None = None,
    seconds: float | None = None,
    interval: float = 1.0,
) -> int:
    """Show the live screen until the user leaves it; starts and stops the session.

    Args:
        session: Not yet started.
        target: None shows this machine's GPUs alone.
        launched: The command that llmtop itself started.
        seconds: Leave by itself after so long.
        interval: Seconds between polls, and between frames.

    Returns:
        The exit code: 0, or 128 + the number of the signal that ended it.
    """
    session.interval_s = interval
    return run_app(LiveApp(session, target, launched=launched, seconds=seconds))
