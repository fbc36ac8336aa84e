"""The server's numbers, against a synthetic server whose numbers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.view import ServerView, server_load, server_view
from llmtop.model import (
    NS_PER_S,
    Issue,
    Missing,
    Origin,
    Series,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
    UnknownKind,
    What,
)
from tests.analysis.verdict_scenes import ALIVE, by_status
from tests.live_traces import NOTHING, SOURCES, START_NS, Scene, live_trace, without


def view_of(trace: Trace) -> ServerView:
    view = server_view(trace)
    assert isinstance(view, ServerView)
    return view


def test_every_number_of_a_steady_server() -> None:
    view = view_of(live_trace(Scene(is_moving=False)))
    known = {concept: stat.value for concept, stat in view.stats.items() if not isinstance(stat.value, Unknown)}
    assert known == pytest.approx(
        {
            "output_tokens_per_s": 2431,
            "prompt_tokens_per_s": 12100,
            "running": 64,
            "waiting": 12,
            "kv_usage": 0.87,
            "preemptions_per_min": 3.0,
            "prefix_hit": 0.41,
            "requests_per_s": 38,
            "failures_per_s": 0,
        }
    )
    # Of time to first token 20 % are below 0.1, 70 % below 0.25, 97 % below 1.0 and all below 2.5.
    bounded = {concept: stat for concept, stat in view.stats.items() if stat.bounds is not None}
    assert {concept: stat.text for concept, stat in bounded.items()} == {
        "ttft_p50": "100 to 250 ms",
        "ttft_p99": "1 to 2.5 s",
        "itl_p50": "20 to 30 ms",
        "itl_p99": "30 to 50 ms",
        "queue_time_p50": "50 to 100 ms",
        "queue_time_p99": "500 ms to 1 s",
    }
    assert [stat.mean for stat in bounded.values()] == pytest.approx([0.26, 0.26, 0.023, 0.023, 0.17, 0.17])
    assert view.value("ttft_p50") == Unknown("100 to 250 ms: the server's buckets tell no more")
    assert {stat.source for stat in view.stats.values() if not isinstance(stat.value, Unknown)} == {"vLLM metrics"}


def test_what_nobody_counts_has_not_failed_0_times_a_second() -> None:
    scene = ALIVE.but(
        counters={("server:1", v.SERVER_FAILURES): 0.0},
        facts={v.remark_of(v.SERVER_FAILURES): "aborts not counted", "engine": "vLLM"},
    )
    unseen = view_of(scene.trace()).value("failures_per_s")
    assert isinstance(unseen, Unknown)
    assert unseen.reason == "vLLM does not count refused requests (aborts not counted)"
    counted = scene.but(counters={**scene.counters, **by_status(4.0, 0.0, 0.0)})
    assert view_of(counted.trace()).value("failures_per_s") == 0
    refused = scene.but(counters={**scene.counters, **by_status(4.0, 2.0, 1.0)})
    assert view_of(refused.trace()).value("failures_per_s") == pytest.approx(3.0)


def test_the_load_of_a_server_is_what_its_view_says_without_graphs() -> None:
    trace = live_trace()
    load, view = server_load(trace), view_of(trace)
    assert isinstance(load, ServerView)
    assert set(load.stats) == {"output_tokens_per_s", "running", "waiting", "kv_usage"}
    assert all(stat == replace(view.stats[concept], history=()) for concept, stat in load.stats.items())
    assert server_load(live_trace(NOTHING)) == server_view(live_trace(NOTHING))


def test_numbers_the_server_lacks_are_unknown_with_a_reason() -> None:
    view = view_of(live_trace())
    lacking = ("prefill_time", "decode_time", "e2e")
    assert {stat.concept for stat in view.absent} == {f"{name}_{p}" for name in lacking for p in ("p50", "p99")}
    assert view.value("e2e_p50") == Unknown("no reading of end-to-end latency yet")
    assert view.stats["e2e_p50"].text == "–"


def test_missing_metric_has_the_collectors_reason() -> None:
    why = Unknown("this server does not export its KV usage", "update it")
    scene = without(Scene(missing=(Missing(What("server.kv_usage"), why),)), "server.kv_usage")
    assert view_of(live_trace(scene)).value("kv_usage") == why


def test_first_scrape_gives_gauges_but_no_rates() -> None:
    view = view_of(live_trace(ticks=1))
    assert view.value("running") == 64
    assert isinstance(view.value("output_tokens_per_s"), Unknown)
    assert isinstance(view.value("ttft_p50"), Unknown)


@pytest.mark.parametrize(("ticks", "seconds"), [(1, 0), (2, 1), (31, 30), (90, 60)])
def test_a_view_says_of_how_long_its_numbers_are(ticks: int, seconds: int) -> None:
    assert view_of(live_trace(ticks=ticks)).window_s == pytest.approx(seconds)


def test_a_server_that_tells_nothing_common_is_taken_to_be_seen_for_long() -> None:
    scene = without(Scene(), "server.running", "server.output_tokens", "server.requests")
    assert view_of(live_trace(scene, ticks=2)).window_s == 60


def test_server_that_no_longer_answers_is_not_shown_as_it_was() -> None:
    trace = live_trace()
    late = Trace(trace.origin, trace.start_ns, trace.end_ns + 60 * NS_PER_S, tracks=trace.tracks, series=trace.series)
    assert view_of(late).value("running") == Unknown("the last reading is 60 s old")
    assert view_of(late).value("output_tokens_per_s") == Unknown("the last reading is 60 s old")


def test_no_endpoint_has_the_collectors_reason() -> None:
    why = server_view(live_trace(NOTHING))
    assert isinstance(why, Unknown)
    assert "refuses connections" in why.reason


def test_failed_collector_is_the_reason() -> None:
    issue = Issue(
        Severity.ERROR, "collector-prometheus", "the prometheus collector failed: KeyError; please report this"
    )
    assert server_view(Trace(Origin("live"), issues=(issue,), sources=SOURCES)) == Unknown(issue.message)


def test_counts_read_as_counts() -> None:
    stats = view_of(live_trace(Scene(is_moving=False))).stats
    assert [stats[concept].text for concept in ("preemptions_per_min", "requests_per_s", "running", "kv_usage")] == [
        "3 /min",
        "38 req/s",
        "64 requests",
        "87 %",
    ]


def test_history_reaches_back_two_minutes() -> None:
    times = [t for t, _ in view_of(live_trace(ticks=200)).stats["running"].history]
    assert (times[0], times[-1]) == (START_NS + 79 * NS_PER_S, START_NS + 199 * NS_PER_S)


def test_gpu_memory_of_a_server_that_gives_no_numbers_yet_is_told() -> None:
    loading = Track(ids.process(7), TrackKind.PROCESS, "EngineCore")
    on_gpu = [
        Track(ids.gpu_process(ids.gpu(gpu), pid), TrackKind.GPU_PROCESS, "x") for gpu, pid in ((0, 7), (1, 7), (0, 8))
    ]
    series = [Series.of(one.id, v.GPU_PROCESS_MEMORY, "NVML", [(START_NS, 1024.0**3)]) for one in on_gpu]
    trace = Trace(
        Origin("live"),
        START_NS,
        START_NS,
        tracks={one.id: one for one in (loading, *on_gpu)},
        series={(one.track, one.metric.name): one for one in series},
        missing=(Missing(What("server"), Unknown("vLLM listens on no port yet", "wait")),),
    )

    said = "vLLM listens on no port yet; it holds 2.00 GiB of GPU memory"
    assert server_view(trace) == Unknown(said, "wait")


def test_of_one_slow_page_it_is_said_that_a_rate_takes_two() -> None:
    trace = live_trace(Scene(is_moving=False))
    track = next(iter(trace.tracks_of(TrackKind.SERVER)))
    slow = replace(track, facts={**track.facts, "scrape_ms": 2600.0})
    series = {key: replace_with_last(each) if each.track == track.id else each for key, each in trace.series.items()}
    view = view_of(replace(trace, tracks={**trace.tracks, track.id: slow}, series=series))

    why = Unknown(
        "one page of metrics has come in this time, for a page takes 2.6 s: a rate needs two",
        "wait for the next; snapshot: look for longer, --seconds 10",
        UnknownKind.PASSING,
    )
    assert {view.value(name) for name in ("output_tokens_per_s", "requests_per_s", "ttft_p99")} == {why}
    assert view.value("running") == 64


def replace_with_last(series: Series) -> Series:
    """The same with its newest sample only."""
    last = series.last_t_ns or 0
    return series.between(last, last)
