"""How far apart frames are, by clocks that are made up."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pytest

from llmtop.tui.pace import MOST_APART_S, CpuClocks, FramePace


def paced(frames: Iterable[tuple[float, float, float]], *, look_stretch: float = 1.0) -> FramePace:
    """After frames: seconds since the last one, of processor time for drawing, and of other threads."""
    told = ((at, drawing + others, drawing) for at, drawing, others in frames)
    clocks = [CpuClocks(*sums) for sums in accumulate(told, _add, initial=(0.0, 0.0, 0.0))]
    times = iter(clocks)
    pace = FramePace(lambda: next(times))
    for _ in clocks:
        pace.drawn(look_stretch)
    return pace


def _add(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float, float]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def test_frames_within_the_budget_come_each_interval() -> None:
    """9.5 ms a frame and 1.6 % of the collectors: 3.5 % at 2 Hz."""
    assert paced([(0.5, 0.0095, 0.008)] * 20).apart_s(0.5) == 0.5


@pytest.mark.parametrize(
    ("drawing", "others", "apart_s"),
    [(0.0135, 0.009, 0.75), (0.0105, 0.011, 0.75), (0.1, 0.008, MOST_APART_S), (0.010, 0.030, MOST_APART_S)],
)
def test_dear_ones_come_later_up_to_a_second(drawing: float, others: float, apart_s: float) -> None:
    """13.5 ms are the 1.8 % of 0.75 s that the collectors leave; where those alone take more than all, a second."""
    assert paced([(0.5, drawing, others)] * 20).apart_s(0.5) == pytest.approx(apart_s)


def test_who_asks_for_slower_frames_gets_them() -> None:
    assert paced([(2.0, 0.5, 0.5)] * 20).apart_s(2.0) == 2.0


def test_the_first_frames_change_nothing() -> None:
    assert paced([(0.25, 0.2, 0.1)] * 4).apart_s(0.5) == 0.5


def test_a_dear_frame_now_and_then_counts_for_all() -> None:
    """One of 22.5 ms after three of 10.5 ms: 13.5 ms a frame."""
    assert paced([*[(0.5, 0.0105, 0.009)] * 3, (0.5, 0.0225, 0.009)] * 5).apart_s(0.5) == pytest.approx(0.75)


def test_it_follows_what_frames_cost_now() -> None:
    dear, cheap = (0.5, 0.015, 0.010), (0.5, 0.005, 0.005)
    assert paced([*[dear] * 30, *[cheap] * 20]).apart_s(0.5) == 0.5


@pytest.mark.parametrize(("drawing", "stretch"), [(0.010, 1.0), (0.0135, 1.5), (0.022, 2.5), (0.2, 3.0)])
def test_panes_that_need_not_follow_each_frame_wait_longer(drawing: float, stretch: float) -> None:
    assert paced([(0.5, drawing, 0.009)] * 20).stretch(0.5) == stretch
    assert paced([(0.5, drawing, 0.009)] * 20).stretch(1.0) == 1.0, "once a second is what is asked for anyway"


def test_collectors_that_take_the_whole_budget_leave_the_slowest_pace() -> None:
    assert paced([(0.5, 0.010, 0.030)] * 20).stretch(0.5) == 3.0


@pytest.mark.parametrize(
    ("drawing", "others", "stretch"),
    [(0.010, 0.020, 1.0), (0.018, 0.0175, 1.0), (0.020, 0.020, 1.3), (0.020, 0.05, 1.8), (0.05, 0.001, 1.8)],
)
def test_collectors_look_less_often_where_frames_a_second_apart_do_not_fit_beside_them(
    drawing: float, others: float, stretch: float
) -> None:
    """Of 3.6 % of a core frames of 20 ms leave 1.6: what takes 2 % has to come 1.25 times as far apart."""
    assert paced([(1.0, drawing, others)] * 20).look_stretch(0.5) == stretch


@pytest.mark.parametrize(("interval_s", "stretch"), [(0.25, 1.8), (0.8, 1.3), (1.0, 1.0), (5.0, 1.0)])
def test_looks_are_a_second_apart_at_most_where_more_was_asked_for(interval_s: float, stretch: float) -> None:
    assert paced([(1.0, 0.02, 0.5)] * 20).look_stretch(interval_s) == stretch


def test_collectors_that_look_less_often_do_not_hurry_again() -> None:
    """They take as much less as they are stretched: the budget is held by that."""
    pace = paced([(1.0, 0.020, 0.020 / 1.3)] * 20, look_stretch=1.3)
    assert pace.look_stretch(0.5) == 1.3
    assert pace.apart_s(0.5) == pytest.approx(0.020 / (0.036 - 0.020 / 1.3))


def test_the_first_frames_do_not_slow_collectors() -> None:
    assert paced([(0.25, 0.2, 0.1)] * 4).look_stretch(0.5) == 1.0
