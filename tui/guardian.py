"""A small process beside the one that draws: it ends that one, and gives the terminal back, when it cannot by itself.

A thread that hangs in native code can hold every lock there is: then no handler of Python's runs, SIGTERM and a
terminal that goes away have no effect, and what is left behind is an orphan, or a terminal in raw mode. The kernel
still runs the C part of a handler, which writes the signal's number to a pipe (`signal.set_wakeup_fd`): this process
reads it there. It sees the terminal hang up by itself, and the end of the other process as the end of the pipe.

Run as a program: `guardian.py PID SETTINGS SIGNALS PATIENCE`, the pipe as standard input, the terminal as standard
output.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 2.6
"""From a signal, or a terminal that is gone, to the end by force: an ordinary end takes half a second, and 3 are
promised."""
PATIENCE_ALIVE_S = 6.0
"""Where a handler of Python's ran: the end is under way, and waits 2 s at most for what hangs, and for the terminal."""
RELEASED, ALIVE = 0xF0, 0xF1
"""The terminal was given back, and signals have their defaults again; a handler of Python's runs."""
_started: list[int] = []
"""PIDs that nobody has waited for."""
_RESTORE = (
    b"\x18\x1b[?2026l"  # whatever was cut short; frames without a beginning
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # the mouse
    b"\x1b[?1004l\x1b[?2004l\x1b[?2048l\x1b[<u"  # focus, bracketed paste, resize reports, keyboard protocol
    b"\x1b[0m\x1b[?1049l\x1b[?25h"  # colours, the other screen, the cursor
)


class Guardian:
    """Starts the process, and tells it when its work is over. Signals must have handlers of Python's by then.

    Args:
        terminal: A descriptor of the terminal, as it was found.
        ending: The signals that are to end the program.
        patience_s: From a signal, or a terminal that is gone, to the end by force.
    """

    def __init__(self, terminal: int, ending: Iterable[int], *, patience_s: float = PATIENCE_S) -> None:
        self._reap()
        readable, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        arguments = [str(Path(__file__).resolve()), str(os.getpid()), json.dumps(_settings(terminal))]
        actions = [
            (os.POSIX_SPAWN_DUP2, readable, 0),
            (os.POSIX_SPAWN_DUP2, terminal, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        command = [sys.executable, "-I", "-S", *arguments, json.dumps([*map(int, ending)]), str(patience_s)]
        try:
            _started.append(os.posix_spawn(sys.executable, command, os.environ, file_actions=actions))
        finally:
            os.close(readable)
        self._wakeup = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)

    def alive(self) -> None:
        """Python runs: the end will come in order."""
        with suppress(OSError):
            os.write(self._pipe, bytes([ALIVE]))

    def release(self) -> None:
        """The terminal is as it was: nothing is left to guard."""
        signal.set_wakeup_fd(self._wakeup)
        with suppress(OSError):
            os.write(self._pipe, bytes([RELEASED]))
        os.close(self._pipe)

    @staticmethod
    def _reap() -> None:
        """Those of before, which have ended: who gives a terminal back must not wait for them."""
        for pid in _started:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        _started.clear()


def _settings(terminal: int) -> list[Any]:
    """How it is set, its characters as text; nothing of one that is gone."""
    try:
        *flags, characters = termios.tcgetattr(terminal)
    except termios.error:
        return []
    return [*flags, [char.decode("latin-1") if isinstance(char, bytes) else char for char in characters]]


def main(pid: int, settings: list[Any], ending: list[int], patience_s: float) -> int:
    """Watch until the other process is done or is made to be."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # what is sent to the group is for the other one
    group = _group()
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(1, 0)
    deadline_s: float | None = None
    while True:
        left_ms = None if deadline_s is None else max(0.0, deadline_s - time.monotonic()) * 1000
        ready = dict(poller.poll(left_ms))
        if 0 in ready:
            said = os.read(0, 4096)
            if RELEASED in said:
                return 0
            if not said:  # it has ended by itself, or was killed, and has left the terminal as it was
                give_back(settings, group)
                return 0
            if deadline_s is None and set(ending).intersection(said):
                deadline_s = time.monotonic() + patience_s
            if ALIVE in said:
                deadline_s = time.monotonic() + PATIENCE_ALIVE_S
        if 1 in ready:
            poller.unregister(1)
            deadline_s = deadline_s or time.monotonic() + patience_s
        if deadline_s is not None and time.monotonic() >= deadline_s and os.getppid() == pid:
            give_back(settings, group)
            os.kill(pid, signal.SIGKILL)
            return 0


def _group() -> int:
    """The process group that has the terminal; 0 where it is not this session's."""
    try:
        return os.tcgetpgrp(1)
    except OSError:
        return 0


def give_back(settings: list[Any], group: int) -> None:
    """Set the terminal to what it was, unless it is gone or a shell has taken it back already."""
    with suppress(OSError, termios.error):
        if settings and _group() == group:
            characters = [char.encode("latin-1") if isinstance(char, str) else char for char in settings[-1]]
            termios.tcsetattr(1, termios.TCSANOW, [*settings[:-1], characters])
    with suppress(OSError):
        terminal = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(terminal, _RESTORE)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]), float(sys.argv[4])))
