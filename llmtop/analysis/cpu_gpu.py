"""The CPU and the GPU side together: lanes on one axis, why the GPU idles, and what moves with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.correlate import Correlations, correlations
from llmtop.analysis.idle_causes import IdleCauses, idle_causes
from llmtop.analysis.lanes import WINDOW_NS, lanes_view

if TYPE_CHECKING:
    from llmtop.analysis.views import Lanes
    from llmtop.model import Trace, Unknown


@dataclass(frozen=True, slots=True)
class CpuGpu:
    """What the zoomed lanes pane shows."""

    lanes: Lanes
    idle: IdleCauses | Unknown
    correlations: Correlations | Unknown


@lru_cache(maxsize=2)
def cpu_gpu_view(trace: Trace, gpu: str | None = None, window_ns: int = WINDOW_NS) -> CpuGpu:
    """Lanes and idle causes of the window; correlations look back further, because they need samples."""
    return CpuGpu(lanes_view(trace, gpu, window_ns), idle_causes(trace, gpu, window_ns), correlations(trace, gpu))
