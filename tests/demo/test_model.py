"""The transformer's numbers: what is cached is what would be computed, and sequences do not touch each other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop.demo.engine import sample
from llmtop.demo.model import (
    BOS,
    EOS,
    MODELS,
    VOCABULARY,
    ModelConfig,
    Piece,
    Transformer,
    encode,
    normalised,
    rotated,
    rotations,
    softmax,
    token_bytes,
    work,
)

BLOCK = 4
CONFIG = ModelConfig("test", layers=2, width=32, heads=4, kv_heads=2, mlp_width=48, max_model_len=64)
TOKENS = [BOS, 5, 9, 250, 17, 17, 3, 99, 41, 7]


def fresh() -> Transformer:
    return Transformer(CONFIG, blocks=32, block_size=BLOCK, seed=3)


def reference_logits(model: Transformer, tokens: list[int]) -> np.ndarray[Any, Any]:
    """The same transformer written out over whole sequences, without cache, blocks or grouping tricks."""
    c, n = CONFIG, len(tokens)
    cosines, sines = rotations(c.max_model_len, c.head_width)
    x = model.embedding[tokens]
    for layer in model.layers:
        h = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        heads = []
        for head in range(c.heads):
            own = slice(head * c.head_width, (head + 1) * c.head_width)
            group = head // (c.heads // c.kv_heads)
            shared = slice(group * c.head_width, (group + 1) * c.head_width)
            q, k = (
                np.stack([turned(row, cosines[i], sines[i]) for i, row in enumerate(matrix)])
                for matrix in ((h @ layer["q"])[:, own], (h @ layer["k"])[:, shared])
            )
            scores = q @ k.T / np.sqrt(c.head_width)
            scores[np.triu_indices(n, 1)] = -np.inf
            weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            heads.append(weights @ (h @ layer["v"])[:, shared])
        x = x + np.concatenate(heads, -1) @ layer["o"]
        h = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        gate = h @ layer["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ layer["up"])) @ layer["down"]
    last = x[-1] / np.sqrt((x[-1] ** 2).mean() + 1e-6)
    logits: np.ndarray[Any, Any] = model.embedding @ last / np.sqrt(c.width)
    return logits


def turned(row: np.ndarray[Any, Any], cosines: np.ndarray[Any, Any], sines: np.ndarray[Any, Any]) -> Any:
    """A pair of coordinates turned as a complex number."""
    half = len(row) // 2
    z = (row[:half] + 1j * row[half:]) * (cosines + 1j * sines)
    return np.concatenate([z.real, z.imag])


def test_a_prefill_agrees_with_the_model_written_out() -> None:
    model = fresh()
    (logits,) = model.forward([Piece(TOKENS, 0, [4, 9, 2])])
    np.testing.assert_allclose(logits, reference_logits(model, TOKENS), atol=1e-4)


@pytest.mark.parametrize("cuts", [[], [1], [4], [3, 8], list(range(1, 10))])
def test_cached_decoding_equals_full_recomputation(cuts: list[int]) -> None:
    model, bounds = fresh(), [0, *cuts, len(TOKENS)]
    for start, end in pairwise(bounds):
        (logits,) = model.forward([Piece(TOKENS[start:end], start, [7, 1, 30][: -(-end // BLOCK)])])
    np.testing.assert_allclose(logits, reference_logits(model, TOKENS), atol=1e-4)


def test_sequences_in_a_batch_do_not_touch_each_other() -> None:
    alone, together = fresh(), fresh()
    other = [BOS, 77, 78, 79, 80, 81]
    (expected,) = alone.forward([Piece(TOKENS, 0, [0, 1, 2])])
    logits = together.forward([Piece(other, 0, [5, 3]), Piece(TOKENS, 0, [0, 1, 2]), Piece([BOS], 0, [9])])
    np.testing.assert_allclose(logits[1], expected, atol=1e-5)
    (expected,) = alone.forward([Piece([6], 10, [0, 1, 2])])
    logits = together.forward([Piece([4], 6, [5, 3]), Piece([6], 10, [0, 1, 2])])
    np.testing.assert_allclose(logits[1], expected, atol=1e-5)


def test_blocks_shared_by_two_sequences_serve_both() -> None:
    model = fresh()
    model.forward([Piece(TOKENS[:4], 0, [0])])
    logits = model.forward([Piece(TOKENS[4:7], 4, [0, 1]), Piece([1, 2], 4, [0, 2])])
    np.testing.assert_allclose(logits[0], reference_logits(model, TOKENS[:7]), atol=1e-4)
    np.testing.assert_allclose(logits[1], reference_logits(model, [*TOKENS[:4], 1, 2]), atol=1e-4)


def test_what_a_block_held_before_does_not_matter() -> None:
    model = fresh()
    model.forward([Piece([200] * 12, 0, [0, 1, 2])])
    (logits,) = model.forward([Piece(TOKENS, 0, [2, 0, 1])])
    np.testing.assert_allclose(logits, reference_logits(model, TOKENS), atol=1e-4)


def test_weights_follow_the_seed() -> None:
    def prediction(seed: int) -> np.ndarray[Any, Any]:
        return Transformer(CONFIG, 8, BLOCK, seed).forward([Piece(TOKENS, 0, [0, 1, 2])])

    assert np.array_equal(prediction(1), prediction(1))
    assert not np.allclose(prediction(1), prediction(2))


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    cosines, sines = rotations(20, 8)
    q, k = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)

    def product(i: int, j: int) -> float:
        a, b = (rotated(np, x[None, None], (cosines[[p]][:, None], sines[[p]][:, None])) for x, p in ((q, i), (k, j)))
        return float((a * b).sum())

    assert product(9, 4) == pytest.approx(product(15, 10), abs=1e-4)
    assert product(9, 4) != pytest.approx(product(9, 5), abs=1e-3)


def test_norm_and_softmax() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose((normalised(np, x)[0] ** 2).mean(), 1, rtol=1e-5)
    assert np.isfinite(normalised(np, x)).all()
    np.testing.assert_allclose(softmax(np, np.array([1000.0, 1000.0, -1000.0])), [0.5, 0.5, 0])


def test_work_counts_matrix_products_and_bytes() -> None:
    tiny = MODELS["tiny"]
    weights = sum(w.size for layer in Transformer(tiny, 1, BLOCK).layers for w in layer.values())
    assert tiny.layer_weights == weights
    # One decode at position 9: its weights, the head, and scores and values over 10 positions in each of 2 layers.
    decode = work(tiny, [Piece([1], 9, [0, 1, 2])])
    assert decode.flops == 2 * weights + 2 * 64 * VOCABULARY + 2 * (4 * 64 * 10)
    assert decode.write_bytes == 2 * 2 * 2 * 16 * 4  # layers, key and value, KV heads, head width, float32
    assert decode.read_bytes == 4 * (weights + 64 * VOCABULARY) + 10 * decode.write_bytes
    # A prompt in one piece costs the products of its tokens one by one; only the head is used once.
    whole = work(tiny, [Piece([1] * 5, 0, [0, 1])])
    steps = [work(tiny, [Piece([1], i, [0, 1])]) for i in range(5)]
    assert whole.flops == sum(step.flops for step in steps) - 4 * 2 * 64 * VOCABULARY
    assert whole.write_bytes == sum(step.write_bytes for step in steps)


def test_a_batch_reads_the_weights_once() -> None:
    tiny = MODELS["tiny"]
    one, two = (work(tiny, [Piece([1], 0, [0])] * count) for count in (1, 2))
    assert two.flops == 2 * one.flops
    assert two.read_bytes - one.read_bytes == one.write_bytes


@given(st.text())
def test_text_survives_the_tokens(text: str) -> None:
    tokens = encode(text)
    assert tokens[0] == BOS
    assert b"".join(map(token_bytes, tokens)) == text.encode("utf-8", "replace")
    assert token_bytes(EOS) == b""


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=8), st.floats(0.05, 5), st.integers(0, 99))
@settings(max_examples=50)
def test_sampling_draws_what_exists_and_follows_the_seed(logits: list[float], temperature: float, seed: int) -> None:
    values = np.array(logits, dtype=np.float32)
    drawn = [sample(values, temperature, np.random.default_rng(seed)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert 0 <= drawn[0] < len(logits)


def test_sampling_follows_the_probabilities() -> None:
    generator, logits = np.random.default_rng(0), np.log([0.7, 0.2, 0.1])
    counts = np.bincount([sample(logits, 1.0, generator) for _ in range(4000)])
    np.testing.assert_allclose(counts / 4000, [0.7, 0.2, 0.1], atol=0.03)
    assert {sample(logits, 0.0, generator) for _ in range(50)} == {0}
