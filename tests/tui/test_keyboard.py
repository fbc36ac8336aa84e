"""What the terminal sends, as keys."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest
from textual import _parser, events

from llmtop.tui.keyboard import read_keys
from llmtop.tui.textual_private import KeyParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message


def keys(sent: str) -> list[str]:
    return [message.key for message in KeyParser().feed(sent) if isinstance(message, events.Key)]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("\x1b5z", ["escape", "5", "z"]),
        ("\x1bf", ["escape", "f"]),
        ("\x1bZ", ["escape", "Z"]),
        ("\x1b\r", ["escape", "enter"]),
        ("\x1b\t", ["escape", "tab"]),
        ("\x1bé", ["escape", "é"]),
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1b?", ["escape", "question_mark"]),
    ],
)
def test_escape_and_a_key_in_one_packet_are_two_keys(sent: str, read: list[str]) -> None:
    assert keys(sent) == read


@pytest.mark.parametrize(
    ("sent", "read"),
    [("\x1b[A", ["up"]), ("\x1bOA", ["up"]), ("\x1bOP", ["f1"]), ("\x1b[5~", ["pageup"]), ("\x1b[Z", ["shift+tab"])],
)
def test_keys_of_several_characters_stay_one(sent: str, read: list[str]) -> None:
    assert keys(sent) == read


class Script:
    """In place of `select.poll`: does what the script has next and lets the real one look without waiting."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)
        self._poller = select.poll()
        self.waits: list[int | None] = []
        """For how long each look would have waited, in ms; None is until something comes."""
        self.register = self._poller.register
        self.unregister = self._poller.unregister

    def poll(self, timeout_ms: int | None = None) -> list[tuple[int, int]]:
        self.waits.append(timeout_ms)
        next(self._steps)()
        return self._poller.poll(0)


def test_nobody_looks_at_the_keyboard_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.pipe()
    end = os.eventfd(0)
    steps = [lambda: os.write(terminal, b"z"), lambda: os.close(terminal), lambda: os.eventfd_write(end, 1)]
    script = Script(*steps)
    monkeypatch.setattr(select, "poll", lambda: script)
    taken: list[Message] = []

    read_keys(keyboard, end, KeyParser(), taken.append)

    assert [key.key for key in taken if isinstance(key, events.Key)] == ["z"]
    assert script.waits == [None, None, None]
    for descriptor in (keyboard, end):
        os.close(descriptor)


def test_escape_alone_is_told_as_soon_as_nothing_has_followed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.pipe()
    end = os.eventfd(0)
    now = [0.0]
    monkeypatch.setattr(_parser, "get_time", lambda: now[0])
    steps = [lambda: os.write(terminal, b"\x1b"), lambda: now.append(now.pop() + 1), lambda: os.eventfd_write(end, 1)]
    script = Script(*steps)
    monkeypatch.setattr(select, "poll", lambda: script)
    taken: list[Message] = []

    read_keys(keyboard, end, KeyParser(), taken.append)

    assert [key.key for key in taken if isinstance(key, events.Key)] == ["escape"]
    first, after_escape, then = script.waits
    assert (first, then) == (None, None)
    assert after_escape is not None
    for descriptor in (keyboard, terminal, end):
        os.close(descriptor)
