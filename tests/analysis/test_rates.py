"""Rates of counters: never negative, never of one sample."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.series import rates
from llmtop.analysis.series.rates import Increase, RateHistory, amounts, increase, rate, rate_samples
from llmtop.model import NS_PER_S, Metric, Series, Unknown

COUNTER = Metric("c", "tokens", counter=True)


def series(*values: float | None, step_s: float = 1.0) -> Series:
    return Series.of(
        ids.HOST, COUNTER, "s", [(int((i + 1) * step_s * NS_PER_S), value) for i, value in enumerate(values)]
    )


def test_rate_is_growth_over_the_time_between_samples() -> None:
    assert rate(series(100, 110, 130), 10 * NS_PER_S) == pytest.approx(15)


def test_window_starts_at_the_sample_before_its_edge() -> None:
    assert increase(series(0, 10, 30, 60), 1 * NS_PER_S) == Increase(30, 1.0)


def test_a_window_that_begins_between_samples_has_the_one_before() -> None:
    half = NS_PER_S // 2
    assert increase(series(0, 10, 30, 60), 3 * half) == Increase(50, 2.0)
    assert increase(series(0, 10, None, 60), 2 * half) == Increase(50, 2.0), "the one before had no value"
    assert isinstance(increase(series(0, None, None, 60), 2 * half), Unknown), "that was too long ago"


def test_window_counts_from_now_not_from_the_last_sample() -> None:
    counted = increase(series(0, 10, 30), 2 * NS_PER_S, now_ns=4 * NS_PER_S)
    assert counted == Increase(20, 1.0)


@pytest.mark.parametrize("values", [(), (5.0,), (None, 5.0), (None, None)])
def test_too_few_samples_are_unknown(values: tuple[float | None, ...]) -> None:
    assert isinstance(rate(series(*values), 10 * NS_PER_S), Unknown)


def test_no_series_is_unknown() -> None:
    assert isinstance(rate(None, NS_PER_S), Unknown)


def test_constant_counter_is_a_true_zero() -> None:
    assert rate(series(7, 7, 7), 10 * NS_PER_S) == 0


def test_restart_counts_what_grew_since() -> None:
    assert increase(series(100, 110, 4, 10), 10 * NS_PER_S) == Increase(10 + 4 + 6, 3.0)


def test_gap_is_bridged_in_the_rate_and_shown_in_the_graph() -> None:
    with_gap = series(0, None, 20)
    assert rate(with_gap, 10 * NS_PER_S) == pytest.approx(10)
    assert [value for _, value in rate_samples(with_gap)] == [None, None]


def test_restart_is_a_gap_in_the_graph() -> None:
    assert [value for _, value in rate_samples(series(10, 20, 5, 7))] == [10, None, 2]


def test_rate_samples_stand_at_the_later_time() -> None:
    assert rate_samples(series(1, 2)) == ((2 * NS_PER_S, 1.0),)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=30), st.integers(1, 60))
def test_rates_are_never_negative(values: list[float | None], window_s: int) -> None:
    measured = rate(series(*values), window_s * NS_PER_S)
    assert isinstance(measured, Unknown) or measured >= 0
    assert all(value is None or value >= 0 for _, value in rate_samples(series(*values)))


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12),
    st.integers(-2, 14),
    st.integers(0, 14),
)
def test_a_stretch_is_the_window_and_the_sample_before_it(steps: list[int | None], start: int, length: int) -> None:
    counted = series(*steps)
    times, _ = counted.stretch(start * NS_PER_S, (start + length) * NS_PER_S)
    inside = [t for t in counted.times if start * NS_PER_S < t <= (start + length) * NS_PER_S]
    before = [t for t in counted.times if t <= start * NS_PER_S][-1:]
    assert list(times) == before + inside


def falls(values: list[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return any(after < before for before, after in pairwise(known))


BUCKETS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=3, max_size=3), max_size=12)


@given(BUCKETS, st.integers(0, 13), st.integers(1, 8), st.booleans())
def test_counters_read_together_grow_as_each_alone(
    polls: list[list[int | None]], now: int, window: int, restarts: bool
) -> None:
    columns: list[list[float | None]] = [[], [], []]
    sums = [0, 0, 0]
    for i, poll in enumerate(polls):
        sums = [0, 0, 0] if restarts and i == len(polls) // 2 else sums
        sums = [total + (step or 0) for total, step in zip(sums, poll, strict=True)]
        whole = [sum(sums[: k + 1]) for k in range(3)]
        for column, value, step in zip(columns, whole, poll, strict=True):
            column.append(None if step is None else value)
    # Who has counted as much as before by the next poll after a restart hides it, from everybody who reads counters.
    assume(falls(columns[-1]) or not any(map(falls, columns)))
    together = [series(*column) for column in columns]
    at = now * NS_PER_S, window * NS_PER_S
    alone = [increase(one, at[1], at[0]) for one in together]
    assert amounts(together, at[1], at[0]) == [one.amount if isinstance(one, Increase) else one for one in alone]


def test_of_a_history_that_goes_on_only_what_is_new_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(rates, "rate_samples", lambda one: made.append(len(one)) or rate_samples(one))  # type: ignore[func-returns-value]
    whole = series(1, 2, 4, None, 8, 9, 1, 5)
    first = RateHistory.of(whole.between(0, 5 * NS_PER_S))
    later = whole.between(2 * NS_PER_S, 7 * NS_PER_S)
    second = RateHistory.of(later, first)
    assert second.samples == rate_samples(later)
    assert made == [len(first.series), 3]
    assert RateHistory.of(first.series, second).samples == first.samples, "back in time"
    assert RateHistory.of(series(5, 6, 7), second).samples == rate_samples(series(5, 6, 7)), "other columns"


def test_a_restart_within_a_gap_of_the_largest_is_one() -> None:
    bucket, whole = series(1, 0, 1), series(1, None, 1)
    assert amounts([bucket, whole], 2 * NS_PER_S, 3 * NS_PER_S) == [1, 0]
