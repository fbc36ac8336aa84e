from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.lines import MAX_LINE_CHARACTERS, Lines, plain
from llmtop.text import clean


def test_lines_are_bounded() -> None:
    lines = Lines(max_lines=3)
    lines.feed(b"a\nb\nc\nd\npart")
    assert lines.last(10) == ("b", "c", "d", "part")
    lines.feed(b"ial\n")
    assert lines.last(2) == ("d", "partial")


def test_a_progress_bar_shows_as_last_drawn() -> None:
    lines = Lines()
    lines.feed(b"\r 10%|#   |\r 20%|##  |")
    assert lines.last(1) == (" 20%|##  |",)


def test_an_endless_line_is_cut() -> None:
    lines = Lines()
    for _ in range(3):
        lines.feed(b"x" * (MAX_LINE_CHARACTERS + 1))
    assert len(lines.last(9)) == 3
    assert len(lines.last(1)[0]) == MAX_LINE_CHARACTERS


def test_a_character_split_between_reads_survives() -> None:
    lines = Lines()
    for byte in "größe\n".encode():
        lines.feed(bytes([byte]))
    assert lines.last(1) == ("größe",)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[1;38;5;4mWARN\x1b[0m x", "WARN x"),
        ("\x1b]8;;http://h\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;title", ""),
        ("a\x1b[2", "a"),
        ("\x1bPq#0\x1b\\b", "b"),
        ("a\tb", "a       b"),
        ("bell\x07", "bell␇"),
        ("[/b][@click=app.quit]x", "[/b][@click=app.quit]x"),
    ],
)
def test_terminal_controls_are_taken_out(written: str, shown: str) -> None:
    assert plain(written) == shown


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_any_bytes_become_safe_lines(chunks: list[bytes]) -> None:
    lines = Lines(max_lines=5)
    for chunk in [*chunks, b""]:
        lines.feed(chunk)
    shown = lines.last(10)
    assert len(shown) <= 5
    assert all(clean(line) == line for line in shown)
