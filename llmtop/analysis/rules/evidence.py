"""What live rules share: means over one window, and numbers with their source in words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from llmtop.analysis.readings import gpu_tracks, latest, mean, source
from llmtop.model import NS_PER_S, Metric, Trace, Track, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW_NS = 15 * NS_PER_S
"""A verdict is about the last quarter of a minute: one odd sample makes none, and a change shows soon."""

BOUND_PERCENT = 60.0
"""From here on a unit counts as the limit: below it NVIDIA's SpeedOfLight rule (Nsight Compute) calls a kernel
latency-bound, and decode kernels of large batches were seen at 60 to 80 % of DRAM
(Recasens et al., arXiv:2503.08311)."""


def means(trace: Trace, track: str, metrics: Sequence[Metric], window_ns: int = WINDOW_NS) -> tuple[float, ...] | None:
    """The means of several gauges over the window; None unless all are known."""
    values = [recent_mean(trace, track, metric, window_ns) for metric in metrics]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def recent_mean(trace: Trace, track: str, metric: Metric, window_ns: int = WINDOW_NS) -> float | None:
    """The mean of a gauge over the window; None with fewer than two samples, or when its source has fallen silent."""
    if isinstance(latest(trace, track, metric), Unknown):
        return None
    return known(mean(trace, track, metric, window_ns))


def known(value: float | Unknown) -> float | None:
    """The value, or None."""
    return None if isinstance(value, Unknown) else value


def says(trace: Trace, track: str, metric: Metric, value: float, unit: str = "", title: str = "") -> str:
    """One line of evidence: "DRAM 84 % (GPM)"."""
    where, unit = source(trace, track, metric), unit or metric.unit
    return f"{title or metric.title} {quantity(value, unit)}" + (f" ({where})" if where else "")


def metrics_command(server: Track, pattern: str) -> str:
    """The command that shows the server's own lines on something; empty where its address is not known."""
    url = server.facts.get("url")
    return f"curl -s {shlex.quote(url)} | grep -E {shlex.quote(pattern)}" if isinstance(url, str) else ""


def gpu_names(tracks: Sequence[str]) -> str:
    """How people call GPU tracks.

    >>> gpu_names(["gpu:0"]), gpu_names(["gpu:0", "gpu:3"])
    ('GPU 0', 'GPUs 0, 3')
    """
    numbers = ", ".join(track.removeprefix("gpu:") for track in tracks)
    return f"GPU {numbers}" if len(tracks) == 1 else f"GPUs {numbers}"


def on_gpus(tracks: Sequence[str]) -> str:
    """What a message adds when a finding is about several GPUs at once.

    >>> on_gpus(["gpu:0"]), on_gpus(["gpu:0", "gpu:1"])
    ('', ' on 2 GPUs')
    """
    return f" on {len(tracks)} GPUs" if len(tracks) > 1 else ""


def gpus_where(
    trace: Trace, metrics: Sequence[Metric], is_so: Callable[[tuple[float, ...]], bool]
) -> tuple[list[str], tuple[float, ...], tuple[str, ...]]:
    """GPUs whose means over the window satisfy a condition: their tracks, the means over them, and the evidence.

    The ranks of one server do the same work: eight findings that say one thing would hide the others.
    """
    found = [(track.id, values) for track in gpu_tracks(trace) if (values := means(trace, track.id, metrics))]
    hits = [(track, values) for track, values in found if is_so(values)]
    together = tuple(sum(column) / len(hits) for column in zip(*(values for _, values in hits), strict=True))
    evidence = []
    for track, values in hits:
        shown = ", ".join(says(trace, track, *pair) for pair in zip(metrics, values, strict=True))
        evidence.append(f"{gpu_names([track])}: {shown}")
    return [track for track, _ in hits], together, tuple(evidence)
