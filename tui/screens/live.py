"""Watching a session: the live screen, drawn when there is news and the terminal has kept up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar

from textual.message import Message

from llmtop.errors import print_message
from llmtop.tui.app import LlmtopApp, run_app, settle
from llmtop.tui.screens.diagnosis import DiagnosisScreen
from llmtop.tui.screens.live_screen import LiveScreen

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.screen import Screen

    from llmtop.model import Target
    from llmtop.servers.launch import Launched
    from llmtop.session import Session
    from llmtop.tui.panes.view import DumpWanted
    from llmtop.tui.screens.watched import Watched

_FIRST_FRAMES_S = 0.25
"""At the start frames follow the news this closely, so that the first numbers show at once."""
_EARLY, _QUIET, _LATE = 0.9, 0.1, 1.2
"""Shares of the interval: how soon after a frame the next may come; how long nothing must have been reported before it,
so that it shows what collectors that poll together have read, and not what all but one of them read a second ago; and
when it comes in any case."""


_SETTLED_S = 30.0
"""From then on the screen's widgets and the server's threads are there, and mostly stay to the end."""


class Reported(Message):
    """A collector has reported something."""

    def can_replace(self, message: Message) -> bool:
        """One is enough, however many collectors report between two frames."""
        return isinstance(message, Reported)


class LiveApp(LlmtopApp):
    """Watches a session: one frame an interval, when the terminal has shown the last one.

    Args:
        session: Not yet started; the app starts and stops it.
        launched: The command that llmtop started, for the log pane and its end.
        seconds: Leave by itself after so long.
        screen: What shows the session, where that is another than the usual one.
        clock: Seconds, for the distance between frames.
    """

    CSS_PATH: ClassVar[Any] = [LlmtopApp.CSS_PATH, LlmtopApp.CSS_PATH.with_name("live.tcss")]

    def __init__(
        self,
        session: Watched,
        target: Target | None,
        *,
        launched: Launched | None = None,
        seconds: float | None = None,
        screen: LiveScreen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock = clock
        self.session = session
        self.live = screen or LiveScreen(session, target, launched)
        self._seconds = seconds
        self._is_news = False
        self._look: asyncio.TimerHandle | None = None
        """When it is looked again whether a frame is due."""
        self._last_news_s = self._last_frame_s = float("-inf")
        self._started_s = clock()

    def get_default_screen(self) -> Screen[None]:
        """The live screen at the bottom of the stack."""
        return self.live

    def on_mount(self) -> None:
        self.session.on_news = self._tell
        self.session.start()
        self.set_timer(_SETTLED_S, settle)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)

    async def on_unmount(self) -> None:
        self.session.on_news = None
        if self._look is not None:
            self._look.cancel()
        if self.live.recording is not None:
            self.live.recording.stop()
        self.session.stop()

    def _tell(self) -> None:
        """On a collector's thread: only a message crosses over, and one a frame is enough to wake the screen."""
        self._last_news_s = self._clock()
        if not self._is_news:
            self._is_news = True
            self.post_message(Reported())

    def on_dump_wanted(self, message: DumpWanted) -> None:
        # Imported here: the explorer is another program's screen, and hardly any server leaves a dump.
        from llmtop.tui.screens.dump_screen import DumpScreen

        self.push_screen(DumpScreen(message.dump))

    def on_reported(self, _: Reported) -> None:
        self._is_news = True
        self._frame_if_due()

    def _frame_if_due(self) -> None:
        """Draw when there is news and nothing has to be waited for; else look again when that may be so.

        Without news nobody looks: the next report says that there is some.
        """
        if not self._is_news or not self.is_running:
            return
        now, above = self._clock(), self._above
        wait_s = self._wait_s(now, above)
        if wait_s > 0:
            self._look_again(wait_s)
            return
        self._is_news = False
        self._last_frame_s = now
        is_sent = False
        if isinstance(above, DiagnosisScreen):
            with above.border():
                self.live.refresh_diagnosis(above)
        else:
            is_sent = self.live.send_frame()
        self.frame_drawn(is_sent=is_sent)
        self._keep_budget()

    def _keep_budget(self) -> None:
        pace = self.live.pace
        pace.drawn(self.session.look_stretch)
        self.session.look_stretch = pace.look_stretch(self.session.interval_s)

    def _wait_s(self, now: float, above: Screen[Any] | None) -> float:
        """For how long a frame has to wait; 0 for not at all.

        It does until as much time has passed as the last ones' cost asks for, the collectors have spoken, and the
        terminal has kept up.
        Below a screen that covers it nothing is drawn: Textual would send all of that screen again, each time. Of these
        the diagnosis goes on.
        """
        until_asked_s = min(_FIRST_FRAMES_S, self.session.interval_s / 2)
        is_still = above is not None and not isinstance(above, DiagnosisScreen)
        if self.live.time.is_held or not self.live.is_mounted or is_still:
            return until_asked_s
        is_starting = now - self._started_s < 2 * self.session.interval_s
        least = _FIRST_FRAMES_S if is_starting else self.live.pace.apart_s(self.session.interval_s)
        passed = now - self._last_frame_s
        if passed < least * _EARLY:
            return least * _EARLY - passed
        if not self.gate.is_open:
            return until_asked_s
        quiet_s = _QUIET * least - (now - self._last_news_s)
        return quiet_s if passed < least * _LATE and not is_starting else 0.0

    @property
    def _above(self) -> Screen[Any] | None:
        """The screen of full size that lies over the live one; below a dialog it shows what is around it."""
        full = next((screen for screen in reversed(self.screen_stack) if not screen.is_modal), self.live)
        return None if full is self.live else full

    def _look_again(self, after_s: float) -> None:
        """By the loop's own clock: a timer of Textual's is a task, and takes as long as the look."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(after_s, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        try:
            self._frame_if_due()
        except Exception as error:  # the loop would only log it; Textual ends with it
            self.end_with(error)


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
    app = LiveApp(session, target, launched=launched, seconds=seconds)
    code = run_app(app)
    if app.live.recording is not None:
        print_message(app.live.recording.end_said[0])
    return code
