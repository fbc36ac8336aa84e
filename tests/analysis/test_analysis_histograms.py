"""Quantiles from cumulative buckets, against values worked out by hand and against Prometheus' definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop.analysis.histograms import Distribution, Quantile, distribution, quantile
from llmtop.model import NS_PER_S, Missing, Origin, Series, Trace, Unknown
from llmtop.vocabulary import SERVER_TTFT, bucket, total

UPPERS = (0.1, 0.5, 1.0, math.inf)


def trace(*scrapes: tuple[float, ...], summed: tuple[float, ...] = (), missing: tuple[Missing, ...] = ()) -> Trace:
    """One scrape a second; each gives the cumulative counts of `UPPERS`."""
    series = {}
    for i, upper in enumerate(UPPERS):
        metric = bucket(SERVER_TTFT, upper)
        samples: list[tuple[int, float | None]] = [((n + 1) * NS_PER_S, scrape[i]) for n, scrape in enumerate(scrapes)]
        series["server:1", metric.name] = Series.of("server:1", metric, "test", samples)
    if summed:
        metric = total(SERVER_TTFT)
        samples = [((n + 1) * NS_PER_S, value) for n, value in enumerate(summed)]
        series["server:1", metric.name] = Series.of("server:1", metric, "test", samples)
    return Trace(Origin("live"), 0, len(scrapes) * NS_PER_S, series=series, missing=missing)


def of(seen: Trace, q: float, window_s: int = 60) -> Quantile | Unknown:
    return quantile(seen, "server:1", SERVER_TTFT, q, window_s * NS_PER_S)


def test_median_is_interpolated_within_its_bucket() -> None:
    # 10 below 0.1, 10 between 0.1 and 0.5: rank 10 ends the first bucket, rank 15 is half way through the second
    seen = trace((0, 0, 0, 0), (10, 20, 20, 20))
    assert of(seen, 0.5) == Quantile(pytest.approx(0.1))  # type: ignore[arg-type]
    assert of(seen, 0.75) == Quantile(pytest.approx(0.3))  # type: ignore[arg-type]


def test_only_the_window_counts() -> None:
    seen = trace((1000, 1000, 1000, 1000), (1000, 1000, 1010, 1010))
    assert of(seen, 0.5) == Quantile(pytest.approx(0.75))  # type: ignore[arg-type]


def test_tail_beyond_the_last_bucket_is_a_lower_bound() -> None:
    assert of(trace((0, 0, 0, 0), (1, 1, 1, 10)), 0.99) == Quantile(1.0, is_lower_bound=True)


def test_no_observations_is_unknown_not_zero() -> None:
    why = of(trace((5, 5, 5, 5), (5, 5, 5, 5)), 0.5)
    assert why == Unknown("no observations in the window")


def test_one_scrape_is_not_enough() -> None:
    assert isinstance(of(trace((5, 5, 5, 5)), 0.5), Unknown)


def test_metric_that_the_server_lacks_has_its_reason() -> None:
    why = Unknown("this server has no such histogram", "update it")
    seen = Trace(Origin("live"), missing=(Missing("server:1/server.ttft", why),))
    assert of(seen, 0.5) == why


def test_server_restart_does_not_break_quantiles() -> None:
    seen = trace((100, 100, 100, 100), (0, 4, 4, 4))
    assert of(seen, 0.5) == Quantile(pytest.approx(0.3))  # type: ignore[arg-type]


def test_buckets_that_disagree_stay_monotone() -> None:
    seen = distribution(trace((0, 0, 0, 0), (5, 3, 6, 6)), "server:1", SERVER_TTFT, 60 * NS_PER_S)
    assert isinstance(seen, Distribution)
    assert seen.counts == (5, 5, 6, 6)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4), st.floats(0.01, 1.0))
def test_quantiles_lie_within_their_bucket_and_rise_with_q(grown: list[int], q: float) -> None:
    counts = [float(sum(grown[: i + 1])) for i in range(4)]
    if not counts[-1]:
        return
    seen = Distribution(UPPERS, tuple(counts))
    found = seen.quantile(q)
    i = next(i for i, count in enumerate(counts) if count >= q * counts[-1])
    assert (UPPERS[i - 1] if i else 0.0) - 1e-9 <= found.value <= min(UPPERS[i], 1.0) + 1e-9
    assert found.value <= seen.quantile(1.0).value + 1e-9
