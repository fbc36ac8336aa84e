"""Where a step's time goes, by hand; the chapter's own sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.pages.budget_terms import BudgetPart
from llmtop.analysis.pages.token_budget import TokenBudget, token_budget
from llmtop.analysis.roofline.model_facts import ModelSize, model_size
from llmtop.model import Target, Trace, Unknown
from tests import live_traces
from tests.analysis.llama_on_h100 import ACTIVE, DRAM_PEAK
from tests.analysis.test_efficiency import SERVER_RATES, TARGET, trace_of

BLOCKS = {"num_gpu_blocks": "1000", "block_size": "16"}
STEP_S = 1 / 31.25
PEAK = 989.4e12


def budget(trace: Trace, target: Target = TARGET) -> TokenBudget:
    found = token_budget(trace, target)
    assert isinstance(found, TokenBudget), found
    return found


def seconds(found: TokenBudget) -> dict[BudgetPart, float]:
    return {term.part: term.seconds for term in found.terms}


def test_a_step_is_what_the_model_needs_and_the_rest() -> None:
    found = budget(trace_of(facts=dict(BLOCKS)))
    weights_s, cache_s = ACTIVE * 2 / DRAM_PEAK, 0.5 * 16000 * 32 * 2 * 1024 * 2 / DRAM_PEAK
    prompts_s = (6000 - 1000) / 31.25 * 2 * ACTIVE / PEAK
    assert seconds(found) == pytest.approx(
        {
            BudgetPart.WEIGHTS: weights_s,
            BudgetPart.KV_CACHE: cache_s,
            BudgetPart.PROMPTS: prompts_s,
            BudgetPart.REST: STEP_S - weights_s - cache_s - prompts_s,
        },
        rel=1e-3,
    )
    assert (found.step_s, found.batch, found.tokens_per_step) == pytest.approx((STEP_S, 64, 64))
    assert found.floor_s == pytest.approx(weights_s + cache_s)
    assert any(note.startswith("late CPU is within the rest") for note in found.notes)


def test_without_the_number_of_requests_weights_are_those_that_one_reads() -> None:
    """Of eight experts a token takes two; the more requests there are, the more of them are read."""
    target = replace(TARGET, config={**TARGET.config, "num_local_experts": 8, "num_experts_per_tok": 2})
    size = model_size(target)
    assert isinstance(size, ModelSize)
    told = trace_of()
    untold = replace(told, series={key: one for key, one in told.series.items() if key[1] != v.SERVER_RUNNING.name})
    many, one = (seconds(budget(trace, target))[BudgetPart.WEIGHTS] for trace in (told, untold))
    assert many == pytest.approx((size.dense + size.routed) * 2 / DRAM_PEAK)
    assert one == pytest.approx((size.dense + size.routed * 2 / 8) * 2 / DRAM_PEAK)


def test_what_is_computed_counts_beyond_what_the_bytes_take() -> None:
    """At a large batch a step computes for longer than it reads."""
    rates = SERVER_RATES | {v.SERVER_OUTPUT_TOKENS: 31.25 * 1000}
    found = seconds(budget(trace_of(rates=rates, facts=dict(BLOCKS))))
    data_s = found[BudgetPart.WEIGHTS] + found[BudgetPart.KV_CACHE]
    assert found[BudgetPart.COMPUTE] + data_s == pytest.approx(1000 * 2 * ACTIVE / PEAK, rel=1e-3)


def test_the_terms_add_up_even_where_they_overlap() -> None:
    for steps in (31.25, 400.0):
        found = budget(trace_of(rates=SERVER_RATES | {v.SERVER_STEPS: steps}, facts=dict(BLOCKS)))
        assert sum(term.seconds for term in found.terms) == pytest.approx(1 / steps)
    assert seconds(found)[BudgetPart.REST] < 0
    assert any("overlap by" in note for note in found.notes)


def test_seventy_billion_parameters_on_eight_gpus() -> None:
    """Performance Engineering, 1.1: 140 GB over 8 x 3.35 TB/s are 5.2 ms, so at most 191 tokens/s of one request."""
    config = {**TARGET.config, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    config |= {"num_key_value_heads": 8, "intermediate_size": 28672}
    target = replace(TARGET, config=config, gpus=tuple(range(8)))
    floor_s = seconds(budget(trace_of(8), target))[BudgetPart.WEIGHTS]
    assert floor_s == pytest.approx(5.2e-3, rel=0.02)
    assert 1 / floor_s == pytest.approx(191, rel=0.02)


def test_idle_time_of_the_gpu_is_late_cpu_by_what_the_engine_did() -> None:
    trace = live_traces.live_trace()
    found = token_budget(trace, live_traces.TARGET)
    assert isinstance(found, TokenBudget), found
    late = next(term for term in found.terms if term.part is BudgetPart.LATE_CPU)
    assert late.seconds == pytest.approx(sum(part for _, part in late.details))
    assert "EngineCore" in late.details[0][0]
    assert sum(term.seconds for term in found.terms) == pytest.approx(found.step_s)
    assert 0 < late.working_s < late.seconds
    largest = sorted(found.terms, key=lambda term: term.seconds)[-3:]
    assert {gain.part for gain in found.gains} == {term.part for term in largest}


@pytest.mark.parametrize(
    ("trace", "target", "why"),
    [
        (trace_of(rates={}), TARGET, "no reading of engine steps"),
        (trace_of(rates=SERVER_RATES | {v.SERVER_STEPS: 0.0}), TARGET, "no step was made"),
        (trace_of(), replace(TARGET, config={}, model="m"), "size is not known"),
    ],
)
def test_why_there_is_none(trace: Trace, target: Target, why: str) -> None:
    found = token_budget(trace, target)
    assert isinstance(found, Unknown)
    assert why in str(found)


def test_without_a_server_there_is_none() -> None:
    assert isinstance(token_budget(trace_of(), None), Unknown)


def test_one_line_says_it_all() -> None:
    assert budget(trace_of(facts=dict(BLOCKS))).sentence == (
        "step 32 ms = weights 4.48 + KV cache 0.313 + prompts 2.43 + rest 24.8 (floor 4.79 ms)"
    )
