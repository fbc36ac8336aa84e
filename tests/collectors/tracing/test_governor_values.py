"""What looking costs, in numbers, and what the governor does at each threshold of it."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper.governor import (
    HIGH_S,
    LADDER,
    LIGHT,
    LONGEST_REST_S,
    MEAN_S,
    NS_PER_HIT,
    Effort,
    EventLoad,
    Governor,
    cost,
    in_slices,
    observe,
)
from llmtop.collectors.tracing.wire import Observed

TIMED, COUNTED, OFF = Effort(0, "timed"), Effort(0, "counted"), Effort(0, "off")
STACKS = Effort(1, "off")
NOTHING = Effort(0, "off", scheduler=False)
SLICED = Effort(0, "off", sliced=True)


@pytest.mark.parametrize(
    ("event", "effort", "own", "foreign"),
    [
        ("calls", TIMED, 330, 0),
        ("calls", COUNTED, 165, 0),
        ("calls", OFF, 0, 0),
        ("foreign_calls", TIMED, 0, 150),
        ("foreign_calls", COUNTED, 0, 80),
        ("foreign_calls", OFF, 0, 0),
        ("switches", OFF, 1050, 0),
        ("switches", STACKS, 3800, 0),
        ("switches", Effort(4, "off"), 1737.5, 0),
        ("switches", NOTHING, 0, 0),
        ("switches", SLICED, 0, 0),
        ("switches", Effort(1, "off", scheduler=False), 0, 0),
        ("foreign_switches", OFF, 0, 350),
        ("foreign_switches", STACKS, 0, 350),
        ("foreign_switches", NOTHING, 0, 0),
        ("foreign_switches", SLICED, 0, 0),
        ("samples", NOTHING, 4000, 0),
    ],
)
def test_what_one_event_costs(event: str, effort: Effort, own: float, foreign: float) -> None:
    assert cost(EventLoad(**{event: 1.0}), effort) == (own, foreign)


@given(st.lists(st.integers(0, 10**6), min_size=5, max_size=5), st.sampled_from([*LADDER, SLICED]))
def test_what_a_load_costs_is_the_sum_of_its_events(rates: list[int], effort: Effort) -> None:
    names = [one.name for one in fields(EventLoad)]
    alone = [cost(EventLoad(**{name: rate}), effort) for name, rate in zip(names, rates, strict=True)]
    together = cost(EventLoad(**dict(zip(names, rates, strict=True))), effort)
    assert together == pytest.approx(tuple(map(sum, zip(*alone, strict=True))))


def test_a_load_is_what_was_counted_between_two_moments() -> None:
    before = {"call": 5, "foreign_call": 7, "switch": 1, "foreign_switch": 0, "sample": 2, "library": 9}
    now = {"call": 25, "foreign_call": 47, "switch": 11, "foreign_switch": 2, "sample": 10, "library": 99}
    assert EventLoad.between(before, now, 2.0) == EventLoad(10.0, 20.0, 5.0, 1.0, 4.0)
    assert EventLoad.between({}, {"call": 4}, 0.5) == EventLoad(8.0)
    assert EventLoad() == EventLoad(0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("calls", "scheduler", "observed"),
    [
        ("off", False, (1, 1, 1)),
        ("counted", False, (51, 1, 1)),
        ("timed", True, (51, 51, 51)),
        ("off", True, (1, 1, 51)),
    ],
)
def test_only_what_was_looked_at_is_observed(calls: str, scheduler: bool, observed: tuple[int, int, int]) -> None:
    found: Observed = {"calls": 1, "timed": 1, "scheduler": 1}
    observe(found, 50, calls, scheduler=scheduler)
    assert (found["calls"], found["timed"], found["scheduler"]) == observed
    observe(found, 0, "timed")
    assert (found["calls"], found["timed"], found["scheduler"]) == observed


def test_efforts_in_words() -> None:
    assert [str(one) for one in (*LADDER, *in_slices(LIGHT)[-1:])] == [
        "1 stack in 1, system calls timed, scheduler on",
        "1 stack in 4, system calls timed, scheduler on",
        "1 stack in 16, system calls timed, scheduler on",
        "1 stack in 64, system calls timed, scheduler on",
        "no stacks, system calls timed, scheduler on",
        "no stacks, system calls counted, scheduler on",
        "no stacks, system calls off, scheduler on",
        "no stacks, system calls off, scheduler off",
        "no stacks, system calls off, scheduler in slices",
    ]
    assert in_slices(LADDER)[:-1] == LADDER[:-1], "only what would be given up is sliced"


def judged(governor: Governor, *loads: EventLoad, elapsed_s: float = 1.0) -> list[Effort]:
    """The effort after each of these loads; and it must say when that changed."""
    found = []
    for load in loads:
        before = governor.effort
        assert governor.judge(load, elapsed_s) is (governor.effort != before)
        found.append(governor.effort)
    return found


def calls(ns_per_s: float) -> EventLoad:
    """As many timed calls as cost so much."""
    return EventLoad(calls=ns_per_s / 330)


def governor(ns_per_s: float = 1_000_000.0, **options: object) -> Governor:
    return Governor(ns_per_s / 1e9, **options)  # type: ignore[arg-type]


def test_what_stays_just_within_the_budget_is_looked_at_for_ever() -> None:
    assert set(judged(governor(), *[calls(1_000_000 - 1)] * 5000)) == {TIMED}


def test_a_seconds_budget_may_be_overspent() -> None:
    """Of 1 ms a second: 0.4 over each time comes to a second's worth at the third."""
    assert judged(governor(), *[calls(1_400_000)] * 3) == [TIMED, TIMED, COUNTED]
    assert judged(governor(), *[calls(1_999_000)] * 2) == [TIMED, COUNTED]
    assert judged(governor(), calls(2_000_330)) == [OFF], "twice as much, at once"
    assert judged(governor(), *[calls(6_000_000 - 330)] * 2, elapsed_s=0.2)[0] == TIMED, "in a shorter time"
    assert judged(governor(), *[calls(6_000_000 + 330)] * 2, elapsed_s=0.2)[0] == OFF


@pytest.mark.parametrize(("ns_per_s", "effort"), [(700_000 - 0.4, TIMED), (700_000 + 0.4, COUNTED)])
def test_what_was_given_up_comes_back_when_it_takes_seven_tenths_of_the_budget(ns_per_s: float, effort: Effort) -> None:
    one = governor()
    assert judged(one, *[calls(1_400_000)] * 3)[-1] == COUNTED
    assert judged(one, calls(ns_per_s), elapsed_s=LONGEST_REST_S) == [effort]


def test_what_was_overspent_is_paid_back_by_quiet_times() -> None:
    """Half of the credit is used, then paid back in half."""
    loads = [calls(1_500_000), calls(750_000), calls(1_700_000), calls(1_100_000)]
    assert judged(governor(), *loads) == [TIMED, TIMED, TIMED, COUNTED]
    loads = [calls(1_500_000), calls(0), calls(0), calls(1_900_000)]
    assert judged(governor(), *loads)[-1] == TIMED, "more than that is not saved up"


@pytest.mark.parametrize(
    ("load", "effort"),
    [
        (EventLoad(calls=6_000), COUNTED),  # 1.98 ms timed, 0.99 ms counted
        (EventLoad(calls=6_100), OFF),
        (EventLoad(switches=900, calls=900), OFF),
        (EventLoad(foreign_calls=24_900), COUNTED),
        (EventLoad(foreign_calls=25_100), OFF),  # of 2 ms: all CPUs have that together
        (EventLoad(foreign_switches=11_430), NOTHING),
        (EventLoad(switches=1_905), NOTHING),
        (EventLoad(samples=500), NOTHING),
    ],
)
def test_the_first_rung_that_fits_is_taken(load: EventLoad, effort: Effort) -> None:
    assert judged(governor(cpus=2), *[load] * 400)[-1] == effort


def test_others_may_lose_that_share_of_each_cpu() -> None:
    assert judged(governor(cpus=2), *[EventLoad(foreign_calls=13_332)] * 900)[-1] == TIMED
    assert judged(governor(cpus=2), *[EventLoad(foreign_calls=26_800)] * 3)[-1] == OFF
    assert judged(governor(cpus=2), *[EventLoad(foreign_calls=24_800)] * 20)[-1] == COUNTED
    assert judged(governor(cpus=1), *[EventLoad(foreign_calls=13_332)] * 3)[-1] == OFF


def seconds_to_rise(governor: Governor) -> int:
    before, seconds = governor.rung, 0
    while governor.rung == before:
        governor.judge(EventLoad(), 1.0)
        seconds += 1
        assert seconds < 10_000
    return seconds


def test_rests_are_doubled_up_to_half_an_hour() -> None:
    one = governor()
    rests = []
    for _ in range(8):
        one.judge(EventLoad(calls=100_000), 1.0)
        assert one.effort == OFF
        rests.append(seconds_to_rise(one))
    assert rests == [60, 120, 240, 480, 960, 1800, 1800, 1800]


def test_a_careful_ones_first_rest_is_half_a_minute() -> None:
    one = governor(is_careful=True)
    assert (one.effort, one.shed) == (COUNTED, True)
    assert seconds_to_rise(one) == 1
    assert (one.effort, one.shed) == (TIMED, False)
    one.judge(EventLoad(calls=10_000), 1.0)
    assert seconds_to_rise(one) == 30


def test_a_rest_begins_anew_whenever_it_costs_too_much() -> None:
    one = governor()
    one.judge(EventLoad(calls=10_000), 1.0)
    for _ in range(59):
        one.judge(EventLoad(), 1.0)
    one.judge(EventLoad(switches=1_000), 1.0)
    assert (one.effort, seconds_to_rise(one)) == (OFF, 60)


def test_the_next_rise_takes_as_long_again() -> None:
    """Of what is off nothing is known: one rung at a time."""
    one = governor(stacks=True)
    one.judge(EventLoad(calls=10_000, switches=10_000), 1.0)
    assert one.effort == NOTHING
    risen = [(seconds_to_rise(one), one.effort) for _ in range(3)]
    assert risen == [(60, OFF), (60, COUNTED), (60, LADDER[0])]


@pytest.mark.parametrize(
    ("load", "effort"),
    [
        (EventLoad(calls=2_121), LADDER[0]),  # 700 ns of 1000 when timed
        (EventLoad(calls=2_122), None),
        (EventLoad(calls=1_200, switches=79), LADDER[0]),  # 396,000 and 3,800 each
        (EventLoad(calls=1_200, switches=81), LADDER[1]),  # 1,737.5 each
        (EventLoad(calls=1_200, switches=200), LADDER[2]),
        (EventLoad(calls=1_200, switches=250), LADDER[3]),
        (EventLoad(calls=1_200, switches=280), LADDER[4]),
    ],
)
def test_what_is_known_to_fit_comes_back_at_once(load: EventLoad, effort: Effort | None) -> None:
    """What counts calls tells what timing them would cost: the greatest effort within 0.7 of the budget."""
    one = governor(stacks=True, is_careful=True)
    assert one.effort == COUNTED
    assert judged(one, load)[-1] == (effort or COUNTED)


def test_without_stacks_rungs_that_differ_by_them_are_one() -> None:
    one = governor()
    assert judged(one, EventLoad(switches=900, calls=100)) == [TIMED], "stacks would not fit, and nobody asked for them"
    assert not one.shed
    one.judge(EventLoad(calls=10_000), 1.0)
    one.judge(EventLoad(), 60.0)
    one.judge(EventLoad(), 60.0)
    assert (one.effort, one.rung) == (TIMED, 0)


def test_what_is_off_is_tried_by_the_next_rung_alone() -> None:
    one = Governor(0.001, ladder=LIGHT)
    one.judge(EventLoad(calls=20_000, switches=3_000), 1.0)
    assert one.effort == NOTHING
    one.judge(EventLoad(), 59.0)
    assert one.effort == NOTHING
    one.judge(EventLoad(), 1.0)
    assert one.effort == OFF, "how many calls there are is not told without probes on them"


def test_slices_tell_the_switches_that_all_the_time_would_have() -> None:
    one = Governor(0.001, ladder=in_slices(LIGHT))
    one.judge(EventLoad(calls=20_000, switches=3_000), 1.0)
    assert one.effort == SLICED
    assert judged(one, EventLoad(switches=670), elapsed_s=60.0) == [SLICED]
    assert judged(one, EventLoad(switches=660), elapsed_s=60.0) == [OFF]


def test_learned_costs_are_this_governors_own() -> None:
    one, other = governor(), governor()
    one.learn("call", 3300.0)
    assert judged(one, *[EventLoad(calls=1_000)] * 2)[-1] == COUNTED
    assert judged(other, *[EventLoad(calls=1_000)] * 2)[-1] == TIMED
    assert cost(EventLoad(calls=1), TIMED) == (330, 0)


def test_what_switches_cost_is_learned_of_both_kinds_together() -> None:
    """Another's switch runs a third of what one of ours does; the way there and back is 90 ns more."""
    one = governor(cpus=4)
    assert one.cost_of_switches(EventLoad(switches=100, calls=5)) == 105_000
    assert one.cost_of_switches(EventLoad(foreign_switches=1_200)) == 1_200 * 350 / 4
    assert one.cost_of_switches(EventLoad(switches=1, foreign_switches=1_200)) == 105_000
    one.learn_switches(EventLoad(switches=1_000, foreign_switches=3_000), 400_000.0)
    assert one.cost_of_switches(EventLoad(switches=100)) == pytest.approx(100 * 290)
    assert one.cost_of_switches(EventLoad(foreign_switches=1_200)) == pytest.approx(1_200 * 290 / 3 / 4)


@pytest.mark.parametrize("ladder", [LADDER, LIGHT])
def test_every_ladder_ends_where_nothing_costs_anything(ladder: tuple[Effort, ...]) -> None:
    """Whatever a server does, some rung of it fits the budget; and each costs less than the one before."""
    busy = EventLoad(1e6, 1e6, 1e6, 1e6)
    costs = [cost(busy, effort) for effort in ladder]
    assert costs[-1] == (0.0, 0.0)
    assert all(own < before[0] for before, (own, _) in pairwise(costs))


def test_what_is_left_of_the_budget_is_what_looking_has_not_cost_of_late() -> None:
    governor, switch = Governor(0.01, ladder=(OFF,)), NS_PER_HIT["switch"]
    assert governor.spare_ns == 0, "nothing is known yet of what looking costs"
    for _ in range(1000):
        governor.judge(EventLoad(switches=2_000), 1.0)
    assert governor.spare_ns == pytest.approx(1e7 - 2_000 * switch)
    governor.judge(EventLoad(switches=4_000), MEAN_S)
    assert governor.spare_ns == pytest.approx(1e7 - 3_000 * switch), "half by now, half by before"
    governor.judge(EventLoad(), MEAN_S)
    high = 3_000 * switch * 0.5 ** (MEAN_S / HIGH_S)
    assert governor.spare_ns == pytest.approx(1e7 - high), "a quiet moment is soon over"
    governor.judge(EventLoad(switches=100_000), MEAN_S)
    assert governor.spare_ns == 0


@pytest.mark.parametrize("effort", [SLICED, NOTHING])
def test_where_threads_are_not_followed_all_the_time_nothing_is_left(effort: Effort) -> None:
    """Slices are as many as the budget pays for; and what following would cost is not counted then."""
    governor = Governor(0.01, ladder=(effort,))
    for _ in range(100):
        governor.judge(EventLoad(), 1.0)
    assert governor.spare_ns == 0
