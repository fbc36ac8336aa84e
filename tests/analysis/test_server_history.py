"""Latencies over time: the mean of what was observed between two looks."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.history import server_history
from llmtop.model import NS_PER_S, Metric, Series, Trace
from tests.live_traces import NOTHING, START_NS, live_trace

TRACK = ids.server(8000)


def observed(*seconds: tuple[float, float]) -> Trace:
    """(sum, count) of all first tokens at each second."""
    trace = live_trace(ticks=len(seconds))
    columns: tuple[tuple[Metric, list[tuple[int, float | None]]], ...] = (
        (v.total(v.SERVER_TTFT), [(START_NS + i * NS_PER_S, total) for i, (total, _) in enumerate(seconds)]),
        (v.bucket(v.SERVER_TTFT, inf), [(START_NS + i * NS_PER_S, count) for i, (_, count) in enumerate(seconds)]),
    )
    series = {(TRACK, metric.name): Series.of(TRACK, metric, "vLLM", samples) for metric, samples in columns}
    return replace(trace, series={**trace.series, **series})


def test_a_mean_is_sum_over_count_between_two_looks() -> None:
    lanes = {lane.title: lane for lane in server_history(observed((0, 0), (1, 10), (1, 10), (4, 11), (0.5, 1))).lanes}
    assert [value for _, value in lanes["TTFT mean"].samples] == [pytest.approx(0.1), None, pytest.approx(3.0), None]
    assert lanes["TTFT mean"].unit == "s"


def test_what_a_server_does_not_tell_has_no_lane() -> None:
    titles = [lane.title for lane in server_history(live_trace()).lanes]
    assert titles[:2] == ["TTFT mean", "ITL mean"]
    assert titles[-5:] == ["waiting", "running", "output", "prompt", "KV cache"]
    assert not {"prefill mean", "decode mean"} & set(titles)
    assert server_history(live_trace(NOTHING)).lanes == ()


def test_lanes_of_what_was_promised_have_its_limits() -> None:
    trace = live_trace()
    told = replace(trace, origin=replace(trace.origin, facts={"objective.ttft.p99": 0.8, "objective.itl.p50": 0}))
    for seen, ttft, itl in (
        (trace, ("p50 200 ms", "p99 500 ms"), ("p50 25 ms", "p99 50 ms")),
        (told, ("p50 200 ms", "p99 800 ms"), ("p99 50 ms",)),
    ):
        limits = {lane.title: tuple(one.title for one in lane.limits) for lane in server_history(seen).lanes}
        assert (limits["TTFT mean"], limits["ITL mean"], limits["waiting"]) == (ttft, itl, ())
