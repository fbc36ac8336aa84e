"""Attention runs in an older kernel than the GPU has one for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llmtop.analysis.gpus.capability import capability_of
from llmtop.analysis.kernels.architecture import architecture
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.frozen import frozen
from llmtop.model import Finding, Trace, Unknown

id = "attention-variant"
summary = "The attention kernel is one that a newer variant outruns on this GPU."
source = (
    "Shah et al., FlashAttention-3 (arXiv:2407.08608: 1.5 to 2 times FlashAttention-2 on Hopper); DeepSeek-OCR "
    "kernel-level "
    "profiling, V2 (memory-efficient attention 15 times as long as FlashAttention)"
)

_NOTABLE_SHARE = 0.05
"""Of the kernels' time, from which on a kernel of attention is judged."""


@frozen
class _Variant:
    pattern: re.Pattern[str]
    architectures: tuple[str, ...]
    what: str
    action: Words
    saved: float
    basis: str


_VARIANTS = (
    _Variant(
        re.compile(r"\bflash_fwd_kernel\b|\bflash_bwd_dq_dk_dv"),
        ("Hopper",),
        "FlashAttention-2, which does not use Hopper's asynchronous tensor instructions",
        Words(
            pytorch="use FlashAttention-3 (flash_attn_interface; vLLM: VLLM_FLASH_ATTN_VERSION=3) or cuDNN's attention "
            "(torch: SDPBackend.CUDNN_ATTENTION)",
            other="use FlashAttention-3 or cuDNN's attention",
        ),
        1 / 3,
        "a third of its time, by the least speed-up that FlashAttention-3's paper gives",
    ),
    _Variant(
        re.compile(r"fmha_cutlass[FB]|AttentionKernel<"),
        ("Ampere", "Ada", "Hopper", "Blackwell"),
        "CUTLASS's memory-efficient attention, which FlashAttention and cuDNN outrun",
        Words(
            pytorch="let scaled_dot_product_attention take FlashAttention or cuDNN: 16-bit inputs, a head of at most "
            "256, no arbitrary mask (is_causal instead); or install flash-attn and select it",
            other="use FlashAttention or cuDNN's attention: 16-bit inputs, a head of at most 256, no arbitrary mask",
        ),
        1 / 2,
        "half of its time, a cautious part of what was measured",
    ),
)


_NO_GPU = Unknown(
    "the capture names no GPU, and no kernel in it is of one architecture alone: whether a newer attention kernel runs "
    "on it is not known",
    "nvidia-smi -L on the machine that it is of",
)


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Kernels of attention that take a twentieth of the time, by their names and the GPU's."""
    of_weight = list(heavy(trace, _NOTABLE_SHARE, counted=False))
    yield from findings(id, source, claims_of(of_weight, judge), "attention in an older variant")
    if not trace.origin.gpu and not architecture(trace) and any(map(_variants, of_weight)):
        yield Unjudged(id, _NO_GPU)


def _variants(judged: JudgedKernel) -> list[_Variant]:
    """Those that an attention kernel is of, by its name."""
    if judged.kind.family is not KernelFamily.ATTENTION:
        return []
    name = judged.kernels.table.name(judged.launch)
    return [variant for variant in _VARIANTS if variant.pattern.search(name)]


def _told(trace: Trace) -> tuple[str, ...]:
    """How the GPU is known, where the capture does not name it."""
    if trace.origin.gpu:
        return ()
    how = "by its compute capability" if capability_of(trace) else "by kernels that run on no other"
    return (f"the capture names no GPU: {architecture(trace)} {how}",)


def judge(judged: JudgedKernel) -> Claim | None:
    """What the newer variant saves; None where there is none, or the GPU is not known."""
    for variant in _variants(judged):
        if architecture(judged.trace) in variant.architectures:
            saved_ns = variant.saved * judged.row.total_ns
            action = variant.action.of(judged.trace)
            told = _told(judged.trace)
            return Claim(judged, variant.what, action, saved_ns, variant.basis, told, ("ComputeWorkloadAnalysis",))
    return None
