"""The budget: what is shed, in which order, and when it comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper.governor import CREDIT_S, LADDER, REST_S, Effort, EventLoad, Governor, cost

QUIET = EventLoad(calls=1000, switches=500)
ONE_PERCENT = 0.01
rates = st.floats(0, 1e7)
loads = st.builds(EventLoad, rates, rates, rates, rates, rates)


def settle(governor: Governor, load: EventLoad, seconds: int) -> None:
    for _ in range(seconds):
        governor.judge(load, 1.0)


def test_the_cost_of_a_load_is_hits_times_cost() -> None:
    own, foreign = cost(EventLoad(calls=10_000, foreign_calls=50_000, switches=1000), LADDER[0])
    assert own == 10_000 * 330 + 1000 * 1050 + 1000 * 2750
    assert foreign == 50_000 * 150


def test_a_quiet_server_is_looked_at_in_full() -> None:
    governor = Governor(ONE_PERCENT, stacks=True)
    settle(governor, QUIET, 100)
    assert governor.effort == LADDER[0]
    assert not governor.shed


def test_a_small_burst_sheds_nothing() -> None:
    governor = Governor(ONE_PERCENT, stacks=True)
    governor.judge(EventLoad(calls=40_000), 1.0)
    settle(governor, QUIET, 1)
    assert not governor.shed


def test_a_great_burst_is_shed_at_the_first_look() -> None:
    governor = Governor(ONE_PERCENT, stacks=True)
    assert governor.judge(EventLoad(calls=300_000), 0.2)
    assert governor.effort.calls == "off"


def test_a_careful_one_looks_closely_once_it_knows_the_cost() -> None:
    governor = Governor(ONE_PERCENT, stacks=True, is_careful=True)
    assert governor.effort == Effort(0, "counted")
    governor.judge(QUIET, 0.2)
    assert governor.effort == LADDER[0]
    of_a_busy_server = Governor(ONE_PERCENT, stacks=True, is_careful=True)
    settle(of_a_busy_server, EventLoad(calls=18_000, switches=500), 100)
    assert of_a_busy_server.effort == Effort(4)


def test_what_is_known_to_cost_too_much_is_never_tried() -> None:
    """Calls are counted, so what timing them costs is known: no try, whatever time goes by."""
    governor = Governor(ONE_PERCENT, is_careful=True)
    assert not any(governor.judge(EventLoad(calls=40_000), 0.2) for _ in range(10_000))
    assert governor.effort.calls == "counted"


def test_deep_stacks_are_shed_where_shallow_ones_fit() -> None:
    load = EventLoad(switches=500)
    governor = Governor(0.01, stacks=True)
    assert not governor.judge(load, 10.0)
    governor.learn("stack", 60_000.0)
    assert governor.judge(load, 10.0)
    assert governor.effort.stack_every > 1


def test_stacks_are_sampled_before_anything_else_is_given_up() -> None:
    governor = Governor(ONE_PERCENT, stacks=True)
    settle(governor, EventLoad(calls=1000, switches=5000), 2)
    assert (governor.effort.stack_every, governor.effort.calls, governor.effort.scheduler) == (4, "timed", True)


def test_calls_are_counted_before_they_are_given_up() -> None:
    governor = Governor(ONE_PERCENT)
    settle(governor, EventLoad(calls=50_000), 2)
    assert governor.effort.calls == "counted"
    settle(governor, EventLoad(calls=1_000_000), 2)
    assert (governor.effort.calls, governor.effort.scheduler) == ("off", True)


def test_the_cost_to_others_counts_as_much() -> None:
    governor = Governor(ONE_PERCENT)
    settle(governor, EventLoad(foreign_calls=1_000_000), 2)
    assert governor.effort.calls == "off"
    of_a_large_machine = Governor(ONE_PERCENT, cpus=64)
    settle(of_a_large_machine, EventLoad(foreign_calls=1_000_000), 2)
    assert of_a_large_machine.effort.calls == "timed"


def test_what_was_shed_is_tried_again_and_then_less_often() -> None:
    governor = Governor(ONE_PERCENT)
    heavy = EventLoad(calls=1_000_000)
    settle(governor, heavy, 2)
    seconds_until_back = []
    for _ in range(3):
        seconds = 0
        while governor.effort.calls == "off":
            governor.judge(EventLoad(), 1.0)  # no hits are seen while the probes are off
            seconds += 1
        seconds_until_back.append(seconds)
        settle(governor, heavy, 2)
    assert seconds_until_back[0] >= REST_S
    assert seconds_until_back == sorted(set(seconds_until_back))


@given(st.lists(loads, min_size=4, max_size=30), st.booleans())
def test_a_steady_load_ends_within_the_budget_or_at_the_last_rung(history: list[EventLoad], stacks: bool) -> None:
    governor = Governor(ONE_PERCENT, stacks=stacks)
    for load in history:
        governor.judge(load, 1.0)
    settle(governor, history[-1], 2)
    within = max(cost(history[-1], governor.effort)) <= governor.budget_ns
    is_within_credit = governor._overspent_ns < CREDIT_S * governor.budget_ns
    assert within or governor.rung == len(LADDER) - 1 or is_within_credit
