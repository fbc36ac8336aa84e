"""What live rules share: means over one window, and numbers with their source in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.readings import mean, source
from llmtop.model import NS_PER_S, Metric, Trace, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_NS = 15 * NS_PER_S
"""A verdict is about the last quarter of a minute: one odd sample makes none, and a change shows soon."""

BOUND_PERCENT = 60.0
"""From here on a unit counts as the limit: below it NVIDIA's SpeedOfLight rule (Nsight Compute) calls a kernel
latency-bound, and decode kernels of large batches were seen at 60 to 80 % of DRAM
(Recasens et al., arXiv:2503.08311)."""


def means(trace: Trace, track: str, metrics: Sequence[Metric], window_ns: int = WINDOW_NS) -> tuple[float, ...] | None:
    """The means of several gauges over the window; None unless all are known."""
    values = [mean(trace, track, metric, window_ns) for metric in metrics]
    known = tuple(value for value in values if not isinstance(value, Unknown))
    return known if len(known) == len(values) else None


def known(value: float | Unknown) -> float | None:
    """The value, or None."""
    return None if isinstance(value, Unknown) else value


def says(trace: Trace, track: str, metric: Metric, value: float, unit: str = "", title: str = "") -> str:
    """One line of evidence: "DRAM 84 % (GPM)"."""
    where = source(trace, track, metric)
    return f"{title or metric.title} {quantity(value, unit or metric.unit)}" + (f" ({where})" if where else "")


def gpu_name(track: str) -> str:
    """How people call a GPU track: "gpu:0" is GPU 0."""
    return track.replace("gpu:", "GPU ")
