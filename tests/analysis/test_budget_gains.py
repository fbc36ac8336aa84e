"""What would help, by hand and by the chapter's own sums (Performance Engineering); nothing that is on is advised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.budget_gains import MeasuredStep, budget_gains, why_no_larger_batch
from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetPart, BudgetTerm
from llmtop.analysis.pages.token_budget import TokenBudget, token_budget
from llmtop.analysis.roofline.model_facts import ModelSize, decode_intensity, model_size
from llmtop.analysis.roofline.what_if import (
    acceptance_from,
    largest_batch,
    saved_by_compiling_s,
    speculative_s,
    tokens_per_round,
)
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.analysis.views import Quality
from llmtop.facts import SETTINGS_OF
from llmtop.model import NS_PER_S, Fact, Feature, Metric, Series, Target, Trace, TrackId, Unknown
from llmtop.settings import keys_of
from llmtop.tui.render.look import Look
from llmtop.tui.render.token_budget import draw_token_budget
from tests.analysis.test_batches import BLOCKS, STAIRS, seen
from tests.analysis.test_efficiency import SERVER_RATES, TARGET, trace_of
from tests.analysis.verdict_scenes import API, WELL, Thread

# -- the chapter's sums ----------------------------------------------------------------------------------------------

LLAMA_70B = {
    **TARGET.config,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}


def size_of(target: Target) -> ModelSize:
    found = model_size(target)
    assert isinstance(found, ModelSize), found
    return found


def test_a_request_of_4096_tokens_holds_1_34_gb_and_half_of_it_in_8_bits() -> None:
    """Napkin math 1.2: KV cache per request 1.34 GB, in INT8 0.67 GB."""
    big = replace(TARGET, config=LLAMA_70B)
    narrow = replace(big, facts={"kv_cache_dtype": "int8"})
    per_token = [size_of(one).kv_bytes_per_token for one in (big, narrow)]
    assert [round(4096 * (one or 0) / 1e9, 2) for one in per_token] == [1.34, 0.67]


def test_372_requests_fit_and_901_in_fewer_bits() -> None:
    """Napkin math 1.2: 80 GB, weights of 17.5 GB in FP16 and 17.5 x 4/16 in INT4, of 8 GPUs each."""
    request = 4096 * (size_of(replace(TARGET, config=LLAMA_70B)).kv_bytes_per_token or 0) / 8
    assert largest_batch(80e9, 17.5e9, request) == 372
    assert largest_batch(80e9, 17.5e9 * 4 / 16, request / 2) == 901
    assert largest_batch(10e9, 17.5e9, request) == 0


def test_compiling_makes_189_tokens_a_second_of_120() -> None:
    """Napkin math 1.3: 35 percent in element-wise kernels, 15 percent in launches."""
    step_s = 1 / 120
    assert round(1 / (step_s - saved_by_compiling_s(0.35 * step_s, 0.15 * step_s))) == 189


def test_five_drafted_tokens_make_3_5_of_one_step() -> None:
    """The 70B case study, round 3: acceptance 0.78, drafts of 4 ms, a step of 32 ms; 10.3 ms with 3.5 rounded."""
    assert tokens_per_round(0.78, 5) == pytest.approx(3.5, abs=0.05)
    assert speculative_s(4.0, 32.0, 0.78, 5) == pytest.approx(10.3, rel=0.01)
    assert tokens_per_round(1.0, 5) == 6
    assert acceptance_from(tokens_per_round(0.78, 5) - 1, 5) == pytest.approx(0.78, abs=1e-6)


def test_a_batch_of_256_has_an_intensity_of_256() -> None:
    """Batch size as the universal control knob: I(256) is about 256 FLOP/byte in FP16."""
    assert decode_intensity(size_of(replace(TARGET, config=LLAMA_70B)), 256) == pytest.approx(256, rel=0.01)


# -- what a step is told ---------------------------------------------------------------------------------------------


def step_of(
    terms: Mapping[BudgetPart, float],
    trace: Trace | None = None,
    target: Target = TARGET,
    working_s: float = 0.0,
    collecting_s: float = 0.0,
) -> MeasuredStep:
    """A step of 10 ms over 8 requests, 8 tokens, of an H100."""
    whole = trace or trace_of()
    late = (working_s, collecting_s)
    made = [
        BudgetTerm(part, seconds, Quality.ESTIMATE, "", (), *(late if part is BudgetPart.LATE_CPU else ()))
        for part, seconds in terms.items()
    ]
    server = whole.tracks[ids.server(8000)]
    gpus = gpu_tracks(whole)
    return MeasuredStep(whole, target, server, gpus, size_of(target), made, 0.01, 8.0, 8.0, 100.0, 15 * NS_PER_S)


def told(*features: Feature, is_on: str = "off") -> dict[str, Fact]:
    """A server that says what some features are set to."""
    facts: dict[str, Fact] = {SETTINGS_OF: "vllm"}
    for one in features:
        keys = keys_of(one)
        facts |= {keys.value: is_on, keys.source: "told", keys.change: f"--{one}"}
    return facts


def gains(step: MeasuredStep) -> dict[str, BudgetGain]:
    return {gain.change: gain for gain in budget_gains(step)}


def test_half_the_bytes_save_half_of_their_time_at_the_bandwidth_that_is_reached() -> None:
    """GPM tells 80 percent of the peak: 4 ms at the peak are 5 ms, of which half goes."""
    terms = {BudgetPart.WEIGHTS: 0.004, BudgetPart.KV_CACHE: 0.002, BudgetPart.REST: 0.004}
    found = gains(step_of(terms))
    weights, cache = found["weights in 8 bits"], found["KV cache in 8 bits"]
    assert (weights.low, weights.high) == pytest.approx((0.002, 0.0025))
    assert (cache.low, cache.high) == pytest.approx((0.001, 0.00125))
    assert weights.text == "2.00 to 2.50 ms"
    little = gains(step_of({BudgetPart.WEIGHTS: 0.004, BudgetPart.REST: 0.0001}))["weights in 8 bits"]
    assert little.high == pytest.approx(0.0021)
    resting = trace_of(gauges={v.GPU_DRAM: 40.0, v.GPU_UTIL: 50.0})
    while_busy = gains(step_of(terms, resting))["weights in 8 bits"]
    assert while_busy.high == pytest.approx(0.0025), "the GPU had work half of the time"
    without_gpm = gains(step_of(terms, trace_of(gauges={})))["weights in 8 bits"]
    assert (without_gpm.low, without_gpm.high, without_gpm.text) == (0.002, 0.002, "2.00 ms")


def test_what_narrower_bytes_make_room_for() -> None:
    trace = trace_of(facts=dict(BLOCKS))
    found = gains(step_of({BudgetPart.WEIGHTS: 0.004, BudgetPart.KV_CACHE: 0.002}, trace))
    request = 0.5 * 16000 / 64
    weights = size_of(TARGET).parameters * 2 / (32 * 2 * 1024 * 2)
    now = math.floor(16000 / request)
    assert (
        f"room for {math.floor((16000 + weights / 2) / request):,} such requests, now {now}"
        in found["weights in 8 bits"].how
    )
    assert f"room for {2 * now} such requests, now {now}" in found["KV cache in 8 bits"].how


def test_eight_bits_become_four_and_four_stay() -> None:
    only = {BudgetPart.WEIGHTS: 0.004}
    (found,) = budget_gains(step_of(only, target=replace(TARGET, dtype="fp8")))
    assert found.change == "weights in 4 bits"
    assert found.low == pytest.approx(0.004 * (1 - 4.25 / 8))
    four = replace(TARGET, config={**TARGET.config, "quantization_config.bits": 4}, facts={"quantization": "awq"})
    assert budget_gains(step_of(only, target=four)) == ()
    small = replace(TARGET, facts={"kv_cache_dtype": "fp8"})
    assert budget_gains(step_of({BudgetPart.KV_CACHE: 0.004}, target=small)) == ()


def test_only_the_three_largest_parts_are_told_of() -> None:
    terms = {BudgetPart.WEIGHTS: 4.0, BudgetPart.KV_CACHE: 1.0, BudgetPart.PROMPTS: 2.0, BudgetPart.REST: 3.0}
    found = budget_gains(step_of({part: seconds / 1e3 for part, seconds in terms.items()}))
    assert {gain.part for gain in found} == {BudgetPart.WEIGHTS, BudgetPart.PROMPTS, BudgetPart.REST}
    assert [gain.high for gain in found] == sorted((gain.high for gain in found), reverse=True)
    below_zero = budget_gains(step_of({BudgetPart.REST: -0.001}))
    assert below_zero == ()


LATE = {BudgetPart.LATE_CPU: 0.005}


def test_graphs_take_most_of_the_time_in_which_the_engine_worked() -> None:
    off = trace_of(facts=told(Feature.CUDA_GRAPHS, Feature.ASYNC_SCHEDULING))
    found = gains(step_of(LATE, off, working_s=0.004))
    graphs = found["CUDA graphs (--cuda_graphs)"]
    assert (graphs.low, graphs.high) == pytest.approx((0.0, 0.0032))
    assert graphs.text == "at most 3.20 ms"
    assert "napkin math 1.3" in graphs.source
    assert found["the next step scheduled while this one computes (--async_scheduling)"].high == 0.005


def launching(per_s: float) -> Trace:
    """The engine's thread under probes."""
    scene = WELL.but(threads=(API, Thread(on_cpu=0.5, launches=per_s)), facts=told(Feature.CUDA_GRAPHS))
    probed, plain = scene.trace(), trace_of(facts=told(Feature.CUDA_GRAPHS))
    return replace(probed, tracks={**probed.tracks, **plain.tracks})


@pytest.mark.parametrize(
    ("working_s", "low", "high"),
    [(0.030, 0.0025, 0.025), (0.025, 0.020, 0.025), (0.003, 0.0024, 0.003)],
)
def test_launches_that_were_counted_say_what_one_graph_saves(working_s: float, low: float, high: float) -> None:
    """501 launches a step, at 100 steps a second, become one: 5 to 50 us each, or most of what the thread does."""
    found = gains(step_of(LATE, launching(50_100.0), working_s=working_s))["CUDA graphs (--cuda_graphs)"]
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-3)
    assert found.how.startswith("501 launches a step")


def test_one_launch_a_step_is_no_launch_to_save() -> None:
    assert "CUDA graphs (--cuda_graphs)" not in gains(step_of(LATE, launching(100.0), working_s=0.003))


def test_what_is_on_is_not_advised() -> None:
    every = (Feature.CUDA_GRAPHS, Feature.ASYNC_SCHEDULING, Feature.TORCH_COMPILE, Feature.PREFIX_CACHING)
    on = trace_of(facts=told(*every, is_on="on"))
    assert list(gains(step_of(LATE, on, working_s=0.004))) == ["the CPU hidden behind the GPU"]
    assert list(gains(step_of({BudgetPart.REST: 0.005}, on))) == ["kernels at their roofs, without gaps"]
    assert list(gains(step_of({BudgetPart.PROMPTS: 0.005}, on))) == ["prefill elsewhere"]
    off = trace_of(facts=told(*every))
    assert gains(step_of({BudgetPart.REST: 0.005}, off))["torch.compile (--torch_compile)"].high == pytest.approx(
        0.0035
    )
    uncached = trace_of(rates={**SERVER_RATES, v.SERVER_PREFIX_HITS: 0.0}, facts=told(*every))
    cached = "the beginnings of prompts cached (--prefix_caching)"
    assert cached in gains(step_of({BudgetPart.PROMPTS: 0.005}, uncached))
    assert cached not in gains(step_of({BudgetPart.PROMPTS: 0.005}, off))  # it hits, whatever the setting says


def test_quantising_says_how_only_where_it_is_off() -> None:
    off = trace_of(facts=told(Feature.QUANTIZATION))
    assert list(gains(step_of({BudgetPart.WEIGHTS: 0.004}, off))) == ["weights in 8 bits (--quantization)"]


def test_a_narrower_format_computes_faster_where_the_gpu_has_it() -> None:
    (found,) = budget_gains(step_of({BudgetPart.COMPUTE: 0.004}))
    assert found.change == "fp8 weights and activations"
    assert (found.low, found.high) == pytest.approx((0.0, 0.002), rel=1e-3)
    assert budget_gains(step_of({BudgetPart.COMPUTE: 0.004}, target=replace(TARGET, dtype="fp8"))) == ()


def test_a_larger_batch_spares_each_token_a_part_of_the_step() -> None:
    """By the planted line 44.5 requests take 12.45 ms and 170 take 25 ms: a token costs 0.28 ms, and then 0.147."""
    trace = seen(STAIRS, facts=dict(BLOCKS))
    found = gains(step_of({BudgetPart.WEIGHTS: 0.004}, trace))["batch 170"]
    assert found.high == pytest.approx(0.01 * (1 - (0.025 / 170) / (0.01245 / 44.5)), rel=1e-3)
    assert "a = " not in found.how
    assert "step = 8 ms" in found.how
    slow = replace(trace, origin=replace(trace.origin, facts={"objective.itl.p50": 0.0125}))
    assert "batch 45" not in gains(step_of({BudgetPart.WEIGHTS: 0.004}, slow))


def drafting(drafted: float, accepted: float) -> Trace:
    whole = trace_of()
    columns = {v.SERVER_DRAFTED: drafted, v.SERVER_ACCEPTED: accepted}
    return replace(whole, series={**whole.series, **{_key(one): _ramp(one, rate) for one, rate in columns.items()}})


def _key(metric: Metric) -> tuple[TrackId, str]:
    return ids.server(8000), metric.name


def _ramp(metric: Metric, rate: float) -> Series:
    return Series.of(ids.server(8000), metric, "vllm", [(s * NS_PER_S, rate * s) for s in range(1, 21)])


def test_one_more_drafted_token_yields_what_acceptance_says() -> None:
    """8 requests, 3.5 tokens a step each, of 5 drafted: p is 0.776, and 6 drafted make 3.73 or so."""
    more = 2.5
    step = replace(step_of({BudgetPart.WEIGHTS: 0.004}, drafting(500.0, 500.0 * more / 5)), tokens=8 * (1 + more))
    found = gains(step)["one more drafted token a step"]
    chance = acceptance_from(more, 5)
    then = tokens_per_round(chance, 6)
    assert found.low == 0
    assert found.high == pytest.approx(0.01 * (1 - 3.5 / then), rel=1e-6)
    assert "one more drafted token a step" not in gains(replace(step, batch=32.0))
    assert "one more drafted token a step" not in gains(replace(step, tokens=8.0))
    assert "one more drafted token a step" not in gains(replace(step, trace=drafting(1.0, 0.5)))


def speculating(is_on: str) -> Trace:
    return trace_of(facts=told(Feature.SPECULATIVE_DECODING, is_on=is_on))


def test_drafts_are_offered_where_they_are_off_and_the_batch_is_small() -> None:
    """Five drafted tokens make six of one, were all accepted, and 3.5 at p = 0.78 (the 70B case study, round 3)."""
    name = "speculative decoding (--speculative_decoding)"
    step = step_of({BudgetPart.WEIGHTS: 0.004}, speculating("off"))
    found = gains(step)[name]
    assert (found.low, found.high) == pytest.approx((0.0, 0.01 * 5 / 6))
    assert "make 6 of one, were all accepted, 3.52 at p = 0.78;" in found.how
    assert name not in gains(replace(step, batch=32.0))
    assert name not in gains(step_of({BudgetPart.WEIGHTS: 0.004}, speculating("on")))
    assert name not in gains(step_of({BudgetPart.WEIGHTS: 0.004}))  # it is not known whether it is on


def test_why_nothing_is_said_of_a_larger_batch() -> None:
    """Until batches spread, where weights are a large part; with a knee there is nothing to say."""
    flat = seen([8.0] * 20, facts=dict(BLOCKS))
    why = why_no_larger_batch(step_of({BudgetPart.WEIGHTS: 0.004}, flat))
    assert isinstance(why, Unknown)
    assert "not enough spread yet" in str(why)
    assert why_no_larger_batch(step_of({BudgetPart.PROMPTS: 0.004}, flat)) is None
    assert why_no_larger_batch(step_of({BudgetPart.WEIGHTS: 0.004}, seen(STAIRS, facts=dict(BLOCKS)))) is None


# -- on the screen ---------------------------------------------------------------------------------------------------


def test_each_part_has_what_would_help_below_it() -> None:
    budget = token_budget(trace_of(rates=SERVER_RATES, facts=dict(BLOCKS)), TARGET)
    assert isinstance(budget, TokenBudget)
    wide = [strip.text.rstrip() for strip in draw_token_budget(budget, 118, 40, Look())]
    weights = next(i for i, row in enumerate(wide) if row.startswith("weights"))
    assert wide[weights + 1] == "  → 2.24 to 2.80 ms (8.7 %) less with weights in 8 bits"
    assert wide[weights + 2].startswith(
        "    2.00 bytes a value become 1.00, at the published bandwidth, and at the 80 %"
    )
    for height in (4, 8, 10):
        rows = [strip.text for strip in draw_token_budget(budget, 78, height, Look())]
        assert len(rows) == height
    assert [row.split()[0] for row in rows if not row.startswith(" ")][2:6] == ["weights", "KV", "prompts", "rest"]


def test_of_late_cpu_no_more_than_collections_is_saved_by_fewer_of_them() -> None:
    late = {BudgetPart.LATE_CPU: 4e-3}
    (gain,) = (one for one in budget_gains(step_of(late, collecting_s=1.5e-3)) if "garbage" in one.change)
    assert (gain.text, gain.source) == ("at most 1.50 ms", "docs.python.org, gc.freeze")
    assert gain.how.startswith("all of it: gc.freeze() once warm leaves out what stands then")
    assert not any("garbage" in one.change for one in budget_gains(step_of(late)))
