"""A terminal in memory, with a real pseudo-terminal under it: runs a program as a user would see it.

with Terminal([sys.executable, "-m", "llmtop"], columns=120, lines=40) as terminal:
    terminal.wait_for("Roofline")
    terminal.press("q")
    assert terminal.wait_exit() == 0
    assert terminal.unrestored() == []
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

DEADLINE_S = 90.0
"""For what never comes: nothing is measured by it, and a busy machine has time."""
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "space": " ",
    "backspace": "\x7f",
} | {f"ctrl+{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"}

ALT_SCREENS = {47, 1047, 1049}
# DEC private modes a program must leave as it found them: what a user would notice, by mode number.
_MODES_AT_START = {
    **dict.fromkeys(ALT_SCREENS, False),
    25: True,
    **dict.fromkeys((1000, 1002, 1003), False),  # the encodings (1006, 1015, 1016) do nothing without one of these
    1004: False,
    2004: False,
    2048: False,
    2026: False,
}
_RECOGNISED_MODES = {2026}
"""What DECRQM says we know. Not 2048: a program that believes in resize reports no longer heeds SIGWINCH."""
_MODE_NAMES = {25: "cursor", 1004: "focus reports", 2004: "bracketed paste", 2048: "resize reports", 2026: "sync"}
_PRIVATE_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_KEYBOARD = re.compile(rb"\x1b\[([<>])([0-9;]*)u")

# Escape sequences, in the order tried: queries we answer, what pyte would print as text, and everything else.
_SYNC_QUERY = re.compile(rb"\x1b\[\?([0-9]+)\$p")
_KEYBOARD_QUERY = re.compile(rb"\x1b\[\?u")
_COLOUR_QUERY = re.compile(rb"\x1b\](1[01]);\?(?:\x07|\x1b\\)")
_UNKNOWN_TO_PYTE = re.compile(
    rb"\x1b\[[<>=][0-?]*[ -/]*[@-~]"  # kitty keyboard, modifyOtherKeys, DA3
    rb"|\x1b\[\?[0-9;]*[ -/]*[a-gi-km-zA-Z]"  # private sequences other than setting modes
    rb"|\x1b\[[0-9;]*[ ][@-~]"  # cursor shape
    rb"|\x1b[P_^X][^\x1b]*\x1b\\"  # string controls
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[P_^X][^\x1b]*\x1b?|[ -/]*)?\Z")


class _Screen(pyte.HistoryScreen):
    """pyte's screen with what it lacks: the alternate screen, and replies that go somewhere."""

    def __init__(self, columns: int, lines: int, reply: Callable[[str], None]) -> None:
        super().__init__(columns, lines, history=2000, ratio=0.5)
        self._reply = reply
        self._main: tuple[Any, Any] | None = None

    def set_mode(self, *modes: int, **options: Any) -> None:
        if options.get("private") and ALT_SCREENS & set(modes) and self._main is None:
            self._main = (deepcopy(self.buffer), deepcopy(self.cursor))
            self.erase_in_display(2)
        super().set_mode(*modes, **options)

    def reset_mode(self, *modes: int, **options: Any) -> None:
        super().reset_mode(*modes, **options)
        if options.get("private") and ALT_SCREENS & set(modes) and self._main is not None:
            self.buffer, self.cursor = self._main
            self._main = None
            self.dirty.update(range(self.lines))

    def write_process_input(self, data: str) -> None:
        self._reply(data)


TerminalFactory = Callable[..., "Terminal"]
"""What the fixture `terminal` gives: `terminal(argv, columns=, lines=, env=...)`."""


class Terminal:
    """A program in a pseudo-terminal and the screen it draws.

    Args:
        argv: The program; it becomes leader of its own session with this as its controlling terminal.
        env: Added to a plain environment (TERM=xterm-256color, UTF-8); a value of None takes a variable away.
        answers: Whether queries (cursor position, modes, colours) are answered; may be changed at any time.
        answers_after_s: How long an answer takes, as over a slow link.
        stdout: A file that stdout goes to instead; `stderr` alike.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        answers: bool = True,
        answers_after_s: float = 0.0,
        stdout: Path | None = None,
        stderr: Path | None = None,
    ) -> None:
        self.answers = answers
        self._answers_after_s = answers_after_s
        self._answers: list[threading.Timer] = []
        self._raw = bytearray()
        self._pending = b""
        self._changed = threading.Condition()
        self._screen = _Screen(columns, lines, self._reply)
        self._stream = pyte.ByteStream(self._screen)
        self._master, self._slave = pty.openpty()
        _set_size(self._master, columns, lines)
        self._line_discipline = termios.tcgetattr(self._master)
        self._left_over: list[str] | None = None
        self._process = self._spawn(argv, env or {}, cwd, stdout, stderr)
        self._reads = threading.Event()
        self._reads.set()
        self._is_hung_up = False
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.poll()

    @property
    def is_answering(self) -> bool:
        """Whether an answer to the program is under way."""
        return any(answer.is_alive() for answer in self._answers)

    @property
    def raw(self) -> bytes:
        """Every byte the program has written."""
        with self._changed:
            return bytes(self._raw)

    def screen_lines(self) -> list[str]:
        """The screen's lines, trailing blanks cut."""
        with self._changed:
            return [line.rstrip() for line in self._screen.display]

    def screen_text(self) -> str:
        """The whole screen as it stands."""
        return "\n".join(self.screen_lines())

    def style_at(self, column: int, line: int) -> pyte.screens.Char:
        """The character cell (data, fg, bg, bold ...) at a place counted from 0."""
        with self._changed:
            return self._screen.buffer[line][column]

    def press(self, *keys: str) -> None:
        """Type: names from `KEYS`, anything else letter by letter as it stands."""
        self.send("".join(KEYS.get(key, key) for key in keys).encode())

    def send(self, data: bytes) -> None:
        """Write bytes as if they came from the keyboard or the terminal."""
        with contextlib.suppress(OSError):  # it has just ended
            os.write(self._master, data)

    def signal(self, number: int) -> None:
        """Signal the program, and nothing else in its session."""
        self._process.send_signal(number)

    def resize(self, columns: int, lines: int) -> None:
        """Change the window's size; the kernel sends SIGWINCH."""
        with self._changed:
            self._screen.resize(lines, columns)
        _set_size(self._master, columns, lines)

    def stop_reading(self) -> None:
        """Take no more output, as over a connection that stalls; what is written then waits."""
        self._reads.clear()

    def read_on(self) -> None:
        """Take what waits, and what comes."""
        self._reads.set()

    def hang_up(self) -> None:
        """Close this side, as when a connection breaks; the kernel sends SIGHUP to the session's leader."""
        self._is_hung_up = True
        self._reads.set()
        self._reader.join(DEADLINE_S)

    def wait_for(self, wanted: str | Callable[[str], object], timeout_s: float = DEADLINE_S) -> str:
        """Wait until the screen holds a text or satisfies a predicate of its text; return the screen's text.

        Raises:
            AssertionError: The time is up, or the program ended without it; the message shows the screen.
        """
        satisfied = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + timeout_s
        while not satisfied(text := self.screen_text()):
            with self._changed:
                is_over = self._left_over is not None
                if not is_over:
                    self._changed.wait(0.1)
            if is_over or time.monotonic() > deadline:
                text = self.screen_text()
                assert satisfied(text), self._description(f"never showed {wanted!r}")
                break
        return text

    def wait_exit(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until the program has ended and all it wrote is read; return its exit code."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._description("did not end")) from None
        self._reader.join(timeout_s)
        return code

    def unrestored(self) -> list[str]:
        """What the program left in another state than it found it: empty when a user can go on typing."""
        modes = dict(_MODES_AT_START)
        for numbers, action in _PRIVATE_MODE.findall(self.raw):
            modes |= {int(number): action == b"h" for number in numbers.split(b";") if int(number) in modes}
        pushed = 0
        for action, count in _KEYBOARD.findall(self.raw):
            pushed = pushed + 1 if action == b">" else max(0, pushed - int(count or 1))
        changed = sorted({_mode_name(number) for number, value in modes.items() if value != _MODES_AT_START[number]})
        return changed + (["kitty keyboard"] if pushed else []) + (self._left_over or [])

    def restored(self) -> bool:
        """Whether the terminal is as the program found it."""
        return not self.unrestored()

    def close(self) -> None:
        """End the program, by force if need be, and give the terminal back."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reads.set()
        self._reader.join()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str | None],
        cwd: Path | None,
        stdout: Path | None,
        stderr: Path | None,
    ) -> subprocess.Popen[bytes]:
        # A session leader's first terminal becomes its controlling one (open(2), without O_NOCTTY), so the shell
        # opens it: code between fork and exec would be unsafe here, where threads run.
        streams = f'<>"$0" {">>" + str(stdout) if stdout else ">&0"} {"2>>" + str(stderr) if stderr else "2>&0"}'
        return subprocess.Popen(
            # A test run in the background has SIGINT ignored, and its children would inherit that.
            ["/bin/sh", "-c", f'exec env --default-signal "$@" {streams}', os.ttyname(self._slave), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=cwd,
            env=_environment(env),
        )

    def _read(self) -> None:
        """Feed the screen until the program has ended and its output is drained."""
        is_open = True
        output = select.poll()  # which takes a file of any number: a test run may have many open
        output.register(self._master, select.POLLIN)
        while is_open or output.poll(0):
            self._reads.wait()
            if self._is_hung_up:
                self._let_go()
                return
            if is_open and self._process.poll() is not None and not self.is_answering:
                is_open = False
                attributes = termios.tcgetattr(self._master)
                os.close(self._slave)
            if output.poll(20):
                try:
                    data = os.read(self._master, 65536)
                except OSError:  # EIO: nobody holds the other side
                    break
                self._feed(data)
        with self._changed:
            self._left_over = [] if attributes == self._line_discipline else ["line discipline"]
            self._changed.notify_all()

    def _let_go(self) -> None:
        os.close(self._slave)
        os.close(self._master)
        self._master = -1

    def _feed(self, data: bytes) -> None:
        with self._changed:
            self._raw += data
            data = self._pending + data
            unfinished = _UNFINISHED.search(data)
            cut = unfinished.start() if unfinished else len(data)
            data, self._pending = data[:cut], data[cut:]
            self._answer_queries(data)
            self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", _SYNC_QUERY.sub(b"", _COLOUR_QUERY.sub(b"", data))))
            self._changed.notify_all()

    def _answer_queries(self, data: bytes) -> None:
        """Reply as xterm does; cursor position and device attributes are pyte's to answer."""
        for mode in _SYNC_QUERY.findall(data):
            self._reply(f"\x1b[?{mode.decode()};{2 if int(mode) in _RECOGNISED_MODES else 0}$y")
        for _ in _KEYBOARD_QUERY.findall(data):
            self._reply("\x1b[?0u")
        for which in _COLOUR_QUERY.findall(data):
            self._reply(f"\x1b]{which.decode()};rgb:0000/0000/0000\x1b\\")

    def _reply(self, text: str) -> None:
        if self.answers and self._answers_after_s:
            self._answers.append(threading.Timer(self._answers_after_s, self.send, [text.encode()]))
            self._answers[-1].start()
        elif self.answers:
            self.send(text.encode())

    def _description(self, fault: str) -> str:
        return (
            f"{fault}; exit code {self.exit_code}; the screen:\n{self.screen_text()}\nlast bytes: {self.raw[-400:]!r}"
        )


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    kept = ("PATH", "HOME", "VIRTUAL_ENV", "PYTHONPATH", "TMPDIR")
    plain = {name: os.environ[name] for name in kept if name in os.environ}
    plain |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _mode_name(number: int) -> str:
    return "alternate screen" if number in ALT_SCREENS else _MODE_NAMES.get(number, "mouse")
