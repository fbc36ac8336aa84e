"""What live rules share: means over one window, and numbers with their source in words."""

from __future__ import annotations

import shlex
from statistics import fmean
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import BUSY, busy_metric, latest, mean, own_gpus, source, span_s
from llmtop.facts import ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Metric, Trace, Track, TrackId, Unknown
from llmtop.units import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW_NS = 15 * NS_PER_S
"""A verdict is about the last quarter of a minute: one odd sample makes none, and a change shows soon."""

BOUND_PERCENT = 60.0
"""From here on a unit counts as the limit: below it NVIDIA's SpeedOfLight rule (Nsight Compute) calls a kernel
latency-bound, and decode kernels of large batches were seen at 60 to 80 % of DRAM
(Recasens et al., arXiv:2503.08311)."""


def means(
    trace: Trace, track: TrackId, metrics: Sequence[Metric], window_ns: int = WINDOW_NS
) -> tuple[float, ...] | None:
    """The means of several gauges over the window; None unless all are known."""
    values = [recent_mean(trace, track, metric, window_ns) for metric in metrics]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


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


WORKS_PERCENT = 20.0
"""Share of the time with any kernel, below which what little the GPU did tells of copies as much as of kernels."""
_NEARLY_ALWAYS_PERCENT = 90.0


@frozen
class AtWork:
    """GPUs of one kind, with how busy some of their units were while kernels ran.

    Attributes:
        tracks: Their ids.
        percents: By unit, over the time in which kernels ran, on average over the GPUs.
        busy_percent: How much of the time that was; None where it is not known, and all of the time is judged.
        evidence: A line for each GPU, with what was measured.
    """

    tracks: list[TrackId]
    percents: tuple[float, ...]
    busy_percent: float | None
    evidence: tuple[str, ...]

    @property
    def when(self) -> str:
        """What a message adds where that was not nearly all of the time."""
        rests = self.busy_percent is not None and self.busy_percent < _NEARLY_ALWAYS_PERCENT
        return f" while the GPU works ({self.busy_percent:.0f} % of the time)" if rests else ""


def gpus_where(
    trace: Trace, metrics: Sequence[Metric], is_so: Callable[[tuple[float, ...], float | None], bool]
) -> AtWork | None:
    """GPUs whose units were so busy while they worked; None where there is none.

    A load in bursts leaves the GPU idle between them, which says nothing of what it waits for at work: the mean of a
    unit is divided by the share of the time with kernels. The ranks of one server do the same work: eight findings that
    say one thing would hide the others.

    Args:
        trace: What the recorder holds.
        metrics: The units.
        is_so: Of the units' percents while kernels ran, and of SMs with work in all of the window (None where that is
            not known).
    """
    found = [one for gpu in own_gpus(trace) if (one := _at_work(trace, gpu.id, metrics)) is not None]
    hits = [one for one in found if is_so(one.percents, one.sm_percent)]
    if not hits:
        return None
    percents = tuple(fmean(column) for column in zip(*(one.percents for one in hits), strict=True))
    busy = [one.busy_percent for one in hits if one.busy_percent is not None]
    evidence = tuple(_says_units(trace, one.track, metrics) for one in hits)
    return AtWork([one.track for one in hits], percents, fmean(busy) if busy else None, evidence)


@frozen
class _Working:
    """One GPU's units while kernels ran, its SMs in all of the window, and how much of it kernels ran, in per cent."""

    track: TrackId
    percents: tuple[float, ...]
    sm_percent: float | None
    busy_percent: float | None


def _at_work(trace: Trace, track: TrackId, metrics: Sequence[Metric]) -> _Working | None:
    values, busy = means(trace, track, metrics), busy_percent(trace, track)
    if values is None or (busy is not None and busy < WORKS_PERCENT):
        return None
    share = 1.0 if busy is None or busy >= _NEARLY_ALWAYS_PERCENT else busy / 100
    percents = tuple(min(100.0, value / share) for value in values)
    return _Working(track, percents, recent_mean(trace, track, v.GPU_SM), busy)


def busy(trace: Trace, track: TrackId, window_ns: int = WINDOW_NS) -> tuple[float, Metric] | None:
    """How much of the window a GPU had work, in %, and by which source: the best that tells; None where none does."""
    told = ((recent_mean(trace, track, metric, window_ns), metric) for metric in BUSY)
    return next(((mean, metric) for mean, metric in told if mean is not None), None)


def busy_percent(trace: Trace, track: TrackId, window_ns: int = WINDOW_NS) -> float | None:
    """How much of the window a GPU had work, by the best source; None where that is not known."""
    found = busy(trace, track, window_ns)
    return None if found is None else found[0]


def _says_units(trace: Trace, track: TrackId, metrics: Sequence[Metric]) -> str:
    units = (*metrics, v.GPU_SM, busy_metric(trace, track))
    seen = ((one, recent_mean(trace, track, one)) for one in units)
    shown = (says(trace, track, metric, value) for metric, value in seen if value is not None)
    return f"{gpu_names([track])}: {', '.join(shown)}"
