"""The terminal's driver: Textual's, made to end in order whatever becomes of the terminal.

A connection that breaks leaves a terminal that is gone, or one that nobody reads from. Textual alone then waits for
ever, and what llmtop started goes on with it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from textual import events
from textual.app import App, ReturnType

from llmtop.tui.guardian import Guardian
from llmtop.tui.keyboard import read_keys
from llmtop.tui.terminal import drawn_on
from llmtop.tui.textual_private import KeyParser, OpenApp, OpenDriver

if TYPE_CHECKING:
    from textual.message import Message

_ASK_CURSOR: Final = "\x1b[6n"
"""Device status report: the terminal answers with the cursor's place when it has shown all before it."""
_BLANK: Final = "\x1b[H\x1b[2J"
_CLEAR_LINE: Final = "\r\x1b[K"
_LONGEST_STAY_S: Final = 0.5
"""Longer than a link takes that one can still work over; who leaves waits for it only while an answer is out."""

_AFRESH: Final = b"\x18\x1b[?2026l"
"""Ends an escape sequence that was cut short (CAN, ECMA-48) and a frame whose end was dropped (synchronised output)."""
_AT_MOST: Final = 4096
"""Bytes that a terminal's emptied buffer surely takes; what restores the terminal is the last hundred of them."""
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Signals that end the program in order, with the exit code that a shell gives them."""
_PATIENCE_S: Final = 2.0
"""How long the end waits for the terminal to read once a signal asked for it; Docker kills after 10 s."""


class TerminalOutput:
    """Writes to a terminal, waiting for it only as long as somebody may still look at it.

    Textual's writer thread is the only one to write here. Its queue is short: a write that fails or never returns
    would stop the thread that draws as well, and every signal's handler with it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._descriptor = _open_again(stream.fileno())
        self._encoding = stream.encoding
        self._pending = bytearray()
        self.is_gone = False
        """Nobody is at the other end any more."""
        self._patient_until_s: float | None = None
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> int:
        self._pending += text.encode(self._encoding, "replace")
        return len(text)

    def flush(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        try:
            while data and not self.is_gone:
                data = data[self._send(data) :]
        except (OSError, termios.error):
            self.is_gone = True

    def hang_up(self) -> None:
        """Nobody reads any more: drop what is under way and whatever comes."""
        self.is_gone = True
        os.eventfd_write(self._news, 1)

    def lose_patience(self, after_s: float) -> None:
        """From so many seconds on, what the terminal has not read makes room for what comes last."""
        self._patient_until_s = time.monotonic() + after_s
        os.eventfd_write(self._news, 1)

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._news)

    def _send(self, data: bytes) -> int:
        """Bytes dealt with."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            if self._wait():
                return 0
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
            os.write(self._descriptor, _AFRESH + data[-_AT_MOST:])
            return len(data)

    def _wait(self) -> bool:
        """Until the terminal takes more, or there is news of it; False when it was waited for long enough."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        if self._patient_until_s is None:
            poller.register(self._news, select.POLLIN)
            return bool(poller.poll())
        return bool(poller.poll(max(0.0, self._patient_until_s - time.monotonic()) * 1000))


def _open_again(descriptor: int) -> int:
    """The same terminal by a description of our own, whose writes do not block; the shell's stays as it is.

    Who runs as somebody else on this terminal (su, sudo -u) may not open it: then writes wait for the terminal.
    """
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:
        return os.dup(descriptor)


def _has_typed(keyboard: int) -> bool:
    """Whether keys are there to be read: of a line that has not ended a terminal tells only when it is read by keys."""
    was = termios.tcgetattr(keyboard)
    flags = was[3] & ~termios.ICANON
    poller = select.poll()
    poller.register(keyboard, select.POLLIN)
    termios.tcsetattr(keyboard, termios.TCSANOW, [*was[:3], flags, *was[4:]])
    try:
        return bool(poller.poll(0))
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, was)


class _TerminalHold:
    """What is taken while the terminal shows the app: its output, the signals that end it, a thread that sees hang-ups.

    Args:
        end: Ends the app, with the number of the signal to tell of; may be called in any thread.

    Attributes:
        unread: A descriptor that can be read once no key shall be read any more.
    """

    def __init__(self, stream: TextIO, keyboard: int, end: Callable[[int], object]) -> None:
        self.output = TerminalOutput(stream)
        self.unread = os.eventfd(0, os.EFD_CLOEXEC)
        self._keyboard = keyboard
        self._end = end
        self._is_over = os.eventfd(0, os.EFD_CLOEXEC)
        self._watch = threading.Thread(target=self._await_hang_up, name="terminal-hang-up", daemon=True)
        self._watch.start()
        # Not the loop's own handlers: those wait their turn behind a write that waits for the terminal.
        self._handlers = {number: signal.signal(number, self._on_signal) for number in _ENDING}
        self._guardian = Guardian(stream.fileno(), _ENDING)

    def hang_up(self) -> None:
        """The terminal is gone."""
        self.output.hang_up()
        self.leave_keys()
        self._end(signal.SIGHUP)

    def leave_keys(self) -> None:
        """Have the thread that reads keys end."""
        os.eventfd_write(self.unread, 1)

    def release(self) -> None:
        """Give all of it back; what was written has been sent."""
        os.eventfd_write(self._is_over, 1)
        self._watch.join()
        self._guardian.release()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self.output.close()
        os.close(self._is_over)
        os.close(self.unread)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._guardian.alive()
        self.output.lose_patience(_PATIENCE_S)
        self._end(number)

    def _await_hang_up(self) -> None:
        """Sleep until the other side of the terminal is closed; not every hang-up comes with a signal."""
        poller = select.poll()
        poller.register(self._keyboard, 0)
        poller.register(self._is_over, select.POLLIN)
        if any(descriptor == self._keyboard for descriptor, _ in poller.poll()):
            self.hang_up()


class TerminalDriver(OpenDriver):
    """Ends the app with the shell's exit code for a signal, and a terminal that hangs up without one as for SIGHUP.

    It draws on standard error, or on standard output where errors go to a file.
    """

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._stream = drawn_on(sys.__stdout__, sys.__stderr__) or cast("TextIO", sys.__stderr__)
        self._hold: _TerminalHold | None = None
        self._may_ask = False
        self._is_answered = threading.Event()
        self._asked_at_s = 0.0
        self._questions = self._answers = 0
        """Who has waited too long for an answer asks again, and then two are under way."""
        self._take_answer: Callable[[], object] = int

    def start_application_mode(self) -> None:
        """Take the terminal: at the start, and when the program goes on after it was stopped."""
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            loop.call_soon_threadsafe(self.exit_app, 128 + number)

        if self._hold is None:  # SIGCONT comes without a stop too: to who leads a session, with the hang-up
            self._hold = _TerminalHold(self._stream, self.fileno, end)
        self.write_to(self._hold.output)
        self._may_ask = True
        self._questions = self._answers = 0
        self._expect_answer()  # Textual asks for two modes; their answers come before that to the first frame
        if self.input_tty and _has_typed(self.fileno):
            self._hold.output.write(_CLEAR_LINE)  # the terminal has echoed it, and would show that again in the end
            self._hold.output.flush()  # nobody else writes yet
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was found.

        tmux 3.3 keeps rows of the other screen when it was resized meanwhile, and some terminals have one screen only:
        what they keep is blank.
        """
        self.write(_BLANK)
        super().stop_application_mode()

    def ask_cursor(self, answered: Callable[[], object]) -> None:
        """Have the terminal say where its cursor is: it does so when it has shown all that was written before.

        Args:
            answered: Called with each answer from then on, in the thread that reads. Of a message, which wakes the
                program for nothing, two a second are a fiftieth of what the live screen costs.
        """
        self._take_answer = answered
        if self._may_ask:
            self._questions += 1
            self._expect_answer()
            self.write(_ASK_CURSOR)

    def process_message(self, message: Message) -> None:
        """Take what the terminal sends; in the thread that reads."""
        if isinstance(message, events.CursorPosition):
            self._answers += 1
            if self._answers >= self._questions:
                self._is_answered.set()
            self._take_answer()
        else:
            super().process_message(message)

    def disable_input(self) -> None:
        """Read no more, at the end and when the program is stopped, once no answer is under way.

        The terminal does not echo yet: an answer that comes later stands at the shell's prompt.
        """
        self._may_ask = False
        is_there = self._hold is not None and not self._hold.output.is_gone
        if self.input_tty and is_there:
            self._is_answered.wait(max(0.0, self._asked_at_s + _LONGEST_STAY_S - time.monotonic()))
        if self._hold is not None:
            self._hold.leave_keys()
        super().disable_input()

    def suspend(self) -> None:
        """Stop all that stands in the foreground, as Ctrl+Z does where the terminal itself heeds it; `fg` goes on.

        Whoever started the program and waits for it (make, sudo) would else hold the shell's prompt back.
        """
        os.killpg(os.getpgrp(), signal.SIGTSTP)

    def run_input_thread(self) -> None:
        """Textual's own looks ten times a second whether it shall end."""
        hold = self._hold
        if hold is None:
            return
        try:
            read_keys(self.fileno, hold.unread, KeyParser(self.debugs), self.process_message)
        except OSError:  # EIO: what a read meets when the other side of a pseudo-terminal is closed
            if not self.exit_event.is_set():  # else all is over
                hold.hang_up()

    def _expect_answer(self) -> None:
        self._is_answered.clear()
        self._asked_at_s = time.monotonic()

    def close(self) -> None:
        """Give the terminal back: at the end, and when the program is stopped for a while."""
        super().close()
        if self._hold is not None:
            self._hold.release()
            self._hold = None


class TerminalApp(OpenApp[ReturnType]):
    """A program that draws through this driver, and that the shell can stop."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color=ansi_color)

    def action_suspend_process(self) -> None:
        """Give the terminal back to the shell until it brings the program to the foreground again."""
        if isinstance(self.driver, TerminalDriver):
            self.driver.suspend()
