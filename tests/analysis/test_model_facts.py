"""Sizes of models against their published counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.roofline.model_facts import ModelSize, decode_intensity, model_size
from llmtop.model import Target, Unknown

if TYPE_CHECKING:
    from llmtop.model import Fact

LLAMA_8B: dict[str, Fact] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}
QWEN2_05B = LLAMA_8B | {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
MIXTRAL = LLAMA_8B | {"vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3_30B_A3B = LLAMA_8B | {
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}
DEEPSEEK_V3 = LLAMA_8B | {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "vocab_size": 102400,
}
GPT2: dict[str, Fact] = {
    "model_type": "gpt2",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "n_inner": 3072,
    "vocab_size": 50257,
}


def target(config: dict[str, Fact], *, model: Fact = "m", dtype: Fact = "bf16", **facts: Fact) -> Target:
    return Target(1, 1, "vllm", "vLLM", (), model=model, dtype=dtype, facts=facts, config=config)


def size(config: dict[str, Fact], *, model: Fact = "m", dtype: Fact = "bf16", **facts: Fact) -> ModelSize:
    found = model_size(target(config, model=model, dtype=dtype, **facts))
    assert isinstance(found, ModelSize)
    return found


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (LLAMA_8B, 8.030, 8.030),
        (LLAMA_70B, 70.55, 70.55),
        (QWEN2_05B, 0.494, 0.494),
        (MIXTRAL, 46.70, 12.88),
        (QWEN3_30B_A3B, 30.53, 3.35),
        (DEEPSEEK_V3, 671.03, 37.55),
        (DEEPSEEK_V2_LITE, 15.706, 2.66),
        (GPT2, 0.1235, 0.1235),
    ],
)
def test_parameters_of_published_models(config: dict[str, Fact], billions: float, active: float) -> None:
    found = size(config)
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.002)
    assert (found.active + found.embedding) / 1e9 == pytest.approx(active, rel=0.002)


MLP = 3 * 4096 * 14336
"""Of one layer, or of one expert: gate, up and down."""


@pytest.mark.parametrize(
    ("experts", "taken", "routed", "per_token"),
    [(1, 1, 0, 0), (2, 1, 2, 1), (2, 2, 2, 2), (2, 3, 0, 0), (8, 8, 8, 8), (8, 9, 0, 0), (8, 0, 0, 0), (8, None, 0, 0)],
)
def test_experts_are_two_or_more_of_which_a_token_takes_some(
    experts: int, taken: int | None, routed: int, per_token: int
) -> None:
    """What is told otherwise is the size of a dense model."""
    given: dict[str, Fact] = {} if taken is None else {"num_experts_per_tok": taken}
    found = size(LLAMA_8B | {"num_local_experts": experts} | given)
    assert (found.routed, found.experts, found.experts_per_token) == (32 * routed * MLP, routed, per_token)
    router = 4096 * routed
    assert found.dense - size(LLAMA_8B).dense == (32 * (router - MLP) if routed else 0)


def test_the_cache_of_grouped_and_of_latent_attention() -> None:
    assert size(LLAMA_8B).kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert size(LLAMA_8B, kv_cache_dtype="fp8_e4m3").kv_bytes_per_token == 2 * 32 * 8 * 128
    assert size(DEEPSEEK_V3).kv_bytes_per_token == 61 * (512 + 64) * 2


def test_latent_attention_without_a_part_for_places_has_none() -> None:
    plain = {key: value for key, value in DEEPSEEK_V3.items() if "rope" not in key}
    assert size(plain).kv_bytes_per_token == 61 * 512 * 2
    assert size(DEEPSEEK_V3).parameters > size(plain).parameters


GROUPS_OF_64: dict[str, Fact] = {"quantization_config.bits": 4, "quantization_config.group_size": 64}


@pytest.mark.parametrize(
    ("facts", "config", "dtype", "bytes_each"),
    [
        ({}, {}, "bf16", 2.0),
        ({}, {}, "fp32", 4.0),
        ({}, {}, "fp8", 1.0),
        ({"quantization": "awq"}, {}, "fp16", (4 + 20 / 128) / 8),
        ({"quantization": "awq"}, GROUPS_OF_64 | {"quantization_config.zero_point": False}, "fp16", 4.25 / 8),
        ({"quantization": "gptq_marlin"}, GROUPS_OF_64 | {"quantization_config.sym": True}, "fp16", 4.25 / 8),
        ({"quantization": "gptq_marlin"}, GROUPS_OF_64, "fp16", (4 + 20 / 64) / 8),
        ({"quantization": "gptq"}, {"quantization_config.group_size": -1}, "fp16", 0.5),
        ({"quantization": "gptq"}, {"quantization_config.bits": 8}, "fp16", (8 + 24 / 128) / 8),
        ({"quantization": "compressed-tensors"}, {"quantization_config.bits": 8}, "fp16", 1.0),
        ({"quantization": "mxfp4"}, {}, "bf16", 0.53125),
        ({"weights_bytes": 8_029_995_008}, {}, "bf16", 1.0),
    ],
)
def test_bytes_of_a_weight(facts: dict[str, Fact], config: dict[str, Fact], dtype: str, bytes_each: float) -> None:
    assert size(LLAMA_8B | config, dtype=dtype, **facts).bytes_per_parameter == pytest.approx(bytes_each)


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8, 8),
        ("Qwen/Qwen3-30B-A3B-FP8", 30, 3),
        ("/models/Qwen2.5-0.5B/", 0.5, 0.5),
        ("qwen2-72b-q4", 72, 72),
    ],
)
def test_a_name_tells_the_size_where_the_configuration_cannot_be_read(
    model: str, billions: float, active: float
) -> None:
    found = size({}, model=model)
    assert (found.parameters / 1e9, round(found.active / 1e9, 2)) == (billions, active)
    assert "name" in found.source
    assert found.kv_bytes_per_token is None


@pytest.mark.parametrize("model", ["mistralai/Mixtral-8x7B-v0.1", "gpt2", "my-model", "4bit-thing", "b8B00b"])
def test_a_name_that_does_not_tell_the_size_is_unknown(model: str) -> None:
    assert isinstance(model_size(target({}, model=model)), Unknown)


def test_what_is_not_all_attention_is_not_computed() -> None:
    found = model_size(target(LLAMA_8B | {"mamba_d_state": 16}))
    assert isinstance(found, Unknown)
    assert "mamba_d_state" in found.reason


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -5, True, "x", 10**12])
def test_a_size_that_is_missing_or_absurd_is_unknown(key: str, value: Fact | None) -> None:
    config = {name: each for name, each in LLAMA_8B.items() if name != key} | ({} if value is None else {key: value})
    assert isinstance(model_size(target(config)), Unknown)


def test_without_a_server_or_dtype_it_says_so() -> None:
    assert isinstance(model_size(None), Unknown)
    assert isinstance(model_size(target(LLAMA_8B, dtype=Unknown("no dtype"))), Unknown)
    assert isinstance(model_size(target({}, model=Unknown("no model"))), Unknown)


def test_decode_intensity_follows_the_batch_until_the_cache_outweighs_the_weights() -> None:
    """I(1) is 2 / b_param, I(256) near 256 in bf16 (The Memory Wall and Roofline Diagnosis)."""
    found = size(LLAMA_8B)
    assert decode_intensity(found, 1) == pytest.approx(1.0, rel=0.001)
    assert decode_intensity(found, 256) == pytest.approx(256, rel=0.001)
    assert decode_intensity(size(LLAMA_8B, dtype="fp8"), 1) == pytest.approx(2.0, rel=0.001)
    cache = 64 * 4096 * (found.kv_bytes_per_token or 0)
    assert decode_intensity(found, 64, cache) == pytest.approx(
        2 * found.active * 64 / (found.active * 2 + cache), rel=0.001
    )
    assert decode_intensity(found, 64, cache) < 24


def test_experts_are_read_as_the_batch_touches_them() -> None:
    found = size(MIXTRAL)
    assert found.weight_bytes_per_step(1) == pytest.approx(found.active * 2)
    assert found.weight_bytes_per_step(4) == pytest.approx((found.dense + found.routed * (1 - 0.75**4)) * 2)
    assert found.weight_bytes_per_step(1000) == pytest.approx((found.dense + found.routed) * 2)


_VALUES = st.integers(-10, 2**70) | st.text(max_size=5) | st.booleans()


@given(st.dictionaries(st.sampled_from([*DEEPSEEK_V3, "model_type", "dtype", "quantization_config.bits"]), _VALUES))
def test_no_configuration_breaks_it(config: dict[str, Fact]) -> None:
    found = model_size(target(DEEPSEEK_V3 | config))
    if isinstance(found, ModelSize):
        assert 0 < found.active <= found.parameters
        assert found.bytes_per_parameter > 0
        assert decode_intensity(found, 8) > 0
