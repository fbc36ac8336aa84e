"""A saturated server of each kind, from its metrics page to the verdict: each judges, or says why it cannot."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.collectors.metrics_http import Page
from llmtop.collectors.prometheus import PrometheusCollector
from llmtop.model import NS_PER_S, Engine, ExposedNumber, Origin, Target, Trace
from llmtop.servers.registry import BY_KIND, ENGINES
from llmtop.session import Recorder

SECONDS = 62
UPPERS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)
PER_SECOND = {v.SERVER_PROMPT_TOKENS: 2000.0, v.SERVER_OUTPUT_TOKENS: 900.0, v.SERVER_REQUESTS: 4.0}
LATENCIES = {v.SERVER_TTFT: (4, 3.0), v.SERVER_QUEUE_TIME: (4, 2.8), v.SERVER_ITL: (900, 0.02)}
"""Observations a second, and how long each is."""


def labels(sample: ExposedNumber, **more: str) -> str:
    pairs = {name: values[0] for name, values in sample.where.items() if values[0]} | more
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs.items()) + "}"


def page(engine: Engine, second: int, kv: float) -> str:
    """Eight run and twenty wait; each number under the newest name that the engine has for it."""
    lines = {}
    for metric, value in ((v.SERVER_RUNNING, 8.0), (v.SERVER_WAITING, 20.0), (v.SERVER_KV_USAGE, kv)):
        for sample in engine.names.get(metric, ())[:1]:
            lines[sample.name + labels(sample)] = value / sample.scale
    for metric, rate in PER_SECOND.items():
        for sample in engine.names.get(metric, ())[:1]:
            lines[sample.name + labels(sample)] = rate * second / sample.scale
    for metric, (rate, value) in LATENCIES.items():
        for sample in engine.distributions.get(metric, ())[:1]:
            lines |= histogram(sample, rate * second, value)
        for total, count in [engine.means[metric]] if metric in engine.means else []:
            lines.setdefault(count.name + labels(count), rate * second)
            lines[total.name + labels(total)] = lines[count.name + labels(count)] * value / total.scale
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def histogram(sample: ExposedNumber, count: float, value: float) -> dict[str, float]:
    buckets = {
        f"{sample.name}_bucket{labels(sample, le=str(upper / sample.scale).replace('inf', '+Inf'))}": count
        * (value <= upper)
        for upper in UPPERS
    }
    whole = {"_count": count, "_sum": count * value / sample.scale}
    return buckets | {f"{sample.name}{part}{labels(sample)}": number for part, number in whole.items()}


def observed(kind: str, kv: float) -> Trace:
    """A minute of that page, one look a second."""
    engine, second = BY_KIND[kind], 0

    def fetch(url: str) -> Page:
        if url.endswith("/slots"):
            return Page(200, b'[{"is_processing": true, "next_token": [{"n_decoded": 5}]}]')
        return Page(200, page(engine, second, kv).encode() if "metrics" in url else b"{}")

    target = Target(os.getpid(), os.getpid(), kind, engine.title, (), metrics_urls=("http://127.0.0.1:8000/metrics",))
    recorder, collector = Recorder(Origin("live")), PrometheusCollector(target, ENGINES, fetch=fetch)
    for second in range(1, SECONDS):  # the page is of this second
        seen, t = collector.poll(), second * NS_PER_S
        readings = tuple(replace(one, t_ns=t) for one in seen.readings)
        recorder.append("prometheus", replace(seen, start_ns=t, end_ns=t, readings=readings))
    return recorder.freeze()


RULES = ("kv-bound", "queue-growth", "queue-standing", "objective-missed")


def said(trace: Trace) -> Iterator[tuple[str, str]]:
    diagnosed = diagnose(trace)
    yield from ((one.rule, one.message) for one in diagnosed.findings if one.rule in RULES)
    yield from ((one.rule, f"? {one.why.reason}") for one in diagnosed.unjudged if one.rule in RULES)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("vllm", "saturated: 20 requests wait, for 2.80 s on average"),
        ("sglang", "saturated: 20 requests wait, for 2.80 s on average"),
        ("tgi", "saturated: 20 requests wait, for 2.80 s on average"),
        ("trtllm", "saturated: 20 requests wait, for 2.80 s on average"),
        ("triton", "saturated: 20 requests wait, for 2.80 s on average"),
        ("lmdeploy", "saturated: 20 requests wait, for 2.80 s on average"),
        ("dynamo", "saturated: 20 requests wait, first tokens take 3.00 s on average"),
        ("llamacpp", "? llama.cpp exports no requests finished"),
    ],
)
def test_a_standing_queue(kind: str, expected: str) -> None:
    assert dict(said(observed(kind, kv=0.3)))["queue-standing"].startswith(expected)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm", "triton", "lmdeploy", "llamacpp"])
def test_a_full_cache(kind: str) -> None:
    """By its gauge, whether or not preemptions are counted: these pages count none."""
    verdicts = dict(said(observed(kind, kv=0.97)))
    assert verdicts["kv-bound"] == "KV-bound: KV cache 97 %, 20 requests wait for room"
    assert "queue-standing" not in verdicts, "said already"


@pytest.mark.parametrize("kind", ["tgi", "llamacpp", "trtllm"])
def test_a_server_that_never_preempts_lacks_no_count_of_it(kind: str) -> None:
    assert "kv-bound" not in dict(said(observed(kind, kv=0.3)))


@pytest.mark.parametrize("kind", ["lmdeploy", "triton", "dynamo"])
def test_one_that_may_and_does_not_count_says_so_where_requests_wait(kind: str) -> None:
    assert dict(said(observed(kind, kv=0.3)))["kv-bound"].endswith(f"{BY_KIND[kind].title} exports no preemptions")


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm", "lmdeploy", "dynamo", "triton"])
def test_the_time_to_the_first_token_is_judged(kind: str) -> None:
    assert dict(said(observed(kind, kv=0.3)))["objective-missed"].startswith("TTFT misses its objective")
