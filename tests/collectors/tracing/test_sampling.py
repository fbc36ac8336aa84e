"""Which library calls are counted all the time, and when the others are: never before the past is paid for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper.budget import Account
from llmtop.collectors.tracing.helper.functions import KINDS
from llmtop.collectors.tracing.probes.helper.sampling import (
    LONGEST_S,
    REMEMBERED,
    REST_S,
    SHORTEST_S,
    WINDOW_NS,
    Sampling,
)
from tests.collectors.tracing.judging import judge

BUDGET_NS = 3e6
FEW = {"wait": 1e5, "other": 1e5, "launch": 1e5}
MANY = FEW | {"launch": 1e9}
CALLED = {"wait": 5, "other": 5, "launch": 5}


def begun(budget_ns: float = BUDGET_NS) -> tuple[Account, Sampling]:
    account = Account(budget_ns)
    return account, Sampling(account, 0.0)


def test_nothing_is_counted_on_trust() -> None:
    _, sampling = begun()
    assert sampling.steady == frozenset()
    assert sampling.is_due(0.0)


def test_what_windows_show_to_be_cheap_is_counted_all_the_time() -> None:
    _, sampling = begun()
    assert sampling.close(FEW, CALLED, 1.0, 0.025)
    assert sampling.steady == frozenset(KINDS)
    assert not sampling.is_due(100.0)


def test_a_window_that_has_closed_is_counted() -> None:
    _, sampling = begun()
    assert sampling.windows == 0
    sampling.close({}, {}, 1.0, 0.025)
    assert sampling.windows == 1


def test_launches_that_no_window_has_seen_are_not_taken_for_few() -> None:
    _, sampling = begun()
    sampling.close({}, {}, 1.0, 0.025)
    assert sampling.steady == {"wait", "query", "read", "graph", "collect"}, (
        "graphs are launched seldom, as far as one knows"
    )
    assert sampling.is_due(2.0)


def test_graphs_that_are_launched_often_are_sampled_as_kernels_are() -> None:
    _, sampling = begun()
    sampling.close({}, {}, 1.0, 0.025)
    assert judge(sampling, {"wait": 1e5, "query": 1e5, "graph": 1e9, "collect": 0.0}, 1.2)
    assert sampling.steady == {"wait", "query", "read", "collect"}
    sampling.close(FEW, CALLED, 2.0, 0.025)
    assert "graph" not in sampling.steady, "it rests"


def test_copies_that_many_windows_have_not_seen_are_few() -> None:
    """Launches may come with the next request; copies and allocations come with launches, or are rare."""
    _, sampling = begun()
    for closed in range(REMEMBERED - 1):
        sampling.close({}, {"launch": 5, "wait": 5}, 1.0 + closed, 0.025)
    assert sampling.steady == {"wait", "query", "read", "graph", "collect", "launch"}
    sampling.close({}, {}, 20.0, 0.025)
    assert sampling.steady == frozenset(KINDS)


def test_what_comes_to_cost_too_much_goes_back_to_windows_and_rests_longer_each_time() -> None:
    _, sampling = begun()
    now_s, rests = 1.0, []
    for _ in range(4):
        assert sampling.close(FEW, CALLED, now_s, 0.025)
        assert judge(sampling, MANY, now_s)
        assert sampling.steady == {"wait", "query", "read", "graph", "collect", "other"}
        began_s = now_s
        while not sampling.close(FEW, CALLED, now_s, 0.025):
            now_s += 1.0
        rests.append(now_s - began_s)
        sampling.steady -= {"launch"}
    assert rests[0] >= REST_S
    assert all(later >= 2 * earlier for earlier, later in pairwise(rests))


def test_windows_tell_in_what_part_of_the_time_they_were_open() -> None:
    _, sampling = begun()
    sampling.close(MANY, CALLED, 1.0, 0.025)
    assert sampling.share == 0.025
    sampling.close(MANY, CALLED, 1.5, 0.025)
    assert sampling.share == 0.05
    _, at_once = begun()
    at_once.close(MANY, CALLED, 0.05, 0.05)
    assert at_once.share == pytest.approx(0.05 / 0.3), "not all of the time, but of that until the next one"


def test_the_first_window_is_short_and_none_costs_more_than_it_may() -> None:
    _, sampling = begun()
    assert sampling.window_s == SHORTEST_S
    sampling.close({"launch": 1e7}, CALLED, 1.0, SHORTEST_S)
    assert sampling.window_s == LONGEST_S, "seldom called: a longer look tells more"
    sampling.close({"launch": 5e8}, CALLED, 2.0, SHORTEST_S)
    assert sampling.window_s * 5e8 == WINDOW_NS
    sampling.close({"launch": 1e7}, CALLED, 3.0, SHORTEST_S)
    assert sampling.window_s * 5e8 == WINDOW_NS, "it may come back"
    sampling.close({"launch": 1e10}, CALLED, 4.0, SHORTEST_S)
    assert sampling.window_s == SHORTEST_S


def test_bursts_are_not_forgotten_in_a_quiet_moment() -> None:
    """Launches that come and go each second must not have their probes come and go."""
    _, sampling = begun()
    for i in range(40):
        sampling.close(FEW if i % 4 else MANY, CALLED, float(i), 0.025)
        assert "launch" not in sampling.steady
    for i in range(40, 50):
        sampling.close(FEW, CALLED, float(i), 0.025)
    assert "launch" in sampling.steady


@given(st.lists(st.floats(0, 2.0), min_size=1, max_size=50))
def test_the_budget_is_kept_whatever_windows_cost(slowed: list[float]) -> None:
    """Each window may cost up to twice its length: two threads that do nothing but run into probes."""
    account, sampling = begun()
    spent_ns = now_s = 0.0
    for share in slowed:
        while not sampling.is_due(now_s):
            now_s += 0.2
        assert spent_ns <= BUDGET_NS * (now_s + 1e-6), "paid for before the next"
        spent_ns += share * LONGEST_S * 1e9
        account.spend(share * LONGEST_S * 1e9, now_s)
        sampling.close({"launch": 1e12, "wait": 1e12, "other": 1e12}, CALLED, now_s, 0.025)
