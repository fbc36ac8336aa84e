"""When threads and library calls are looked at for a part of the time: each number that decides, at its edge."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper.budget import Account
from llmtop.collectors.tracing.helper.functions import KINDS
from llmtop.collectors.tracing.probes.helper.sampling import Sampling, lost
from llmtop.collectors.tracing.probes.helper.slices import Slices
from tests.collectors.tracing.judging import judge

S, MS = 1_000_000_000, 1_000_000
CALLED = {"wait": 1, "graph": 1, "other": 1, "launch": 1}


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance gives the mean."""
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2 if (low, high) == (0.5, 1.5) else 0.0)


@given(st.lists(st.tuples(st.floats(0, 1e8), st.floats(0, 5)), max_size=20))
def test_an_account_is_paid_when_the_budget_has_come_to_what_was_spent(history: list[tuple[float, float]]) -> None:
    account, now_s, debt_ns = Account(2e6), 10.0, 0.0
    for ns, passed_s in history:
        account.spend(ns, now_s)
        debt_ns += ns
        now_s += passed_s
        debt_ns = max(0.0, debt_ns - 2e6 * passed_s)
        if abs(debt_ns) > 1.0 or debt_ns == 0.0 == ns:
            assert account.is_paid(now_s) is (debt_ns <= 0)


def test_nothing_spent_is_paid() -> None:
    assert Account(1.0).is_paid(-1e9)


@pytest.mark.parametrize(
    ("ns", "length_s", "following_s"),
    [
        (8e6, 0.02, 0.02),
        (8e6, 0.04, 0.04),
        (4e6, 0.02, 0.04),
        (16e6, 0.02, 0.01),
        (1.0, 0.02, 0.5),
        (0.0, 0.02, 0.5),
        (1e9, 0.02, 0.005),
    ],
)
def test_the_next_slice_is_as_long_as_eight_milliseconds_pay_for(
    ns: float, length_s: float, following_s: float
) -> None:
    slices = Slices(1e9, 100.0)
    assert slices.length_s == 0.02, "as long as nothing is known"
    slices.close(100.5, length_s, ns, 0.0)
    assert slices.length_s == pytest.approx(following_s)


def test_a_slice_is_due_after_its_gap_once_both_budgets_have_paid() -> None:
    slices = Slices(10e6, 100.0)
    assert (slices.is_due(99.999), slices.is_due(100.0)) == (False, True)
    slices.close(100.0, 0.02, 1e6, 1e6)
    assert (slices.is_due(100.499), slices.is_due(100.5)) == (False, True)
    slices.close(200.0, 0.02, 8e6, 0.0)
    assert (slices.is_due(200.799), slices.is_due(200.801)) == (False, True), "8 ms of 10 a second"
    slices.close(300.0, 0.02, 0.0, 6e6)
    assert (slices.is_due(301.999), slices.is_due(302.001)) == (False, True), "6 ms of this helper's 3 a second"


def test_the_share_is_of_the_last_ten_seconds() -> None:
    slices = Slices(1e9, 100.0)
    assert slices.share(100.0) == 0.0
    slices.close(101.0, 0.5, 1.0, 0.0)
    assert slices.share(102.0) == pytest.approx(0.25)
    slices.close(105.0, 0.3, 1.0, 0.0)
    assert slices.share(110.0) == pytest.approx(0.08)
    assert slices.share(110.999) == pytest.approx(0.08)
    assert slices.share(111.0) == pytest.approx(0.03), "what ended ten seconds ago is over"
    assert slices.share(120.0) == 0.0


# -- windows on library calls ------------------------------------------------------------------------------------------


def begun(budget_ns: float = 1e6) -> Sampling:
    return Sampling(Account(budget_ns), 100.0)


def test_at_first_nothing_is_known_and_a_window_is_due() -> None:
    sampling = begun()
    assert (sampling.steady, sampling.share, sampling.windows) == (frozenset(), 1.0, 0)
    assert (sampling.is_due(99.9), sampling.is_due(100.0), sampling.window_s) == (False, True, 0.005)
    without_limit = begun(1e9)
    assert (without_limit.steady, without_limit.is_due(1e9)) == (frozenset(KINDS), False)
    assert begun(1e9 - 1).steady == frozenset()


NONE = dict.fromkeys(KINDS, 0.0)
CHEAP = {"query", "read", "collect"}


@pytest.mark.parametrize(
    ("costs", "steady"),
    [
        ({"wait": 0.2e6, "graph": 0.1e6, "collect": 0.05e6, "other": 0.05e6, "launch": 0.3e6}, set(KINDS)),
        ({"wait": 0.2e6, "graph": 0.1e6, "collect": 0.05e6, "other": 0.05e6, "launch": 0.301e6}, {*KINDS} - {"launch"}),
        ({"wait": 0.3e6, "graph": 0.1e6, "collect": 0.1e6, "other": 0.201e6, "launch": 0.1e6}, {*KINDS} - {"other"}),
        ({"wait": 0.701e6, "graph": 0.901e6, "other": 0.6e6, "launch": 0.1e6}, CHEAP | {"other", "launch"}),
        ({"wait": 0.5e6, "graph": 0.4e6, "other": 0.1e6, "launch": 0.1e6}, CHEAP | {"wait", "graph"}),
        ({"wait": 0.5e6, "graph": 0.401e6, "other": 0.1e6, "launch": 0.1e6}, CHEAP | {"wait", "other", "launch"}),
        ({"wait": 0.2e6, "query": 0.6e6, "graph": 0.3e6, "read": 0.2e6}, {*KINDS} - {"query"}),
        (dict.fromkeys(KINDS, 0.901e6), set()),
    ],
)
def test_what_takes_seven_tenths_of_the_budget_is_counted_all_the_time(
    costs: dict[str, float], steady: set[str]
) -> None:
    """Graphs, which tell steps apart, where with what is counted already they take nine tenths; cheap ones first."""
    sampling = begun()
    assert sampling.close(NONE | costs, CALLED, 101.0, 0.01) is bool(steady)
    assert sampling.steady == steady


def test_what_other_processes_cost_is_taken_from_the_same_budget() -> None:
    costs = NONE | {"wait": 0.3e6}
    for others_ns, is_counted in ((0.4e6, True), (0.401e6, False)):
        sampling = begun()
        sampling.close(costs, CALLED, 101.0, 0.01, others_ns)
        assert ("wait" in sampling.steady) == is_counted


RANK = {"wait": 2.0, "query": 4.0, "read": 1.0, "graph": 0.5, "launch": 50.0}


@pytest.mark.parametrize(
    ("budget_ns", "gone"),
    [
        (200.0, {}),
        (100.0, {2: {"launch"}}),
        (15.0, {1: {"launch"}, 2: {"launch"}}),
        (14.9, {1: {"launch"}, 2: {"launch", "query"}}),
        (7.0, {1: {"launch", "query"}, 2: {"launch", "query"}}),
        (3.9, {1: {"launch", "query", "read"}, 2: {"launch", "query", "read", "wait"}}),
    ],
)
def test_of_two_ranks_one_is_seen_whole_rather_than_both_in_part(budget_ns: float, gone: dict[int, set[str]]) -> None:
    assert {pid: set(kinds) for pid, kinds in lost({1: RANK, 2: RANK}, budget_ns).items()} == gone


def test_windows_come_after_longer_gaps_up_to_a_second() -> None:
    sampling, now_s = begun(), 100.0
    gaps = []
    for _ in range(5):
        sampling.close({"launch": 1e9, "wait": 1e9, "other": 1e9}, CALLED, now_s, 0.01)
        gaps.append(next(tenths / 100 for tenths in range(1000) if sampling.is_due(now_s + tenths / 100)))
        now_s += 10.0
    assert gaps == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_where_nothing_is_called_gaps_grow_to_four_seconds_and_end_with_the_first_call() -> None:
    sampling, now_s = begun(), 100.0
    gaps = []
    for called in (False, False, False, False, False, False, True, False):
        sampling.close({"launch": 1e9}, CALLED if called else {}, now_s, 0.01)
        gaps.append(sampling.due_s - now_s)
        now_s += 10.0
    assert gaps == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 1.0]


def test_eight_windows_are_remembered() -> None:
    sampling = begun()
    sampling.close({"wait": 1e9}, CALLED, 100.0, 0.01)
    told = []
    for i in range(1, 10):
        sampling.close({"wait": 1.0}, CALLED, 100.0 + i, 0.01)
        told.append("wait" in sampling.steady)
    assert told == [False] * 7 + [True] * 2


def test_a_window_is_as_long_as_ten_milliseconds_pay_for() -> None:
    for cost, length_s in ((1e9, 0.01), (2e9, 0.005), (4e9, 0.005), (2e8, 0.05), (1e8, 0.05), (0.0, 0.05)):
        sampling = begun()
        sampling.close({"wait": cost / 2, "launch": cost / 2}, CALLED, 101.0, 0.01)
        assert sampling.window_s == pytest.approx(length_s)


def test_the_share_of_windows_is_of_the_time_since_the_last_one() -> None:
    sampling = begun()
    told = []
    for now_s, open_s in ((102.0, 0.5), (102.5, 0.05), (102.6, 0.2)):
        sampling.close({"wait": 1e9}, CALLED, now_s, open_s)
        told.append(round(sampling.share, 6))
    assert told == [0.25, 0.1, 1.0]


def test_what_costs_too_much_rests_and_longer_each_time() -> None:
    """What does not fit beside what is worth more; half a minute, and twice as long up to half an hour."""
    sampling = begun()
    sampling.close({}, CALLED, 100.0, 0.01)
    assert not judge(sampling, {"wait": 0.3e6, "graph": 0.1e6, "other": 0.3e6, "launch": 0.3e6}, 100.0)
    assert judge(sampling, {"wait": 0.3e6, "graph": 0.1e6, "other": 0.3e6, "launch": 0.301e6}, 100.0)
    assert sampling.steady == {"wait", "query", "read", "graph", "collect", "other"}
    assert sampling.is_due(100.0), "a window shows at once what it costs"
    assert judge(sampling, {"wait": 2e6, "query": 0.0, "graph": 0.0, "collect": 0.0, "other": 1.1e6}, 100.0)
    assert sampling.steady == {"query", "read", "graph", "collect"}, "what costs nothing stays"
    now_s, rests = 100.0, []
    for _ in range(8):
        rest = next(s for s in range(4000) if begins(sampling, now_s, s))
        rests.append(rest)
        now_s += rest
        assert judge(sampling, {"launch": 2e6}, now_s)
    assert rests == [30, 60, 120, 240, 480, 960, 1800, 1800]


def begins(sampling: Sampling, now_s: float, seconds: int) -> bool:
    """Whether launches are counted all the time again after so many seconds."""
    sampling.close({}, CALLED, now_s + seconds, 0.01)
    return "launch" in sampling.steady
