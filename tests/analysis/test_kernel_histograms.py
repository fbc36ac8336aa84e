"""How the launches of a report are spread over what they reach."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.kernels.counters import COMPUTE_PERCENT
from llmtop.analysis.kernels.duration_histograms import Histogram, kernel_histograms
from llmtop.parsers.registry import load
from tests.kernel_traces import DRAM_COUNTERS, LADDER, TIMELINE, Launch
from tests.kernel_traces import report as made


def titled(histograms: tuple[Histogram, ...]) -> dict[str, Histogram]:
    return {histogram.title: histogram for histogram in histograms}


def test_a_full_report_has_seed_002s_thirteen_and_each_counts_all_launches() -> None:
    histograms = kernel_histograms(load(LADDER))
    assert len(histograms) == 13
    for histogram in histograms:
        assert sum(histogram.counts) + histogram.unknown == 5, histogram.title
        assert len(histogram.edges) == len(histogram.counts) + 1
        assert list(histogram.edges) == sorted(histogram.edges)


def test_a_timeline_has_durations_only() -> None:
    (durations,) = kernel_histograms(load(TIMELINE))
    assert durations.title == "duration"
    assert sum(durations.counts) == 1425


def test_values_fall_into_their_bins_and_calls_count() -> None:
    launches = [Launch("a", 100, {COMPUTE_PERCENT: 10.0})] * 3 + [Launch("b", 100, {COMPUTE_PERCENT: 103.0})]
    compute = titled(kernel_histograms(made(*launches, Launch("c"))))["SM throughput"]
    assert compute.counts == (0, 3, 0, 0, 0, 0, 0, 0, 0, 1)
    assert compute.unknown == 1


def test_what_was_not_collected_says_which_section_brings_it() -> None:
    hits = titled(kernel_histograms(made(Launch("a"))))["L2 hit rate"]
    assert not hits.counts
    assert hits.why_not is not None
    assert "MemoryWorkloadAnalysis" in hits.why_not.remedy


@given(st.lists(st.one_of(st.floats(0, 1e12), st.just(math.nan)), min_size=1, max_size=50))
def test_every_duration_is_counted_once_within_the_edges(durations: list[float]) -> None:
    histogram = kernel_histograms(made(*(Launch("k", ns) for ns in durations)))[0]
    known = [ns for ns in durations if ns == ns]
    assert sum(histogram.counts) == len(known)
    assert histogram.unknown == len(durations) - len(known)
    if known:
        assert histogram.edges[0] <= max(1.0, min(known)) * 1.0001
        assert histogram.edges[-1] >= max(known) * 0.9999


@given(st.floats(-4, 14).map(lambda power: 10.0**power) | st.sampled_from([0.001, 0.2, 0.5, 1.0, 2.0, 5e9, 1e12]))
def test_bandwidths_end_at_the_next_of_one_two_and_five(bytes_per_s: float) -> None:
    counters = {**DRAM_COUNTERS, "dram__bytes.sum.per_second": bytes_per_s}
    bandwidths = titled(kernel_histograms(made(Launch("k", 1000.0, counters))))["DRAM bandwidth"]
    ends = [float(f"{step}e{power}") for power in range(-5, 15) for step in (1, 2, 5)]
    assert bandwidths.edges == pytest.approx(
        [next(end for end in ends if bytes_per_s <= end) * i / 10 for i in range(11)]
    )


def test_without_traffic_the_scale_of_bandwidths_has_a_length() -> None:
    none = {**DRAM_COUNTERS, "dram__bytes.sum.per_second": 0.0}
    bandwidths = titled(kernel_histograms(made(Launch("k", 1000.0, none))))["DRAM bandwidth"]
    assert (bandwidths.edges[0], bandwidths.edges[-1], bandwidths.counts[0]) == (0.0, 1.0, 1)


@pytest.mark.parametrize("durations", [[0.0], [1.0, 1.0], [5e3] * 4])
def test_equal_durations_have_a_bin(durations: list[float]) -> None:
    histogram = kernel_histograms(made(*(Launch("k", ns) for ns in durations)))[0]
    assert sum(histogram.counts) == len(durations)
