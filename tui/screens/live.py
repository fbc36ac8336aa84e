"""The live screen: a header, panes over one trace, and the line that says what to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen

from llmtop.analysis.gpu_view import gpu_rows, gpus_table
from llmtop.analysis.live_summary import lost_target
from llmtop.analysis.readings import as_of, gpu_tracks
from llmtop.analysis.syscalls import syscalls_table, syscalls_view
from llmtop.analysis.threads import threads_table, threads_view
from llmtop.model import NS_PER_S, Unknown
from llmtop.text import shorten
from llmtop.tui.app import LlmtopApp, run_app
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.findings import FindingsLine
from llmtop.tui.panes.gpu import GpuPane
from llmtop.tui.panes.header import HeaderLine
from llmtop.tui.panes.keys import KeysLine
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.panes.log import LogPane
from llmtop.tui.panes.roofline_live import RooflinePane
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

    from llmtop.model import Target, Trace
    from llmtop.servers.launch import Launched
    from llmtop.session import Session

_SMALL = (60, 18)
"""Below this many columns or rows one pane is shown at a time."""
_WIDE = 100
_TALL = 36
"""Rows from which the findings get a second line."""
_KEYS_ROWS = 18
_MANY_GPUS = 4
"""From here on a line for each needs more height than the numbers of the server."""
_OF_A_SERVER = (2, 4)
"""Panes that give their room to the GPUs when there is no server to watch; their digits still work in a zoom."""
_FLAME, _SYSCALLS = 5, 8
"""Panes of what probes see: the flame stands beside the threads once there are stacks, both show on their digits."""
_STEP_NS = 5 * NS_PER_S
_NO_CALLS = Unknown("no system call in this window")
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
        Binding("space", "pause", "pause", key_display="space", tooltip="Stop drawing; collecting goes on"),
        Binding("left", "scrub(-1)", "back", key_display="left", tooltip="Go 5 s back or forward in time"),
        Binding("right", "scrub(1)", "on", key_display="right", show=False, tooltip="Go 5 s back or forward in time"),
        # Before the table's own binding: its filter is cleared first, here.
        Binding("escape", "live", "live", show=False, priority=True, tooltip="Back to now, and out of a zoomed pane"),
        Binding("n", "next_gpu", "next GPU", show=False, tooltip="The next GPU in roofline and lanes"),
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
        panes: list[Pane[Any]] = [
            RooflinePane(target),
            ServerPane(target),
            GpuPane(id="gpu"),
            ThreadsPane(target),
            StallFlamePane(target),
            LanesPane(target),
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
        self._has_stacks = False
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
                yield panes[4]
                yield panes[_FLAME]
                if 7 in panes:
                    yield panes[7]
            yield panes[6]
            yield panes[_SYSCALLS]
            yield self.table
        yield self.findings
        yield KeysLine()

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
        self.set_class(len(gpu_tracks(trace)) > _MANY_GPUS and self.size.height >= _TALL, "-many-gpus")
        if self._has_stacks != bool(trace.stacks):
            self._has_stacks = bool(trace.stacks)
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

    def _fill_table(self) -> None:
        """The zoomed form of the panes that have more rows than a pane holds."""
        if not self.table.display or self._shown is None:
            return
        if self._current == 3:
            rows = gpu_rows(self._shown)
            self.table.show_table(gpus_table(rows if not isinstance(rows, Unknown) else ()), _why(rows))
        elif self._current == _SYSCALLS:
            calls = syscalls_view(self._shown)
            if not isinstance(calls, Unknown):
                self.table.show_table(syscalls_table(calls), _NO_CALLS)
        else:
            view = threads_view(self._shown)
            if not isinstance(view, Unknown):
                self.table.show_table(threads_table(view))

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
        alone = self._zoomed or self.is_small
        as_table = self._zoomed and self._has_table
        self.set_class(alone, "-alone")
        self.set_class(self.size.width >= _WIDE, "-wide")
        self.set_class(self.size.height >= _TALL, "-tall")
        for number, pane in self.panes.items():
            pane.display = self._is_of_use(number) if not alone else number == self._current and not as_table
            pane.set_class(pane.display, "-shown")
        self.table.display = as_table
        for container in self._inner_containers():
            container.display = any(child.display for child in container.children)
        self.query_one(KeysLine).display = self.size.height >= _KEYS_ROWS

    def _is_of_use(self, number: int) -> bool:
        """Whether a pane has a place beside the others."""
        if number == _SYSCALLS:
            return False
        if number == _FLAME:
            return self._has_stacks and self.size.width >= _WIDE
        return self.target is not None or number not in _OF_A_SERVER

    def _inner_containers(self) -> Iterator[Container]:
        """Innermost first."""
        for name in ("right", "top", "middle"):
            yield self.query_one(f"#{name}", Container)

    @property
    def _has_table(self) -> bool:
        """GPUs, threads and system calls have rows; an empty table would hide why there are none."""
        if self._shown is None or self._current not in (3, 4, _SYSCALLS):
            return False
        known = gpu_rows(self._shown) if self._current == 3 else self.panes[self._current].view(self._shown)
        return not isinstance(known, Unknown)

    # -- keys --------------------------------------------------------------------------------------------------

    def action_pane(self, number: int) -> None:
        """Focus a pane; where one is alone on the screen, it takes that one's place."""
        if number not in self.panes:
            return
        self._current = number
        self._zoomed = self._zoomed or not self._is_of_use(number)
        self._arrange()
        self._focus_current()

    def action_zoom(self) -> None:
        """Give the focused pane the whole screen, or take it back."""
        self._zoomed = not self._zoomed
        if not self._zoomed and not self._is_of_use(self._current):
            self._current = next(number for number in self.panes if self._is_of_use(number))
        self._arrange()
        self._focus_current()

    def _focus_current(self) -> None:
        if self.table.display:
            self.table.table.border_title = self.panes[self._current].border_title
            self._fill_table()
            self.table.table.focus()
        else:
            self.panes[self._current].focus()

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
        """Clear the table's filter; or else back to now; or else out of a zoomed pane."""
        if self.table.display and self.table.has_class("-filtering"):
            self.table.action_clear_filter()
        elif self.at_ns is not None or self.is_paused:
            self.at_ns = self._held = None
            self.refresh_trace()
        elif self._zoomed:
            self.action_zoom()

    def action_next_gpu(self) -> None:
        """Show the next GPU in the roofline and the lanes."""
        for pane in self.panes.values():
            if isinstance(pane, RooflinePane | LanesPane):
                pane.gpu += 1
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

    def on_unmount(self) -> None:
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


def _why(value: object) -> Unknown:
    return value if isinstance(value, Unknown) else Unknown("no rows")
