"""Cells of a timeline, against interval arithmetic written apart: nanosecond by nanosecond, with sets."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import columns
from llmtop.analysis.timeline import levels
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.levels import Maxima, SampleLine, SpanLine
from llmtop.analysis.timeline.window import ShownTime

Spans = list[tuple[int, int]]

spans_lists = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40)), max_size=40).map(
    lambda pairs: sorted((start, start + length) for start, length in pairs)
)
windows = st.tuples(st.integers(-20, 150), st.integers(1, 90), st.integers(1, 25))


def line_of(spans: Spans) -> SpanLine:
    return SpanLine(
        array("q", (start for start, _ in spans)),
        array("q", (end for _, end in spans)),
        array("q", range(len(spans))),
    )


def nanoseconds(span: tuple[int, int]) -> set[int]:
    """Those that a span takes; one without a length that which it stands at."""
    return set(range(span[0], max(span[1], span[0] + 1)))


def edges_of(window: tuple[int, int, int]) -> list[int]:
    start, length, cells = window
    return ShownTime(start, start + length, start, start + length).edges(cells)


@given(spans_lists, windows)
def test_a_cell_is_empty_only_if_no_span_touches_it_and_shows_the_longest_that_does(
    spans: Spans, window: tuple[int, int, int]
) -> None:
    line, edges = line_of(spans), edges_of(window)
    shown = {column: run for run in line.runs(edges) for column in range(run.first, run.stop)}
    for column, (start, end) in enumerate(pairwise(edges)):
        touching = [i for i, span in enumerate(spans) if nanoseconds(span) & set(range(start, end))]
        assert (column in shown) == bool(touching)
        if touching:
            run = shown[column]
            assert run.count == len(touching) == line.count(start, end)
            assert run.place in touching
            assert len(nanoseconds(spans[run.place])) == max(len(nanoseconds(spans[i])) for i in touching)
            assert line.longest(start, end) is not None


@given(spans_lists, windows)
def test_what_a_single_cell_has_of_work_is_counted_in_nanoseconds(spans: Spans, window: tuple[int, int, int]) -> None:
    line, edges = line_of(spans), edges_of(window)
    covered = set().union(*map(nanoseconds, spans)) if spans else set()
    for run in line.runs(edges):
        cell = set(range(edges[run.first], edges[run.first + 1]))
        assert run.busy_ns == len(cell & covered)
    for start, end in ((edges[0], edges[-1]), (0, 60), (59, 60)):
        assert line.cover.within(start, end) == len(covered & set(range(start, end)))


@given(spans_lists, windows)
def test_a_run_of_several_cells_has_one_span_alone(spans: Spans, window: tuple[int, int, int]) -> None:
    line, edges = line_of(spans), edges_of(window)
    before = 0
    for run in line.runs(edges):
        assert before <= run.first < run.stop < len(edges)
        before = run.stop
        assert run.stop == run.first + 1 or run.count == 1


@given(spans_lists)
def test_lines_by_depth_have_every_span_once_and_none_of_them_overlap(spans: Spans) -> None:
    lines = line_of(spans).by_depth()
    assert sorted(code for line in lines for code in line.codes) == list(range(len(spans)))
    if len(lines) < levels.MOST_DEPTHS:
        assert not any(line.overlaps for line in lines)


def test_spans_within_each_other_stand_below_what_holds_them() -> None:
    lines = line_of([(0, 100), (10, 40), (12, 20), (20, 30), (50, 90), (60, 70), (100, 110)]).by_depth()
    assert [list(line.codes) for line in lines] == [[0, 6], [1, 4], [2, 3, 5]]


def test_what_is_deeper_than_there_are_lines_shares_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "MOST_DEPTHS", 2)
    lines = line_of([(0, 100), (1, 90), (2, 80), (3, 70)]).by_depth()
    assert [list(line.codes) for line in lines] == [[0], [1, 2, 3]]
    assert lines[1].count(0, 100) == 3


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=400), st.data())
def test_the_largest_of_any_stretch_is_found(values: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start + 1, len(values)))
    place = Maxima(array("q", values)).place(start, stop)
    assert start <= place < stop
    assert values[place] == max(values[start:stop])


def test_the_largest_is_found_over_three_levels() -> None:
    values = array("q", [0]) * 300_000
    values[123_456] = 7
    maxima = Maxima(values)
    assert maxima.place(0, 300_000) == maxima.place(100_001, 299_999) == 123_456
    assert maxima.place(123_457, 123_460) >= 123_457


@given(spans_lists, windows)
def test_long_columns_give_the_same_cells(spans: Spans, window: tuple[int, int, int]) -> None:
    edges = edges_of(window)
    known = list(line_of(spans).runs(edges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LONG", 1)
        assert list(line_of(spans).runs(edges)) == known


def test_stretches_that_touch_are_one() -> None:
    cover = Cover.of(array("q", [0, 10, 30]), array("q", [10, 20, 40]))
    assert (list(cover.begins), list(cover.closes), list(cover.before)) == ([0, 30], [20, 40], [0, 20, 30])


def test_samples_are_the_largest_of_a_cell_or_the_last_before_it_and_never_a_zero_that_was_not_there() -> None:
    nan = float("nan")
    line = SampleLine(array("q", [10, 12, 14, 30, 40]), array("d", [5.0, 9.0, 2.0, nan, 4.0]))
    assert line.values([0, 10, 20, 30, 40, 50]) == [None, 9.0, 2.0, None, 4.0]
    assert (line.low, line.high) == (2.0, 9.0)
    assert SampleLine(array("q", [1]), array("d", [nan])).values([0, 5]) == [None]


@given(st.integers(-50, 50), st.integers(1, 99), st.integers(1, 30), st.integers(-80, 200))
def test_a_moment_falls_in_the_cell_between_whose_edges_it_is(start: int, length: int, cells: int, t_ns: int) -> None:
    window = ShownTime(start, start + length, -99, 299)
    edges, column = window.edges(cells), window.column_of(t_ns, cells)
    if edges[0] <= t_ns < edges[-1]:
        assert edges[column] <= t_ns < edges[column + 1]
    else:
        assert column < 0 or column >= cells


@given(st.integers(0, 900), st.integers(20, 100), st.floats(0.01, 50), st.integers(-3000, 3000))
def test_a_window_stays_within_what_is_recorded(start: int, length: int, factor: float, by_ns: int) -> None:
    window = ShownTime(start, start + length, 0, 1000)
    for moved in (window.zoomed(start + length // 2, factor, 20), window.moved(by_ns), window.around(by_ns, by_ns + 9)):
        assert moved.first_ns <= moved.start_ns
        assert moved.end_ns <= moved.last_ns
        assert moved.length_ns >= 20


def test_zooming_keeps_the_moment_where_it_is() -> None:
    window = ShownTime(0, 1000, 0, 1000)
    closer = window.zoomed(250, 0.5, 10)
    assert (closer.start_ns, closer.end_ns) == (125, 625)
    assert closer.zoomed(250, 2.0, 10) == window
    assert window.zoomed(0, 0.001, 10).length_ns == 10, "a cell is a nanosecond at least"
