"""In decode the pipes count padding: the work that the tokens took leads, and says what it is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.roofline import server as roofline_server
from llmtop.analysis.roofline.model_facts import model_size
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.roofline.work import COUNTED, WORK, work_flops_per_s
from llmtop.analysis.server.liveness import Life, Liveness
from llmtop.analysis.views import Quality
from llmtop.model import NS_PER_S, Series, Trace, Unknown
from tests.analysis.llama_on_h100 import ACTIVE, DRAM_PEAK
from tests.analysis.test_roofline_server import DECODE, TARGET, TOKENS, trace_of

PADDED = {**DECODE, v.GPU_TENSOR_HMMA: 12.0}
COUNTED_FLOPS = 0.12 * 989.4e12
OUTPUT_S, PROMPT_S = 1000.0, 2000.0
RATES = {v.SERVER_OUTPUT_TOKENS: OUTPUT_S, v.SERVER_PROMPT_TOKENS: PROMPT_S, v.SERVER_STEPS: 31.25}
LINEAR = 2 * ACTIVE * (OUTPUT_S + PROMPT_S)
ONE_GPU = replace(TARGET, gpus=(0,))


def decoding(gpus: int = 1, **extra: object) -> Trace:
    return trace_of([PADDED] * gpus, rates=RATES, **extra)  # type: ignore[arg-type]


def test_the_work_leads_and_the_counted_stands_second() -> None:
    first, second, *others = server_roofline(decoding(), ONE_GPU, ids.gpu(0)).points
    assert all(point.age_s for point in others), "and what was counted now stands nowhere else"
    assert first.flops_per_s == pytest.approx(LINEAR)
    assert first.bytes_per_s == pytest.approx(0.8 * DRAM_PEAK), "what was measured stays"
    assert first.intensity == pytest.approx(LINEAR / (0.8 * DRAM_PEAK))
    assert first.roof_fraction == pytest.approx(0.8)
    assert (first.label, first.quality, first.age_s) == (WORK, Quality.ESTIMATE, 0)
    said = "mean of 15 s, from tokens and shapes, estimate; the tensor pipes counted 119 TFLOP/s: padding"
    assert first.source == said
    assert (second.label, second.quality) == (COUNTED, Quality.UPPER_BOUND)
    assert second.flops_per_s == pytest.approx(COUNTED_FLOPS)


def test_each_gpu_does_its_share() -> None:
    alone = server_roofline(decoding(2), TARGET, ids.gpu(1)).points[0]
    together = server_roofline(decoding(2), TARGET).points[0]
    assert alone.flops_per_s == pytest.approx(LINEAR / 2)
    assert together.flops_per_s == pytest.approx(LINEAR)


def test_the_trail_of_the_same_phase_moves_too() -> None:
    trail = [point for point in server_roofline(decoding(), ONE_GPU, ids.gpu(0)).points if point.age_s]
    assert {point.quality for point in trail} == {Quality.ESTIMATE}
    assert {round(point.flops_per_s / LINEAR, 6) for point in trail} == {1.0}


def test_attention_counts_by_the_context() -> None:
    """1000 blocks of 16 tokens, half of them in use by 10 requests: 800 tokens each."""
    facts = {"num_gpu_blocks": "1000", "block_size": "16"}
    gauges = {v.SERVER_KV_USAGE: 0.5, v.SERVER_RUNNING: 10.0}
    done = work_flops_per_s(decoding(gauges=gauges, facts=facts), model_size(ONE_GPU))
    assert not isinstance(done, Unknown)
    assert done.value == pytest.approx(LINEAR + 4 * 32 * 4096 * 800 * OUTPUT_S)


def test_attention_of_prompts_counts_at_their_mean_length() -> None:
    """2000 prompt tokens and 4 first tokens a second: 500 tokens each, the last 100 of which a cache did not hold."""
    first_tokens = v.bucket(v.SERVER_TTFT, math.inf)
    done = work_flops_per_s(trace_of([PADDED], rates={**RATES, first_tokens: 4.0}), model_size(ONE_GPU))
    assert not isinstance(done, Unknown)
    assert done.value == pytest.approx(LINEAR + 4 * 32 * 4096 * 250 * PROMPT_S)
    rates = {**RATES, first_tokens: 4.0, v.SERVER_PREFIX_HITS: 1600.0}
    cached = work_flops_per_s(trace_of([PADDED], rates=rates), model_size(ONE_GPU))
    assert not isinstance(cached, Unknown)
    assert cached.value == pytest.approx(2 * ACTIVE * (OUTPUT_S + 400) + 4 * 32 * 4096 * 450 * 400)


def test_tokens_of_before_say_their_age() -> None:
    """A server whose page takes long is alive, and its tokens are of some seconds ago."""
    trace = decoding()
    end_ns = trace.end_ns - 6 * NS_PER_S
    late = {
        key: series.between(0, end_ns) if key[0] == "server:8000" else series for key, series in trace.series.items()
    }
    first = server_roofline(replace(trace, series=late), ONE_GPU, ids.gpu(0)).points[0]
    assert first.source.startswith("mean of 15 s, from tokens and shapes (6 s old), estimate;")


def test_the_servers_own_count_is_taken_before_tokens() -> None:
    own = {**RATES, v.SERVER_FLOPS: 30e12, v.SERVER_READ_BYTES: 2.5e12}
    first = server_roofline(trace_of([PADDED], rates=own), ONE_GPU, ids.gpu(0)).points[0]
    assert first.flops_per_s == pytest.approx(30e12)
    assert first.source.startswith("mean of 15 s, from the server's FLOP counters, estimate;")


def test_the_work_leads_however_full_the_tiles_look() -> None:
    """Padding raises the counted intensity too: 64 requests count as 96 rows, and look like full tiles."""
    full = {**DECODE, v.GPU_TENSOR_HMMA: 60.0}
    first, second, *_ = server_roofline(trace_of([full], rates=RATES), ONE_GPU, ids.gpu(0)).points
    assert first.flops_per_s == pytest.approx(LINEAR)
    assert (first.label, second.label, second.quality) == (WORK, COUNTED, Quality.UPPER_BOUND)


def test_work_and_bytes_are_of_one_window() -> None:
    """Bytes that fall in the newest window alone are a part of the mean."""
    trace = decoding()
    dram = trace.series[ids.gpu(0), v.GPU_DRAM.name]
    *before, (last_ns, _) = dram.between(0, trace.end_ns)
    fallen = Series.of(ids.gpu(0), v.GPU_DRAM, dram.source, [*before, (last_ns, 5.0)])
    series = {**trace.series, (ids.gpu(0), v.GPU_DRAM.name): fallen}
    first, second, *_ = server_roofline(replace(trace, series=series), ONE_GPU, ids.gpu(0)).points
    assert second.bytes_per_s == pytest.approx(0.05 * DRAM_PEAK)
    assert first.bytes_per_s == pytest.approx((14 * 0.8 + 0.05) / 15 * DRAM_PEAK, rel=0.01)


def test_tokens_that_no_pipe_computed_move_nothing() -> None:
    """More work than was counted: prompts out of a cache, or a wrong size. The bound stays a bound."""
    more = {metric: 2 * rate for metric, rate in TOKENS.items()}
    first = server_roofline(trace_of([PADDED], rates=more), ONE_GPU, ids.gpu(0)).points[0]
    assert (first.quality, first.source) == (Quality.UPPER_BOUND, "GPM")


def test_without_a_size_the_bound_stays() -> None:
    nameless = replace(ONE_GPU, config={})
    first = server_roofline(decoding(), nameless, ids.gpu(0)).points[0]
    assert first.quality is Quality.UPPER_BOUND


def test_a_dead_server_has_no_point_from_its_last_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline_server, "liveness", lambda _: _Over())
    own = {**RATES, v.SERVER_FLOPS: 30e12, v.SERVER_READ_BYTES: 2.5e12}
    view = server_roofline(trace_of([], rates=own), ONE_GPU)
    assert view.points == ()
    assert "serves no requests any more" in str(view.refusals[-1].why)
    beside = server_roofline(trace_of([PADDED], rates=own), ONE_GPU, ids.gpu(0))
    assert beside.points[0].source == "GPM", "what the GPU does is still measured"


class _Over(Liveness):
    is_over = True

    def __init__(self) -> None:
        super().__init__(Life.DEAD)
