"""The GPU runs below its clock because of power or heat."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import less_arithmetic
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, gpu_names, known, on_gpus, recent_mean, says
from llmtop.analysis.rules.gpu_limits import GpuUnit, gpu_limits
from llmtop.analysis.rules.needs import lacks_gpu_gauges
from llmtop.analysis.series.readings import history, mean, own_gpus
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import Finding, Metric, Severity, Trace, TrackId
from llmtop.units import percent, quantity

id = "clocks-capped"
summary = "Clocks are held down, so every roof is lower than the datasheet's."
source = "NVML, nvmlClocksEventReason*"

_OFTEN = 0.5
"""Share of the samples in which a reason must stand."""
_NEAR_LIMIT = 0.95
_HIGHEST = 0.99
"""Share of the highest power limit that can be set, from which there is nothing to raise."""
_MUCH = 0.1
"""Share of the clock that is missing, from which work that the tensor cores limit is slower by what people notice."""
_HOT_CELSIUS = 80.0
_HOT_MEMORY_CELSIUS = 85.0
_MOST_MEMORY_CELSIUS = 95.0
"""From there on HBM is what slows the GPU, however hot the core. NVML's software thermal slowdown keeps the memory
below its own highest temperature, which nvidia-smi shows on some boards ("Memory Max Operating Temp"); 95 is what
operators of H100 and H200 report, no number of a document of NVIDIA's that was read for this."""


@frozen
class _Cap:
    """A kind of limit: its reason bits, the gauge that must agree, and what to do."""

    name: str
    bits: int
    witness: Metric
    severity: Severity
    action: str


_POWER_CAP = _Cap(
    "power cap",
    0x04,  # SW power cap
    v.GPU_POWER,
    Severity.INFO,
    "",  # depends on the limit: see `_power_action`
)
_CAPS = (
    _Cap(
        "thermal slowdown",
        0x20 | 0x40,  # SW and HW thermal slowdown
        v.GPU_TEMPERATURE,
        Severity.ERROR,
        "check airflow, fans and the neighbours' load; the clock comes back when the GPU is cooler",
    ),
    _Cap(
        "memory too hot",
        0x20 | 0x40,
        v.GPU_TEMPERATURE_MEMORY,
        Severity.ERROR,
        "HBM slows the whole GPU while the core is still cool: check airflow and heat sink, lower the power limit "
        "(nvidia-smi -pl), spread the load; a GPU that alone is hot has a fault",
    ),
    _Cap(
        "power brake",
        0x80,  # external power brake
        v.GPU_POWER,
        Severity.ERROR,
        "check the power supply and its cables: the board itself slows the clock",
    ),
    _Cap(
        "hardware slowdown",
        0x08,  # stands beside 0x40 or 0x80 where the driver knows which
        v.GPU_POWER,
        Severity.ERROR,
        "heat, an external brake or too high a power draw halves the clock; the driver does not say which: compare "
        "temperatures and power with a GPU that is well, and check supply and cables",
    ),
    _POWER_CAP,
)


def advice(trace: Trace, gpu: TrackId, bit: int) -> tuple[Severity, str]:
    """How grave one clock event reason is and what to do about it; the text is empty where nothing is to be done."""
    cap = next((cap for cap in _CAPS if cap.bits & bit), None)
    if cap is None:
        return Severity.INFO, ""
    return cap.severity, _of_limit(trace, gpu) if cap is _POWER_CAP else cap.action


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A clock reason that stands in most samples, and the power or the temperature that goes with it."""
    yield from unjudged(id, lacks_gpu_gauges(trace, v.GPU_CLOCK_REASONS))
    capped: dict[TrackId, _Cap] = {}
    for track in own_gpus(trace):
        cap = next((cap for cap in _CAPS if _stands(trace, track.id, cap) and _agrees(trace, track.id, cap)), None)
        if cap is not None:
            capped[track.id] = cap
    for cap in _CAPS:
        tracks = [track for track, why in capped.items() if why is cap]
        if tracks:
            yield _finding(trace, tracks, cap)


def _stands(trace: Trace, track: TrackId, cap: _Cap) -> bool:
    samples = history(trace, track, v.GPU_CLOCK_REASONS, WINDOW_NS)
    masks = [int(value) for _, value in samples if value is not None]
    return len(masks) >= 2 and sum(1 for mask in masks if mask & cap.bits) >= _OFTEN * len(masks)


def _agrees(trace: Trace, track: TrackId, cap: _Cap) -> bool:
    """The second signal: hot, near the power limit, or a clock that is low; a brake slows it whatever the power."""
    value = known(mean(trace, track, cap.witness, WINDOW_NS, at_least=1))
    limit = known(mean(trace, track, v.GPU_POWER_LIMIT, WINDOW_NS, at_least=1))
    if value is None:
        return False
    if cap.witness in (v.GPU_TEMPERATURE, v.GPU_TEMPERATURE_MEMORY):
        return _is_hottest(trace, track, cap.witness)
    is_near = limit is not None and value >= limit * _NEAR_LIMIT
    return cap.severity is Severity.ERROR or is_near or _missing_clock(trace, track) >= _MUCH


def _missing_clock(trace: Trace, gpu: TrackId) -> float:
    """The share of its highest clock that a GPU lacks; 0 where either is not known."""
    clock = known(mean(trace, gpu, v.GPU_SM_CLOCK, WINDOW_NS, at_least=1))
    highest = _fact(trace, gpu, GpuFact.MAX_SM_MHZ)
    return 0.0 if clock is None or not highest else 1 - clock / highest


def _is_hottest(trace: Trace, track: TrackId, witness: Metric) -> bool:
    """Whether it is this part of the GPU that is too hot: memory at its limit, else the core, else memory."""
    core, memory = (
        known(mean(trace, track, metric, WINDOW_NS, at_least=1)) or 0.0
        for metric in (v.GPU_TEMPERATURE, v.GPU_TEMPERATURE_MEMORY)
    )
    is_memory = memory >= _MOST_MEMORY_CELSIUS or (core < _HOT_CELSIUS and memory >= _HOT_MEMORY_CELSIUS)
    return is_memory if witness is v.GPU_TEMPERATURE_MEMORY else not is_memory and core >= _HOT_CELSIUS


def _reason(cap: _Cap) -> str:
    """The driver has one word for both kinds of heat."""
    return "thermal slowdown" if cap.witness is v.GPU_TEMPERATURE_MEMORY else cap.name


def _finding(trace: Trace, tracks: list[TrackId], cap: _Cap) -> Finding:
    first = tracks[0]
    witness = known(mean(trace, first, cap.witness, WINDOW_NS, at_least=1)) or 0.0
    clock = known(mean(trace, first, v.GPU_SM_CLOCK, WINDOW_NS, at_least=1))
    evidence = [f"clock reason: {_reason(cap)} (NVML)", says(trace, first, cap.witness, witness)]
    if cap.witness is v.GPU_TEMPERATURE_MEMORY:
        core = known(mean(trace, first, v.GPU_TEMPERATURE, WINDOW_NS, at_least=1))
        evidence += [] if core is None else [says(trace, first, v.GPU_TEMPERATURE, core)]
    if clock is not None:
        evidence.append(says(trace, first, v.GPU_SM_CLOCK, clock))
    highest = _fact(trace, first, GpuFact.MAX_SM_MHZ)
    of = "" if highest is None else f" of {highest:.0f}"
    at = "" if clock is None else f", SM clock {clock:.0f}{of} MHz"
    return Finding(
        rule=id,
        severity=Severity.WARNING if cap is _POWER_CAP and _slower(trace, first) else cap.severity,
        subject=gpu_names(tracks),
        message=f"{cap.name}{on_gpus(tracks)}: {quantity(witness, cap.witness.unit)}{at}",
        evidence=tuple(evidence),
        action=power_action(trace, first) if cap is _POWER_CAP else cap.action,
        next_command=f"nvidia-smi -i {ids.gpu_index(first)} -q -d PERFORMANCE,POWER,TEMPERATURE",
        source=source,
    )


def _fact(trace: Trace, gpu: TrackId, name: str) -> float | None:
    value = trace.tracks[gpu].facts.get(name)
    return float(value) if isinstance(value, int | float) else None


def holds_arithmetic(trace: Trace, gpu: TrackId) -> bool:
    """Whether the power cap takes much of the clock of a GPU whose tensor cores have more to do than its memory."""
    is_capped = _stands(trace, gpu, _POWER_CAP) and _agrees(trace, gpu, _POWER_CAP)
    return is_capped and _computes(trace, gpu) and _missing_clock(trace, gpu) >= _MUCH


def power_action(trace: Trace, gpu: TrackId) -> str:
    """What a higher limit would give, and whether there is one: memory keeps its clock under a power cap."""
    slower = _slower(trace, gpu)
    if not _is_highest(trace, gpu):
        return f"{_of_limit(trace, gpu)}; {_effect(trace, gpu, slower)}"
    instead = f": {less_arithmetic(trace)}" if slower else ""
    return f"{_effect(trace, gpu, slower)}; {_of_limit(trace, gpu)}{instead}"


def _effect(trace: Trace, gpu: TrackId, slower: float) -> str:
    if slower:
        return f"arithmetic, which limits it, is {percent(100 * slower)} slower for it"
    lost = _missing_clock(trace, gpu)
    if _computes(trace, gpu) and lost >= _MUCH:
        return f"prompts are up to {percent(100 * lost)} slower for it"
    return "for decode it matters little"


def _of_limit(trace: Trace, gpu: TrackId) -> str:
    """How the power limit is raised, or that there is no higher one."""
    most = _fact(trace, gpu, GpuFact.MAX_POWER_W)
    if _is_highest(trace, gpu):
        return f"its power limit is the highest it has ({most:.0f} W)"
    to = "" if most is None else f" {most:.0f}"
    return f"raise the power limit if the node allows it (nvidia-smi -i {ids.gpu_index(gpu)} -pl{to})"


def _is_highest(trace: Trace, gpu: TrackId) -> bool:
    limit = known(mean(trace, gpu, v.GPU_POWER_LIMIT, WINDOW_NS, at_least=1))
    most = _fact(trace, gpu, GpuFact.MAX_POWER_W)
    return limit is not None and most is not None and limit >= _HIGHEST * most


def _slower(trace: Trace, gpu: TrackId) -> float:
    """The share of the clock that is missing where arithmetic limits the GPU; else 0."""
    is_limit = any(one.track == gpu and one.unit is GpuUnit.ARITHMETIC for one in gpu_limits(trace))
    lost = _missing_clock(trace, gpu)
    return lost if is_limit and lost >= _MUCH else 0.0


def _computes(trace: Trace, gpu: TrackId) -> bool:
    """Whether the tensor cores have more to do than memory has: prompts, not decode."""
    tensor, dram = (recent_mean(trace, gpu, metric) or 0.0 for metric in (v.GPU_TENSOR, v.GPU_DRAM))
    return tensor > dram
