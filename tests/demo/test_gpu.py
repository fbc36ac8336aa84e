"""The torch model says what the NumPy model says. Runs wherever torch is installed, on its GPU if it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmtop.demo.model import ModelConfig, Piece, Transformer

torch = pytest.importorskip("torch", reason="needs torch, which llmtop does not depend on")

from llmtop.demo.gpu import GpuTransformer  # noqa: E402 - after the skip

CONFIG = ModelConfig("test", layers=2, width=64, heads=4, kv_heads=2, mlp_width=96, max_model_len=64)


class AnyDevice(GpuTransformer):
    device = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def pair() -> tuple[Transformer, Transformer]:
    """The same weights in both libraries."""
    on_gpu, on_host = AnyDevice(CONFIG, 32, 4, 1), Transformer(CONFIG, 32, 4, 1)
    on_host.embedding = on_gpu.to_host(on_gpu.embedding)
    on_host.layers = [{name: on_gpu.to_host(matrix) for name, matrix in layer.items()} for layer in on_gpu.layers]
    return on_gpu, on_host


STEPS = {
    "prefill": [Piece([256, 1, 2, 3, 4, 5], 0, [3, 9]), Piece([256, 7], 0, [0])],
    "decode": [Piece([8], 6, [3, 9]), Piece([9], 2, [0])],
    "mixed": [Piece([1], 7, [3, 9]), Piece([5, 6, 7], 3, [0, 5]), Piece([256], 0, [1])],
}


def test_prefill_decode_and_mixed_steps_agree(pair: tuple[Transformer, Transformer]) -> None:
    for name, pieces in STEPS.items():
        logits: list[np.ndarray[Any, Any]] = [model.forward(pieces) for model in pair]
        np.testing.assert_allclose(logits[0], logits[1], atol=2e-3, err_msg=name)
