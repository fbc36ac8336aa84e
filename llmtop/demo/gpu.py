"""The demo's model on an NVIDIA GPU, through torch where that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from llmtop.demo.model import Array, Piece, Transformer
from llmtop.demo.options import has_gpu_device


def has_cuda() -> bool:
    """Whether torch is installed and sees a GPU. Without a GPU's device file torch is not even imported."""
    if not has_gpu_device():
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


class GpuTransformer(Transformer):
    """`Transformer` on a torch device: weights made there, decodes attended in one batch, phases as NVTX ranges."""

    device = "cuda"

    def __init__(self, *args: Any, **options: Any) -> None:
        import torch

        self.xp = torch
        super().__init__(*args, **options)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        nvtx = self.xp.cuda.nvtx
        nvtx.range_push(name)
        try:
            yield
        finally:
            nvtx.range_pop()

    def array(self, values: Any) -> Array:
        tensor = self.xp.as_tensor(values, device=self.device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def forward(self, pieces: Sequence[Piece]) -> np.ndarray[Any, np.dtype[np.float32]]:
        with self.xp.inference_mode():
            return super().forward(pieces)

    def to_host(self, values: Array) -> np.ndarray[Any, np.dtype[np.float32]]:
        host: np.ndarray[Any, np.dtype[np.float32]] = values.float().cpu().numpy()
        return host

    def plan_attention(self, pieces: Sequence[Piece]) -> Callable[[Array, Array], Array]:
        """One kernel for all sequences with one new token; the others, parts of prompts, one after the other."""
        bounds = np.cumsum([0] + [len(piece.tokens) for piece in pieces])
        decodes = [i for i, piece in enumerate(pieces) if len(piece.tokens) == 1]
        rows = self.array(bounds[decodes])
        attend_decodes = self._plan_decodes([pieces[i] for i in decodes]) if decodes else None
        parts = [(bounds[i], piece, self.array(piece.blocks)) for i, piece in enumerate(pieces) if i not in decodes]

        def attend(queries: Array, cache: Array) -> Array:
            outputs = self.xp.empty_like(queries)
            if attend_decodes is not None:
                outputs[rows] = attend_decodes(queries[rows], cache)
            for start, piece, table in parts:
                end = start + len(piece.tokens)
                outputs[start:end] = self.attend_one(queries[start:end], cache, piece, table)
            return outputs

        return attend

    def _plan_decodes(self, pieces: Sequence[Piece]) -> Callable[[Array, Array], Array]:
        longest = max(len(piece.blocks) for piece in pieces)
        tables = np.zeros((len(pieces), longest), dtype=np.int64)
        for row, piece in zip(tables, pieces, strict=True):
            row[: len(piece.blocks)] = piece.blocks
        in_context = np.arange(longest * self.block_size)[None, :] < np.array([[piece.end] for piece in pieces])
        table, mask = self.array(tables), self.array(in_context)[:, None, None, :]
        c = self.config

        def attend(queries: Array, cache: Array) -> Array:
            keys, values = (
                cache[which][table].reshape(len(pieces), -1, c.kv_heads, c.head_width).swapaxes(1, 2)
                for which in (0, 1)
            )
            attention = self.xp.nn.functional.scaled_dot_product_attention
            return attention(queries[:, :, None], keys, values, attn_mask=mask, enable_gqa=True)[:, :, 0]

        return attend

    @property
    def _dtype(self) -> Any:
        return getattr(self.xp, self.config.dtype)

    def _normal(self, seed: int) -> Callable[[tuple[int, ...], float], Array]:
        generator = self.xp.Generator(device=self.device).manual_seed(seed)
        return lambda shape, scale: self.xp.randn(
            shape, generator=generator, device=self.device, dtype=self._dtype
        ).mul_(scale)

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        return self.xp.zeros(shape, device=self.device, dtype=self._dtype)
