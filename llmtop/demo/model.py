"""The demo's language model: a small decoder-only transformer with a paged KV cache.

RMSNorm, rotary positions, grouped-query attention and a gated SiLU MLP, as today's open models have them. The
weights are random: what the model says means nothing, what it costs is real. One definition serves NumPy on the CPU
and torch on a GPU: `Transformer` writes array operations that both spell alike; `llmtop.demo.gpu` has the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from llmtop.frozen import frozen

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""

# Byte-level vocabulary: 256 bytes, then the two marks.
BOS = 256
EOS = 257
VOCABULARY = 258


@frozen
class ModelConfig:
    """Sizes of a model. `bytes_per_value` is that of weights and of the KV cache alike."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp_width: int
    max_model_len: int = 1024
    dtype: str = "float32"

    @property
    def head_width(self) -> int:
        """Values in one head's query, key or value."""
        return self.width // self.heads

    @property
    def bytes_per_value(self) -> int:
        """Bytes in one weight or cached value."""
        return 4 if self.dtype == "float32" else 2

    @property
    def layer_weights(self) -> int:
        """Matrix weights of all layers: each is read once a step and costs 2 FLOP a token."""
        attention = 2 * self.width * self.width + 2 * self.width * self.kv_heads * self.head_width
        return self.layers * (attention + 3 * self.width * self.mlp_width)

    @property
    def kv_values_per_token(self) -> int:
        """Keys and values that one token leaves in the cache, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_width


MODELS = {
    config.name: config
    for config in (
        ModelConfig("tiny", layers=2, width=64, heads=4, kv_heads=2, mlp_width=128),
        ModelConfig("small", layers=4, width=256, heads=8, kv_heads=2, mlp_width=704),
        ModelConfig("1b", 16, 2048, 16, 4, 5632, max_model_len=4096, dtype="bfloat16"),
        ModelConfig("7b", 32, 4096, 32, 8, 14336, max_model_len=4096, dtype="bfloat16"),
    )
}


@frozen
class Piece:
    """A run of one sequence's tokens to compute in this step.

    Attributes:
        tokens: The new tokens: a part of a prompt, or the one token of a decode.
        start: The position of the first; all before it are in the cache.
        blocks: The sequence's KV blocks in order; they reach to the last new token at least.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]

    @property
    def end(self) -> int:
        """One past the position of the last new token: the context length after this step."""
        return self.start + len(self.tokens)


@frozen
class StepWork:
    """What a step costs by the model's own arithmetic.

    Counted are the matrix products (2 FLOP per multiply-add), each weight read once, keys and values read once per
    sequence and written once. Not counted are activations, norms, softmax and sampling.
    """

    flops: int
    read_bytes: int
    write_bytes: int


def work(config: ModelConfig, pieces: Sequence[Piece]) -> StepWork:
    """The work of one step.

    >>> work(MODELS["tiny"], [Piece([1], 0, [0])]).flops == 2 * MODELS["tiny"].layer_weights + 2 * 64 * 258 + 4 * 2 * 64
    True
    """
    tokens = sum(len(piece.tokens) for piece in pieces)
    head = config.width * VOCABULARY
    # Token i of a piece attends to start + i + 1 positions, with one product for scores and one for values.
    attended = sum(len(p.tokens) * p.start + len(p.tokens) * (len(p.tokens) + 1) // 2 for p in pieces)
    flops = 2 * config.layer_weights * tokens + 2 * head * len(pieces) + 4 * config.layers * config.width * attended
    cached = sum(piece.end for piece in pieces)
    read = config.layer_weights + head + cached * config.kv_values_per_token
    return StepWork(flops, read * config.bytes_per_value, tokens * config.kv_values_per_token * config.bytes_per_value)


def encode(text: str) -> list[int]:
    """Tokens of a text: its UTF-8 bytes after the beginning mark."""
    return [BOS, *text.encode("utf-8", "replace")]


def token_bytes(token: int) -> bytes:
    """What a token adds to the text; the marks add nothing."""
    return bytes([token]) if token < BOS else b""


class Transformer:
    """The model with its weights and its KV cache of `blocks` blocks of `block_size` tokens.

    Not thread-safe: one engine owns it.
    """

    xp: Any = np
    """The array library."""

    def __init__(self, config: ModelConfig, blocks: int, block_size: int, seed: int = 0) -> None:
        self.config = config
        self.block_size = block_size
        normal = self._normal(seed)
        self.embedding = normal((VOCABULARY, config.width), 1.0)
        self.layers = [random_layer(config, normal) for _ in range(config.layers)]
        shape = (config.layers, 2, blocks, block_size, config.kv_heads, config.head_width)
        self.cache = self._zeros(shape)
        self.cosines, self.sines = map(self.array, rotations(config.max_model_len, config.head_width))

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A range named in a profiler's timeline, where there is one."""
        return nullcontext()

    def array(self, values: Any) -> Array:
        """Host values as an array of this library; floats in the model's type."""
        return np.asarray(values)

    def forward(self, pieces: Sequence[Piece]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Compute the new tokens, cache their keys and values, and predict.

        Returns:
            Logits of the token after each piece, float32, (pieces, VOCABULARY).
        """
        positions = np.concatenate([np.arange(piece.start, piece.end) for piece in pieces])
        tables = [np.asarray(piece.blocks) for piece in pieces]
        slots = self.array(np.concatenate([self._slots(p, t) for p, t in zip(pieces, tables, strict=True)]))
        rotation = self.cosines[positions][:, None, :], self.sines[positions][:, None, :]
        x = self.embedding[self.array([token for piece in pieces for token in piece.tokens])]
        attend = self.plan_attention(pieces)
        for weights, cache in zip(self.layers, self.cache, strict=True):
            x = x + self._attention(normalised(self.xp, x), weights, cache, slots, rotation, attend)
            x = x + self._mlp(normalised(self.xp, x), weights)
        last = np.cumsum([len(piece.tokens) for piece in pieces]) - 1
        logits = normalised(self.xp, x[last]) @ self.embedding.T
        return self.to_host(logits / math.sqrt(self.config.width))  # or the likeliest token would be the only one

    def to_host(self, values: Array) -> np.ndarray[Any, np.dtype[np.float32]]:
        """An array of this library as float32 on the host."""
        return np.asarray(values, dtype=np.float32)

    def plan_attention(self, pieces: Sequence[Piece]) -> Callable[[Array, Array], Array]:
        """Make the function (queries, layer's cache) -> outputs that every layer of this step calls.

        Queries and outputs are (tokens, heads, head_width).
        """
        bounds = np.cumsum([0] + [len(piece.tokens) for piece in pieces])
        tables = [self.array(piece.blocks) for piece in pieces]

        def attend(queries: Array, cache: Array) -> Array:
            outputs = [
                self.attend_one(queries[bounds[i] : bounds[i + 1]], cache, piece, tables[i])
                for i, piece in enumerate(pieces)
            ]
            return self.xp.concatenate(outputs)

        return attend

    def attend_one(self, queries: Array, cache: Array, piece: Piece, table: Array) -> Array:
        """Causal attention of one sequence's new tokens over its cached context."""
        c, n = self.config, len(piece.tokens)
        # (context, kv_heads, head_width) -> (kv_heads, context, head_width)
        keys, values = (
            cache[which][table].reshape(-1, c.kv_heads, c.head_width)[: piece.end].swapaxes(0, 1) for which in (0, 1)
        )
        grouped = queries.reshape(n, c.kv_heads, -1, c.head_width).swapaxes(0, 1)  # (kv_heads, n, group, head_width)
        scores = grouped @ keys.swapaxes(1, 2)[:, None] / math.sqrt(c.head_width)
        if n > 1:
            future = np.arange(piece.end)[None, :] > np.arange(piece.start, piece.end)[:, None]
            scores = scores + self.array(np.where(future, np.float32(-1e9), np.float32(0)))[None, :, None, :]
        outputs = softmax(self.xp, scores) @ values[:, None]
        return outputs.swapaxes(0, 1).reshape(n, c.heads, c.head_width)

    def _attention(
        self,
        x: Array,
        weights: dict[str, Array],
        cache: Array,
        slots: Array,
        rotation: tuple[Array, Array],
        attend: Callable[[Array, Array], Array],
    ) -> Array:
        c = self.config
        queries = rotated(self.xp, (x @ weights["q"]).reshape(-1, c.heads, c.head_width), rotation)
        keys = rotated(self.xp, (x @ weights["k"]).reshape(-1, c.kv_heads, c.head_width), rotation)
        flat = cache.reshape(2, -1, c.kv_heads, c.head_width)
        flat[0][slots] = keys
        flat[1][slots] = (x @ weights["v"]).reshape(-1, c.kv_heads, c.head_width)
        return attend(queries, cache).reshape(-1, c.width) @ weights["o"]

    def _mlp(self, x: Array, weights: dict[str, Array]) -> Array:
        gate = x @ weights["gate"]
        return (gate / (1 + self.xp.exp(-gate)) * (x @ weights["up"])) @ weights["down"]

    def _slots(self, piece: Piece, table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where each new token's keys and values go in the flattened cache."""
        positions = np.arange(piece.start, piece.end)
        return table[positions // self.block_size] * self.block_size + positions % self.block_size

    def _normal(self, seed: int) -> Callable[[tuple[int, ...], float], Array]:
        generator = np.random.default_rng(seed)
        return lambda shape, scale: generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, dtype=np.float32)


def random_layer(config: ModelConfig, normal: Callable[[tuple[int, ...], float], Array]) -> dict[str, Array]:
    """Matrices of one layer, scaled by 1/sqrt(inputs) so that activations keep their size through all layers."""
    w, kv, mlp = config.width, config.kv_heads * config.head_width, config.mlp_width
    shapes = {"q": (w, w), "k": (w, kv), "v": (w, kv), "o": (w, w), "gate": (w, mlp), "up": (w, mlp), "down": (mlp, w)}
    return {name: normal(shape, 1 / math.sqrt(shape[0])) for name, shape in shapes.items()}


def rotations(positions: int, head_width: int) -> tuple[Array, Array]:
    """Cosines and sines of rotary positions, (positions, head_width / 2); Su et al. 2021, base 10000."""
    frequencies = 10000.0 ** (-np.arange(0, head_width, 2) / head_width)
    angles = np.outer(np.arange(positions), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(xp: Any, x: Array, rotation: tuple[Array, Array]) -> Array:
    """Heads turned by their positions; the two halves of a head are the pairs' coordinates."""
    cosines, sines = rotation
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return xp.concatenate([a * cosines - b * sines, b * cosines + a * sines], axis=-1)


def normalised(xp: Any, x: Array) -> Array:
    """RMSNorm with a gain of one."""
    return x / xp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def softmax(xp: Any, scores: Array) -> Array:
    """Over the last axis."""
    exponentials = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
