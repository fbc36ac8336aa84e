"""Tokens of a server that counts them when a request ends: the requests that run are told on another page."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import vocabulary as v
from llmtop.collectors.metrics_http import Page
from llmtop.collectors.prometheus import PrometheusCollector
from llmtop.collectors.slots import FilledContexts, Running, Slots, slots_of
from llmtop.model import Trace, Unknown
from llmtop.servers.registry import ENGINES
from tests.collectors import expositions
from tests.collectors.test_prometheus import collect, has, target, value, why


def slot(decoded: int | None, *, old: bool = False) -> dict[str, object]:
    """One slot as llama-server tells it; `old`: `next_token` is no list."""
    if decoded is None:
        return {"id": 0, "n_ctx": 8192, "is_processing": False}
    following = {"n_decoded": decoded, "n_remain": 10}
    return {"id": 1, "n_ctx": 8192, "is_processing": True, "next_token": following if old else [following]}


def llamacpp(ended: int, page: Page) -> Trace:
    """One poll of a llama-server that counts `ended` tokens and answers `page` for its slots."""
    text = expositions.llamacpp().replace("tokens_predicted_total 256", f"tokens_predicted_total {ended}")
    pages = {"metrics": Page(200, text.encode()), "slots": page}

    def fetch(url: str) -> Page:
        return pages.get(url.rpartition("/")[2], Page(404, b""))

    return PrometheusCollector(target("llamacpp"), ENGINES, fetch=fetch).poll()


def test_tokens_of_requests_that_run_are_counted_as_they_come() -> None:
    page = Page(200, json.dumps([slot(None), slot(41), slot(7, old=True)]).encode())
    assert value(llamacpp(256, page), v.SERVER_OUTPUT_TOKENS) == 256 + 48


@pytest.mark.parametrize("page", [Page(501, b"{}"), Page(200, b"[{}]"), Page(200, b"no JSON"), Page(200, b"[1]")])
def test_without_slots_what_ended_is_no_rate(page: Page) -> None:
    trace = llamacpp(256, page)
    assert not has(trace, v.SERVER_OUTPUT_TOKENS)
    assert value(trace, v.SERVER_OUTPUT_TOKENS_ENDED) == 256
    assert "when it ends" in why(trace, v.SERVER_OUTPUT_TOKENS)


def test_a_server_that_refuses_its_slots_is_not_asked_again() -> None:
    asked: list[str] = []

    def fetch(url: str) -> Page:
        asked.append(url)
        return Page(501, b"") if url.endswith("/slots") else Page(200, expositions.llamacpp().encode())

    collector = PrometheusCollector(target("llamacpp"), ENGINES, fetch=fetch)
    for _ in range(3):
        collector.poll()
    assert sum(url.endswith("/slots") for url in asked) == 1


def test_other_servers_have_no_such_page() -> None:
    asked: list[str] = []

    def fetch(url: str) -> Page:
        asked.append(url)
        return Page(200, expositions.tgi().encode())

    PrometheusCollector(target("tgi"), ENGINES, fetch=fetch).poll()
    assert not any("slots" in url for url in asked)


def test_what_is_no_page_of_slots_has_a_reason() -> None:
    assert isinstance(slots_of(b"{}"), Slots | Unknown)
    assert isinstance(slots_of(b"null"), Unknown)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=2))
def test_the_count_never_falls_and_comes_out_even(steps: list[tuple[int, bool]]) -> None:
    """One request after the other; one that ends between the two pages is in neither of them."""
    running, ended, decoded, last = Running(), 0, 0, 0.0
    for more, ends in steps:
        decoded += more
        told = running.count(ended, 0 if ends else decoded)  # ended after the metrics were read
        assert last <= told <= ended + decoded
        if not ends:
            assert told == ended + decoded
        else:
            ended, decoded = ended + decoded, 0
        last = told


def filled(task: int, tokens: int, *, at_work: bool = False) -> dict[str, object]:
    """A slot of 256 tokens with so many in it, as llama-server 0.5 tells it."""
    following = [{"n_decoded": 5 if at_work else 0}]
    told = {"n_ctx": 256, "n_prompt_tokens": tokens, "next_token": following}
    return {"id": 1, "id_task": task, "is_processing": at_work, **told}


def test_requests_that_filled_their_slot_are_counted_from_the_second_look_on() -> None:
    contexts, counts = FilledContexts(), []
    for slot_ in (
        filled(3, 255),
        filled(4, 188, at_work=True),
        filled(4, 255),
        filled(4, 255),
        filled(9, 254),
        filled(12, 256),
    ):
        read = slots_of(json.dumps([slot_]).encode())
        assert isinstance(read, Slots)
        assert read.context == 256
        counts.append(contexts.count(read.full))
    assert counts == [0, 0, 1, 1, 1, 2]


def test_the_room_of_a_slot_and_who_filled_it_are_numbers_of_the_server() -> None:
    trace = llamacpp(256, Page(200, json.dumps([filled(4, 255)]).encode()))
    assert value(trace, v.SERVER_CONTEXT) == 256
    assert value(trace, v.SERVER_CONTEXT_FILLED) == 0
    older = llamacpp(256, Page(200, json.dumps([slot(41)]).encode()))
    assert not has(older, v.SERVER_CONTEXT), "builds before 2026 do not tell what a slot holds"
    assert not has(older, v.SERVER_CONTEXT_FILLED)


def test_a_restart_begins_again() -> None:
    running = Running()
    assert [running.count(500, 20), running.count(0, 3)] == [520, 3]


@pytest.mark.parametrize(
    ("text", "kind", "tokens"),
    [(expositions.tgi(), "tgi", 4200), (expositions.sglang(), "sglang", 900), (expositions.trtllm(), "trtllm", 77)],
)
def test_counters_that_move_when_a_request_ends_are_not_read_as_tokens_of_now(
    text: str, kind: str, tokens: float
) -> None:
    trace = collect(text, kind)
    assert not has(trace, v.SERVER_OUTPUT_TOKENS)
    assert value(trace, v.SERVER_OUTPUT_TOKENS_ENDED) == tokens
    assert "when it ends" in why(trace, v.SERVER_OUTPUT_TOKENS)


def test_sglang_counts_steps_since_0_5_8() -> None:
    labels = 'model_name="Qwen3-8B",tp_rank="{rank}",mode="{mode}"'
    modes = (("decode", 120), ("prefill_compute", 30), ("prefill_cache", 10))
    text = "".join(
        f"sglang:realtime_tokens_total{{{labels.format(rank=rank, mode=mode)}}} {n}.0\n"
        for rank in range(2)
        for mode, n in modes
    )
    trace = collect(expositions.sglang() + text, "sglang")
    assert value(trace, v.SERVER_OUTPUT_TOKENS) == 120
    assert value(trace, v.SERVER_PROMPT_TOKENS) == value(trace, v.SERVER_PREFIX_QUERIES) == 40
    assert value(trace, v.SERVER_PREFIX_HITS) == 10


def test_newer_llamacpp_has_a_prefix_cache_and_a_mean_time_between_tokens() -> None:
    text = (
        expositions.llamacpp() + "llamacpp:prompt_tokens_cached_total 72\nllamacpp:tokens_predicted_seconds_total 4\n"
    )
    trace = collect(text, "llamacpp")
    assert value(trace, v.SERVER_PREFIX_QUERIES) == value(trace, v.SERVER_PROMPT_TOKENS) == 200
    assert value(trace, v.SERVER_PREFIX_HITS) == 72
    assert value(trace, v.total(v.SERVER_ITL)) == 4
    assert value(trace, v.bucket(v.SERVER_ITL, math.inf)) == 256


def test_triton_has_means_in_microseconds() -> None:
    text = expositions.triton() + 'nv_inference_request_duration_us{model="llama",version="1"} 2500000\n'
    trace = collect(text, "triton")
    assert value(trace, v.total(v.SERVER_E2E)) == 2.5
    assert value(trace, v.bucket(v.SERVER_E2E, math.inf)) == 50
    assert "nv_inference_queue_duration_us" in why(trace, v.SERVER_QUEUE_TIME)
