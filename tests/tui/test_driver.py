"""Terminals that go away or stop reading: the program ends, all of it, and leaves behind what it can."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.collectors.processes import eventually
from tests.e2e.terminal import Terminal, TerminalFactory
from tests.parsers.sample_reports import LADDER

ROOT = Path(__file__).resolve().parents[2]
HANG_UP = 128 + signal.SIGHUP


def small(*what: str) -> list[str]:
    return [sys.executable, "-m", "tests.tui.small_app", *what]


def begin(terminal: TerminalFactory, argv: list[str], shown: str = "内核") -> Terminal:
    program = terminal(argv, cwd=ROOT)
    program.wait_for(shown)
    return program


def is_quiet(pid: int) -> bool:
    """Whether the thread that draws waits, and for more than its next frame: it has not run for ten frames.

    Its CPU time would not tell it from one that no CPU is left for.
    """
    process = psutil.Process(pid)
    before = process.num_ctx_switches()
    time.sleep(0.2)
    return process.num_ctx_switches() == before and process.status() == psutil.STATUS_SLEEPING


def test_a_terminal_that_hangs_up_ends_the_program(terminal: TerminalFactory) -> None:
    program = begin(terminal, small())
    program.hang_up()
    assert program.wait_exit() == HANG_UP


def test_a_hang_up_without_a_signal_ends_it_too(terminal: TerminalFactory) -> None:
    """In a session of its own it gets no SIGHUP, as below some container runtimes and multiplexers."""
    program = begin(terminal, ["setsid", "--wait", *small()])
    (inner,) = psutil.Process(program.pid).children()
    program.hang_up()
    eventually(lambda: not inner.is_running() or inner.status() == psutil.STATUS_ZOMBIE)


def test_a_terminal_that_does_not_read_delays_no_signal(terminal: TerminalFactory) -> None:
    program = begin(terminal, small("flood"))
    program.stop_reading()
    eventually(lambda: is_quiet(program.pid))
    program.signal(signal.SIGTERM)
    eventually(lambda: program.exit_code is not None)
    program.read_on()
    assert program.wait_exit() == 128 + signal.SIGTERM
    assert program.unrestored() == []


def test_a_terminal_that_does_not_read_and_then_hangs_up(terminal: TerminalFactory) -> None:
    program = begin(terminal, small("flood"))
    program.stop_reading()
    eventually(lambda: is_quiet(program.pid))
    program.hang_up()
    assert program.wait_exit() == HANG_UP


def test_a_terminal_that_reads_again_is_drawn_on_again(terminal: TerminalFactory) -> None:
    program = begin(terminal, small("flood"))
    program.stop_reading()
    eventually(lambda: is_quiet(program.pid))
    before = program.screen_text()
    program.read_on()
    program.wait_for(lambda text: text != before)
    program.press("q")
    assert program.wait_exit() == 0
    assert program.unrestored() == []


def test_a_stopped_program_gives_the_terminal_back_and_takes_it_again(terminal: TerminalFactory) -> None:
    program = begin(terminal, [sys.executable, "-m", "llmtop", "open", str(LADDER)], "sgemm")
    process = psutil.Process(program.pid)
    eventually(lambda: is_quiet(program.pid))
    program.signal(signal.SIGTSTP)
    eventually(lambda: process.status() == psutil.STATUS_STOPPED and program.restored())
    assert "sgemm" not in program.screen_text()
    program.signal(signal.SIGCONT)
    program.wait_for("sgemm")  # though nothing has changed
    program.press("q")
    assert program.wait_exit() == 0
    assert program.unrestored() == []


def test_what_was_typed_before_the_screen_was_there_is_not_left_at_the_prompt(
    terminal: TerminalFactory, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    program = terminal(["sh", "-c", f"echo before; cat {go}; exec {shlex.join(small())}"], cwd=ROOT)
    program.wait_for("before")
    program.press("escape")
    program.wait_for("^[")
    go.write_text("")
    program.wait_for("内核")
    program.press("q")
    assert program.wait_exit() == 0
    assert program.screen_text().split() == ["before"]
    assert program.unrestored() == []


@pytest.mark.parametrize("end", ["x", "SIGTERM"])
def test_a_late_answer_never_stands_at_the_prompt(terminal: TerminalFactory, end: str) -> None:
    program = draw_over_a_slow_link(terminal)
    if end.startswith("SIG"):
        program.signal(signal.Signals[end])
    else:
        program.press(end)  # a fault of the input
    program.wait_exit()
    assert program.unrestored() == []
    assert "^[" not in program.screen_text()


def test_no_late_answer_stands_at_the_prompt_of_who_stopped_the_program(terminal: TerminalFactory) -> None:
    program = draw_over_a_slow_link(terminal)
    program.signal(signal.SIGTSTP)
    eventually(program.restored)
    eventually(lambda: not program.is_answering)
    assert "^[" not in program.screen_text()
    eventually(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)  # else it goes on before it stops
    program.signal(signal.SIGCONT)
    program.wait_for("内核")
    program.press("q")
    assert program.wait_exit() == 0


def test_a_stop_amid_a_write_waits_for_its_end(terminal: TerminalFactory) -> None:
    program = begin(terminal, small("stop"))
    program.press("x")
    eventually(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED and program.restored())
    program.signal(signal.SIGCONT)
    program.wait_for("内核")
    program.press("q")
    assert program.wait_exit() == 0


def draw_over_a_slow_link(terminal: TerminalFactory) -> Terminal:
    """A program that is nearly always owed an answer."""
    program = terminal(small("file"), cwd=ROOT, answers_after_s=0.2)
    program.wait_for(lambda text: re.search(r"ready [3-9]", text))
    return program
