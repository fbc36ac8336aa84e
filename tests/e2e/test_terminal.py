"""The terminal that the end-to-end tests look through, tried on programs of a few lines."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.terminal import TerminalFactory

WAIT_ON_TERMINAL = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open("/dev/tty", "w") as terminal: terminal.write("hello\\n")
os.write(1, b"waiting on %s\\n" % os.ttyname(1).encode())
while True: signal.pause()
"""
SHOW_SIZE = """
import os, signal, sys
def show(*_): os.write(1, b"size %dx%d\\n" % os.get_terminal_size())
signal.signal(signal.SIGWINCH, show); show()
while True: signal.pause()
"""
ASK = """
import sys, termios, tty, select
before = termios.tcgetattr(0); tty.setraw(0)
sys.stdout.write("%s"); sys.stdout.flush()
reply = b""
while select.select([0], [], [], float(sys.argv[1]))[0]:
    reply += __import__("os").read(0, 100)
    if reply[-1:] in b"Rycu\\\\": break
termios.tcsetattr(0, termios.TCSADRAIN, before)
print(repr(reply))
"""
MESS = r"\033[?1049h\033[?25l\033[?1003h\033[?1006h\033[?2004h\033[>1u"
TIDY = r"\033[<u\033[?2004l\033[?1006l\033[?1003l\033[?25h\033[?1049l"


def test_the_screen_shows_what_is_printed_and_the_exit_code(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", r"printf '\033[31mred\033[0m\r\nwide 日本 end'; exit 7"])
    assert program.wait_exit() == 7
    assert program.screen_lines()[:2] == ["red", "wide 日本 end"]
    assert program.style_at(0, 0).fg == "red"
    assert program.restored()
    assert program.wait_for("end")


def test_it_is_the_controlling_terminal(terminal: TerminalFactory) -> None:
    program = terminal([sys.executable, "-c", WAIT_ON_TERMINAL])
    program.wait_for("waiting on /dev/pts/")
    program.press("ctrl+c")
    assert program.wait_exit() == -signal.SIGINT


def test_a_resize_reaches_the_program(terminal: TerminalFactory) -> None:
    program = terminal([sys.executable, "-c", SHOW_SIZE], columns=100, lines=30)
    program.wait_for("size 100x30")
    program.resize(40, 12)
    program.wait_for("size 40x12")
    assert len(program.screen_lines()) == 12


def test_keys_arrive(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", 'read -r line; echo "got:$line"'])
    program.press("a", "b", "backspace", "c", "enter")
    program.wait_for("got:ac")


@pytest.mark.parametrize(
    ("query", "reply"),
    [
        (r"ab\033[6n", r"b'\x1b[1;3R'"),
        (r"\033[?2026$p", r"b'\x1b[?2026;2$y'"),
        (r"\033[?2048$p", r"b'\x1b[?2048;0$y'"),
        (r"\033[c", r"b'\x1b[?6c'"),
        (r"\033[?u", r"b'\x1b[?0u'"),
        (r"\033]11;?\007", "rgb:0000"),
    ],
)
def test_queries_are_answered(terminal: TerminalFactory, query: str, reply: str) -> None:
    terminal([sys.executable, "-c", ASK % query, "20"]).wait_for(reply)


def test_queries_need_not_be_answered(terminal: TerminalFactory) -> None:
    program = terminal([sys.executable, "-c", ASK % r"\033[6n\033[?2026$p", "0.1"], answers=False)
    program.wait_for("b''")


def test_the_alternate_screen_gives_the_main_one_back(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", rf"echo before; printf '{MESS}inside'; read -r _; printf '{TIDY}after'"])
    assert "before" not in program.wait_for("inside")
    assert not program.restored()
    program.press("enter")
    assert program.wait_exit() == 0
    assert program.screen_lines()[:2] == ["before", "after"]
    assert program.restored()


def test_what_is_left_behind_is_named(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", rf"printf '{MESS}'; stty -echo"])
    program.wait_exit()
    assert program.unrestored() == [
        "alternate screen",
        "bracketed paste",
        "cursor",
        "mouse",
        "kitty keyboard",
        "line discipline",
    ]


def test_escapes_split_between_writes_are_no_text(terminal: TerminalFactory) -> None:
    split = (
        r"import os, time; [os.write(1, bytes([b])) or time.sleep(.001) for b in b'\x1b[>4;2m\x1b[<1u\x1bPx\x1b\\ok']"
    )
    program = terminal([sys.executable, "-c", split])
    program.wait_exit()
    assert program.screen_lines()[0] == "ok"


def test_output_can_go_to_files(terminal: TerminalFactory, tmp_path: Path) -> None:
    program = terminal(["sh", "-c", "echo out; echo err >&2"], stderr=tmp_path / "err")
    program.wait_exit()
    assert program.screen_lines()[0] == "out"
    assert (tmp_path / "err").read_text() == "err\n"


def test_the_environment_is_plain(terminal: TerminalFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "7")
    program = terminal(
        ["sh", "-c", 'echo "$TERM|$COLUMNS|$NO_COLOR|${LANG-none}"'], env={"NO_COLOR": "1", "LANG": None}
    )
    program.wait_for("xterm-256color||1|none")


def test_waiting_for_what_never_comes_shows_the_screen(terminal: TerminalFactory) -> None:
    program = terminal(["echo", "something else"])
    with pytest.raises(AssertionError, match="something else"):
        program.wait_for("this")
    program = terminal(["sleep", "60"])
    with pytest.raises(AssertionError, match="never showed"):
        program.wait_for("this", timeout_s=0.2)
    with pytest.raises(AssertionError, match="did not end"):
        program.wait_exit(0.1)


def test_a_program_that_will_not_end_is_killed_on_close(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", "trap '' TERM HUP INT; echo ready; while :; do sleep 60; done"])
    program.wait_for("ready")
    program.signal(signal.SIGTERM)
    program.close()
    assert program.exit_code == -signal.SIGKILL
