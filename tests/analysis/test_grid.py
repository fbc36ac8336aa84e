"""Readings on a common grid: means are kept, gaps stay gaps, standing still is zero only where somebody looked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.series.grid import (
    Grid,
    counter_steps,
    gauge_steps,
    grid_of,
    on_grid,
    probe_steps,
    usual_distance,
    usual_step_ns,
)
from llmtop.model import NS_PER_S, Metric, Series
from llmtop.vocabulary import SCHEDULER_OBSERVED, THREAD_ON_CPU

S = NS_PER_S


def series(*samples: tuple[float, float | None], metric: Metric = THREAD_ON_CPU) -> Series:
    """Samples by second."""
    return Series.of(ids.thread(1, 1), metric, "test", [(int(t * S), value) for t, value in samples])


def attached(seconds: int) -> Series:
    return series(*((t, float(t * S)) for t in range(seconds + 1)), metric=SCHEDULER_OBSERVED)


def cells(steps: list[tuple[int, int, float]], seconds: int) -> list[float | None]:
    return list(on_grid(steps, Grid(0, S, seconds)))


def test_grid_ends_where_it_is_told_to() -> None:
    assert grid_of(3 * S + 5, 10 * S, 2 * S) == Grid(4 * S, 2 * S, 3)
    assert grid_of(3 * S, 4 * S, 2 * S).cells == 0


def test_counter_between_cells_is_shared_out() -> None:
    steps = counter_steps(series((0.5, 0), (1.5, 10), (2.5, 30)), 0, 4 * S)
    assert cells(steps, 4) == [10.0, 15.0, 20.0, None]


def test_gauge_stands_for_the_time_before_it() -> None:
    assert cells(gauge_steps(series((1, 5.0), (2, 7.0), (3, 9.0)), 0, 4 * S), 4) == [None, 7.0, 9.0, None]


def test_reading_before_the_window_counts() -> None:
    assert counter_steps(series((1, 0), (3, 8)), 2 * S, 4 * S) == [(S, 3 * S, 4.0)]


@pytest.mark.parametrize(
    "samples",
    [
        [(0, 0.0), (1, None), (2, 6.0), (3, 9.0)],
        [(0, 7.0), (1, 2.0), (2, 6.0), (3, 9.0)],
    ],
    ids=["without a value", "restarted"],
)
def test_gaps_of_counters_stay_gaps(samples: list[tuple[float, float | None]]) -> None:
    known = cells(counter_steps(series(*samples), 0, 3 * S), 3)
    assert known[0] is None
    assert known[2] == 3.0


def test_readings_far_apart_leave_a_gap() -> None:
    many = [(float(t), float(t)) for t in range(10)]
    assert cells(counter_steps(series(*many, (40.0, 40.0)), 0, 40 * S), 40)[20] is None
    held = cells(gauge_steps(series(*many, (40.0, 40.0)), 0, 40 * S), 40)
    assert held[20] is None
    assert held[39] == 40.0


def test_probe_that_stands_still_counts_nothing() -> None:
    steps = probe_steps(series((3, 0), (4, 6), (8, 10)), attached(10), 0, 10 * S)
    assert cells(steps, 10) == [0, 0, 0, 6, 0, 0, 0, 4, 0, 0]
    assert cells(probe_steps(None, attached(3), 0, 3 * S), 3) == [0, 0, 0]


def test_time_between_looks_in_which_a_probe_stands_still_is_zero_too() -> None:
    watched = series((0, 0), (4, 4.0 * S), (8, 8.0 * S), metric=SCHEDULER_OBSERVED)
    steps = probe_steps(series((0, 0), (6, 0), (8, 6)), watched, 0, 8 * S)
    assert steps == [(0, 4 * S, 0.0), (4 * S, 6 * S, 0.0), (6 * S, 8 * S, 3.0)]


def test_probe_that_was_not_attached_is_unknown() -> None:
    observed = series((0, 0), (1, S), (2, 2 * S), (3, 2 * S), (4, 2 * S), (5, 3 * S), metric=SCHEDULER_OBSERVED)
    assert cells(probe_steps(series((0, 0), (1, 5)), observed, 0, 5 * S), 5) == [5, 0, None, None, 0]
    assert probe_steps(series((0, 0), (1, 5)), None, 0, 5 * S) == []


def test_counter_that_lost_its_own_probe_is_unknown_meanwhile() -> None:
    steps = probe_steps(series((0, 0), (1, 5), (2, None), (5, 5), (6, 8)), attached(8), 0, 8 * S)
    assert cells(steps, 8) == [5, 0, None, None, None, 3, 0, 0]
    lost = probe_steps(series((0, 0), (1, 5), (2, None)), attached(4), 0, 4 * S)
    assert cells(lost, 4) == [5, 0, None, None]


def test_usual_distance_is_the_median() -> None:
    assert usual_distance([0, 1, 2, 12, 13]) == 1
    assert usual_distance([5]) == 0
    assert usual_step_ns(None) == 0


@given(st.lists(st.tuples(st.integers(1, 5 * 10**9), st.floats(0, 1e12)), min_size=1, max_size=60), st.integers(1, 9))
def test_resampling_keeps_the_sum(parts: list[tuple[int, float]], pieces: int) -> None:
    samples: list[tuple[int, float | None]] = [(0, 0.0)]
    for length, growth in parts:
        t, total = samples[-1]
        samples.append((t + length, (total or 0.0) + growth))
    end_ns = samples[-1][0]
    counter = Series.of(ids.thread(1, 1), THREAD_ON_CPU, "test", samples)
    steps = counter_steps(counter, 0, end_ns)
    step_ns = -(-end_ns // pieces)
    grid = Grid(0, step_ns, pieces)
    known = [value for value in on_grid(steps, grid) if value is not None]
    covered = sum(b - a for a, b, _ in steps)
    if covered == end_ns and len(known) == pieces and step_ns * pieces == end_ns:
        assert sum(known) * step_ns / S == pytest.approx(samples[-1][1], rel=1e-6, abs=1e-3)
    if known:
        rates = [rate for _, _, rate in steps]
        assert min(rates) * (1 - 1e-9) <= min(known)
        assert max(known) <= max(rates) * (1 + 1e-9)
