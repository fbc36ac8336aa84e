"""How large a served model is: parameters, bytes per step and per cached token, by arithmetic on its config.json.

What `llmtop.servers` could read of the configuration stands in `Target.config`, and the size of the
weight files as "weights_bytes". The arithmetic leaves out norms and biases, less than 0.1 % of a large model; it is
tested against the published counts of Llama, Qwen, Mixtral, gpt-oss and DeepSeek models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmtop.facts import TargetFact
from llmtop.frozen import frozen
from llmtop.model import Fact, Unknown

if TYPE_CHECKING:
    from llmtop.model import Target

_MOST = 10**9
"""No size in a configuration is larger: what is, is damage."""
_NO_CONFIG = Unknown(
    "the model's size is not known: its config.json cannot be read and its name does not tell",
    "give llmtop read access to the model's folder (run it as the server's user)",
)
_PLAIN_MLP = ("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "phi", "starcoder2")
"""Model types whose MLP is two matrices; in all others it is gated: three."""
_TIED = ("bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "opt", "starcoder2")
"""Model types that use one matrix for input and output unless their configuration says otherwise."""
_NOT_ATTENTION = re.compile(r"mamba|ssm|linear_num|rwkv|lru_width")
"""Keys of models whose layers are not all attention: this arithmetic is not theirs."""
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_BITS = {
    "mxfp4": 4.25,  # a byte of scale per 32 values (OCP Microscaling Formats, 5.1)
    "nvfp4": 4.5,  # a byte of scale per 16 values
    "fp4": 4.5,
    "fp8": 8.0,
    "int8": 8.0,
    "bf16": 16.0,
    "bfloat16": 16.0,
    "fp16": 16.0,
    "float16": 16.0,
    "half": 16.0,
    "fp32": 32.0,
    "float32": 32.0,
}
_NAMED_SIZE = re.compile(r"(?i)(?<![\dx.])(\d{1,4}(?:\.\d+)?)b(?:[-_]a(\d{1,3}(?:\.\d+)?)b)?(?![a-z0-9])")
_EXPERTS_IN_NAME = re.compile(r"(?i)\dx\d")


@frozen
class ModelSize:
    """What a model costs, whatever it runs on.

    Attributes:
        dense: Parameters that every token is multiplied with; the input embedding, only looked up, is not among them.
        routed: Parameters of all routed experts together; 0 for a dense model.
        embedding: Parameters of an input embedding that is not the output matrix too.
        bytes_per_parameter: As stored.
        width: Length of a token's hidden state; None where only the model's name is known.
        kv_values_per_token: Keys and values that a token leaves in the cache, over all layers; None likewise.
        value_bytes: Bytes of one activation, and of one cached value unless the cache has a format of its own.
        source: What this was computed from.
        attention_width: Layers x heads x head size: 4 FLOP each for every token of its context that a token attends to;
            None where only the model's name is known.
        layers: None likewise.
    """

    dense: float
    routed: float
    experts: int
    experts_per_token: int
    embedding: float
    bytes_per_parameter: float
    width: int | None
    kv_values_per_token: int | None
    value_bytes: float
    kv_value_bytes: float
    source: str
    attention_width: int | None = None
    layers: int | None = None

    @property
    def parameters(self) -> float:
        """All of them."""
        return self.dense + self.routed + self.embedding

    @property
    def active(self) -> float:
        """Parameters that one token is multiplied with (N in 2 N FLOP per token)."""
        return self.dense + (self.routed * self.experts_per_token / self.experts if self.experts else 0.0)

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes that one token leaves in the KV cache of the whole server."""
        return None if self.kv_values_per_token is None else self.kv_values_per_token * self.kv_value_bytes

    def weight_bytes_per_step(self, tokens: float) -> float:
        """Bytes of weights that a step over so many tokens reads.

        All of a dense model. Of E experts a token takes k; under even routing `tokens` of them miss an expert with
        (1 - k / E) ** tokens, so a large batch reads nearly all of them.
        """
        touched = 1 - (1 - self.experts_per_token / self.experts) ** max(tokens, 1.0) if self.experts else 0.0
        return (self.dense + self.routed * touched) * self.bytes_per_parameter


def model_size(target: Target | None) -> ModelSize | Unknown:
    """The size of a target's model: from its configuration, else from the size in its name ("8B", "30B-A3B")."""
    if target is None:
        return Unknown("no server is attached", "llmtop --attach PID")
    if not target.config:
        return _size_by_name(target)
    bits = _stored_bits(target)
    return bits if isinstance(bits, Unknown) else _size_by_config(target, bits)


def decode_intensity(size: ModelSize, batch: float, kv_bytes: float = 0.0) -> float:
    """FLOP per byte of one decode step over `batch` requests.

        I(B) = 2 P B / (P b_param + B d_model b_elem + KV)

    The Memory Wall and Roofline Diagnosis ("Batch size as the universal control knob") has it without the KV cache;
    `kv_bytes`, what the step reads of it, is added because at long contexts it outweighs the weights.
    """
    activations = batch * (size.width or 0) * size.value_bytes
    return 2 * size.active * batch / (size.weight_bytes_per_step(batch) + activations + kv_bytes)


def _size_by_config(target: Target, bits: float) -> ModelSize | Unknown:
    config = target.config
    odd = next((key for key in config if _NOT_ATTENTION.search(key)), None)
    if odd is not None:
        return Unknown(f"the model's layers are not all attention ({odd}): its size is not computed")
    sizes = [_count(config, key) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return Unknown(f"config.json of a {config.get('model_type', 'model')} does not give all sizes")
    width, layers, _, vocabulary = known
    attention, kv_values = _attention(config, *known[:3])
    mlp, routed, experts, per_token = _mlp(config, width, layers)
    if mlp + routed <= 0:
        return Unknown("config.json gives no intermediate_size")
    tied = config.get("tie_word_embeddings", config.get("model_type") in _TIED)
    dense = layers * attention + mlp + vocabulary * width
    embedding = 0.0 if tied else float(vocabulary * width)
    parameters = dense + routed + embedding
    files = target.facts.get(TargetFact.WEIGHTS_BYTES)
    source = "config.json"
    per_parameter = bits / 8
    if isinstance(files, int) and files > 0:
        per_parameter, source = files / parameters, "config.json and weight files"
    value_bytes = _BITS.get(str(config.get("dtype", config.get("torch_dtype", ""))), 16.0) / 8
    return ModelSize(
        *(float(dense), float(routed), experts, per_token, embedding, per_parameter),
        width=width,
        kv_values_per_token=layers * kv_values,
        value_bytes=value_bytes,
        kv_value_bytes=_kv_value_bytes(target, value_bytes),
        source=source,
        attention_width=layers * _attended(config, width, known[2]),
        layers=layers,
    )


def _attended(config: Mapping[str, Fact], width: int, heads: int) -> int:
    """Heads x head size; where queries and values differ in size, as in latent attention, the mean of both."""
    plain = _count(config, "head_dim") or max(1, width // heads)
    query = (_count(config, "qk_rope_head_dim") or 0) + (_count(config, "qk_nope_head_dim") or 0)
    return heads * ((query or plain) + (_count(config, "v_head_dim") or plain)) // 2


def _attention(config: Mapping[str, Fact], width: int, layers: int, heads: int) -> tuple[int, int]:
    """Parameters of one attention layer, and the values that a token leaves in its cache."""
    latent = _count(config, "kv_lora_rank")
    if latent is not None:
        return _latent_attention(config, width, heads, latent)
    kv_heads = _count(config, "num_key_value_heads") or heads
    head = _count(config, "head_dim") or max(1, width // heads)
    return 2 * width * heads * head + 2 * width * kv_heads * head, 2 * kv_heads * head


def _latent_attention(config: Mapping[str, Fact], width: int, heads: int, latent: int) -> tuple[int, int]:
    """DeepSeek's multi-head latent attention (arXiv:2405.04434, 2.1): keys and values share one short vector."""
    rope = _count(config, "qk_rope_head_dim") or 0
    query = rope + (_count(config, "qk_nope_head_dim") or 0)
    value = _count(config, "v_head_dim") or 0
    query_latent = _count(config, "q_lora_rank")
    queries = width * heads * query if query_latent is None else query_latent * (width + heads * query)
    keys = width * (latent + rope) + latent * heads * (query - rope + value)
    return queries + keys + heads * value * width, latent + rope


def _mlp(config: Mapping[str, Fact], width: int, layers: int) -> tuple[int, int, int, int]:
    """Parameters of all MLPs outside routed experts, those of routed experts, experts in a layer, and per token."""
    matrices = 2 if config.get("model_type") in _PLAIN_MLP else 3
    plain = _count(config, "intermediate_size") or _count(config, "ffn_dim") or _count(config, "n_inner") or 0
    experts = next((count for key in _EXPERT_COUNTS if (count := _count(config, key)) is not None), 0)
    per_token = _count(config, "num_experts_per_tok") or _count(config, "experts_per_token") or 0
    if experts < 2 or not 0 < per_token <= experts:
        return layers * matrices * width * plain, 0, 0, 0
    one = matrices * width * (_count(config, "moe_intermediate_size") or plain)
    first_dense = min(layers, _count(config, "first_k_dense_replace") or 0)
    shared = (_count(config, "n_shared_experts") or 0) * one
    shared += matrices * width * (_count(config, "shared_expert_intermediate_size") or 0)
    moe_layers = layers - first_dense
    outside = first_dense * matrices * width * plain + moe_layers * (shared + width * experts)
    return outside, moe_layers * experts * one, experts, per_token


def _count(config: Mapping[str, Fact], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else None


_GROUPED = ("awq", "gptq")
_GROUP_SIZE = 128
"""What AutoAWQ and AutoGPTQ take unless they are told otherwise."""
_SCALE_BITS = 16


def _grouped_bits(bits: float, config: Mapping[str, Fact]) -> float:
    """Bits of a weight with its part of what its group has: a 16-bit scale, and a zero point where it is not symmetric.

    4 bits with a scale for each 64 weights are 4.25 (Machine Learning Systems, block-wise quantization).
    """
    told = config.get("quantization_config.group_size")
    size = told if isinstance(told, int) and told else _GROUP_SIZE
    is_symmetric = (
        config.get("quantization_config.sym") is True or config.get("quantization_config.zero_point") is False
    )
    # One group for each row of the matrix (-1) is as good as none.
    return bits if size < 0 else bits + (_SCALE_BITS + (0.0 if is_symmetric else bits)) / size


def _stored_bits(target: Target) -> float | Unknown:
    """Bits of a stored weight, by quantization, else by dtype."""
    config = target.config
    given = _count(config, "quantization_config.bits")
    quantization = target.facts.get(TargetFact.QUANTIZATION)
    is_grouped = isinstance(quantization, str) and any(word in quantization.lower() for word in _GROUPED)
    if given is not None and given <= 64:
        return _grouped_bits(given, config) if is_grouped else float(given)
    if is_grouped:
        return _grouped_bits(4.0, config)
    for name in (quantization, target.dtype, config.get("dtype"), config.get("torch_dtype")):
        word = str(name).lower() if isinstance(name, str) else ""
        bits = next((bits for format_, bits in _BITS.items() if format_ in word), None)
        if bits is not None:
            return bits
    if isinstance(target.dtype, Unknown):
        return Unknown(f"how many bytes a weight has is not known: {target.dtype.reason}", target.dtype.remedy)
    return Unknown(f'how many bytes a weight of format "{target.dtype}" has is not known')


def _kv_value_bytes(target: Target, value_bytes: float) -> float:
    cache = str(target.facts.get(TargetFact.KV_CACHE_DTYPE, "auto")).lower()
    if "fp8" in cache or "int8" in cache or cache.startswith("q8"):
        return 1.0
    return _BITS.get(cache, value_bytes * 8) / 8


def _size_by_name(target: Target) -> ModelSize | Unknown:
    """Llama-3.1-8B has 8e9 parameters, Qwen3-30B-A3B 30e9 of which a token takes 3e9; 8x7B says neither."""
    if isinstance(target.model, Unknown):
        return target.model
    name = str(target.model).rstrip("/").rpartition("/")[2]
    match = _NAMED_SIZE.search(name)
    if match is None or _EXPERTS_IN_NAME.search(name):
        return _NO_CONFIG
    files = target.facts.get(TargetFact.WEIGHTS_BYTES)
    total, active = float(match[1]) * 1e9, float(match[2] or match[1]) * 1e9
    bits = files * 8 / total if isinstance(files, int) and files > 0 and total else _stored_bits(target)
    if isinstance(bits, Unknown):
        return bits
    if not 0 < active <= total:
        return _NO_CONFIG
    # Which part of a sparse model a token shares with all others is not in its name: all of it counts as routed.
    is_sparse = active < total
    return ModelSize(
        *((0.0, total) if is_sparse else (total, 0.0)),
        experts=round(total / active * 1000) if is_sparse else 0,
        experts_per_token=1000 if is_sparse else 0,
        embedding=0.0,
        bytes_per_parameter=bits / 8,
        width=None,
        kv_values_per_token=None,
        value_bytes=2.0,
        kv_value_bytes=2.0,
        source="the size in the model's name",
    )
