"""A program that hangs with every lock held: signals and a terminal that is gone end it all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from llmtop import procfs
from tests.collectors.processes import eventually, is_running
from tests.fake_nvml.build import HANG_LOADING
from tests.tui.test_driver import ROOT, begin, is_quiet, small

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.terminal import Terminal, TerminalFactory
    from tests.fake_nvml.build import FakeNvml

SHOWN = "内核"


@pytest.fixture
def hung(terminal: TerminalFactory, fake_nvml_library: Path) -> Terminal:
    """Its loader hangs, with the loader's lock and Python's: no thread of it runs any more."""
    program = terminal(small("hang", str(fake_nvml_library)), cwd=ROOT, env={HANG_LOADING: "1000"})
    program.wait_for(SHOWN)
    program.press("x")
    eventually(lambda: is_quiet(program.pid))
    return program


def all_end(pids: list[int]) -> None:
    eventually(lambda: not any(map(is_running, pids)), "their end")


def family(pid: int) -> list[int]:
    return [pid, *procfs.below(pid)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_restored(hung: Terminal, number: signal.Signals) -> None:
    everyone = family(hung.pid)
    hung.signal(number)
    assert hung.wait_exit() == -signal.SIGKILL
    eventually(lambda: hung.unrestored() == [])
    all_end(everyone)


def test_a_terminal_that_goes_away_ends_it(hung: Terminal) -> None:
    everyone = family(hung.pid)
    hung.hang_up()
    all_end(everyone)


def test_what_is_killed_leaves_a_terminal_in_order(terminal: TerminalFactory) -> None:
    """Below a shell, that is: the end of a session's leader takes its terminal away."""
    program = begin(terminal, ["sh", "-c", '"$@"; read -r _; exit 7', "sh", *small()])
    _, *everyone = family(program.pid)
    os.kill(everyone[0], signal.SIGKILL)
    eventually(lambda: program.unrestored() == [])
    program.send(b"\n")
    assert program.wait_exit() == 7
    all_end(everyone)


def test_an_ordinary_end_leaves_nobody_behind(terminal: TerminalFactory) -> None:
    program = begin(terminal, small())
    everyone = family(program.pid)
    assert len(everyone) == 2, "the program and its guardian"
    program.press("q")
    assert program.wait_exit() == 0
    assert program.unrestored() == []
    all_end(everyone)


def test_a_driver_library_that_hangs_while_it_is_loaded(terminal: TerminalFactory, fake_nvml: FakeNvml) -> None:
    """The screen starts and works meanwhile; the end is an ordinary one, because nothing of it is in llmtop."""
    env = {**fake_nvml.env, HANG_LOADING: "1000", "LLMTOP_NO_EBPF": "1"}
    with subprocess.Popen(["sleep", "100"]) as watched:
        command = [sys.executable, "-m", "llmtop", "--attach", str(watched.pid)]
        program = terminal(command, cwd=ROOT, env=env, columns=120, lines=40)
        program.wait_for("loading libnvidia-ml.so.1 has not ended")
        assert "GPU hangs" in program.screen_text()
        everyone = family(program.pid)
        program.signal(signal.SIGTERM)
        assert program.wait_exit() == 128 + signal.SIGTERM
        assert program.unrestored() == []
        all_end(everyone)
        watched.kill()
