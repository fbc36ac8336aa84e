"""Rates from short windows: calls by work, which is known all the time; what stops is seen to stop."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.probes.helper import estimates
from llmtop.collectors.tracing.probes.helper.estimates import STOPPED_S, WINDOWS, Estimate, work_ns

WINDOW_NS = 5e6


def test_examples_in_docstrings_hold() -> None:
    failed, tried = doctest.testmod(estimates)
    assert (failed, tried) == (0, 1)


@given(rate=st.floats(1e3, 3e5), cost_ns=st.floats(100, 12_000), share=st.floats(0.05, 1), spun=st.floats(0, 0.9))
def test_what_would_have_been_called_without_probes_comes_out(
    rate: float, cost_ns: float, share: float, spun: float
) -> None:
    """A program gets a share of the CPU, spins for some of it, and launches for the rest, slowed down by probes."""
    cpu_ns = share * WINDOW_NS
    counted = (1 - spun) * cpu_ns / (1e9 / rate + cost_ns)
    work = work_ns(cpu_ns, spun * cpu_ns, cost_ns * counted)
    if work > 0.0501 * cpu_ns:
        assert counted / work * 1e9 == pytest.approx(rate)
    assert work >= 0.05 * cpu_ns


def test_a_ratio_is_that_of_the_last_windows_together() -> None:
    estimate = Estimate()
    assert estimate.per_work_s() == {}
    estimate.add(0.005, {"cuLaunchKernel": [10, 500]})
    assert estimate.per_work_s() == {"cuLaunchKernel": pytest.approx([2000, 100_000])}
    estimate.add(0.045, {"cuLaunchKernel": [50, 1000], 77: [50]})
    assert estimate.per_work_s() == {"cuLaunchKernel": pytest.approx([1200, 30_000]), 77: pytest.approx([1000])}
    for _ in range(WINDOWS):
        estimate.add(0.01, {"cuLaunchKernel": [1, 1]})
    assert estimate.per_work_s() == {"cuLaunchKernel": pytest.approx([100, 100])}


def test_what_has_stopped_has_no_rate() -> None:
    estimate = Estimate()
    for _ in range(WINDOWS):
        estimate.add(0.01, {"cuLaunchKernel": [100, 100]})
    estimate.add(0.9 * STOPPED_S, {})
    estimate.add(0.01, {"cuLaunchKernel": [100, 100]})
    for _ in range(2):
        assert estimate.per_work_s()
        estimate.add(0.6 * STOPPED_S, {})
    assert estimate.per_work_s() == {}


def test_a_window_in_which_the_process_slept_tells_nothing() -> None:
    estimate = Estimate()
    estimate.add(0.01, {"cuLaunchKernel": [100, 100]})
    for _ in range(WINDOWS):
        estimate.add(0.0, {})
    assert estimate.per_work_s()
    estimate.forget()
    assert estimate.per_work_s() == {}
