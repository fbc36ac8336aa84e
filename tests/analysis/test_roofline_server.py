"""A server's roofline: sums over GPUs, the ladder below GPM, the estimate's ratio, and the decode model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.roofline import ALL_GPUS, roofline
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.views import Quality, RooflineView
from llmtop.model import (
    NS_PER_S,
    Metric,
    Missing,
    Origin,
    Series,
    Target,
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
    from collections.abc import Mapping, Sequence

    from llmtop.model import Fact

TARGET = Target(7, 7, "vllm", "vLLM", (), model="m", dtype="bfloat16", gpus=(0, 1), config=LLAMA_8B)
A100: dict[str, Fact] = {"name": "NVIDIA A100-SXM4-80GB", "bus_width_bits": 5120, "max_memory_mhz": 1593}
DECODE: dict[Metric, float] = {
    v.GPU_DRAM: 80.0,
    v.GPU_TENSOR_HMMA: 20.0,
    v.GPU_TENSOR_IMMA: 0.0,
    v.GPU_TENSOR_DFMA: 0.0,
    v.GPU_FP32: 0.0,
    v.GPU_FP64: 0.0,
    v.GPU_SM_CLOCK: 1830.0,
}
TOKENS = {v.SERVER_OUTPUT_TOKENS: 2000.0, v.SERVER_PROMPT_TOKENS: 6000.0, v.SERVER_STEPS: 31.25}


def trace_of(
    gpus: Sequence[Mapping[Metric, float]],
    *,
    kinds: Sequence[Mapping[str, Fact]] = (H100, H100, H100),
    rates: Mapping[Metric, float] | None = None,
    gauges: Mapping[Metric, float] | None = None,
    facts: Mapping[str, Fact] | None = None,
    late_ns: int = 0,
    missing: tuple[Missing, ...] = (),
) -> Trace:
    """Twenty windows, one a second; each further GPU's end `late_ns` later."""
    tracks = {ids.gpu(i): Track(ids.gpu(i), TrackKind.GPU, "H100", facts=kinds[i]) for i in range(len(gpus))}
    series: dict[tuple[TrackId, str], Series] = {}

    def add(track: TrackId, metric: Metric, samples: list[tuple[int, float | None]], origin: str) -> None:
        series[track, metric.name] = Series.of(track, metric, origin, samples)

    for i, values in enumerate(gpus):
        for metric, value in values.items():
            add(ids.gpu(i), metric, [(s * NS_PER_S - i * late_ns, value) for s in range(1, 21)], "GPM")
    if rates or gauges:
        tracks[ids.server(8000)] = Track(ids.server(8000), TrackKind.SERVER, "vLLM", facts=facts or {})
    for metric, rate in (rates or {}).items():
        add(ids.server(8000), metric, [(s * NS_PER_S, rate * s) for s in range(1, 21)], "vllm")
    for metric, value in (gauges or {}).items():
        add(ids.server(8000), metric, [(s * NS_PER_S, value) for s in range(1, 21)], "vllm")
    return Trace(Origin("live"), 0, 20 * NS_PER_S, tracks=tracks, series=series, missing=missing, sources=SOURCES)


def notes(view: RooflineView) -> str:
    return "\n".join(view.notes)


# -- all GPUs together


def test_two_gpus_add_up_under_two_roofs() -> None:
    busy = DECODE | {v.GPU_DRAM: 40.0, v.GPU_TENSOR_HMMA: 60.0}
    view = server_roofline(trace_of([DECODE, busy]), TARGET)
    point = view.points[0]
    assert point.bytes_per_s == pytest.approx(1.2 * DRAM_PEAK)
    assert point.flops_per_s == pytest.approx(0.8 * 989.4e12)
    assert point.intensity == pytest.approx(point.flops_per_s / point.bytes_per_s)
    assert point.roof_fraction == pytest.approx(0.6)
    assert [roof.value for roof in view.roofs] == pytest.approx([2 * DRAM_PEAK, 2 * 989.4e12])
    assert view.roofs[0].source.startswith("2 x NVML")
    assert view.roofs[1].practical == pytest.approx(2 * 989.4e12 * 0.803)
    assert view.title == "H100 (2 GPUs together)"
    assert len(view.points) == 20


def test_one_gpu_of_several_is_that_gpu_alone() -> None:
    view = server_roofline(trace_of([DECODE, DECODE]), TARGET, ids.gpu(1))
    assert view.points[0].bytes_per_s == pytest.approx(0.8 * DRAM_PEAK)
    assert view.title == "H100 (gpu:1)"


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        (None, "H100 (gpu:0)"),
        (ids.gpu(1), "H100 (gpu:1)"),
        (ids.gpu(9), "H100 (gpu:0)"),
        (ALL_GPUS, "H100 (2 GPUs together)"),
    ],
)
def test_the_page_is_of_the_gpu_that_is_chosen_and_of_the_first_where_that_is_gone(
    gpu: TrackId | None, title: str
) -> None:
    view = roofline(trace_of([DECODE, DECODE]), TARGET, gpu)
    assert isinstance(view, RooflineView)
    assert view.title == title


def test_only_the_targets_gpus_are_added() -> None:
    view = server_roofline(trace_of([DECODE, DECODE, DECODE]), TARGET)
    assert view.points[0].bytes_per_s == pytest.approx(1.6 * DRAM_PEAK)


def test_windows_that_end_a_little_apart_belong_together() -> None:
    assert server_roofline(trace_of([DECODE, DECODE], late_ns=40_000_000), TARGET).points
    apart = server_roofline(trace_of([DECODE, DECODE], late_ns=400_000_000), TARGET)
    assert apart.why_not is not None
    assert "do not end together" in apart.why_not.reason


def test_gpus_of_different_kinds_do_not_add_up() -> None:
    view = server_roofline(trace_of([DECODE, DECODE], kinds=(H100, A100)), TARGET)
    assert not view.points
    assert view.why_not is not None
    assert "H100 SXM" in view.why_not.reason
    assert "A100 80GB SXM" in view.why_not.reason


def test_a_gpu_without_a_window_is_named() -> None:
    broken = {metric: value for metric, value in DECODE.items() if metric is not v.GPU_DRAM}
    missing = (Missing(What("gpu:1/gpm"), Unknown("GPM is off", "turn it on")),)
    view = server_roofline(trace_of([DECODE, broken], missing=missing), TARGET)
    assert view.why_not == Unknown("GPU 1: GPM is off", "turn it on")


def test_the_clocks_own_roof_is_of_all_gpus() -> None:
    slow = DECODE | {v.GPU_SM_CLOCK: 1464.0}
    roof = server_roofline(trace_of([slow, slow]), TARGET).roofs[1]
    assert roof.now == pytest.approx(2 * 989.4e12 * 0.8)
    assert server_roofline(trace_of([DECODE, DECODE]), TARGET).roofs[1].now is None


def test_a_clock_that_was_not_checked_is_named() -> None:
    busy = DECODE | {v.GPU_DRAM: 20.0, v.GPU_TENSOR_HMMA: 90.0}
    h200: dict[str, Fact] = {"name": "NVIDIA H200", "bus_width_bits": 6144, "max_memory_mhz": 3201}
    checked = server_roofline(trace_of([busy]), TARGET, ids.gpu(0))
    unchecked = server_roofline(trace_of([busy], kinds=(h200,)), TARGET, ids.gpu(0))
    assert "NVML's SM clock" in notes(unchecked)
    assert "NVML's SM clock" not in notes(checked)


def test_where_gpm_counts_the_cycles_the_flops_are_measured_at_their_clock() -> None:
    """An H200 at 681 W: NVML said 1451 MHz, the SMs counted 1335."""
    h200: dict[str, Fact] = {"name": "NVIDIA H200", "bus_width_bits": 6144, "max_memory_mhz": 3201}
    busy = DECODE | {v.GPU_DRAM: 16.5, v.GPU_TENSOR_HMMA: 88.6, v.GPU_SM_CLOCK: 1451.4}
    view = server_roofline(trace_of([busy | {v.GPU_SM_CLOCK_TRUE: 1334.6}], kinds=(h200,)), TARGET, ids.gpu(0))
    assert view.points[0].flops_per_s == pytest.approx(0.886 * 989.4e12 * 1334.6 / 1830)
    assert view.roofs[1].now == pytest.approx(989.4e12 * 1334.6 / 1830)
    assert "NVML's SM clock" not in notes(view)
    both = server_roofline(trace_of([busy | {v.GPU_SM_CLOCK_TRUE: 1334.6}, busy], kinds=(h200, h200)), TARGET)
    assert "NVML's SM clock" in notes(both), "one of the two has only NVML's word"


# -- the server's estimate against the measured point

MEASURED = {v.SERVER_FLOPS: 0.2 * 989.4e12, v.SERVER_READ_BYTES: 0.8 * DRAM_PEAK}


@pytest.mark.parametrize(
    ("flops", "traffic", "says", "not_says"),
    [
        (1.0, 1.0, "agree", "estimate:"),
        (0.5, 1.0, "measured FLOP/s are 2.00 x the estimate: padding", "bytes are"),
        (1.0, 0.4, "measured bytes are 2.50 x the estimate: re-reads", "FLOP/s are"),
        (1.0, 2.0, "measured bytes are 0.50 x the estimate: caches", "FLOP/s are"),
        (2.0, 1.0, "measured FLOP/s are 0.50 x the estimate: prefix hits", "bytes are"),
    ],
)
def test_the_ratio_to_the_estimate_is_explained(flops: float, traffic: float, says: str, not_says: str) -> None:
    rates = {
        v.SERVER_FLOPS: MEASURED[v.SERVER_FLOPS] * flops,
        v.SERVER_READ_BYTES: MEASURED[v.SERVER_READ_BYTES] * traffic,
    }
    for gpu in (None, ids.gpu(0)):
        view = server_roofline(trace_of([DECODE, DECODE], rates=rates), TARGET, gpu)
        assert says in view.notes[0]
        assert not_says not in view.notes[0]


def test_without_an_estimate_there_is_no_ratio() -> None:
    assert "estimate" not in notes(server_roofline(trace_of([DECODE, DECODE]), TARGET))


# -- the ladder


def test_the_servers_counters_stand_in_for_gpm() -> None:
    clock = {v.GPU_SM_CLOCK: 1830.0}
    view = server_roofline(trace_of([clock, clock], rates=MEASURED), TARGET)
    [point] = view.points
    assert point.quality is Quality.ESTIMATE
    assert point.flops_per_s == pytest.approx(0.4 * 989.4e12)
    assert "model estimate" in point.source
    assert [refusal.label for refusal in view.refusals] == ["GPM"]


def test_without_any_gpu_the_servers_estimate_still_stands() -> None:
    [point] = server_roofline(trace_of([], rates=MEASURED), TARGET).points
    assert point.label == "server estimate"


def test_tokens_and_the_models_size_are_the_last_rung() -> None:
    clock = {v.GPU_SM_CLOCK: 1830.0}
    together = server_roofline(trace_of([clock, clock], rates=TOKENS), TARGET).points[0]
    assert together.label == "from tokens"
    assert together.quality is Quality.ESTIMATE
    assert together.flops_per_s == pytest.approx(2 * ACTIVE * 8000)
    assert together.bytes_per_s == pytest.approx(2 * ACTIVE * 31.25)
    alone = server_roofline(trace_of([clock, clock], rates=TOKENS), TARGET, ids.gpu(0)).points[0]
    assert alone.flops_per_s == pytest.approx(ACTIVE * 8000)


def test_an_idle_server_is_no_point_at_zero() -> None:
    clock = {v.GPU_SM_CLOCK: 1830.0}
    view = server_roofline(trace_of([clock, clock], rates=dict.fromkeys(TOKENS, 0.0)), TARGET)
    assert not view.points
    assert "from tokens" in [refusal.label for refusal in view.refusals]


def test_the_duty_cycle_is_no_rung() -> None:
    view = server_roofline(trace_of([{v.GPU_UTIL: 100.0}, {v.GPU_UTIL: 100.0}]), TARGET)
    assert not view.points


# -- the decode model


def test_ghosts_stand_on_the_roof_at_the_batches_and_at_now() -> None:
    view = server_roofline(trace_of([DECODE, DECODE], gauges={v.SERVER_RUNNING: 64.0}), TARGET)
    assert [ghost.label for ghost in view.ghosts] == ["B1", "B8", "B32", "B64 now", "B128"]
    assert [ghost.intensity for ghost in view.ghosts] == pytest.approx([1, 8, 32, 64, 128], rel=0.005)
    for ghost in view.ghosts:
        assert ghost.flops_per_s == pytest.approx(ghost.intensity * 2 * DRAM_PEAK)
        assert ghost.quality is Quality.ESTIMATE
        assert "weights only" in ghost.source


def test_the_cache_in_use_moves_the_ghosts_left() -> None:
    facts: dict[str, Fact] = {"num_gpu_blocks": "16384", "block_size": "16"}
    gauges = {v.SERVER_RUNNING: 64.0, v.SERVER_KV_USAGE: 0.5}
    view = server_roofline(trace_of([DECODE, DECODE], gauges=gauges, facts=facts), TARGET)
    now = next(ghost for ghost in view.ghosts if "now" in ghost.label)
    cache = 0.5 * 16384 * 16 * 131072
    assert now.intensity == pytest.approx(2 * ACTIVE * 64 / (2 * ACTIVE + cache), rel=0.001)
    assert "weights and KV cache" in now.source


def test_a_ghost_beyond_the_ridge_stands_on_the_compute_roof() -> None:
    view = server_roofline(trace_of([DECODE, DECODE], gauges={v.SERVER_RUNNING: 512.0}), TARGET)
    assert view.ghosts[-1].label == "B512 now"
    assert view.ghosts[-1].flops_per_s == pytest.approx(2 * 989.4e12)


@pytest.mark.parametrize(("running", "now"), [(0.3, None), (0.5, None), (0.6, "B1 now"), (2.6, "B3 now")])
def test_a_mean_of_less_than_half_a_request_is_no_batch(running: float, now: str | None) -> None:
    view = server_roofline(trace_of([DECODE, DECODE], gauges={v.SERVER_RUNNING: running}), TARGET)
    assert next((ghost.label for ghost in view.ghosts if "now" in ghost.label), None) == now


def test_without_the_models_size_there_are_no_ghosts() -> None:
    assert not server_roofline(trace_of([DECODE, DECODE]), replace(TARGET, config={})).ghosts
    assert not server_roofline(trace_of([DECODE, DECODE]), None).ghosts
    assert server_roofline(trace_of([]), TARGET).why_not is not None
