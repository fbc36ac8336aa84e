"""Long columns and short ones are worked on in two ways, which must not differ."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import columns

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)


def both_ways() -> Iterator[None]:
    """Once as of short columns, once as of long ones."""
    for long in (columns.LONG, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "LONG", long)
            patch.setattr(columns, "_SOME", 1)
            yield


PAIRS = st.lists(st.tuples(INTEGERS, st.integers(0, 3)), min_size=1, max_size=30)


@given(values=st.lists(INTEGERS, max_size=30))
def test_integers_are_read_from_text(values: list[int]) -> None:
    text = ",".join(map(str, values)).encode()
    for _ in both_ways():
        assert columns.integers(text, len(values)).tolist() == values


@pytest.mark.parametrize("text", [b"1,x", b"1.5,2", b"1", b"1,2,3", b"1-2,3"])
@pytest.mark.parametrize("long", [1, columns.LONG])
def test_what_is_no_column_of_integers_is_refused(text: bytes, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    with pytest.raises(ValueError, match="integers"):
        columns.integers(text, 2)


@given(PAIRS)
def test_rows_are_ordered_by_the_first_column_and_stay_together(pairs: list[tuple[int, int]]) -> None:
    first, second = (array("q", column) for column in zip(*pairs, strict=True))
    ordered = sorted(pairs, key=lambda pair: pair[0])
    for _ in both_ways():
        assert list(zip(*columns.in_order([first, second]), strict=True)) == ordered
        assert columns.is_rising(first) == (list(first) == sorted(first))
        assert columns.reaches(first).tolist() == [max(first[: i + 1]) for i in range(len(first))]
        assert columns.are_at_most(first, second) == all(a <= b for a, b in pairs)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=30))
def test_lengths_are_differences(pairs: list[tuple[int, int]]) -> None:
    starts, ends = array("q", (a for a, _ in pairs)), array("q", (a + b for a, b in pairs))
    for _ in both_ways():
        assert columns.lengths(starts, ends).tolist() == [b for _, b in pairs]


@given(st.lists(st.floats(0, 1e12) | st.just(math.nan), min_size=1, max_size=30), st.randoms())
def test_chosen_values_are_sorted_and_numbers(values: list[float], random: Random) -> None:
    places = array("q", sorted(random.sample(range(len(values)), len(values) // 2)))
    expected = sorted(values[i] for i in places if values[i] == values[i])
    for _ in both_ways():
        assert columns.chosen(array("d", values), places) == expected


def test_values_are_replaced_by_what_they_stand_for() -> None:
    for _ in both_ways():
        assert columns.replaced(array("q", [5, 7, 5]), {5: 0, 7: 1}).tolist() == [0, 1, 0]
        assert columns.replaced(array("q", [5, 7, 5]), {5: 3, 7: 3}).tolist() == [3, 3, 3]
        assert columns.replaced(array("q"), {}).tolist() == []


@given(st.lists(st.integers(-2, 2) | INTEGERS, min_size=1, max_size=30))
def test_the_first_row_of_each_value_is_found_in_order(values: list[int]) -> None:
    expected = {value: values.index(value) for value in values}
    for _ in both_ways():
        assert list(columns.first_rows(array("q", values)).items()) == list(expected.items())


@given(st.lists(st.tuples(st.integers(-1, 1) | INTEGERS, st.integers(0, 2), st.just(7)), min_size=1, max_size=30))
def test_rows_that_are_alike_are_found_in_order(rows: list[tuple[int, ...]]) -> None:
    expected = [[i for i, other in enumerate(rows) if other == row] for row in dict.fromkeys(rows)]
    for _ in both_ways():
        found = columns.alike([array("q", column) for column in zip(*rows, strict=True)])
        assert [group.tolist() for group in found] == expected


@given(st.lists(st.floats(0, 1e12) | st.just(math.nan), min_size=1, max_size=30))
def test_a_total_is_of_what_is_known(values: list[float]) -> None:
    for _ in both_ways():
        assert columns.total(array("d", values)) == math.fsum(value for value in values if value == value)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=30))
def test_one_value_scatters_by_nothing_that_is_known(values: list[int]) -> None:
    for _ in both_ways():
        middle, deviation = columns.spread(array("q", values))
        assert middle == statistics.median(values)
        assert deviation == (pytest.approx(statistics.stdev(values)) if len(values) > 1 else None)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 127], "b"), ([-129], "h"), ([1 << 15], "i"), ([-(1 << 31), (1 << 31) - 1], "i"), ([1 << 31], "q")],
)
def test_a_column_gets_as_few_bytes_as_its_values_need(
    values: list[int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LONG", 1)
    narrow = columns.narrow(array("q", values))
    assert (narrow.typecode, narrow.tolist()) == (kind, values)
    assert columns.narrow(narrow) is narrow


@given(st.lists(st.tuples(st.integers(-128, 127), INTEGERS), min_size=1, max_size=30))
def test_narrow_columns_are_worked_on_as_wide_ones_are(rows: list[tuple[int, int]]) -> None:
    wide, times = (array("q", column) for column in zip(*rows, strict=True))
    narrow = array("b", wide)
    for _ in both_ways():
        assert columns.picked(narrow, array("q", [len(rows) - 1, 0])) == array("b", [wide[-1], wide[0]])
        assert columns.in_order([times, narrow])[1] == array("b", columns.in_order([times, wide])[1])
        assert columns.chained([narrow, times, narrow]) == wide + times + wide
        assert (columns.chained([narrow, narrow]).typecode, columns.chained([]).typecode) == ("b", "q")
        assert list(columns.first_rows(narrow).items()) == list(columns.first_rows(wide).items())
        assert columns.alike([narrow, times]) == columns.alike([wide, times])
        assert columns.shifted(narrow, 1 << 40) == columns.shifted(wide, 1 << 40)
        assert columns.sums_before(narrow) == columns.sums_before(wide)
        assert columns.largest_by_block(narrow, 2) == array("b", columns.largest_by_block(wide, 2))


@given(st.lists(st.tuples(st.integers(0, 9), INTEGERS), min_size=1, max_size=30))
def test_values_are_put_at_rows_and_the_last_one_of_several_stays(puts: list[tuple[int, int]]) -> None:
    rows, values = (array("q", column) for column in zip(*puts, strict=True))
    expected = [dict(puts).get(row, 0) for row in range(10)]
    for _ in both_ways():
        column = array("q", bytes(80))
        columns.put(column, rows, values)
        assert column.tolist() == expected
        assert columns.are_first(rows).tolist() == [int(row not in rows[:i]) for i, row in enumerate(rows)]


@given(st.lists(INTEGERS, max_size=9), st.lists(INTEGERS, min_size=1, max_size=30))
def test_a_value_lies_behind_the_bounds_that_it_is_not_below(bounds: list[int], values: list[int]) -> None:
    rising = array("q", sorted(bounds))
    for _ in both_ways():
        found = columns.places_among(rising, array("q", [*values, *bounds]))
        assert found.tolist() == [sum(bound <= value for bound in bounds) for value in (*values, *bounds)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 40) | st.just(math.nan)), min_size=1, max_size=30))
def test_rows_and_what_is_known_of_them_are_added_up_by_number(pairs: list[tuple[int, float]]) -> None:
    numbers, values = array("b", (number for number, _ in pairs)), array("d", (value for _, value in pairs))
    of = [[value for one, value in pairs if one == number] for number in range(5)]
    expected = [len(own) for own in of], [float(sum(value for value in own if value == value)) for own in of]
    for _ in both_ways():
        assert columns.totals_by(numbers, values, 5) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2)), min_size=1, max_size=30))
def test_times_since_a_row_are_put_where_there_is_one_that_is_not_later(pairs: list[tuple[int, int]]) -> None:
    moments, rows = (array("q", column) for column in zip(*pairs, strict=True))
    since = array("q", [0, 4, 9])
    expected = [t - since[row] if row >= 0 and t >= since[row] else -1.0 for t, row in pairs]
    for _ in both_ways():
        times = array("d", [-1.0]) * len(pairs)
        columns.put_times(times, moments, since, rows)
        assert times.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_what_each_number_covers_between_two_moments_is_its_share_of_every_nanosecond(
    stretches: list[tuple[int, int, int]],
) -> None:
    at, rows = 0, []
    for number, length, gap in stretches:
        rows.append((number, at + gap, at + gap + length))
        at += gap + length
    numbers, starts, ends = (array("q", column) for column in zip(*rows, strict=True))
    since, until = at // 4, at - at // 5
    each_ns = [number for number, start, end in rows for t in range(start, end) if since <= t < until]
    for _ in both_ways():
        assert columns.covered_by(numbers, starts, ends, since, until) == Counter(each_ns)
