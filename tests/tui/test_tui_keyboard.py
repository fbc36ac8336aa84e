"""What the terminal sends, as keys."""

from __future__ import annotations

import pytest
from textual import events

from llmtop.tui.keyboard import KeyParser


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
