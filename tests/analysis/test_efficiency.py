"""MFU, MBU and joules per token, by hand."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.roofline.efficiency import EfficiencyView, efficiency_view, kv_bytes_in_use
from llmtop.analysis.roofline.model_facts import ModelSize, model_size
from llmtop.model import (
    NS_PER_S,
    Metric,
    Missing,
    Origin,
    Quantity,
    Series,
    Target,
    TargetProcess,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from tests.analysis.llama_on_h100 import ACTIVE, DRAM_PEAK, H100, LLAMA_8B
from tests.live_traces import SOURCES

if TYPE_CHECKING:
    from llmtop.model import Fact

TARGET = Target(
    7, 7, "vllm", "vLLM", (TargetProcess(7, "Worker", "w"),), model="m", dtype="bfloat16", gpus=(0,), config=LLAMA_8B
)
GPU_GAUGES = {
    v.GPU_DRAM: 80.0,
    v.GPU_TENSOR_HMMA: 20.0,
    v.GPU_FP32: 0.0,
    v.GPU_SM_CLOCK: 1830.0,
    v.GPU_POWER: 500.0,
}
SERVER_GAUGES = {v.SERVER_RUNNING: 64.0, v.SERVER_KV_USAGE: 0.5}
SERVER_RATES = {
    v.SERVER_OUTPUT_TOKENS: 2000.0,
    v.SERVER_PROMPT_TOKENS: 6000.0,
    v.SERVER_PREFIX_HITS: 1000.0,
    v.SERVER_STEPS: 31.25,
    v.bucket(v.SERVER_ITL, math.inf): 2000.0,
    v.total(v.SERVER_ITL): 2000.0 * 0.04,
}


def trace_of(
    gpus: int = 1,
    *,
    gauges: dict[Metric, float] = GPU_GAUGES,
    rates: dict[Metric, float] = SERVER_RATES,
    energy: bool = True,
    facts: dict[str, Fact] | None = None,
    missing: tuple[Missing, ...] = (),
) -> Trace:
    """Twenty seconds of steady work; each GPU draws 600 W by its energy counter."""
    tracks = {ids.server(8000): Track(ids.server(8000), TrackKind.SERVER, "vLLM", facts=facts or {})}
    series: dict[tuple[TrackId, str], Series] = {}
    seconds = range(1, 21)

    def add(track: TrackId, metric: Metric, values: list[float], origin: str) -> None:
        samples: list[tuple[int, float | None]] = [(s * NS_PER_S, x) for s, x in zip(seconds, values, strict=True)]
        series[track, metric.name] = Series.of(track, metric, origin, samples)

    for i in range(gpus):
        tracks[ids.gpu(i)] = Track(ids.gpu(i), TrackKind.GPU, "H100", facts=H100)
        for metric, value in gauges.items():
            add(ids.gpu(i), metric, [value] * 20, "NVML" if metric is v.GPU_POWER else "GPM")
        if energy:
            add(ids.gpu(i), v.GPU_ENERGY, [600.0 * s for s in seconds], "NVML")
    for metric, value in SERVER_GAUGES.items():
        add(ids.server(8000), metric, [value] * 20, "vllm")
    for metric, rate in rates.items():
        add(ids.server(8000), metric, [rate * s for s in seconds], "vllm")
    return Trace(Origin("live"), 0, 20 * NS_PER_S, tracks=tracks, series=series, missing=missing, sources=SOURCES)


def value(result: Quantity | Unknown) -> float:
    assert isinstance(result, Quantity), result
    return float(result.value)


def source(result: Quantity | Unknown) -> str:
    assert isinstance(result, Quantity), result
    return result.source


def test_mfu_counts_what_tokens_are_worth_without_cached_prompts() -> None:
    view = efficiency_view(trace_of(), TARGET)
    assert value(view.mfu) == pytest.approx(2 * ACTIVE * 7000 / 989.4e12)
    assert source(view.mfu) == "model estimate: prompt tokens not cached, and output tokens; config.json"


def test_where_cached_prompts_are_not_counted_the_source_says_so() -> None:
    rates = {metric: rate for metric, rate in SERVER_RATES.items() if metric is not v.SERVER_PREFIX_HITS}
    view = efficiency_view(trace_of(rates=rates), TARGET)
    assert value(view.mfu) == pytest.approx(2 * ACTIVE * 8000 / 989.4e12)
    assert "cached prompts among them" in source(view.mfu)


def test_mbu_is_weights_and_cache_times_steps() -> None:
    facts: dict[str, Fact] = {"num_gpu_blocks": "10000", "block_size": "16"}
    trace = trace_of(facts=facts)
    cache = 0.5 * 10000 * 16 * 131072
    size = model_size(TARGET)
    assert isinstance(size, ModelSize)
    assert kv_bytes_in_use(trace, size) == cache
    view = efficiency_view(trace, TARGET)
    assert value(view.mbu) == pytest.approx((ACTIVE * 2 + cache) * 31.25 / DRAM_PEAK)
    assert "weights and KV cache; steps counted by the server" in source(view.mbu)


def test_without_the_caches_size_mbu_is_of_the_weights_and_says_so() -> None:
    view = efficiency_view(trace_of(), TARGET)
    assert value(view.mbu) == pytest.approx(ACTIVE * 2 * 31.25 / DRAM_PEAK)
    assert "weights only" in source(view.mbu)


@pytest.mark.parametrize(
    ("left_out", "steps", "says"),
    [
        ((v.SERVER_STEPS,), 25.0, "mean inter-token latency"),
        ((v.SERVER_STEPS, v.total(v.SERVER_ITL)), 31.25, "output token of each running request"),
    ],
)
def test_steps_that_are_not_counted_come_from_latency_or_batch(
    left_out: tuple[Metric, ...], steps: float, says: str
) -> None:
    rates = {metric: rate for metric, rate in SERVER_RATES.items() if metric not in left_out}
    view = efficiency_view(trace_of(rates=rates), TARGET)
    assert value(view.mbu) == pytest.approx(ACTIVE * 2 * steps / DRAM_PEAK)
    assert says in source(view.mbu)


def test_joules_per_token_sum_over_the_servers_gpus() -> None:
    two = replace(TARGET, gpus=(0, 1))
    assert value(efficiency_view(trace_of(2), two).joules_per_token) == pytest.approx(0.6)
    assert value(efficiency_view(trace_of(2), TARGET).joules_per_token) == pytest.approx(0.3)
    assert source(efficiency_view(trace_of(2), two).joules_per_token) == (
        "NVML energy counter of 2 GPUs, over output tokens"
    )


def test_without_an_energy_counter_power_stands_in() -> None:
    view = efficiency_view(trace_of(energy=False), TARGET)
    assert value(view.joules_per_token) == pytest.approx(0.25)
    assert "NVML power" in source(view.joules_per_token)


def test_measured_shares_stand_beside_the_models() -> None:
    view = efficiency_view(trace_of(2), replace(TARGET, gpus=(0, 1)))
    assert value(view.flops_share) == pytest.approx(0.2)
    assert value(view.dram_share) == pytest.approx(0.8)
    assert source(view.dram_share) == "GPM"
    assert value(view.mfu) == pytest.approx(2 * ACTIVE * 7000 / 989.4e12 / 2)
    assert isinstance(view.phase, Quantity)
    assert view.phase.value == "decode"


def test_idle_is_a_share_of_zero_and_no_joules_per_token() -> None:
    view = efficiency_view(trace_of(rates=dict.fromkeys(SERVER_RATES, 0.0)), TARGET)
    assert value(view.mfu) == 0
    assert isinstance(view.joules_per_token, Unknown)
    assert "no tokens" in view.joules_per_token.reason


def results(view: EfficiencyView) -> dict[str, Quantity | Unknown]:
    return {field.name: getattr(view, field.name) for field in fields(view) if field.name not in ("notes", "window_s")}


def test_each_missing_part_costs_only_what_needs_it() -> None:
    no_size = efficiency_view(trace_of(), replace(TARGET, config={}))
    assert [name for name, one in results(no_size).items() if isinstance(one, Unknown)] == ["mfu", "mbu"]
    why = Unknown("no dtype")
    no_dtype = efficiency_view(trace_of(), replace(TARGET, dtype=why))
    assert no_dtype.flops_share == why
    assert isinstance(no_dtype.mfu, Unknown)
    assert isinstance(no_dtype.phase, Quantity)
    no_server = efficiency_view(trace_of(), None)
    assert isinstance(no_server.mfu, Unknown)
    assert isinstance(no_server.dram_share, Quantity)


def test_without_gpus_all_of_it_says_why() -> None:
    why = Unknown("no driver", "install it")
    view = efficiency_view(trace_of(0, missing=(Missing(What("nvml"), why),)), TARGET)
    assert set(results(view).values()) == {why}


def test_strangers_on_the_gpu_are_noted() -> None:
    trace = trace_of()
    more = {
        ids.gpu_process(ids.gpu(0), pid): Track(
            ids.gpu_process(ids.gpu(0), pid), TrackKind.GPU_PROCESS, "p", ids.gpu(0)
        )
        for pid in (7, 9)
    }
    shared = replace_tracks(trace, {**trace.tracks, **more})
    assert efficiency_view(shared, TARGET).notes == (
        "1 other process uses these GPUs: energy and measured shares are of all of them",
    )
    assert not efficiency_view(trace, TARGET).notes


def test_gpus_that_may_not_be_the_servers_are_noted() -> None:
    view = efficiency_view(trace_of(2), replace(TARGET, gpus=()))
    assert view.notes == ("which GPUs the server uses is not known: all 2 are counted",)


def replace_tracks(trace: Trace, tracks: dict[TrackId, Track]) -> Trace:
    return Trace(trace.origin, trace.start_ns, trace.end_ns, tracks=tracks, series=trace.series)
