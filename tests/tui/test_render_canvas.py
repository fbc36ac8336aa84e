"""The canvas: dots and text in cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmtop.tui.render.canvas import Canvas
from llmtop.tui.render.look import ASCII, Look

LOOK = Look()


def drawn(canvas: Canvas) -> list[str]:
    return [strip.text for strip in canvas.strips()]


def test_dots_are_braille() -> None:
    canvas = Canvas(2, 1, LOOK)
    canvas.dot(0, 0, "point")
    canvas.dot(3, 3, "point")
    assert drawn(canvas) == ["⠁⢀"]


def test_a_diagonal_runs_from_corner_to_corner() -> None:
    canvas = Canvas(4, 2, LOOK)
    canvas.line(0, 7, 7, 0, "memory")
    assert drawn(canvas) == ["  ⡠⠊", "⡠⠊  "]


def test_ascii_keeps_upper_and_lower_halves() -> None:
    canvas = Canvas(3, 1, Look(ASCII))
    canvas.dot(0, 0, "point")
    canvas.dot(2, 3, "point")
    canvas.line(4, 0, 4, 3, "point")
    assert drawn(canvas) == ["'.:"]


def test_text_stands_over_dots_and_wide_characters_take_two_cells() -> None:
    canvas = Canvas(6, 1, LOOK)
    canvas.line(0, 0, 11, 0, "point")
    canvas.text(1, 0, "内e\u0301", "title")
    (strip,) = canvas.strips()
    assert strip.text == "⠉内e\u0301⠉⠉"
    assert strip.cell_length == 6


def test_colours_are_run_lengths() -> None:
    canvas = Canvas(8, 1, LOOK)
    canvas.line(0, 0, 7, 0, "memory")
    canvas.line(8, 0, 15, 0, "compute")
    assert [len(segment.text) for segment in canvas.strips()[0]] == [4, 4]


def test_text_knows_where_it_is_free() -> None:
    canvas = Canvas(6, 1, LOOK)
    canvas.text(2, 0, "ab", "text")
    assert canvas.is_free(0, 0, 2)
    assert not canvas.is_free(1, 0, 2)
    assert not canvas.is_free(5, 0, 2)
    assert not canvas.is_free(0, 1, 1)


@given(st.lists(st.tuples(*[st.integers(-50, 50)] * 4), max_size=6))
def test_what_lies_outside_is_dropped(lines: list[tuple[int, int, int, int]]) -> None:
    canvas = Canvas(5, 3, LOOK)
    for x0, y0, x1, y1 in lines:
        canvas.line(x0, y0, x1, y1, "point")
        canvas.text(x0, y0, "text", "title")
    assert [strip.cell_length for strip in canvas.strips()] == [5, 5, 5]
    assert [len(text) for text in drawn(canvas)] == [5, 5, 5]
