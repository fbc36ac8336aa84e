from __future__ import annotations

import gc
import gzip
import http.client
import json
import math
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from llmtop import ids, settings
from llmtop import vocabulary as v
from llmtop.collectors import loading, prometheus
from llmtop.collectors.base import Aim, Endpoint
from llmtop.collectors.job_thread import JobThread
from llmtop.collectors.metrics_http import Fetcher, Page, is_here
from llmtop.collectors.prometheus import PrometheusCollector
from llmtop.collectors.registry import target_collectors
from llmtop.collectors.scrape_pace import ScrapePace
from llmtop.collectors.server_connection import names_of
from llmtop.model import Metric, Missing, Reading, Target, Trace, TrackKind, Unknown, What
from llmtop.servers.registry import BY_KIND, ENGINES
from llmtop.vocabulary import EndpointAnswer
from tests.collectors import expositions
from tests.collectors.metrics_server import MetricsServer, metrics_server, send

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

TRACK = ids.server(8000)
IMPATIENT_S = 0.02
TCP_OPEN = ("01", "08")
"""ESTABLISHED and CLOSE_WAIT (include/net/tcp_states.h): whoever has such an end has not closed it."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine a page may take longer to be read than a poll waits: here a poll is of the page."""
    monkeypatch.setattr(prometheus, "PATIENCE_S", 30.0)


URL = "http://127.0.0.1:8000/metrics"


def target(kind: str = "vllm", *urls: str) -> Target:
    title = BY_KIND[kind].title if kind in BY_KIND else "python app.py"
    return Target(os.getpid(), os.getpid(), kind, title, (), metrics_urls=urls or (URL,))


def collect(text: str, kind: str = "vllm") -> Trace:
    """One poll of a server that answers `text`."""
    return PrometheusCollector(target(kind), ENGINES, fetch=lambda url: Page(200, text.encode())).poll()


def value(trace: Trace, metric: Metric) -> float | None:
    [reading] = [reading for reading in trace.readings if reading.metric == metric]
    return reading.value


def numbers(trace: Trace) -> list[Reading]:
    """What was read of the server itself."""
    return [reading for reading in trace.readings if reading.track.startswith("server:")]


def answer(trace: Trace) -> float | None:
    """What the look at the endpoint came to."""
    return value(trace, v.ENDPOINT_ANSWER)


def has(trace: Trace, metric: Metric) -> bool:
    return any(reading.metric == metric for reading in trace.readings)


def why(trace: Trace, metric: Metric) -> str:
    reason = trace.why_missing(What(f"{TRACK}/{metric.name}"))
    assert reason is not None
    return str(reason)


def test_vllm_v1_names() -> None:
    trace = collect(expositions.vllm_v1())

    assert value(trace, v.SERVER_RUNNING) == 64
    assert value(trace, v.SERVER_WAITING) == 12
    assert value(trace, v.SERVER_KV_USAGE) == 0.87
    assert value(trace, v.SERVER_PREEMPTIONS) == 3
    assert value(trace, v.SERVER_OUTPUT_TOKENS) == 2431
    assert value(trace, v.SERVER_REQUESTS) == 41
    assert value(trace, v.SERVER_FAILURES) == 3
    assert value(trace, v.SERVER_PREFIX_HITS) == 410
    assert value(trace, v.SERVER_STEPS) == 120
    assert value(trace, v.SERVER_FLOPS) == 2e15


PAGES = {
    "vllm": expositions.vllm_v1(),
    "vllm, two engines": expositions.vllm_v1(2, (64.0, 3.0), (0.87, 0.1)),
    "vllm, version 0": expositions.vllm_v0(),
    "sglang": expositions.sglang(2),
    "sglang, version 0.3": expositions.sglang_0_3(),
    "tgi": expositions.tgi(),
    "llamacpp": expositions.llamacpp(),
    "triton": expositions.triton(),
    "trtllm": expositions.trtllm(),
}


@pytest.mark.parametrize("page", PAGES)
def test_all_that_a_page_tells(page: str, snapshot: SnapshotAssertion) -> None:
    clock = Clock()
    collector = PrometheusCollector(
        target(page.partition(",")[0]), ENGINES, clock, lambda url: Page(200, PAGES[page].encode())
    )
    first = collector.poll()
    clock.now += 1_000_000_000
    second = collector.poll()
    again = {(one.track, one.metric.name) for one in second.readings}
    assert again >= {(one.track, one.metric.name) for one in first.readings if one.track.startswith("server:")}
    readings = sorted(f"{one.track} {one.metric.name} {one.value} ({one.source})" for one in first.readings)
    missing = sorted(f"{one.what}: {one.why}" for one in first.missing)
    facts = [
        f"{track} {name}: {fact}"
        for track, one in first.tracks.items()
        for name, fact in one.facts.items()
        if not name.startswith("setting.")
    ]
    assert "\n".join([*readings, *missing, *facts]) == snapshot


def test_every_reading_names_its_source() -> None:
    trace = collect(expositions.vllm_v1())

    sources = {reading.metric.name: reading.source for reading in trace.readings}

    assert sources["server.output_tokens"] == "vllm:generation_tokens_total"
    assert sources["server.ttft|0.1"] == "vllm:time_to_first_token_seconds"


def test_the_track_tells_engine_url_model_and_configuration() -> None:
    track = collect(expositions.vllm_v1()).tracks[TRACK]

    assert (track.kind, track.name) == (TrackKind.SERVER, "vLLM")
    assert track.facts["model"] == "meta-llama/Llama-3.1-8B"
    assert track.facts["url"] == URL
    assert track.facts["num_gpu_blocks"] == "27000"
    assert isinstance(track.facts["scrape_ms"], float)


def test_histograms_become_cumulative_counters() -> None:
    trace = collect(expositions.vllm_v1())

    assert value(trace, v.bucket(v.SERVER_TTFT, 0.1)) == 5
    assert value(trace, v.bucket(v.SERVER_TTFT, 0.25)) == 30
    assert value(trace, v.bucket(v.SERVER_TTFT, math.inf)) == 40
    assert value(trace, v.total(v.SERVER_TTFT)) == 9.5
    assert value(trace, v.bucket(v.SERVER_ITL, 0.05)) == 1000


def test_engines_add_up_but_percentages_do_not() -> None:
    trace = collect(expositions.vllm_v1(2, running=(64.0, 10.0), kv=(0.3, 0.9)))

    assert value(trace, v.SERVER_RUNNING) == 74
    assert value(trace, v.SERVER_OUTPUT_TOKENS) == 2 * 2431
    assert value(trace, v.SERVER_KV_USAGE) == 0.9, "the fullest engine is the one that preempts"
    assert value(trace, v.SERVER_FLOPS) == 2e15, "an estimate per GPU is not added up over engines"
    assert value(trace, v.bucket(v.SERVER_TTFT, math.inf)) == 80


def test_vllm_v0_names() -> None:
    trace = collect(expositions.vllm_v0())

    assert value(trace, v.SERVER_KV_USAGE) == 0.25
    assert value(trace, v.SERVER_PREFIX_HIT_RATE) == 0.5
    assert value(trace, v.bucket(v.SERVER_ITL, 0.01)) == 4


def test_what_is_declared_comes_with_the_first_request() -> None:
    """Several API servers of vLLM write a gauge when it is set for the first time."""
    text = "# TYPE vllm:num_requests_running gauge\n# TYPE x\nvllm:generation_tokens_total 0\n"
    trace = PrometheusCollector(target(), ENGINES, Clock(), lambda _url: Page(200, text.encode())).poll()
    why = trace.why_missing(What(f"{TRACK}/{v.SERVER_RUNNING.name}"))
    assert why == Unknown("vLLM has written no vllm_num_requests_running yet", "it comes with its first request")
    assert "another version" in str(trace.why_missing(What(f"{TRACK}/{v.SERVER_WAITING.name}")))


def test_what_a_version_lacks_is_missing_not_zero() -> None:
    trace = collect(expositions.vllm_v0())

    assert not has(trace, v.SERVER_PREEMPTIONS)
    assert "vllm_num_preemptions" in why(trace, v.SERVER_PREEMPTIONS)
    assert not has(trace, v.bucket(v.SERVER_TTFT, math.inf))
    assert "vllm_time_to_first_token_seconds" in why(trace, v.SERVER_TTFT)


VLLM_0_26 = """\
vllm:num_requests_waiting{engine="0",model_name="m3b"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m3b",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m3b",reason="deferred"} 5.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m3b"} 400.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m3b"} 100.0
vllm:cache_config_info{_block_size_resolved="True",block_size="16",cache_dtype="auto",calculate_kv_scales="False",\
enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",is_attention_free="False",\
kv_cache_max_concurrency="3.125",kv_cache_memory_bytes="16000000000",kv_cache_size_tokens="6400",\
kv_offloading_backend="native",kv_offloading_size="None",num_cpu_blocks="None",num_gpu_blocks="400",\
num_gpu_blocks_override="400",prefix_caching_hash_algo="sha256",sliding_window="None",\
user_specified_block_size="False"} 1.0
"""
"""Lines as vLLM 0.26.0 writes them (those of speculation and of deferred requests with other numbers)."""


def test_what_the_server_is_set_to_stands_on_its_track() -> None:
    engine = BY_KIND["vllm"]
    argv = ("vllm", "serve", "m3b", "--enforce-eager", "--max-num-seqs", "64", "--num-gpu-blocks-override", "400")
    aim = replace(target(), facts=settings.told(engine, argv, {}, lambda _: None))

    def fetch(url: str) -> Page:
        return Page(200, b'{"version": "0.26.0"}' if url.endswith("/version") else VLLM_0_26.encode())

    facts = PrometheusCollector(aim, ENGINES, fetch=fetch).poll().tracks[TRACK].facts

    assert facts["engine_kind"] == "vllm"
    assert (facts["setting.cuda_graphs"], facts["setting.cuda_graphs.source"]) == ("off", "--enforce-eager")
    assert (facts["setting.max_running"], facts["setting.kv_blocks"]) == (64, 400)
    assert facts["setting.kv_blocks.change"] == "start without --num-gpu-blocks-override"
    assert facts["setting.prefix_caching.source"] == 'enable_prefix_caching="True" of its metrics'
    assert facts["setting.async_scheduling.source"] == "default of 0.26.0"
    assert facts["setting.gpu_memory_share"] == 0.92


def test_what_only_some_set_ups_have_is_read_and_not_missed() -> None:
    trace = collect(VLLM_0_26)
    assert (value(trace, v.SERVER_HELD), value(trace, v.SERVER_DRAFTED), value(trace, v.SERVER_ACCEPTED)) == (
        5,
        400,
        100,
    )
    plain = collect(expositions.vllm_v1())
    assert not [one for one in plain.missing if one.what.rpartition("/")[2] in {m.name for m in v.SERVER_OPTIONAL}]


def test_every_server_metric_is_read_or_missing() -> None:
    every = {m.name for m in vars(v).values() if isinstance(m, Metric) and m.name.startswith("server.")}
    prefix = {"server.prefix_hits", "server.prefix_queries", "server.prefix_hit_rate"}
    ended = {metric.name for metric in v.ENDED.values()}
    every -= {*ended, v.SERVER_OUTPUT_RATE.name}  # further forms of the output tokens
    every -= {metric.name for metric in v.SERVER_OPTIONAL}
    for text, kind in ((expositions.vllm_v1(), "vllm"), (expositions.tgi(), "tgi"), (expositions.triton(), "triton")):
        trace = collect(text, kind)
        read = {reading.metric.name.split("|")[0] for reading in numbers(trace)} - ended
        missing = {missing.what.removeprefix(f"{TRACK}/") for missing in trace.missing} - {v.SERVER_OUTPUT_RATE.name}
        assert (read | missing) - prefix == every - prefix
        assert bool(read & prefix) != bool(missing & prefix), "counters and rate are one thing in two forms"
        assert not read & missing


@pytest.mark.parametrize("ranks", [1, 4])
def test_sglang_ranks_repeat_each_other(ranks: int) -> None:
    trace = collect(expositions.sglang(ranks), "sglang")

    assert value(trace, v.SERVER_RUNNING) == 5
    assert value(trace, v.SERVER_WAITING) == 7
    assert value(trace, v.SERVER_KV_USAGE) == 0.28
    assert value(trace, v.SERVER_PREFIX_HIT_RATE) == 0.6
    assert value(trace, v.SERVER_REQUESTS) == 11
    assert value(trace, v.bucket(v.SERVER_QUEUE_TIME, 0.5)) == 4


def test_sglang_priorities_are_not_counted_twice() -> None:
    values = (("", 5), ("0", 3), ("1", 2))
    trace = collect("".join(f'sglang:num_queue_reqs{{priority="{p}",tp_rank="0"}} {n}\n' for p, n in values), "sglang")

    assert value(trace, v.SERVER_WAITING) == 5


def test_old_sglang() -> None:
    trace = collect(expositions.sglang_0_3(), "sglang")

    assert value(trace, v.SERVER_RUNNING) == 1
    assert value(trace, v.bucket(v.SERVER_ITL, 0.02)) == 3
    assert trace.tracks[TRACK].facts["model"] == "Qwen2-7B"


def test_tgi_counters_without_total() -> None:
    trace = collect(expositions.tgi(), "tgi")

    assert value(trace, v.SERVER_REQUESTS) == 21
    assert value(trace, v.SERVER_FAILURES) == 3
    assert value(trace, v.SERVER_OUTPUT_TOKENS_ENDED) == 4200
    assert value(trace, v.bucket(v.SERVER_PREFILL_TIME, math.inf)) == 7
    assert value(trace, v.total(v.SERVER_DECODE_TIME)) == 2.5


def test_llamacpp() -> None:
    trace = collect(expositions.llamacpp(), "llamacpp")

    assert value(trace, v.SERVER_RUNNING) == 1
    assert value(trace, v.SERVER_OUTPUT_TOKENS_ENDED) == 256
    assert value(trace, v.SERVER_STEPS) == 300
    assert "exports no time to first token" in why(trace, v.SERVER_TTFT)


def test_llamacpp_page_quoted_as_json() -> None:
    assert value(collect(json.dumps(expositions.llamacpp()), "llamacpp"), v.SERVER_RUNNING) == 1


def test_triton_selects_by_label_and_turns_milliseconds_into_seconds() -> None:
    trace = collect(expositions.triton(), "triton")

    assert value(trace, v.SERVER_WAITING) == 6
    assert value(trace, v.SERVER_RUNNING) == 8
    assert value(trace, v.SERVER_KV_USAGE) == 0.4
    assert value(trace, v.bucket(v.SERVER_TTFT, 0.1)) == 5
    assert value(trace, v.total(v.SERVER_TTFT)) == 0.9


def test_demo_has_vllm_names() -> None:
    trace = collect(expositions.vllm_v1(), "demo")

    assert value(trace, v.SERVER_RUNNING) == 64
    assert trace.tracks[TRACK].name == "llmtop demo"


def test_engine_is_told_by_the_names_where_the_kind_does_not_fit() -> None:
    for text, kind in (
        (expositions.vllm_v1(), "vllm"),
        (expositions.sglang(), "sglang"),
        (expositions.tgi(), "tgi"),
        (expositions.llamacpp(), "llamacpp"),
        (expositions.triton(), "triton"),
    ):
        names = names_of(text, [engine for engine in ENGINES if engine.kind != "demo"], "dynamo")
        assert names is not None
        assert names.engine.kind == kind
    assert names_of("python_info 1\n", ENGINES, "vllm") is None


@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm_", "ray_vllm:", "", "prod_llm_vllm:"])
def test_known_names_are_read_however_they_begin(prefix: str) -> None:
    """Gateways write _ for the colon, Ray and relabelling proxies a prefix, and NIM leaves vLLM's own out."""
    page = expositions.vllm_v1().replace("vllm:", prefix)
    trace = collect(page, "process")
    expected = collect(expositions.vllm_v1())
    assert {(one.metric.name, one.value) for one in numbers(trace)} == {
        (one.metric.name, one.value) for one in numbers(expected)
    }


def test_a_few_common_names_are_no_engines() -> None:
    page = "num_requests_running 3\nnum_requests_waiting 1\nmy_vllm_calls 4\nmy_vllm_prompt_tokens 1\n"
    assert names_of(page, ENGINES, "vllm") is None


TRITON = {
    "ensemble": (1000, 6_000_000_000, 1_000),
    "preprocessing": (1000, 3_900_000_000, 3_800_000_000),
    "tensorrt_llm": (995, 2_000_000_000, 1_000_000),
    "classifier": (400, 1_000_000, 0),
}


def triton_page(models: dict[str, tuple[int, int, int]]) -> str:
    lines = []
    for name, (served, took, queued) in models.items():
        lines += [f'nv_inference_request_success{{model="{name}",version="1"}} {served}']
        lines += [f'nv_inference_request_duration_us{{model="{name}",version="1"}} {took}']
        lines += [f'nv_inference_queue_duration_us{{model="{name}",version="1"}} {queued}']
    lines += [f'nv_inference_pending_request_count{{model="{m}",version="1"}} {n}' for m, n in PENDING.items()]
    kinds = {"used": 6100, "free": 139, "max": 6239}
    lines += [f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{k}",model="x"}} {n}' for k, n in kinds.items()]
    return "\n".join(lines) + "\n"


PENDING = {"tensorrt_llm": 0, "preprocessing": 39}


@pytest.mark.parametrize("entry", ["ensemble", "tensorrt_llm_bls", "chat"])
def test_a_request_of_triton_counts_once_however_many_models_it_passes(entry: str) -> None:
    models = {entry if name == "ensemble" else name: numbers for name, numbers in TRITON.items()}
    trace = collect(triton_page(models), "triton")
    assert value(trace, v.SERVER_REQUESTS) == 1400, "those of the ensemble, and those of a model beside it"
    queued = [value(trace, one) for one in (v.total(v.SERVER_QUEUE_TIME), v.bucket(v.SERVER_QUEUE_TIME, math.inf))]
    assert queued[0] == pytest.approx(3801.0, abs=0.1), "where its steps queue, it waits"
    assert queued[1] == 1400
    assert value(trace, v.SERVER_WAITING) == 39
    assert value(trace, v.SERVER_KV_USAGE) == pytest.approx(6100 / 6239)
    assert trace.tracks[TRACK].facts["queue_at"] == "preprocessing"


def test_models_of_triton_that_serve_by_themselves_are_added_up() -> None:
    trace = collect(triton_page({"a": (1000, 5_000_000, 0), "b": (990, 4_000_000, 0)}), "triton")
    assert value(trace, v.SERVER_REQUESTS) == 1990


@pytest.mark.parametrize("nothing", ["NaN", "-1", "-Inf"])
def test_nan_and_what_is_below_none_are_gaps_not_numbers(nothing: str) -> None:
    trace = collect(f'vllm:num_requests_running{{engine="0"}} {nothing}\n')

    assert value(trace, v.SERVER_RUNNING) is None
    assert why(trace, v.SERVER_RUNNING).startswith("vllm:num_requests_running is NaN or below 0")


@pytest.mark.parametrize(("usage", "is_one"), [("1", True), ("1.0000000001", True), ("1.001", False), ("1.7", False)])
def test_a_share_above_all_is_none(usage: str, is_one: bool) -> None:
    trace = collect(f"vllm:kv_cache_usage_perc {usage}\nvllm:num_requests_running 3\n")

    assert (value(trace, v.SERVER_KV_USAGE) is not None) is is_one
    assert value(trace, v.SERVER_RUNNING) == 3
    assert [issue.message for issue in trace.issues] == (
        [] if is_one else ["KV cache of the server's metrics is above 100 %"]
    )
    if not is_one:
        percent = f"{float(usage) * 100:.6g} %"
        said = f"vllm:kv_cache_usage_perc says {percent}, and KV cache cannot be above 100 % (curl -i {URL})"
        assert why(trace, v.SERVER_KV_USAGE) == said


class Pages:
    """A server's pages, one a second, or none where one is None; what a collector makes of them."""

    def __init__(self) -> None:
        self.now = 10**9
        self._page: str | None = ""
        self._collector = PrometheusCollector(target(), ENGINES, clock=lambda: self.now, fetch=self._fetch)

    def _fetch(self, url: str) -> Page:
        if self._page is None:
            raise ConnectionRefusedError
        return Page(200, self._page.encode())

    def poll(self, page: str | None, seconds: float = 1) -> Trace:
        self.now += round(seconds * 1e9)
        self._page = page
        return self._collector.poll()


def tokens(output: float, prompts: float = 10, finished: float = 3) -> str:
    return (
        f"vllm:generation_tokens_total {output}\nvllm:prompt_tokens_total {prompts}\n"
        f'vllm:request_success_total{{finished_reason="stop"}} {finished}\nvllm:num_requests_running 3\n'
    )


def test_a_counter_that_falls_while_the_server_goes_on_is_unknown() -> None:
    pages = Pages()
    assert value(pages.poll(tokens(1_000)), v.SERVER_OUTPUT_TOKENS) == 1_000
    fell = pages.poll(tokens(900, 20))
    assert value(fell, v.SERVER_OUTPUT_TOKENS) is None
    assert value(fell, v.SERVER_PROMPT_TOKENS) == 20
    assert value(fell, v.SERVER_RUNNING) == 3
    said = "vllm:generation_tokens_total fell from 1,000 to 900 while the server went on answering"
    assert why(fell, v.SERVER_OUTPUT_TOKENS).startswith(said)
    assert [issue.code for issue in fell.issues] == ["metrics-fall"]
    for later_s, is_known in ((1, False), (118.9, False), (0.1, True)):
        later = pages.poll(tokens(950, 30), later_s)
        assert (value(later, v.SERVER_OUTPUT_TOKENS) is not None) is is_known
        assert not later.issues


def test_pages_of_several_servers_in_turn_give_no_rate() -> None:
    """The counters that did not fall jump: the next page has what another server has counted."""
    pages = Pages()
    pages.poll(tokens(1_000_000, 5_000, 3))
    of_other = pages.poll(tokens(900_000, 4_000, 7))
    counters = (v.SERVER_OUTPUT_TOKENS, v.SERVER_PROMPT_TOKENS, v.SERVER_REQUESTS)
    assert [value(of_other, metric) for metric in counters] == [None, None, None]
    said = "other counters of the same page fell: it is of another server than the one before"
    assert why(of_other, v.SERVER_REQUESTS).startswith(said)
    assert value(of_other, v.SERVER_RUNNING) == 3


def test_a_histogram_that_falls_in_one_bucket_is_unknown_as_a_whole() -> None:
    def histogram(first: int) -> str:
        return "".join(
            f'vllm:time_to_first_token_seconds_bucket{{le="{le}"}} {n}\n' for le, n in (("0.1", first), ("+Inf", 9))
        )

    pages = Pages()
    assert value(pages.poll(histogram(5)), v.bucket(v.SERVER_TTFT, 0.1)) == 5
    fell = pages.poll(histogram(4))
    assert [value(fell, v.bucket(v.SERVER_TTFT, upper)) for upper in (0.1, math.inf)] == [None, None]
    assert "fell from 5 to 4" in why(fell, v.SERVER_TTFT)


def test_a_server_that_was_away_counts_from_0() -> None:
    pages = Pages()
    pages.poll(tokens(1_000))
    gap = pages.poll(None)
    assert {one.source for one in numbers(gap)} >= {"vllm:generation_tokens_total"}
    back = pages.poll(tokens(5))
    assert value(back, v.SERVER_OUTPUT_TOKENS) == 5
    assert not back.issues


def test_sums_that_are_added_up_in_another_order_do_not_fall() -> None:
    pages = Pages()
    pages.poll(tokens(0.1 + 0.2))
    assert value(pages.poll(tokens(0.3)), v.SERVER_OUTPUT_TOKENS) == 0.3


def test_a_label_that_has_not_occurred_is_missing() -> None:
    trace = collect('vllm:request_success_total{finished_reason="stop"} 4\n')

    assert value(trace, v.SERVER_REQUESTS) == 4
    assert not has(trace, v.SERVER_FAILURES)
    assert "finished_reason=abort|error" in why(trace, v.SERVER_FAILURES)


HTTP = """# TYPE http_requests_total counter
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1827
http_requests_total{handler="/tokenize",method="POST",status="2xx"} 40
http_requests_total{handler="/v1/models",method="GET",status="2xx"} 3
http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 6012
http_requests_total{handler="none",method="POST",status="404"} 5
"""


def test_requests_are_counted_by_status() -> None:
    trace = collect(HTTP + "vllm:num_requests_running 1\n")
    assert value(trace, v.SERVER_HTTP_DONE) == 1867
    assert value(trace, v.SERVER_HTTP_GENERATED) == 1827
    assert value(trace, v.SERVER_HTTP_REFUSED) == 6017
    assert value(trace, v.SERVER_HTTP_FAILED) == 0, "a status that has not occurred was counted all the same"


def test_a_status_that_nobody_counts_is_not_zero() -> None:
    for page in ("", 'http_requests_total{path="/x",code="200"} 3\n'):
        assert not has(collect(page + "vllm:num_requests_running 1\n"), v.SERVER_HTTP_REFUSED)


def test_sglang_counts_responses_under_names_of_its_own() -> None:
    page = "".join(
        f'sglang:http_responses_total{{endpoint="{path}",status_code="{code}",method="POST"}} {count}\n'
        for path, code, count in (("/generate", 200, 7), ("/v1/chat/completions", 400, 4), ("Unknown", 503, 2))
    )
    trace = collect(page + "sglang:num_running_reqs 1\n", "sglang")
    metrics = (v.SERVER_HTTP_DONE, v.SERVER_HTTP_GENERATED, v.SERVER_HTTP_REFUSED, v.SERVER_HTTP_FAILED)
    assert [value(trace, metric) for metric in metrics] == [7, 7, 4, 2]


def test_hostile_labels_are_cleaned() -> None:
    trace = collect('vllm:num_requests_running{model_name="[/b]\x1b[2J\u202e"} 1\n')

    assert trace.tracks[TRACK].facts["model"] == "[/b]␛[2J\ufffd"


def test_unreadable_lines_are_counted_as_an_issue() -> None:
    trace = collect("vllm:num_requests_running 1\nvllm:num_requests_waiting{broken 3\nvllm:x y\n")

    assert value(trace, v.SERVER_RUNNING) == 1
    assert [(issue.code, issue.count) for issue in trace.issues] == [("metrics-text", 2)]


# What can go wrong on the way.


def reason(trace: Trace) -> Unknown:
    """Why there are no server metrics at all."""
    assert not numbers(trace)
    found = trace.why_missing(What("server"))
    assert found is not None
    return found


def failing(error: Exception, kind: str = "vllm") -> Unknown:
    def fetch(url: str) -> Page:
        raise error

    return reason(PrometheusCollector(target(kind), ENGINES, fetch=fetch).poll())


def answering(page: Page, kind: str = "vllm") -> Unknown:
    return reason(PrometheusCollector(target(kind), ENGINES, fetch=lambda url: page).poll())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(), "nothing listens"),
        (TimeoutError(), "did not answer in time"),
        (PermissionError(), "a network of its own"),
        (OSError(113, "No route to host"), "No route to host"),
        (http.client.BadStatusLine("x"), "does not answer in HTTP"),
    ],
)
def test_unreachable_servers_are_reasons(error: Exception, says: str) -> None:
    assert says in failing(error).reason


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("sglang", "--enable-metrics"),
        ("llamacpp", "--metrics"),
        ("trtllm", "return_perf_metrics"),
        ("vllm", "log-stats"),
    ],
)
def test_not_found_names_the_flag_that_turns_metrics_on(kind: str, flag: str) -> None:
    assert flag in answering(Page(404, b""), kind).remedy


def test_a_page_of_something_else_shows_what_it_has() -> None:
    found = answering(Page(200, b"python_info 1\nprocess_cpu_seconds_total 3\n"))

    assert "python_info, process_cpu_seconds_total" in found.reason
    assert "--disable-log-stats" in found.remedy


@pytest.mark.parametrize(
    ("body", "says", "remedy"),
    [
        (b"", "the page is empty", "PROMETHEUS_MULTIPROC_DIR"),
        (b"\x00\xff\xfe\x80" * 50, "nothing that is a metric", f"curl -i {URL}"),
        (b"<html>{}", "a web page (HTML)", "attach to the server itself"),
        (b'"unclosed', "nothing that is a metric", f"curl -i {URL}"),
        (b' {"error": 1}', "JSON", "an API answers here"),
        (b"\n\n= 2\nhello world\n", "nothing that is a metric", f"curl -i {URL}"),
    ],
)
def test_garbage_is_a_reason_and_no_flag_of_the_server_helps(body: bytes, says: str, remedy: str) -> None:
    found = answering(Page(200, body))

    assert found.reason == f"{URL} has none of the names that llmtop knows, but {says}"
    assert remedy in found.remedy
    assert "log-stats" not in found.remedy


@pytest.mark.parametrize(
    ("status", "says", "remedy"),
    [
        (401, "wants a key", "LLMTOP_METRICS_TOKEN"),
        (403, "wants a key", "--metrics-header"),
        (500, "status 500: Boom", "its log says why"),
        (502, "a proxy answers", "attach to a process of the server itself"),
        (503, "is not ready (503): Boom", "loading its model"),
    ],
)
def test_refusals(status: int, says: str, remedy: str) -> None:
    found = answering(Page(status, b"Boom\nTraceback"))

    assert says in found.reason
    assert remedy in found.remedy


def test_ollama_has_nothing_to_read() -> None:
    collector = PrometheusCollector(replace(target("ollama"), metrics_urls=()), ENGINES)

    assert "exports no metrics" in str(collector.missing())


def test_a_plain_process_has_nothing_to_read() -> None:
    assert PrometheusCollector(replace(target("process"), metrics_urls=()), ENGINES).missing() is not None
    assert PrometheusCollector(target("vllm"), ENGINES).missing() is None


def test_trtllm_never_reads_the_destructive_page() -> None:
    assert BY_KIND["trtllm"].metrics_paths == ("/prometheus/metrics",)


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def test_urls_are_looked_for_again_until_the_port_opens() -> None:
    clock = Clock()
    found: list[str] = []
    looks = []

    def find() -> list[str]:
        looks.append(clock.now)
        return found

    starting = replace(target(), metrics_urls=())
    pages = lambda url: Page(200, expositions.vllm_v1().encode())  # noqa: E731
    collector = PrometheusCollector(starting, ENGINES, clock, pages, find)

    def after(seconds: int) -> Trace:
        clock.now += seconds * 1_000_000_000
        return collector.poll()

    for seconds in (0, 1, 600):
        assert "listens on no port yet" in reason(after(seconds)).reason
    found.append("http://127.0.0.1:9000/metrics")
    ready = after(1)
    assert "server:9000" in ready.tracks, "at the next poll, however long it took to come"
    assert re.fullmatch(r"vLLM is ready: first metrics \d+ s after its start", ready.marks[0].text)
    assert len(looks) == 4
    after(1)
    assert len(looks) == 4, "not while it is reading"


def test_a_process_that_becomes_a_server_is_read() -> None:
    clock = Clock()
    pages = lambda url: Page(200, expositions.sglang().encode())  # noqa: E731
    plain = replace(target("process"), metrics_urls=())
    urls: list[str] = []
    collector = PrometheusCollector(plain, ENGINES, clock, pages, lambda: urls)

    assert collector.missing() is None
    assert "no LLM server" in reason(collector.poll()).reason
    urls.append(URL)
    assert collector.poll().tracks[TRACK].name == "SGLang"


@pytest.mark.parametrize(
    ("age_s", "said"),
    [
        (5.0, r", or not yet \(started 5 s ago, .* read\); it listens on :18123, which is not asked"),
        (200.0, "; it listens on :18123, which is not asked"),
    ],
)
def test_what_is_no_server_is_not_called_one_to_come_for_long(
    age_s: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "age", lambda _: age_s)
    plain = replace(target("process"), root_pid=os.getpid(), metrics_urls=(), ports=(18123,))
    why = reason(PrometheusCollector(plain, ENGINES, Clock(), find_urls=list).poll())
    assert re.fullmatch(f"this process is no LLM server that llmtop knows{said}", why.reason)
    assert "known by its command, as vllm serve is" in why.remedy


def test_ports_that_may_not_be_read_are_the_reason() -> None:
    hidden = Unknown("which ports it listens on cannot be read", "sudo")
    starting = replace(target(), metrics_urls=(), missing=(Missing(What("target.ports"), hidden),))

    assert reason(PrometheusCollector(starting, ENGINES).poll()) == hidden


def test_a_slow_page_is_said_and_read_less_often() -> None:
    clock = Clock()
    fetches = []

    def slow(url: str) -> Page:
        fetches.append(url)
        clock.now += 100_000_000 if url == URL else 1_000_000
        return Page(200, expositions.vllm_v0().encode())

    collector = PrometheusCollector(target(), ENGINES, clock, slow)

    for _ in range(2):
        assert not collector.poll().issues, "one or two may be late for once"
    third = collector.poll()
    assert [issue.code for issue in third.issues] == ["metrics-slow"]
    nothing = URL.replace("/metrics", "/version")
    assert fetches == [URL, nothing] * 3, "the page, and next to nothing to compare it with"
    clock.now += 1_000_000_000
    skipped = collector.poll()
    assert len(fetches) == 6
    assert not skipped.readings
    assert skipped.missing == third.missing
    clock.now += 3_000_000_000
    assert collector.poll().readings


@pytest.mark.parametrize(
    ("pages_ms", "beside_ms", "wait_ms"),
    [
        ([], [], 0),
        ([60, 60], [], 0),
        ([60, 60, 60], [], 19 * 60),
        ([50, 50, 50], [], 0),
        ([51, 50.001, 900], [], 19 * 50.001),
        ([900, 900, 900], [], 10_000),
        ([520, 520, 520], [], 19 * 520),
        ([900, 900, 900], [(900, 840)], 19 * 60),
        ([900, 900, 900], [(900, 850)], 0),
        ([900, 900, 900], [(900, 950)], 0),
        ([900] * 4, [(900, 900), (900, 600), (900, 700), (900, 800), (900, 820)], 19 * 80),
    ],
    ids=[
        "none",
        "two",
        "three",
        "50 ms",
        "the quickest",
        "10 s at most",
        "just below",
        "late",
        "no cost",
        "less",
        "four",
    ],
)
def test_a_page_takes_a_twentieth_of_a_servers_time_at_most(
    pages_ms: list[float], beside_ms: list[tuple[float, float]], wait_ms: float
) -> None:
    """Of what it takes longer than next to nothing, at least of the last four looks; from three pages on, and 50 ms."""
    pace = ScrapePace()
    for ms in pages_ms:
        pace.took(round(ms * 1e6))
    for page_ms, nothing_ms in beside_ms:
        pace.took_beside(round(page_ms * 1e6), round(nothing_ms * 1e6))
    assert pace.wait_ns == pytest.approx(wait_ms * 1e6, abs=2)
    assert pace.is_cost_open == (min(pages_ms, default=0) > 50 and len(beside_ms) < 4)


def test_a_slow_page_does_not_wait_for_what_is_asked_aside() -> None:
    clock, release = Clock(), threading.Event()

    def slow(url: str) -> Page:
        if url != URL:
            assert release.wait(10)
        clock.now += 100_000_000
        return Page(200, expositions.vllm_v0().encode())

    collector = PrometheusCollector(target(), ENGINES, clock, slow)
    try:
        assert collector.poll().readings
        assert collector.poll().readings, "while it is still asked"
    finally:
        release.set()


def test_the_first_page_after_none_is_followed_by_another_soon() -> None:
    pages: list[Page] = []

    def page(url: str) -> Page:
        if not pages:
            raise ConnectionRefusedError
        return pages[-1]

    collector = PrometheusCollector(target(), ENGINES, Clock(), page)
    seen = []
    for served in (None, "page", "page", None, "page", "page"):
        pages[:] = [Page(200, expositions.vllm_v0().encode())] if served else []
        collector.poll()
        seen.append(collector.is_eager)
    assert seen == [False, True, False, False, True, False]


def test_a_server_at_its_limit_is_read_as_often_as_ever() -> None:
    """Whatever is asked of it takes seconds: that is its queue, and the page costs it next to nothing."""
    clock = Clock()

    def late(url: str) -> Page:
        clock.now += 3_000_000_000
        return Page(200, expositions.vllm_v1().encode())

    collector = PrometheusCollector(target(), ENGINES, clock, late)
    for _ in range(8):
        trace = collector.poll()
        assert value(trace, v.SERVER_RUNNING) == 64
        assert value(trace, v.ENDPOINT_TIME) == 3.0
        assert not trace.issues
    assert trace.tracks[ids.endpoint(8000)].facts["own_s"] == 0.0


def test_a_page_that_was_quick_before_costs_no_more_under_load() -> None:
    clock = Clock()
    took = [1_000_000]
    asked = []

    def page(url: str) -> Page:
        asked.append(url)
        clock.now += took[0]
        return Page(200, expositions.vllm_v1().encode())

    collector = PrometheusCollector(target(), ENGINES, clock, page)
    collector.poll()
    took[0] = 2_000_000_000
    for _ in range(3):
        assert value(collector.poll(), v.SERVER_RUNNING) == 64
    assert asked.count(URL) == 4
    assert len(asked) == 5, "and nothing else is asked of it then"


def test_numbers_are_of_the_time_at_which_the_page_came() -> None:
    clock = Clock()

    def page(url: str) -> Page:
        clock.now += 10_000_000
        written = clock.now
        clock.now += 700_000_000  # a busy host gets to reading it late
        return Page(200, expositions.vllm_v1().encode(), t_ns=written)

    trace = PrometheusCollector(target(), ENGINES, clock, page).poll()

    [running] = [reading for reading in trace.readings if reading.metric == v.SERVER_RUNNING]
    assert running.t_ns == 1_010_000_000


# Over real sockets.


def over_http(*urls: str) -> PrometheusCollector:
    """A collector whose time stands still, so that a loaded machine does not make it spread its polls."""
    return PrometheusCollector(target("vllm", *urls), ENGINES, Clock())


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with metrics_server() as running:
        running.pages["/metrics"] = expositions.vllm_v1()
        yield running


def test_when_a_server_closed_the_connection_is_known_after_it_refuses_too() -> None:
    refuses = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            listener.close()
            with connection:
                connection.recv(10_000)
                page = expositions.vllm_v1().encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
            refuses.set()

        thread = threading.Thread(target=serve, daemon=True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        before = time.monotonic_ns()
        thread.start()
        with PrometheusCollector(target("llamacpp", url), ENGINES) as collector:
            assert until_page(collector).tracks
            assert refuses.wait(60)
            after = time.monotonic_ns()
            facts = next(track.facts for id, track in collector.poll().tracks.items() if id.startswith("endpoint:"))
        thread.join()

    closed_ns = facts["closed_ns"]
    assert isinstance(closed_ns, int)
    assert before <= closed_ns <= after + 20_000_000, "counted in the kernel's ticks"


@pytest.mark.parametrize(
    ("since_ns", "closed_ns"), [(300, 1_700), (1_500, 1_000)], ids=["a while ago", "a tick before the last page"]
)
def test_a_server_closed_after_its_last_page_and_before_we_looked(
    since_ns: int, closed_ns: int, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.now = 1_000
    fetch = Fetcher(os.getpid(), clock=clock)
    fetch(server.url)
    clock.now = 2_000

    def stopped(connection: object) -> int:
        clock.now += 1_000_000_000  # a busy machine goes on with it later
        return since_ns

    monkeypatch.setattr("llmtop.collectors.metrics_http._Connection.closed_for_ns", stopped)
    server.pages["/metrics"] = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        fetch(server.url)
    assert fetch.closed_ns == closed_ns


def test_reads_over_http_and_keeps_the_connection(server: MetricsServer) -> None:
    server.pages["/version"] = '{"version": "0.17.1"}'
    with over_http(server.url) as collector:
        for _ in range(3):
            trace = collector.poll()

    assert value(trace, v.SERVER_RUNNING) == 64
    assert trace.tracks[ids.server(server.port)].facts["version"] == "0.17.1"
    assert len(server.connections) == 1
    assert server.paths == ["/metrics", "/version", "/metrics", "/metrics"]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("filler", [0, 3000])
def test_a_server_that_closes_after_each_answer_is_read_each_time(
    server: MetricsServer, version: str, has_length: bool, filler: int
) -> None:
    """What came with the headers and what comes after them: http.client drops the connection in between."""
    body = (expositions.vllm_v1() + "other_metric 1\n" * filler).encode()

    def close(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = version
        handler.send_response(200)
        handler.send_header("Connection", "close")
        if has_length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.flush()
        handler.wfile.write(body)

    server.pages["/metrics"] = close
    fetch = Fetcher(os.getpid())
    assert all(fetch(server.url).body == body for _ in range(100))
    assert len(server.connections) == 100
    ends = Path("/proc/self/net/tcp").read_text().splitlines()
    to_server = f":{server.port:04X}"
    assert not [end for end in ends if end.split()[2].endswith(to_server) and end.split()[3] in TCP_OPEN]


@pytest.mark.parametrize("announced", [True, False])
def test_half_a_page_is_none(server: MetricsServer, announced: bool) -> None:
    """Its last number would be cut off, and one lower than before."""

    def break_off(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header(*(("Content-Length", "1000") if announced else ("Transfer-Encoding", "chunked")))
        handler.end_headers()
        handler.wfile.write((b"" if announced else b"3e8\r\n") + b"vllm:num_requests_running 1")
        handler.close_connection = True

    server.pages["/metrics"] = break_off
    with over_http(server.url) as collector:
        assert "/metrics breaks off its answer" in reason(collector.poll()).reason


def test_a_restarted_server_is_read_again_and_marked() -> None:
    with metrics_server() as first:
        port = first.port
        first.pages["/metrics"] = expositions.vllm_v1()
        collector = over_http(first.url)
        assert collector.poll().readings
    with collector:
        lost = collector.poll()
        still_lost = collector.poll()
        with metrics_server(port) as second:
            second.pages["/metrics"] = expositions.vllm_v1()
            back = collector.poll()

    assert [reading.value for reading in numbers(lost)] == [None] * len(numbers(lost))
    assert {reading.metric for reading in numbers(lost)} >= {v.SERVER_RUNNING, v.SERVER_OUTPUT_TOKENS}
    assert "metrics lost: nothing listens" in lost.marks[0].text
    assert not still_lost.marks
    assert not numbers(still_lost)
    assert [answer(look) for look in (lost, still_lost, back)] == [
        EndpointAnswer.REFUSED,
        EndpointAnswer.REFUSED,
        EndpointAnswer.METRICS,
    ]
    assert value(back, v.SERVER_RUNNING) == 64
    assert back.marks[0].text == "metrics are back"


def test_another_server_on_the_same_port_is_recognised(server: MetricsServer) -> None:
    with over_http(server.url) as collector:
        collector.poll()
        server.pages["/metrics"] = expositions.sglang()
        collector.poll()
        trace = collector.poll()

    assert trace.tracks[ids.server(server.port)].name == "SGLang"


def test_the_second_url_serves_where_the_first_does_not(server: MetricsServer) -> None:
    server.pages["/prometheus/metrics"] = expositions.vllm_v1()
    del server.pages["/metrics"]
    urls = server.url, server.url.replace("/metrics", "/prometheus/metrics")
    with over_http(*urls) as collector:
        assert collector.poll().readings
        server.paths.clear()
        collector.poll()

    assert server.paths == ["/prometheus/metrics"], "the one that worked is asked first"


def test_a_redirect_within_the_server_is_followed(server: MetricsServer) -> None:
    server.pages["/metrics/"] = expositions.vllm_v1()
    server.pages["/metrics"] = lambda handler: send(handler, b"", 307, Location="/metrics/")
    with over_http(server.url) as collector:
        assert collector.poll().readings


def test_what_a_url_asks_for_is_asked_for_also_where_a_redirect_leads(server: MetricsServer) -> None:
    server.pages["/all/page?part=engine"] = expositions.vllm_v1()
    server.pages["/all/metrics?key=1"] = lambda handler: send(handler, b"", 307, Location="page?part=engine")
    with over_http(server.url.replace("/metrics", "/all/metrics?key=1")) as collector:
        assert collector.poll().readings


def test_a_redirect_to_elsewhere_is_not_followed(server: MetricsServer) -> None:
    with metrics_server() as elsewhere:
        server.pages["/metrics"] = lambda handler: send(handler, b"", 302, Location=elsewhere.url)
        with over_http(server.url) as collector:
            assert "sends us elsewhere" in reason(collector.poll()).reason
    assert elsewhere.paths == []


def test_a_huge_page_is_cut_and_refused(server: MetricsServer) -> None:
    server.pages["/metrics"] = "vllm:num_requests_running 1\n" * 1000
    fetch = Fetcher(os.getpid(), max_bytes=10_000)

    page = fetch(server.url)

    assert page.is_cut
    assert len(page.body) == 10_000
    assert "longer than" in answering(page).reason


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_page_that_a_proxy_packs_unasked_is_read(
    server: MetricsServer, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    page = {"Content-Encoding": encoding}
    server.pages["/metrics"] = lambda handler: send(handler, packed(b"#" * 50_000), 200, **page)
    server.pages["/plain"] = lambda handler: send(handler, b"as it is", 200, **page)
    fetch = Fetcher(os.getpid(), max_bytes=10_000)
    bomb, plain = fetch(server.url), fetch(server.url.replace("/metrics", "/plain"))
    fetch.close()
    assert (bomb.body, bomb.is_cut) == (b"#" * 10_000, True)
    assert plain.body == b"as it is"


@pytest.mark.parametrize(("more", "is_cut"), [(0, False), (1, True)])
def test_a_page_of_eight_mebibytes_is_read_and_no_longer_one(server: MetricsServer, more: int, is_cut: bool) -> None:
    server.pages["/metrics"] = "#" * (8 * 1024 * 1024 + more)
    fetch = Fetcher(os.getpid())
    page = fetch(server.url)
    fetch.close()
    assert (len(page.body), page.is_cut) == (8 * 1024 * 1024, is_cut)


def test_a_page_that_drips_times_out(server: MetricsServer) -> None:
    release = threading.Event()

    def drip(handler: object) -> None:
        from http.server import BaseHTTPRequestHandler

        assert isinstance(handler, BaseHTTPRequestHandler)
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not release.wait(0.02):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return

    server.pages["/metrics"] = drip
    fetch = Fetcher(os.getpid(), timeout_s=0.2)
    try:
        with pytest.raises(TimeoutError):
            fetch(server.url)
    finally:
        release.set()


def test_a_port_that_does_not_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        with over_http(url) as collector:
            assert "does not speak HTTP" in reason(collector.poll()).reason
        thread.join()


def until_page(collector: PrometheusCollector) -> Trace:
    """Polls until the page has come."""
    while not numbers(trace := collector.poll()):
        assert trace.why_missing(What("server")) is None or "has not answered" in str(trace.why_missing(What("server")))
    return trace


def test_a_hang_is_said_and_a_late_answer_still_counts(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def late(handler: BaseHTTPRequestHandler) -> None:
        release.wait()
        send(handler, expositions.vllm_v1().encode())

    clock = Clock()
    with PrometheusCollector(target("vllm", server.url), ENGINES, clock) as collector:
        assert collector.poll().readings
        server.pages["/metrics"] = late
        monkeypatch.setattr(prometheus, "PATIENCE_S", IMPATIENT_S)
        while not (first := collector.poll()).readings:  # its thread has not begun to ask
            pass
        assert not first.missing or first.why_missing(What("server")) is None, "a page may take a while"
        clock.now += 1_900_000_000
        hung = collector.poll()
        assert (value(hung, v.ENDPOINT_ANSWER), value(hung, v.ENDPOINT_TIME)) == (EndpointAnswer.SILENT, 1.9)
        assert "has not answered for 2 s" in str(hung.why_missing(What("server")))
        assert not numbers(hung), "what was read before stands"
        clock.now += 9_000_000_000
        lost = collector.poll()
        assert "metrics lost" in lost.marks[0].text
        assert {reading.value for reading in lost.readings if reading.track.startswith("server")} == {None}
        release.set()
        back = until_page(collector)
    assert value(back, v.SERVER_RUNNING) == 64
    assert value(back, v.ENDPOINT_TIME) == pytest.approx(10.9)
    assert server.paths.count("/metrics") == 2, "it is asked once, however long it takes"


def test_headers_that_drip_time_out(server: MetricsServer) -> None:
    release = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not release.wait(0.02):
                handler.wfile.write(b"X-Drip: 1\r\n")
                handler.wfile.flush()

    server.pages["/metrics"] = drip
    try:
        with pytest.raises(TimeoutError):
            Fetcher(os.getpid(), timeout_s=0.2)(server.url)
    finally:
        release.set()


@contextmanager
def silent_port(greeting: bytes = b"") -> Iterator[tuple[str, list[float]]]:
    """A port like ZMQ's: it accepts, says its greeting, and is silent. Gives its URL and when it was asked."""
    asked: list[float] = []
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    asked.append(time.monotonic())
                    kept.append(connection)
                    connection.sendall(greeting)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", asked
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()
    thread.join()


@pytest.mark.parametrize("greeting", [b"", b"\xff\0\0\0\0\0\0\0\x01\x7f"])
def test_ports_that_do_not_speak_http_are_asked_once(server: MetricsServer, greeting: bytes) -> None:
    with silent_port(greeting) as (silent, asked), over_http(silent, server.url) as collector:
        assert value(until_page(collector), v.SERVER_RUNNING) == 64
        del server.pages["/metrics"]
        for _ in range(3):
            collector.poll()
    assert len(asked) == 1


def test_the_only_port_is_waited_for_even_when_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", IMPATIENT_S)
    clock = Clock()
    with silent_port() as (silent, asked), PrometheusCollector(target("vllm", silent), ENGINES, clock) as collector:
        while not collector.poll().readings:  # its thread has not begun to ask
            pass
        clock.now += 2_000_000_000
        trace = collector.poll()
        assert "may be starting, stuck, or no HTTP port" in str(trace.why_missing(What("server")))
        assert len(asked) == 1


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate that nobody has signed, with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    where = tmp_path / "both.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=elsewhere -keyout key.pem -out cert.pem"
    subprocess.run(request.split(), check=True, capture_output=True, cwd=tmp_path)
    where.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    return where


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_tls_is_spoken_where_the_server_does_told_or_not(server: MetricsServer, certificate: Path, scheme: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with over_http(server.url.replace("http", scheme)) as collector:
        for _ in range(2):
            trace = until_page(collector)

    assert value(trace, v.SERVER_RUNNING) == 64
    assert str(trace.tracks[ids.server(server.port)].facts["url"]).startswith("https://")


def test_certificates_are_believed_on_this_machine_only() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        assert is_here(host)
    for host in ("192.0.2.1", "example.com", "2001:db8::1"):
        assert not is_here(host)


def test_a_unix_socket_is_read(tmp_path: Path) -> None:
    path = tmp_path / ("deep" * 20) / "v.sock"  # longer than an address of its kind may be
    path.parent.mkdir()
    with metrics_server(path=path) as server:
        server.pages["/metrics"] = expositions.vllm_v1()
        url = f"http+unix://{quote(str(path), safe='')}/metrics"
        with over_http(url) as collector:
            trace = collector.poll()
    with over_http(url) as gone:
        lost = reason(gone.poll())

    assert value(trace, v.SERVER_RUNNING) == 64
    assert "server:v.sock" in trace.tracks
    assert "nothing listens at" in lost.reason


def test_a_key_is_sent_when_it_is_given(server: MetricsServer) -> None:
    def locked(handler: BaseHTTPRequestHandler) -> None:
        opened = handler.headers.get("Authorization") == "Bearer k"
        send(handler, expositions.vllm_v1().encode() if opened else b"no", 200 if opened else 401)

    server.pages["/metrics"] = locked

    def told(headers: dict[str, str]) -> Trace:
        with PrometheusCollector(target("vllm", server.url), ENGINES, Clock(), headers=headers) as collector:
            return collector.poll()

    assert "wants a key (401)" in reason(told({})).reason
    assert "refuses the key" in reason(told({"Authorization": "Bearer wrong"})).reason
    assert value(told({"Authorization": "Bearer k"}), v.SERVER_RUNNING) == 64


def test_the_model_that_is_told_nowhere_else_is_asked_for(server: MetricsServer) -> None:
    server.pages["/metrics"] = expositions.llamacpp()
    server.pages["/v1/models"] = '{"data": [{"id": "my\\u001b[2Jmodel"}]}'
    nameless = replace(target("llamacpp", server.url), model=Unknown("not told"))
    with PrometheusCollector(nameless, ENGINES, Clock()) as collector:
        trace = collector.poll()

    assert trace.tracks[ids.server(server.port)].facts["model"] == "my␛[2Jmodel"


def test_what_a_starting_server_does_is_said() -> None:
    starting = replace(target(), metrics_urls=(), facts={"weights_bytes": 16_100_000_000})
    collector = PrometheusCollector(starting, ENGINES, last_line=lambda: "Loading safetensors: 50 %")

    said = reason(collector.poll()).reason

    assert re.search(r"vLLM listens on no port yet: started \d+ s ago, .* read \(weights: 15\.0 GiB\)", said)
    assert said.endswith("log: Loading safetensors: 50 %")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_server_in_another_network_namespace_is_reached() -> None:
    code = (
        "import fcntl, socket, struct\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 1))\n"  # SIOCSIFFLAGS: lo up
        "from tests.collectors.metrics_server import metrics_server\n"
        "with metrics_server() as server:\n"
        "    server.pages['/metrics'] = 'vllm:num_requests_running 7\\n'\n"
        "    print(server.port, flush=True)\n"
        "    input()\n"
    )
    program = [sys.executable, "-c", code]
    with subprocess.Popen(
        ["unshare", "-n", *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdout is not None
        first = inside.stdout.readline()
        if not first:
            pytest.skip("this machine does not let root make network namespaces")
        url = f"http://127.0.0.1:{int(first)}/metrics"
        there = replace(target("vllm", url), root_pid=inside.pid)
        with PrometheusCollector(there, ENGINES, Clock()) as collector:
            trace = collector.poll()
        with over_http(url) as outside:
            assert "nothing listens" in reason(outside.poll()).reason
        inside.kill()

    assert value(trace, v.SERVER_RUNNING) == 7


def test_a_url_that_the_user_names_is_asked_and_nothing_else(server: MetricsServer) -> None:
    """Of a program that is no known server, and from where llmtop runs."""
    server.pages["/llm/metrics"] = expositions.vllm_v1()
    plain = Target(4242, 4242, "process", "my program", ())
    told = Endpoint({}, server.url.replace("/metrics", "/llm/metrics"))
    (collector,) = (one for one in target_collectors(plain, Aim(ENGINES, tuple, told)) if one.name == "prometheus")
    with collector:
        trace = collector.poll()

    assert collector.missing() is None
    assert value(trace, v.SERVER_RUNNING) == 64
    assert server.paths[:1] == ["/llm/metrics"]


def test_the_version_of_llama_cpp_stands_among_its_properties(server: MetricsServer) -> None:
    server.pages["/metrics"] = expositions.llamacpp()
    server.pages["/props"] = '{"build_info": "b6123-abcdef12", "total_slots": 4}'
    with PrometheusCollector(target("llamacpp", server.url), ENGINES, Clock()) as collector:
        trace = collector.poll()

    assert trace.tracks[ids.server(server.port)].facts["version"] == "b6123-abcdef12"


def test_the_installed_version_counts_where_no_page_tells_it(server: MetricsServer) -> None:
    server.pages["/metrics"] = expositions.vllm_v1()
    installed = replace(target("vllm", server.url), facts={"version": "0.11.2"})
    with PrometheusCollector(installed, ENGINES, Clock()) as collector:
        trace = collector.poll()

    assert trace.tracks[ids.server(server.port)].facts["version"] == "0.11.2"


def test_settings_are_worked_out_again_only_where_the_page_tells_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = [*[expositions.vllm_v1()] * 2, expositions.vllm_v1().replace('"27000"', '"28000"')]
    collector = PrometheusCollector(
        target(), ENGINES, fetch=lambda url: Page(200, pages.pop(0).encode()) if url == URL else Page(404, b"")
    )
    made: list[object] = []
    facts = settings.facts
    monkeypatch.setattr(settings, "facts", lambda *told: made.append(told) or facts(*told))  # type: ignore[func-returns-value]
    blocks = [collector.poll().tracks[TRACK].facts["setting.kv_blocks"] for _ in range(3)]
    assert blocks == [27000, 27000, 28000]
    assert len(made) == 2


def test_all_pages_are_asked_for_by_one_thread_that_ends_with_the_collector() -> None:
    askers: list[threading.Thread] = []

    def fetch(url: str) -> Page:
        askers.append(threading.current_thread())
        return Page(200, expositions.vllm_v1().encode()) if url == URL else Page(404, b"")

    with PrometheusCollector(target(), ENGINES, fetch=fetch) as collector:
        for _ in range(3):
            collector.poll()
    assert len(askers) >= 3
    assert len(set(askers)) == 1
    askers[0].join(5.0)
    assert not askers[0].is_alive()


def test_the_thread_that_asks_ends_when_nobody_holds_the_collector() -> None:
    hand = JobThread()
    assert hand.start(lambda: 42).wait(10)
    thread = hand._thread
    assert thread is not None
    del hand
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("age_s", "urls", "overdue"),
    [(106.0, 1, 1), (59.0, 1, None), (106.0, 2, None)],
    ids=["long up", "it may load", "the port may be for something else"],
)
def test_a_server_that_should_be_up_is_overdue(
    age_s: float, urls: int, overdue: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmtop.collectors.loading.age", lambda target: age_s)

    def never(url: str) -> Page:
        raise TimeoutError

    addresses = tuple(f"http://127.0.0.1:{port}/metrics" for port in range(8000, 8000 + urls))
    collector = PrometheusCollector(replace(target("vllm"), metrics_urls=addresses), ENGINES, fetch=never)
    [endpoint] = collector.poll().tracks.values()
    assert endpoint.facts.get("overdue") == overdue
