"""What limits a GPU while it works: its memory or its arithmetic. The one judgement that findings and advice share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from statistics import fmean

from llmtop import vocabulary as v
from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import BOUND_PERCENT, busy_percent, gpu_names, on_gpus, recent_mean, says
from llmtop.analysis.rules.needs import lacks_gpu_gauges
from llmtop.analysis.series.readings import busy_metric, own_gpus
from llmtop.frozen import frozen
from llmtop.model import Finding, Metric, Severity, Trace, TrackId

WORKS_PERCENT = 20.0
"""Share of the time with any kernel, below which what little the GPU did tells of copies as much as of kernels."""
_NEARLY_ALWAYS_PERCENT = 90.0
_NEVER_RESTS_PERCENT = 80.0
_STALLED_PERCENT = 45.0
"""DRAM activity from which warps on SMs that hardly rest wait for memory more than half of their time: decode of small
models at their largest batch (OPT-1.3B) was measured at 48 % (Recasens et al., arXiv:2503.08311, section 4)."""


class GpuUnit(StrEnum):
    """A part of the GPU that can be at its limit."""

    MEMORY = "memory"
    ARITHMETIC = "arithmetic"


@frozen
class GpuLimit:
    """How busy a GPU's units are while kernels run, in percent over the last 15 s, and which of them limits it.

    Attributes:
        unit: None where neither is at its limit.
        busy_percent: The share of the time with kernels; None where it is not known, and all of the time is judged.
    """

    track: TrackId
    unit: GpuUnit | None
    dram: float
    tensor: float
    busy_percent: float | None


@lru_cache(maxsize=4)
def gpu_limits(trace: Trace) -> tuple[GpuLimit, ...]:
    """The server's GPUs that work, as far as their units are known; kept, because several rules ask.

    A load in bursts leaves the GPU idle between them, which tells nothing of what it waits for at work: the mean of a
    unit is divided by the share of the time with kernels.
    """
    return tuple(found for gpu in own_gpus(trace) if (found := _limit(trace, gpu.id)) is not None)


def limiting_unit(trace: Trace) -> GpuUnit | None:
    """The unit that limits the server's GPUs: the busiest one that is at its limit."""
    limited = [one for one in gpu_limits(trace) if one.unit is not None]
    return max(limited, key=lambda one: max(one.dram, one.tensor)).unit if limited else None


def _limit(trace: Trace, track: TrackId) -> GpuLimit | None:
    dram, tensor = recent_mean(trace, track, v.GPU_DRAM), recent_mean(trace, track, v.GPU_TENSOR)
    busy = busy_percent(trace, track)
    if dram is None or tensor is None or (busy is not None and busy < WORKS_PERCENT):
        return None
    share = 1.0 if busy is None or busy >= _NEARLY_ALWAYS_PERCENT else busy / 100
    dram, tensor = dram / share, tensor / share
    never_rests = (recent_mean(trace, track, v.GPU_SM) or 0.0) >= _NEVER_RESTS_PERCENT
    unit = None
    if tensor >= BOUND_PERCENT and tensor > dram:
        unit = GpuUnit.ARITHMETIC
    elif dram >= BOUND_PERCENT or (never_rests and dram >= _STALLED_PERCENT and tensor < dram / 2):
        unit = GpuUnit.MEMORY
    return GpuLimit(track, unit, min(100.0, dram), min(100.0, tensor), busy)


def findings(
    rule: str,
    source: str,
    unit: GpuUnit,
    name: Callable[[float, float], str],
    action: str,
    evidence: tuple[str, ...],
    trace: Trace,
) -> Iterator[Finding | Unjudged]:
    """One finding for all GPUs that this unit limits, or what a verdict lacks. Eight alike would hide the others.

    `name` says what that is called at these means of DRAM and tensor activity.
    """
    limited = [one for one in gpu_limits(trace) if one.unit is unit]
    if not limited:
        yield from unjudged(rule, lacks_gpu_gauges(trace, v.GPU_DRAM, v.GPU_TENSOR))
        return
    tracks = [one.track for one in limited]
    dram, tensor = fmean(one.dram for one in limited), fmean(one.tensor for one in limited)
    shares = {v.GPU_DRAM: dram, v.GPU_TENSOR: tensor}
    units = sorted(shares, key=lambda one: -shares[one])
    shown = ", ".join(f"{one.title} {shares[one]:.0f} %" for one in units)
    busy = [one.busy_percent for one in limited if one.busy_percent is not None]
    is_bursty = bool(busy) and fmean(busy) < _NEARLY_ALWAYS_PERCENT
    when = f" while the GPU works ({fmean(busy):.0f} % of the time)" if is_bursty else ""
    yield Finding(
        rule=rule,
        severity=Severity.INFO,
        subject=gpu_names(tracks),
        message=f"{name(dram, tensor)}{on_gpus(tracks)}: {shown}{when}",
        evidence=(*(_says_units(trace, track, units) for track in tracks), *evidence),
        action=action,
        next_command=profiling.timeline_of_server(trace),
        source=source,
    )


def _says_units(trace: Trace, track: TrackId, units: Sequence[Metric]) -> str:
    seen = ((one, recent_mean(trace, track, one)) for one in (*units, v.GPU_SM, busy_metric(trace, track)))
    shown = (says(trace, track, metric, value) for metric, value in seen if value is not None)
    return f"{gpu_names([track])}: {', '.join(shown)}"
