"""When a helper reports, by clocks that are made up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from llmtop.collectors.tracing.helper.budget import ReportTimes

TICK_S = 0.25


def reports(ms_each: float, ms_a_tick: float, *, until_s: float, early_ms: float = 0.0) -> list[float]:
    """When a helper reports that spends so much for each report and tick, and at first so much more."""
    now, spent_ms = 0.0, early_ms
    times = ReportTimes(0.25, 1.0, lambda: int(spent_ms * 1e6), lambda: now)
    found = []
    while now < until_s:
        now += TICK_S
        spent_ms += ms_a_tick
        if times.is_due():
            found.append(now)
            spent_ms += ms_each
            times.reported()
    return found


def test_it_reports_each_interval_while_that_costs_little() -> None:
    assert reports(4.0, 0.5, until_s=6.0) == [0.25, 1.25, 2.25, 3.25, 4.25, 5.25]


def test_what_comes_first_is_not_held_against_it() -> None:
    assert reports(4.0, 0.5, until_s=12.0, early_ms=2000.0) == [0.25 + second for second in range(12)]


@pytest.mark.parametrize("ms_each", [8.0, 11.0])
def test_dear_reports_come_later(ms_each: float) -> None:
    """Ticks take 2 ms a second and leave 7 of the nine thousandths of a core."""
    times = reports(ms_each, 0.5, until_s=120.0)
    assert times[:6] == [0.25, 1.25, 2.25, 3.25, 4.25, 5.25], "the first seconds are free"
    assert ms_each / 7.0 <= (times[-1] - times[-41]) / 40 <= ms_each / 7.0 + TICK_S, "the next tick after they are paid"
    assert all(later - earlier <= 2.0 for earlier, later in pairwise(times))


def test_they_come_twice_as_far_apart_at_most() -> None:
    times = reports(50.0, 5.0, until_s=60.0)
    assert {later - earlier for earlier, later in pairwise(times[8:])} == {2.0}
