"""Commands that own processes, on a screen: how they end, and what is left."""

from __future__ import annotations

import signal
import sys

import psutil

from tests.collectors.processes import eventually, is_running
from tests.e2e.terminal import Terminal, TerminalFactory

DEADLINE_S = 30.0
LLMTOP = [sys.executable, "-m", "llmtop"]


def family(program: Terminal) -> list[psutil.Process]:
    return psutil.Process(program.pid).children(recursive=True)


def test_the_screen_shows_what_the_command_prints_and_how_it_ended_and_returns_its_code(
    terminal: TerminalFactory,
) -> None:
    shown = r"printf '\033[31mcolour\033[0m [/b] %s\n' end; sleep 60; exit 3"
    program = terminal([*LLMTOP, "launch", "--", "sh", "-c", shown], columns=120, lines=40)
    program.wait_for("colour [/b] end")
    (sleep,) = [child for child in family(program) if child.name() == "sleep"]
    sleep.terminate()
    program.wait_for("exited with code 3")
    program.press("q")
    assert program.wait_exit() == 3
    assert program.unrestored() == []


def test_the_demo_takes_its_processes_with_it_even_when_it_is_killed(terminal: TerminalFactory) -> None:
    program = terminal([*LLMTOP, "demo", "--device", "cpu"], columns=120, lines=40)
    program.wait_for(lambda text: "tok/s" in text and "EngineCore" in text)
    started = family(program)
    assert len(started) >= 3
    program.signal(signal.SIGKILL)
    program.wait_exit()
    eventually(lambda: not any(is_running(child.pid) for child in started))


def test_a_connection_that_breaks_leaves_nothing_running(terminal: TerminalFactory) -> None:
    program = terminal([*LLMTOP, "launch", "--", "sh", "-c", "sleep 60"], columns=120, lines=40)
    program.wait_for("live")
    started = family(program)
    assert started
    program.hang_up()
    assert program.wait_exit() == 128 + signal.SIGHUP
    eventually(lambda: not any(is_running(child.pid) for child in started))
