"""How long perf may look, and at whom."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.perf import budget as perf_budget
from llmtop.collectors.tracing.perf import threads as perf_threads
from llmtop.collectors.tracing.perf.budget import FIRST_S, LEAST_S, NS_PER_EVENT, ThreadLoad, plan
from llmtop.collectors.tracing.perf.threads import ThreadTable


def test_a_server_at_rest_is_looked_at_a_tenth_of_the_time() -> None:
    today = plan(ThreadLoad(0.0, 0.0), budget=0.01, interval_s=8.0, stacks=True)
    assert today.stacks
    assert today.scheduler_s == today.calls_s == pytest.approx(0.8)


def test_the_first_look_is_short() -> None:
    today = plan(ThreadLoad(), budget=0.01, interval_s=8.0, stacks=True)
    assert (today.scheduler_s, today.calls_s) == (FIRST_S, FIRST_S)


def test_looks_become_shorter_under_load_and_stacks_go_first() -> None:
    busy = plan(ThreadLoad(20_000.0, 60_000.0), budget=0.01, interval_s=8.0, stacks=True)
    assert LEAST_S <= busy.scheduler_s < 0.8
    assert LEAST_S <= busy.calls_s < 0.8
    busier = plan(ThreadLoad(80_000.0, 2e6), budget=0.01, interval_s=8.0, stacks=True)
    assert (busier.stacks, busier.calls_s) == (False, 0.0)
    assert busier.scheduler_s >= LEAST_S
    assert plan(ThreadLoad(1e7), budget=0.01, interval_s=8.0, stacks=True).scheduler_s == 0.0


def test_stacks_of_what_runs_cost_by_the_switch_too() -> None:
    assert plan(ThreadLoad(1000.0), budget=0.01, interval_s=8.0, stacks=True).running_s == pytest.approx(0.8)
    assert 0 < plan(ThreadLoad(50_000.0), budget=0.01, interval_s=8.0, stacks=True).running_s < 0.8
    assert plan(ThreadLoad(1e6), budget=0.01, interval_s=8.0, stacks=True).running_s == 0.0


def test_a_look_ends_at_ten_thousand_events_whatever_they_may_cost() -> None:
    today = plan(ThreadLoad(20_000.0, 40_000.0), budget=10.0, interval_s=60.0, stacks=False)
    assert [today.scheduler_s, today.calls_s] == pytest.approx([0.5, 0.25])


@given(st.floats(0, 1e7), st.floats(0, 1e7), st.sampled_from([0.001, 0.01, 0.1]), st.floats(1, 60), st.booleans())
def test_the_budget_holds(switches: float, calls: float, budget: float, interval_s: float, stacks: bool) -> None:
    today = plan(ThreadLoad(switches, calls), budget=budget, interval_s=interval_s, stacks=stacks)
    per_switch = NS_PER_EVENT["switch"] + NS_PER_EVENT["stack" if today.stacks else "armed"] * stacks
    calls_ns = calls * NS_PER_EVENT["call"] + switches * NS_PER_EVENT["armed"]
    cost_ns = switches * today.scheduler_s * per_switch + today.calls_s * calls_ns
    assert cost_ns <= budget * interval_s * 1e9 * 1.0001
    assert max(switches * today.scheduler_s, calls * today.calls_s) <= 10_000.1, "what is read in a third of a second"
    assert today.scheduler_s == 0 or LEAST_S <= today.scheduler_s <= perf_budget.LARGEST_SHARE * interval_s


@given(st.sets(st.integers(1, 1 << 22), min_size=1, max_size=200), st.integers(1, 24))
def test_ranges_hold_all_ids(ids: set[int], most: int) -> None:
    ranges = perf_threads.id_ranges(ids, most)
    assert 1 <= len(ranges) <= most
    assert all(any(low <= one <= high for low, high in ranges) for one in ids)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    assert len("||".join(perf_threads.within(field, ranges) for field in ("prev_pid", "next_pid"))) < 4096


def test_buffers_shrink_with_the_number_of_threads() -> None:
    few, many = ThreadTable({7: 7}), ThreadTable(dict.fromkeys(range(7, 1007), 7))
    assert few.options(4096, [7]) == ["-m", "512", "-p", "7"]
    assert many.options(4096, list(many.threads))[:4] == ["-m", "4", "-p", "7"]
    assert many.options(128, [7, 8]) == ["-m", "64", "-t", "7,8"]
    assert many.options(1, list(many.threads))[:2] == ["-m", "1"]
