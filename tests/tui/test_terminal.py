"""What the terminal can do, and when a frame may be drawn."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from llmtop.tui.gate import FIRST_TIMEOUT_S, LAST_TIMEOUT_S, FrameGate
from llmtop.tui.terminal import color_depth, drawn_on, is_ascii_only, is_remote, refusal, set_defaults


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_is_accepted() -> None:
    assert refusal({"TERM": "xterm"}, Tty(), Tty()) is None


@pytest.mark.parametrize(
    ("environment", "streams", "said"),
    [
        ({"TERM": "dumb"}, (Tty(), Tty()), "TERM=dumb"),
        ({}, (io.StringIO(), Tty()), "standard input"),
        ({}, (Tty(), io.StringIO()), "standard output"),
        ({}, (Tty(), None), "standard output"),
    ],
)
def test_no_terminal_is_refused_with_a_way_on(
    environment: dict[str, str], streams: tuple[io.StringIO | None, ...], said: str
) -> None:
    why = refusal(environment, *streams)
    assert why is not None
    assert said in why
    assert "llmtop snapshot --json" in why
    assert "\n" not in why


def test_the_screen_is_drawn_where_errors_do_not_go_to_a_file() -> None:
    out, err = Tty(), Tty()
    assert drawn_on(out, err) is err
    assert drawn_on(out, io.StringIO()) is out
    assert drawn_on(out, None) is out
    assert drawn_on(None, None) is None


def test_what_the_user_has_set_stays() -> None:
    environment = {"TEXTUAL_FPS": "10", "SSH_CONNECTION": "a b c d"}
    set_defaults(environment)
    assert environment["TEXTUAL_FPS"] == "10"
    assert environment["TEXTUAL_ANIMATIONS"] == "none"
    assert environment["ESCDELAY"] == "200"
    assert is_remote(environment)


def test_the_guard_does_not_import_textual() -> None:
    code = "import sys, llmtop.tui.terminal; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("environment", "colors"),
    [
        ({"NO_COLOR": "1", "COLORTERM": "truecolor"}, 0),
        ({"NO_COLOR": "", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "tmux-256color"}, 256),
        ({"TERM": "vt100"}, 16),
        ({}, 16),
    ],
)
def test_colours_are_told_by_the_environment(environment: dict[str, str], colors: int) -> None:
    assert color_depth(environment) == colors


def test_ascii_where_nothing_else_can_be_shown() -> None:
    assert is_ascii_only({}, None)
    assert is_ascii_only({}, "iso8859-1")
    assert is_ascii_only({"LLMTOP_ASCII": "1"}, "utf-8")
    assert not is_ascii_only({"LLMTOP_ASCII": "0", "TERM": "xterm"}, "UTF-8")


def test_the_gate_opens_when_the_terminal_has_caught_up() -> None:
    asked: list[str] = []
    gate = FrameGate(lambda: asked.append("?"), FakeClock())
    assert gate.is_open
    gate.frame_sent()
    assert asked == ["?"]
    assert not gate.is_open
    gate.answered()
    assert gate.is_open


def test_a_slow_terminal_is_waited_for_longer_each_time() -> None:
    clock = FakeClock()
    gate = FrameGate(lambda: None, clock)
    gate.frame_sent()
    gate.answered()
    waits = []
    for _ in range(6):
        gate.frame_sent()
        start = clock.now
        while not gate.is_open:
            clock.now += 0.25
        waits.append(clock.now - start)
    assert waits == [FIRST_TIMEOUT_S, 2.0, 4.0, LAST_TIMEOUT_S, LAST_TIMEOUT_S, LAST_TIMEOUT_S]
    gate.frame_sent()
    gate.answered()
    gate.frame_sent()
    clock.now += FIRST_TIMEOUT_S
    assert gate.is_open


def test_a_terminal_that_never_answers_is_asked_no_more() -> None:
    clock = FakeClock()
    asked: list[float] = []
    gate = FrameGate(lambda: asked.append(clock.now), clock)
    for _ in range(10):
        gate.frame_sent()
        while not gate.is_open:
            clock.now += 1.0
    assert len(asked) == 3
    gate.frame_sent()
    assert gate.is_open
