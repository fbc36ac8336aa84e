"""What live rules share: means over one window, and numbers with their source in words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.series.readings import BUSY, latest, mean, source, span_s
from llmtop.facts import ServerFact
from llmtop.model import NS_PER_S, Metric, Trace, Track, TrackId, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_NS = 15 * NS_PER_S
"""A verdict is about the last quarter of a minute: one odd sample makes none, and a change shows soon."""

BOUND_PERCENT = 60.0
"""From here on a unit counts as the limit: below it NVIDIA's SpeedOfLight rule (Nsight Compute) calls a kernel
latency-bound, and decode kernels of large batches were seen at 60 to 80 % of DRAM
(Recasens et al., arXiv:2503.08311)."""


def recent_mean(trace: Trace, track: TrackId, metric: Metric, window_ns: int = WINDOW_NS) -> float | None:
    """The mean of a gauge over the window; None with fewer than two samples, or when its source has fallen silent."""
    if isinstance(latest(trace, track, metric), Unknown):
        return None
    return known(mean(trace, track, metric, window_ns))


def known(value: float | Unknown) -> float | None:
    """The value, or None."""
    return None if isinstance(value, Unknown) else value


def says(trace: Trace, track: TrackId, metric: Metric, value: float, unit: str = "", title: str = "") -> str:
    """One line of evidence: "DRAM 84 % (GPM)".

    A mean of a gauge that is not what a pane shows now says so, with the time that it is of: "waiting 208 requests
    (vLLM, mean of 15 s; now 583)".
    """
    shown, said = quantity(value, unit or metric.unit), [source(trace, track, metric)]
    now = latest(trace, track, metric)
    if not (metric.counter or unit or title or isinstance(now, Unknown)) and shown != quantity(now, metric.unit):
        span = span_s(trace, track, metric, WINDOW_NS)
        said.append(f"mean of {span:.0f} s; now {quantity(now, metric.unit).removesuffix(' requests')}")
    where = ", ".join(part for part in said if part)
    return says_value(metric, value, unit, title) + (f" ({where})" if where else "")


def says_value(metric: Metric, value: float, unit: str = "", title: str = "") -> str:
    """The same without its source, for a message: "DRAM 84 %"."""
    return f"{title or metric.title} {quantity(value, unit or metric.unit)}"


def metrics_command(server: Track, pattern: str) -> str:
    """The command that shows the server's own lines on something; empty where its address is not known."""
    url = server.facts.get(ServerFact.URL)
    return f"curl -s {shlex.quote(url)} | grep -E {shlex.quote(pattern)}" if isinstance(url, str) else ""


def gpu_names(tracks: Sequence[TrackId]) -> str:
    """How people call GPU tracks.

    >>> gpu_names(["gpu:0"]), gpu_names(["gpu:0", "gpu:3"])
    ('GPU 0', 'GPUs 0, 3')
    """
    numbers = ", ".join(map(ids.gpu_label, tracks))
    return f"GPU {numbers}" if len(tracks) == 1 else f"GPUs {numbers}"


def on_gpus(tracks: Sequence[TrackId]) -> str:
    """What a message adds when a finding is about several GPUs at once.

    >>> on_gpus(["gpu:0"]), on_gpus(["gpu:0", "gpu:1"])
    ('', ' on 2 GPUs')
    """
    return f" on {len(tracks)} GPUs" if len(tracks) > 1 else ""


def busy(trace: Trace, track: TrackId, window_ns: int = WINDOW_NS) -> tuple[float, Metric] | None:
    """How much of the window a GPU had work, in %, and by which source: the best that tells; None where none does."""
    told = ((recent_mean(trace, track, metric, window_ns), metric) for metric in BUSY)
    return next(((mean, metric) for mean, metric in told if mean is not None), None)


def busy_percent(trace: Trace, track: TrackId, window_ns: int = WINDOW_NS) -> float | None:
    """How much of the window a GPU had work, by the best source; None where that is not known."""
    found = busy(trace, track, window_ns)
    return None if found is None else found[0]
