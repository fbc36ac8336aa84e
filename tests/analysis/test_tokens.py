"""Output tokens a second of servers that count them in different ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.tokens import TokenRate, output_history, output_tokens, prompt_tokens
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Series, Trace, Track, TrackKind, Unknown, What

SERVER = ids.server(8080)
WHY = Unknown("llama.cpp counts a request's output tokens when it ends, at once")
WINDOW_NS = 10 * NS_PER_S
Told = Mapping[Metric, Callable[[int], float]]


def trace(told: Told, seconds: int = 90) -> Trace:
    """One sample a second."""
    series = {
        (SERVER, metric.name): Series.of(SERVER, metric, "m", [(s * NS_PER_S, of(s)) for s in range(1, seconds + 1)])
        for metric, of in told.items()
    }
    missing = (Missing(What(f"{SERVER}/{v.SERVER_OUTPUT_TOKENS.name}"), WHY),)
    tracks = {SERVER: Track(SERVER, TrackKind.SERVER, "server")}
    return Trace(Origin("live"), 0, seconds * NS_PER_S, tracks=tracks, series=series, missing=missing)


TWO_LONG_REQUESTS: Told = {
    v.SERVER_OUTPUT_TOKENS_ENDED: lambda s: 41.0,
    v.SERVER_RUNNING: lambda s: 2.0,
    v.SERVER_STEPS: lambda s: 18.0 * s,
}


def test_two_long_requests_are_not_0_tokens_a_second() -> None:
    told = output_tokens(trace(TWO_LONG_REQUESTS), SERVER, WINDOW_NS)
    assert isinstance(told, TokenRate)
    assert told.per_second == pytest.approx(36.0)
    assert told.is_estimate
    assert "estimate" in told.note
    samples, where = output_history(trace(TWO_LONG_REQUESTS), SERVER, WINDOW_NS)
    assert [value for _, value in samples] == pytest.approx([36.0] * len(samples))
    assert "estimate" in where


@pytest.mark.parametrize("rate_of", [output_tokens, prompt_tokens])
@pytest.mark.parametrize(
    ("running", "tokens", "apart_s", "per_second"),
    [
        (2.0, 5.0, 0.25, 20.0),  # counted: a rate, of a quarter of a second
        (2.0, 0.0, 0.25, None),  # the server is at work on something
        (2.0, 0.0, 1.0, 0.0),
        (0.0, 0.0, 0.25, 0.0),  # nothing runs
    ],
)
def test_the_first_quarter_of_a_second_tells_no_0_while_requests_run(
    rate_of: Callable[[Trace, str, int], TokenRate | Unknown],
    running: float,
    tokens: float,
    apart_s: float,
    per_second: float | None,
) -> None:
    end_ns = int(apart_s * NS_PER_S) + 1
    grown = {v.SERVER_OUTPUT_TOKENS: tokens, v.SERVER_PROMPT_TOKENS: tokens}
    series = {
        (SERVER, metric.name): Series.of(SERVER, metric, "m", [(1, 70.0), (end_ns, 70.0 + by)])
        for metric, by in grown.items()
    }
    series[SERVER, v.SERVER_RUNNING.name] = Series.of(SERVER, v.SERVER_RUNNING, "m", [(1, running), (end_ns, running)])
    tracks = {SERVER: Track(SERVER, TrackKind.SERVER, "server")}
    told = rate_of(Trace(Origin("live"), 1, end_ns, tracks=tracks, series=series), SERVER, WINDOW_NS)
    assert (told.per_second if isinstance(told, TokenRate) else None) == per_second
    assert isinstance(told, TokenRate) or "no token was counted yet" in told.reason


def test_without_steps_it_is_unknown_with_the_reason() -> None:
    told = {metric: of for metric, of in TWO_LONG_REQUESTS.items() if metric is not v.SERVER_STEPS}
    rate = output_tokens(trace(told), SERVER, WINDOW_NS)
    assert isinstance(rate, Unknown)
    assert rate.reason.startswith(WHY.reason)
    assert output_history(trace(told), SERVER, WINDOW_NS)[0] == ()


def test_an_idle_server_makes_no_tokens_for_certain() -> None:
    told = {v.SERVER_OUTPUT_TOKENS_ENDED: lambda s: 41.0, v.SERVER_RUNNING: lambda s: 0.0}
    assert output_tokens(trace(told), SERVER, WINDOW_NS) == TokenRate(0.0, "m")


@pytest.mark.parametrize(("lasts_s", "is_known"), [(2.0, True), (50.0, False)])
def test_what_ended_is_a_rate_only_of_short_requests(lasts_s: float, is_known: bool) -> None:
    told: Told = {
        v.SERVER_OUTPUT_TOKENS_ENDED: lambda s: 300.0 * s,
        v.SERVER_PROMPT_TOKENS_ENDED: lambda s: 900.0 * s,
        v.SERVER_RUNNING: lambda s: 3.0 * lasts_s,
        v.bucket(v.SERVER_E2E, math.inf): lambda s: 3.0 * s,
        v.total(v.SERVER_E2E): lambda s: 3.0 * lasts_s * s,
    }
    output = output_tokens(trace(told), SERVER, WINDOW_NS)
    prompt = prompt_tokens(trace(told), SERVER, WINDOW_NS)
    assert isinstance(output, TokenRate) is isinstance(prompt, TokenRate) is is_known
    if isinstance(output, TokenRate):
        assert output.per_second == pytest.approx(300.0)
        assert output.note == "of requests that ended within 60 s"
    elif isinstance(output, Unknown):
        assert "too long" in output.reason


def test_a_servers_own_rate_comes_before_an_estimate() -> None:
    own: Told = {**TWO_LONG_REQUESTS, v.SERVER_OUTPUT_RATE: lambda s: 35.0}
    assert output_tokens(trace(own), SERVER, WINDOW_NS) == TokenRate(35.0, "m", "the server's own mean")


def test_a_counter_that_moves_with_each_step_comes_first() -> None:
    counted: Told = {**TWO_LONG_REQUESTS, v.SERVER_OUTPUT_TOKENS: lambda s: 34.0 * s}
    told = output_tokens(trace(counted), SERVER, WINDOW_NS)
    assert isinstance(told, TokenRate)
    assert told == TokenRate(told.per_second, "m")
    assert told.per_second == pytest.approx(34.0)
