"""Lines: the right cells, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.model import Unknown
from llmtop.text import clean
from llmtop.tui.render.lines import (
    bar,
    columns,
    cut,
    cut_lines,
    cut_middle,
    explain,
    fact_lines,
    line,
    pad,
    prose,
    spark,
    spelled,
    stacked_bar,
    width_of,
    wrap,
)
from llmtop.tui.render.look import ASCII, MONO, ROLES, STALLS, UNICODE, Look

LOOK = Look()
PLAIN = Look(ASCII)
NASTY = (
    "[/b]",
    "[@click=app.quit]x[/]",
    clean("a\x1b]52;c;ZXZpbA==\x07b"),
    clean("\u202eevil"),
    "内核内核内核",
    "e\u0301e\u0301e\u0301",
    "x" * 10_000,
    "void f<unnamed>::[lambda() (instance 1)]::operator ()() const",
    "\\",
    "👩‍💻 emoji",
)


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("width", [0, 1, 2, 5, 17, 80])
@pytest.mark.parametrize("look", [LOOK, PLAIN])
def test_a_line_takes_exactly_its_width_and_shows_markup_as_text(text: str, width: int, look: Look) -> None:
    strip = line([("> ", "dim"), (text, "text"), (" end", "value")], width, look)
    assert strip.cell_length == width
    assert width_of(strip.text) == width
    if text.isascii() and len(text) < 70 and width == 80:
        assert text in strip.text


@given(st.text().map(clean), st.integers(0, 40))
def test_cutting_never_takes_more_cells_than_there_are(text: str, width: int) -> None:
    assert width_of(cut(text, width, LOOK)) <= width
    assert width_of(cut_middle(text, width, LOOK)) <= max(0, width)
    assert width_of(pad(text, width, LOOK)) == width
    assert all(width_of(row) <= max(1, width) or width_of(row) == 2 for row in wrap(text, width, LOOK))


@given(st.text().map(clean))
def test_ascii_spelling_keeps_the_width(text: str) -> None:
    spelt = spelled(text, PLAIN)
    assert spelt.isascii()
    assert spelled(text, LOOK) == text


def test_a_cut_text_shows_that_it_is_cut() -> None:
    assert cut("abcdef", 4, LOOK) == "abc…"
    assert cut("abcdef", 4, PLAIN) == "abc~"
    assert cut("内核内核", 4, LOOK) == "内…"
    assert cut_middle("gemm<float, 128>", 9, LOOK) == "gemm…128>"
    assert line([("abc", "text"), ("def", "value")], 3, LOOK).text == "ab…"


def test_a_gap_is_a_space_and_zero_is_the_lowest_block() -> None:
    assert spark([0, None, 50, 100], 4, LOOK, 0, 100) == "▁ ▅█"
    assert spark([0, None, 50, 100], 6, PLAIN, 0, 100) == "  _ =#"
    assert spark([], 3, LOOK) == "   "
    assert spark([None, None], 2, LOOK) == "  "
    assert spark([float("nan"), 1.0], 2, LOOK) == " █"


def test_a_spike_between_two_cells_is_kept() -> None:
    values = [0.0] * 100
    values[41] = 100.0
    assert spark(values, 10, LOOK, 0, 100).count("█") == 1


def test_a_bar_shows_anything_above_nothing() -> None:
    assert bar(0.0, 4, LOOK) == "    "
    assert bar(0.001, 4, LOOK) == "▏   "
    assert bar(0.5, 4, LOOK) == "██  "
    assert bar(2.0, 4, LOOK) == "████"
    assert bar(0.5, 4, PLAIN) == "##  "


@given(st.lists(st.floats(0, 1), max_size=8), st.integers(1, 60))
def test_a_stacked_bar_fills_its_width(shares: list[float], width: int) -> None:
    parts = stacked_bar([(share, STALLS[i]) for i, share in enumerate(shares)], width, LOOK)
    assert sum(len(text) for text, _ in parts) == width


def test_neighbours_in_a_stacked_bar_differ_without_colour() -> None:
    shares = [(0.25, role) for role in STALLS[:4]]
    assert "".join(text for text, _ in stacked_bar(shares, 8, Look(MONO))) == "██▓▓▒▒░░"
    assert "".join(text for text, _ in stacked_bar(shares, 8, PLAIN)) == "##%%==++"
    assert "".join(text for text, _ in stacked_bar(shares, 8, LOOK)) == "██▓▓██▓▓"


def test_keys_and_values_align() -> None:
    strips = columns([("model", [("llama", "value")]), ("dtype", [("bf16", "value")])], 40, LOOK, across=2)
    assert [strip.text for strip in strips] == ["model  llama         dtype  bf16        "]
    assert all(strip.cell_length == 40 for strip in strips)


def test_a_long_key_is_wrapped_beside_its_value() -> None:
    rows = [strip.text.rstrip() for strip in fact_lines("device confidential_computing_mode", "No-CC", 12, 40, LOOK)]
    assert rows == ["device        No-CC", "confidential", "_computing_m", "ode"]


def test_an_unknown_explains_itself_in_the_middle() -> None:
    text = [strip.text for strip in explain(Unknown("no GPM here", "needs Hopper"), 16, 4, LOOK)]
    assert text == ["                ", "  no GPM here   ", "  needs Hopper  ", "                "]


def test_prose_is_broken_at_spaces() -> None:
    assert [strip.text for strip in prose("one two three", 8, LOOK)] == ["one two ", "three   "]


def test_a_word_that_is_wider_than_a_line_is_broken_where_its_names_end() -> None:
    kernel = "void at::native::reduce_kernel<512, at::native::ReduceOp<float>>(int)"
    assert wrap(kernel, 30, LOOK) == ["void at::native::", "reduce_kernel<512, at::", "native::ReduceOp<float>>(int)"]
    assert wrap(kernel, 31, LOOK)[0] == "void at::native::reduce_kernel<"
    assert wrap("nsys /a/b/c,d/e", 14, LOOK) == ["nsys", "/a/b/c,d/e"], "to be typed as it stands"
    assert wrap("/srv/models/llama/weights", 14, LOOK) == ["/srv/models/", "llama/weights"]
    assert wrap("of 0123456789", 8, LOOK) == ["of", "01234567", "89"]


def test_every_role_has_a_style_and_weight_where_colour_says_much() -> None:
    assert all(LOOK.style(role) is not None for role in ROLES)
    assert LOOK.style("bad").bold
    assert UNICODE.good != UNICODE.warn != UNICODE.bad
    with pytest.raises(KeyError):
        LOOK.style("no such role")


def test_lines_that_have_no_room_are_told_of_at_the_end_of_the_last_one() -> None:
    strips = [line([(text, "text")], 6, LOOK) for text in ("first", "second", "third")]
    assert [one.text for one in cut_lines(strips, 6, 2, LOOK)] == ["first ", "secon…"]
    assert cut_lines(strips, 6, 3, LOOK) == strips
