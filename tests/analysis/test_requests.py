"""What requests get, by hand: parts of the first token, goodput as far as buckets bound it, KV runway, preemptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.requests import RequestsView, requests_view
from llmtop.model import NS_PER_S, Fact, Metric, Origin, Series, Trace, Track, TrackKind, Unknown

SECONDS = 61
Curve = Callable[[int], float]
BLOCKS: dict[str, Fact] = {"num_gpu_blocks": "1000", "block_size": "16"}


def trace_of(
    curves: Mapping[Metric, Curve], told: Mapping[str, Fact] | None = None, facts: Mapping[str, Fact] | None = None
) -> Trace:
    """A server that was read each second for a minute; `told` are objectives."""
    track = Track(ids.server(1), TrackKind.SERVER, "vLLM :1", facts=facts or {})
    series = {
        (track.id, metric.name): Series.of(
            track.id, metric, "vLLM metrics", [((s + 1) * NS_PER_S, curve(s)) for s in range(SECONDS)]
        )
        for metric, curve in curves.items()
    }
    return Trace(Origin("live", facts=told or {}), 0, SECONDS * NS_PER_S, tracks={track.id: track}, series=series)


def histogram(metric: Metric, shares: Mapping[float, float], per_s: float, mean_s: float) -> dict[Metric, Curve]:
    """Observations at a steady rate: the share at or below each bound, and their mean."""
    counted: dict[Metric, Curve] = {
        v.bucket(metric, upper): (lambda s, share=share: per_s * s * share)  # type: ignore[misc]
        for upper, share in {**shares, math.inf: 1.0}.items()
    }
    return counted | {v.total(metric): lambda s: per_s * s * mean_s}


TTFT = histogram(v.SERVER_TTFT, {0.25: 0.8, 0.5: 0.95, 1.0: 1.0}, 10, 0.26)
ITL = histogram(v.SERVER_ITL, {0.025: 0.7, 0.05: 0.999, 0.1: 1.0}, 1000, 0.02)


def requests(
    curves: Mapping[Metric, Curve], told: Mapping[str, Fact] | None = None, facts: Mapping[str, Fact] | None = None
) -> RequestsView:
    found = requests_view(trace_of(curves, told, facts))
    assert isinstance(found, RequestsView), found
    return found


def reason(found: object) -> str:
    assert isinstance(found, Unknown), found
    return str(found)


# -- the first token -------------------------------------------------------------------------------------------------


def test_the_first_token_is_its_queue_its_prefill_and_what_is_outside() -> None:
    parts = histogram(v.SERVER_QUEUE_TIME, {0.3: 0.9}, 10, 0.17) | histogram(
        v.SERVER_PREFILL_TIME, {0.3: 1.0}, 10, 0.08
    )
    found = requests(TTFT | parts).first_token
    assert not isinstance(found, Unknown)
    assert [name for name, _ in found.parts] == ["queue", "prefill and first step", "outside the engine"]
    assert [seconds for _, seconds in found.parts] == pytest.approx([0.17, 0.08, 0.01])
    assert found.observations == 600
    assert found.text == "TTFT 260 ms = queue 170 ms + prefill and first step 80 ms + outside the engine 10 ms"


def test_parts_of_other_requests_may_be_longer_than_the_whole_and_that_is_said() -> None:
    found = requests(TTFT | histogram(v.SERVER_QUEUE_TIME, {0.3: 0.9}, 10, 0.3)).first_token
    assert not isinstance(found, Unknown)
    assert dict(found.parts)["all else"] == pytest.approx(-0.04)
    assert any("longer than the whole" in note for note in found.notes)
    assert found.text == "TTFT 260 ms; of requests that ended, which are others: queue 300 ms"


def test_a_first_token_without_parts_says_so() -> None:
    assert "neither queue nor prefill" in reason(requests(TTFT).first_token)
    without_sum = {metric: curve for metric, curve in TTFT.items() if metric != v.total(v.SERVER_TTFT)}
    assert "how long first tokens took together" in reason(requests(without_sum).first_token)


# -- goodput ---------------------------------------------------------------------------------------------------------


def test_limits_that_are_bounds_of_buckets_are_known_exactly() -> None:
    found = requests(TTFT | ITL).goodput
    assert not isinstance(found, Unknown)
    assert (found.first_tokens.low, found.first_tokens.high) == pytest.approx((0.95, 0.95))
    assert (found.gaps.low, found.gaps.high) == pytest.approx((0.999, 0.999))
    # 60 late gaps of 60,000 spoil at most 60 of 600 requests, or only those that were late already.
    assert (found.requests.low, found.requests.high) == pytest.approx((0.85, 0.95))
    assert found.tokens.low == found.tokens.high == pytest.approx((0.95 * 600 + 0.999 * 60000) / 60600)
    assert found.per_s == 10
    assert found.text == "requests 85 to 95 %, tokens 99.8 % in time (TTFT within 500 ms 95 %, ITL within 50 ms 99.9 %)"


def test_a_limit_within_a_bucket_is_known_by_both_its_ends() -> None:
    told = {"objective.ttft.p99": 0.4, "objective.itl.p99": 0.03}
    found = requests(TTFT | ITL, told).goodput
    assert not isinstance(found, Unknown)
    assert (found.first_tokens.low, found.first_tokens.high) == pytest.approx((0.8, 0.95))
    assert (found.gaps.low, found.gaps.high) == pytest.approx((0.7, 0.999))
    assert (found.requests.low, found.requests.high) == pytest.approx((0.0, 0.95))
    assert found.requests.text == "at most 95 %"


def test_bounds_hold_for_every_way_in_which_late_gaps_can_fall() -> None:
    """Three requests, one of them late; two late gaps of nine: those of one request, of two, or of the late one."""
    firsts = histogram(v.SERVER_TTFT, {0.5: 2 / 3}, 3 / 60, 0.3)
    gaps = histogram(v.SERVER_ITL, {0.05: 7 / 9}, 9 / 60, 0.03)
    found = requests(firsts | gaps).goodput
    assert not isinstance(found, Unknown)
    good = {sum(1 for one in range(3) if one != 2 and one not in late) / 3 for late in ({0}, {0, 1}, {2}, {1, 2})}
    assert (min(good), max(good)) == pytest.approx((found.requests.low, found.requests.high))


def test_without_one_of_the_objectives_there_is_no_goodput() -> None:
    told = {"objective.itl.p99": 0.0, "objective.itl.p50": 0.0}
    assert "one for ITL" in reason(requests(TTFT | ITL, told).goodput)
    median = requests(TTFT | ITL, {"objective.itl.p99": 0.0}).goodput
    assert not isinstance(median, Unknown)
    assert [one.title for one in median.limits] == ["TTFT p99", "ITL p50"]


def test_a_mean_for_each_request_is_said_to_hide_late_tokens() -> None:
    once = histogram(v.SERVER_ITL, {0.05: 1.0}, 10, 0.02)
    ended: dict[Metric, Curve] = {v.SERVER_REQUESTS: lambda s: 10.0 * s}
    found = requests(TTFT | once | ended).goodput
    assert not isinstance(found, Unknown)
    assert len(found.notes) == 1
    found = requests(TTFT | ITL | ended).goodput
    assert not isinstance(found, Unknown)
    assert found.notes == ()


# -- the KV cache ----------------------------------------------------------------------------------------------------


def cache(values: Callable[[int], float], more: Iterable[tuple[Metric, Curve]] = ()) -> RequestsView:
    return requests({v.SERVER_KV_USAGE: values, **dict(more)})


def test_steady_growth_says_when_the_cache_is_full() -> None:
    found = cache(lambda s: 0.1 + 0.01 * s).runway
    assert not isinstance(found, Unknown)
    assert (found.usage, found.per_s) == pytest.approx((0.7, 0.01))
    assert (found.full_s, found.low_s, found.high_s) == pytest.approx((30, 30, 30))
    assert found.text == "full in 30 s at this rate (70 % now, 1.00 points a second)"


def test_its_bounds_are_those_of_the_halves() -> None:
    """A point a second in the first half, 1.5 in the second."""
    found = cache(lambda s: 0.2 + 0.01 * s + 0.005 * max(0, s - 45)).runway
    assert not isinstance(found, Unknown)
    left = 1 - found.usage
    assert found.low_s == pytest.approx(left / 0.015, rel=0.02)
    assert found.high_s == pytest.approx(left / 0.01, rel=0.02)
    assert found.low_s < found.full_s < found.high_s


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (lambda s: 0.5, "not be full within an hour"),
        (lambda s: 0.9 - 0.001 * s, "not be full within an hour"),
        (lambda s: 0.3 + 0.01 * max(0, s - 50), "too unevenly"),
        (lambda s: 0.3 + (0.02 * (s - 30) if s < 52 else 0.2), "too unevenly"),
        (lambda s: 1.0, "it is full"),
    ],
)
def test_why_it_is_not_said(values: Curve, why: str) -> None:
    assert why in reason(cache(values).runway)


def test_a_cache_that_throws_requests_out_is_full_whatever_its_gauge_says() -> None:
    found = cache(lambda s: 0.1 + 0.01 * s, [(v.SERVER_PREEMPTIONS, lambda s: float(s >= 57) * 3)]).runway
    assert reason(found).startswith("it is full: 3 requests were thrown out")


def test_a_cache_that_was_full_and_has_emptied_is_not_full() -> None:
    found = cache(lambda s: 0.2, [(v.SERVER_PREEMPTIONS, lambda s: float(s >= 40) * 3)]).runway
    assert reason(found) == "it was full: 3 requests were thrown out in 30 s, none in the last 5 s; 20 % now"


def test_a_short_look_is_too_short() -> None:
    whole = trace_of({v.SERVER_KV_USAGE: lambda s: 0.1 + 0.01 * s})
    series = {key: one.newest(5) for key, one in whole.series.items()}
    found = requests_view(Trace(whole.origin, 0, whole.end_ns, tracks=whole.tracks, series=series))
    assert isinstance(found, RequestsView)
    assert "for 4 s only, in 5 looks" in reason(found.runway)


# -- preemptions -----------------------------------------------------------------------------------------------------


def test_a_preemption_costs_what_a_running_request_holds() -> None:
    curves: dict[Metric, Curve] = {
        v.SERVER_PREEMPTIONS: lambda s: s / 10,
        v.SERVER_KV_USAGE: lambda s: 0.8,
        v.SERVER_RUNNING: lambda s: 10.0,
        v.SERVER_PROMPT_TOKENS: lambda s: 512.0 * s,
    }
    found = requests(curves, facts=BLOCKS).preemption
    assert not isinstance(found, Unknown)
    assert found.tokens_each == pytest.approx(0.8 * 16000 / 10)
    assert found.tokens_per_s == pytest.approx(128)
    assert found.of_prompts == pytest.approx(0.25)
    assert found.text == (
        "a preemption costs about 1,280 tokens computed again; 6 in 60 s: 130 tok/s, 25 % of the prompt tokens"
    )


def test_what_a_request_holds_is_of_the_window_and_not_of_its_end() -> None:
    """In its second half nothing runs and the cache is empty: what ran held as much as before."""
    curves: dict[Metric, Curve] = {
        v.SERVER_PREEMPTIONS: lambda s: min(s, 30) / 10,
        v.SERVER_KV_USAGE: lambda s: 0.8 * (s < 30),
        v.SERVER_RUNNING: lambda s: 10.0 * (s < 30),
    }
    found = requests(curves, facts=BLOCKS).preemption
    assert not isinstance(found, Unknown)
    assert found.tokens_each == pytest.approx(0.8 * 16000 / 10)


def test_without_the_size_of_the_cache_it_is_half_of_a_mean_answer() -> None:
    curves: dict[Metric, Curve] = {
        v.SERVER_PREEMPTIONS: lambda s: 0.0,
        v.SERVER_PROMPT_TOKENS: lambda s: 5000.0 * s,
        v.SERVER_OUTPUT_TOKENS: lambda s: 2000.0 * s,
        v.SERVER_REQUESTS: lambda s: 10.0 * s,
    }
    found = requests(TTFT | curves).preemption
    assert not isinstance(found, Unknown)
    assert found.tokens_each == pytest.approx(500 + 100)
    assert found.text == "a preemption costs about 600 tokens computed again; none in 60 s"
    assert isinstance(requests(curves).preemption, Unknown)


def test_without_a_server_there_is_nothing_to_say() -> None:
    assert isinstance(requests_view(Trace(Origin("live"), 0, 1)), Unknown)
