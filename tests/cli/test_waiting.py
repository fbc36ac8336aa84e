"""What a command says on a terminal while it reads, and what ends one that waits."""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path

import pytest

from llmtop.cli import waiting
from llmtop.cli.waiting import ended_by_signal, telling_progress
from llmtop.parsers.progress import current, tell


class Screen(io.StringIO):
    """A stream that says whether it is a terminal, and when it was written to."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self.written = threading.Event()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def flush(self) -> None:
        self.written.set()


def test_what_takes_long_is_told_and_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_S", 0.001)
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    with telling_progress(screen):
        tell(Path("run.json.gz"), "unpacking\x1b[2J" + "x" * 60, 41, 100)
        assert screen.written.wait(30)
    first, *_, last = screen.getvalue().split("\r\x1b[K")[1:]
    assert first.startswith("unpacking")
    assert "\x1b" not in first
    assert len(first) == 39
    assert last == "", "the line is given back"


def test_how_to_stop_it_is_what_works_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with telling_progress(Screen()):
        tell(Path("run.json"), "reading", 1, 2)
        assert current().text == "50 %, Ctrl+C stops it"
    assert current().text == ""


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_nothing_is_told_where_it_would_stay(is_terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_S", 0.001)
    monkeypatch.setenv("TERM", term)
    threads = threading.active_count()
    screen = Screen(is_terminal=is_terminal)
    with telling_progress(screen):
        tell(Path("run.json"), "reading", 1, 2)
        assert threading.active_count() == threads
    assert screen.getvalue() == ""


def test_a_short_reading_writes_nothing() -> None:
    screen = Screen()
    with telling_progress(screen):
        pass
    assert screen.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_afterwards_does_what_it_did_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with ended_by_signal() as is_over:
        signal.raise_signal(number)
        assert is_over.wait(30)
    assert signal.getsignal(number) is before
