"""Kernels that load neither the SMs nor the memory: too small, or waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop.analysis import profiling
from llmtop.analysis.bounds import Bound
from llmtop.analysis.kernels import dimensions
from llmtop.analysis.rules.kernel_evidence import Judged, heavy
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent

id = "kernel-small-grid"
summary = "Kernels have fewer blocks than the GPU takes at once, so most of it idles."
source = (
    "Nsight Compute, SpeedOfLight rule (latency below 60 %, grids below one wave); "
    "DeepSeek-OCR kernel-level profiling, V2 (small elementwise kernels)"
)

_ONE_WAVE = 1.0
_NOTABLE_SHARE = 0.05
"""Of the kernels' time, for all of them together."""
_SHOWN = 4


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all of them: what they have in common is their number and size."""
    small = [judged for judged in heavy(trace, least=0.0) if _is_small(judged)]
    share = sum(judged.share for judged in small)
    if share < _NOTABLE_SHARE:
        return
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=small[0].name if len(small) == 1 else f"{len(small)} kernels",
        message=f"latency-bound with less than one wave of blocks: {percent(100 * share)} of the kernels' time",
        evidence=tuple(_evidence(small)),
        action="fuse them (torch.compile, fused norms and activations), batch more requests so that grids grow, "
        "and replay them as a CUDA graph so that each costs no launch",
        next_command=profiling.timeline(trace),
        source=source,
    )


def _is_small(judged: Judged) -> bool:
    waves = judged.facts.waves
    return judged.facts.bound_name is Bound.LATENCY and isinstance(waves, float) and waves < _ONE_WAVE


def _evidence(small: Sequence[Judged]) -> Iterator[str]:
    for judged in small[:_SHOWN]:
        grid = dimensions(judged.kernels.grid(judged.launch))
        yield f"{judged.name}: {judged.time}; grid {grid}, {judged.facts.waves:.2g} waves (ncu)"
    if len(small) > _SHOWN:
        yield f"and {len(small) - _SHOWN} more"
