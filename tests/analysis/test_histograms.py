"""Quantiles from cumulative buckets, against bounds worked out by hand and against the latencies that were counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.series.histograms import Distribution, Quantile, distribution, in_order, quantile, within
from llmtop.model import NS_PER_S, Missing, Origin, Series, Trace, Unknown, What
from llmtop.vocabulary import SERVER_TTFT, bucket, total

UPPERS = (0.1, 0.5, 1.0, math.inf)


def trace(*scrapes: tuple[float, ...], summed: tuple[float, ...] = (), missing: tuple[Missing, ...] = ()) -> Trace:
    """One scrape a second; each gives the cumulative counts of `UPPERS`."""
    series = {}
    for i, upper in enumerate(UPPERS):
        metric = bucket(SERVER_TTFT, upper)
        samples: list[tuple[int, float | None]] = [((n + 1) * NS_PER_S, scrape[i]) for n, scrape in enumerate(scrapes)]
        series[ids.server(1), metric.name] = Series.of(ids.server(1), metric, "test", samples)
    if summed:
        metric = total(SERVER_TTFT)
        samples = [((n + 1) * NS_PER_S, value) for n, value in enumerate(summed)]
        series[ids.server(1), metric.name] = Series.of(ids.server(1), metric, "test", samples)
    return Trace(Origin("live"), 0, len(scrapes) * NS_PER_S, series=series, missing=missing)


def of(seen: Trace, q: float, window_s: int = 60) -> Quantile | Unknown:
    return quantile(seen, ids.server(1), SERVER_TTFT, q, window_s * NS_PER_S)


def test_a_wide_bucket_gives_its_bounds_and_no_value() -> None:
    # 10 below 0.1, 10 between 0.1 and 0.5: rank 10 ends the first bucket, rank 15 is in the second
    seen = trace((0, 0, 0, 0), (10, 20, 20, 20))
    assert of(seen, 0.5) == Quantile(0.0, 0.1)
    assert of(seen, 0.75) == Quantile(0.1, 0.5)


def test_a_narrow_bucket_gives_its_middle() -> None:
    assert Distribution((0.8, 1.0, math.inf), (0.0, 3.0, 3.0)).quantile(0.5) == Quantile(0.8, 1.0, 0.9)
    assert Distribution((0.79, 1.0, math.inf), (0.0, 3.0, 3.0)).quantile(0.5) == Quantile(0.79, 1.0)


def test_an_empty_queue_is_not_half_of_the_first_bucket() -> None:
    """The queue time of vLLM begins at 0.3 s; 40 requests that waited 4 ms together waited no 150 ms each."""
    queue = Distribution((0.3, 0.5, math.inf), (40.0, 40.0, 40.0), 0.004)
    assert queue.mean == pytest.approx(1e-4)
    assert queue.quantile(0.5).high == pytest.approx(0.004 / 21, rel=1e-4)
    assert queue.quantile(0.99).high == pytest.approx(0.004, rel=1e-4)
    assert queue.quantile(0.5).text("s") == "< 191 µs"


def test_the_sum_bounds_the_last_bucket() -> None:
    """Ten beyond 2560 s that took 26,000 s together: six of them, the median's at least, share 400 s."""
    late = Distribution((1280.0, 2560.0, math.inf), (0.0, 0.0, 10.0), 26_000.0).quantile(0.5)
    assert late.low == 2560
    assert late.high == pytest.approx(2560 + 400 / 6, rel=1e-3)
    assert late.text("s") == "2600 s"


def test_a_sum_that_contradicts_the_buckets_says_nothing() -> None:
    assert Distribution((0.1, 0.5, math.inf), (0.0, 4.0, 4.0), 0.2).quantile(0.5) == Quantile(0.1, 0.5)
    assert Distribution((0.1, 0.5, math.inf), (0.0, 4.0, 4.0), 9.0).quantile(0.5) == Quantile(0.1, 0.5)


def test_only_the_window_counts() -> None:
    seen = trace((1000, 1000, 1000, 1000), (1000, 1000, 1010, 1010))
    assert of(seen, 0.5) == Quantile(0.5, 1.0)


def test_tail_beyond_the_last_bucket_is_a_lower_bound() -> None:
    found = of(trace((0, 0, 0, 0), (1, 1, 1, 10)), 0.99)
    assert isinstance(found, Quantile)
    assert (found, found.is_lower_bound, found.text("s")) == (Quantile(1.0, math.inf), True, "> 1 s")


@pytest.mark.parametrize(
    ("found", "limit", "verdict"),
    [
        (Quantile(0.1, 0.25), 0.25, False),
        (Quantile(0.1, 0.25), 0.1, True),
        (Quantile(0.1, 0.25), 0.2, None),
        (Quantile(0.0, 0.3), 0.5, False),
        (Quantile(2560.0, math.inf), 0.5, True),
        (Quantile(0.5, 0.5, 0.5), 0.5, False),
    ],
)
def test_a_limit_is_exceeded_kept_or_within_the_bounds(found: Quantile, limit: float, verdict: bool | None) -> None:
    assert found.exceeds(limit) is verdict


def test_a_server_that_tells_a_sum_and_a_count_has_a_mean() -> None:
    counted, summed = bucket(SERVER_TTFT, math.inf), total(SERVER_TTFT)
    series = {
        (ids.server(1), metric.name): Series.of(ids.server(1), metric, "test", [(NS_PER_S, 0.0), (2 * NS_PER_S, grown)])
        for metric, grown in ((counted, 4.0), (summed, 2.0))
    }
    seen = distribution(
        Trace(Origin("live"), 0, 2 * NS_PER_S, series=series), ids.server(1), SERVER_TTFT, 60 * NS_PER_S
    )
    assert isinstance(seen, Distribution)
    assert seen.mean == 0.5


def test_no_observations_is_unknown_not_zero() -> None:
    why = of(trace((5, 5, 5, 5), (5, 5, 5, 5)), 0.5)
    assert why == Unknown("no observations in the window")


def test_one_scrape_is_not_enough() -> None:
    assert isinstance(of(trace((5, 5, 5, 5)), 0.5), Unknown)


def test_metric_that_the_server_lacks_has_its_reason() -> None:
    why = Unknown("this server has no such histogram", "update it")
    seen = Trace(Origin("live"), missing=(Missing(What("server:1/server.ttft"), why),))
    assert of(seen, 0.5) == why


def test_server_restart_does_not_break_quantiles() -> None:
    seen = trace((100, 100, 100, 100), (0, 4, 4, 4))
    assert of(seen, 0.5) == Quantile(0.1, 0.5)


def test_buckets_that_disagree_stay_monotone() -> None:
    seen = distribution(trace((0, 0, 0, 0), (5, 3, 6, 6)), "server:1", SERVER_TTFT, 60 * NS_PER_S)
    assert isinstance(seen, Distribution)
    assert seen.counts == (5, 5, 6, 6)


VLLM_QUEUE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, math.inf)
VLLM_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, math.inf)
NARROW = (*(0.01 * 1.1**n for n in range(40)), math.inf)
LATENCIES = st.lists(st.floats(0.0, 400.0) | st.floats(0.0, 0.05), min_size=1, max_size=60)


def counted(latencies: list[float], uppers: tuple[float, ...]) -> Distribution:
    counts = tuple(float(sum(one <= upper for one in latencies)) for upper in uppers)
    return Distribution(uppers, counts, math.fsum(latencies))


def true_quantile(latencies: list[float], q: float) -> float:
    """The smallest latency that is not below a share `q` of them."""
    return sorted(latencies)[max(0, math.ceil(q * len(latencies) - 1e-9) - 1)]


@settings(deadline=None)
@given(LATENCIES, st.sampled_from((VLLM_QUEUE, VLLM_ITL, NARROW)), st.sampled_from((0.5, 0.9, 0.99, 1.0)))
def test_the_truth_lies_within_what_is_shown(latencies: list[float], uppers: tuple[float, ...], q: float) -> None:
    found, truth = counted(latencies, uppers).quantile(q), true_quantile(latencies, q)
    assert found.low <= truth <= found.high
    if found.value is not None:
        assert found.value == pytest.approx(truth, rel=0.126)
    assert found.is_lower_bound is math.isinf(found.high)


@settings(deadline=None)
@given(LATENCIES, st.sampled_from((VLLM_QUEUE, VLLM_ITL, NARROW)))
def test_the_tail_is_never_shown_below_the_median(latencies: list[float], uppers: tuple[float, ...]) -> None:
    seen = counted(latencies, uppers)
    middle, tail = shown(seen.quantile(0.5)), shown(seen.quantile(0.99))
    assert middle[0] <= tail[1] * (1 + 1e-5)


def shown(one: Quantile) -> tuple[float, float]:
    return (one.low, one.high) if one.value is None else (one.value, one.value)


@settings(deadline=None)
@given(LATENCIES, LATENCIES, LATENCIES, st.sampled_from((0.5, 0.99)))
def test_parts_are_never_shown_longer_than_the_whole(
    queue: list[float], first: list[float], end: list[float], q: float
) -> None:
    """Of whatever requests each was counted: then the bounds are wider, and the truth is still within them."""
    parts = [(queue, VLLM_QUEUE), (first, NARROW), (end, VLLM_QUEUE)]
    ordered = in_order([counted(latencies, uppers).quantile(q) for latencies, uppers in parts])
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert shown(ordered[i])[0] <= shown(ordered[j])[1]
    for one, (latencies, _) in zip(ordered, parts, strict=True):
        assert one.low <= true_quantile(latencies, q) <= one.high


def test_what_agrees_is_shown_as_it_was_measured() -> None:
    told = (Quantile(0.0, 0.01), Quantile(0.09, 0.1, 0.095), Quantile(1.0, 1.1, 1.05))
    assert in_order(told) == told


def test_the_same_bucket_is_no_contradiction_but_its_middle_is() -> None:
    assert in_order([within(0.3, 0.36), within(0.3, 0.35)]) == (Quantile(0.3, 0.36), Quantile(0.3, 0.35))


def test_latencies_of_different_requests_are_bounded_by_both() -> None:
    """First tokens that came late in this minute, of requests that have not ended; those that ended were quick."""
    assert in_order([within(80, 160), within(40, 60)]) == (Quantile(40, 160), Quantile(40, 160))
