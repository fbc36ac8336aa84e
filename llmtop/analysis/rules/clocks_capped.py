"""The GPU runs below its clock because of power or heat."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import gpu_tracks, history, mean
from llmtop.analysis.rules.evidence import WINDOW_NS, gpu_name, known, says
from llmtop.model import Finding, Metric, Severity, Trace

id = "clocks-capped"
summary = "Clocks are held down, so every roof is lower than the datasheet's."
source = "NVML, nvmlClocksEventReason*"

_POWER = 0x04 | 0x80
"""SW power cap, HW power brake."""
_HEAT = 0x20 | 0x40
"""SW and HW thermal slowdown."""
_HW_SLOWDOWN = 0x08
_OFTEN = 0.5
"""Share of the samples in which a reason must stand."""
_NEAR_LIMIT = 0.95
_HOT_CELSIUS = 80.0


def check(trace: Trace) -> Iterator[Finding]:
    """A clock reason that stands in most samples, and the power or the temperature that goes with it."""
    for track in gpu_tracks(trace):
        masks = [int(x) for _, x in history(trace, track.id, v.GPU_CLOCK_REASONS, WINDOW_NS) if x is not None]
        if len(masks) < 2:
            continue
        power, limit = (known(mean(trace, track.id, m, WINDOW_NS)) for m in (v.GPU_POWER, v.GPU_POWER_LIMIT))
        heat = known(mean(trace, track.id, v.GPU_TEMPERATURE, WINDOW_NS, at_least=1))
        if _share(masks, _HEAT) >= _OFTEN and heat is not None and heat >= _HOT_CELSIUS:
            yield _finding(trace, track.id, "thermal slowdown", v.GPU_TEMPERATURE, heat, _COOL, Severity.ERROR)
        elif _share(masks, _POWER) >= _OFTEN and power and limit and power >= limit * _NEAR_LIMIT:
            yield _finding(trace, track.id, "power cap", v.GPU_POWER, power, _MORE_POWER, Severity.INFO)
        elif _share(masks, _HW_SLOWDOWN | 0x80) >= _OFTEN and power is not None:
            yield _finding(trace, track.id, "hardware slowdown", v.GPU_POWER, power, _HARDWARE, Severity.ERROR)


_COOL = "check airflow, fans and the neighbours' load; the clock comes back when the GPU is cooler"
_MORE_POWER = "raise the power limit if the node allows it (nvidia-smi -pl); for decode it matters little"
_HARDWARE = "check the power supply and its cables: the board itself slows the clock"


def _share(masks: list[int], bits: int) -> float:
    return sum(1 for mask in masks if mask & bits) / len(masks)


def _finding(
    trace: Trace, track: str, what: str, metric: Metric, value: float, action: str, severity: Severity
) -> Finding:
    clock = known(mean(trace, track, v.GPU_SM_CLOCK, WINDOW_NS))
    evidence = [f"clock reason: {what} (NVML)", says(trace, track, metric, value)]
    if clock is not None:
        evidence.append(says(trace, track, v.GPU_SM_CLOCK, clock))
    at = "" if clock is None else f", SM clock {clock:.0f} MHz"
    return Finding(
        rule=id,
        severity=severity,
        subject=gpu_name(track),
        message=f"{what}: {says(trace, track, metric, value).split(' (')[0]}{at}",
        evidence=tuple(evidence),
        action=action,
        next_command=f"nvidia-smi -i {track.removeprefix('gpu:')} -q -d PERFORMANCE,POWER,TEMPERATURE",
        source=source,
    )
