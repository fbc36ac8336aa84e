"""Where a running GPU stands on its roofline, from GPM: no profiler, no privileges.

    FLOP/s  = pipe % x peak(precision) x SM clock now / SM clock of the published peak
    bytes/s = DRAM % x (bus width x highest memory clock x 2)

Checked against known work on an H100 SXM (docs/gpu-checks.md): bf16, fp16, tf32 and fp8 matrix multiplication within
1.5 %, memory-bound kernels within 1 %. The clock term is not optional: GPM counts cycles, and under its power cap that
GPU ran bf16 at 1390 MHz, where the published 989 TFLOP/s hold at 1830.

What GPM cannot tell, and this view says so: fp8 and bf16 share one counter (HMMA), so an unknown precision gives a
band; a tile that is mostly padding counts as full, so at low intensity the FLOP/s are an upper bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus import (
    PRACTICAL_SOURCE,
    clock_reasons,
    compute_practical,
    dram_peak,
    dram_practical,
)
from llmtop.analysis.readings import latest, why_absent, why_kind_missing
from llmtop.analysis.roofline_ceilings import ceilings_of
from llmtop.analysis.roofline_estimate import server_estimate
from llmtop.analysis.roofline_rates import (
    NEEDED,
    PIPES,
    STALE_NS,
    is_resting,
    rates_history,
    too_old,
    why_no_rates,
)
from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint, RooflineView
from llmtop.model import NS_PER_S, Trace, TrackKind, Unknown
from llmtop.units import percent, si

if TYPE_CHECKING:
    from llmtop.analysis.roofline_ceilings import Ceilings
    from llmtop.analysis.roofline_rates import Rates
    from llmtop.model import Fact, Track

_FULL_TILE_ROWS = 64
"""Rows of the smallest warp-group tile of Hopper's matrix units (PTX wgmma, m64); fewer rows are padded to it."""
_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4}


def live_view(
    trace: Trace, gpu_track_id: str, dtype: Fact, *, trail_s: float = 60, now_ns: int | None = None
) -> RooflineView:
    """The roofline of one GPU now: the newest point first, then the trail.

    Args:
        trace: What the recorder holds.
        gpu_track_id: "gpu:0".
        dtype: What the server computes in, as it says ("bfloat16", "fp8" ...), or why that is not known.
        trail_s: How far back the trail goes, in seconds.
        now_ns: The moment to look from; by default the newest.
    """
    now_ns = trace.end_ns if now_ns is None else now_ns
    track = trace.tracks.get(gpu_track_id)
    if track is None:
        why = why_kind_missing(trace, TrackKind.GPU)
        return _with_estimate(RooflineView(gpu_track_id, (), (), why_not=why), server_estimate(trace, None))
    ceilings = ceilings_of(track, dtype)
    if isinstance(ceilings, Unknown):
        alone = RooflineView(_title(track), _memory_roof_alone(track), (), why_not=ceilings)
        return _with_estimate(alone, server_estimate(trace, None))
    measured = _measured_view(trace, track, ceilings, now_ns, int(trail_s * NS_PER_S))
    return _with_estimate(measured, server_estimate(trace, ceilings))


def _title(track: Track) -> str:
    return f"{track.name} ({track.id})"


def _memory_roof_alone(track: Track) -> tuple[Roof, ...]:
    memory = dram_peak(track.facts, Unknown(""))
    return () if isinstance(memory, Unknown) else (Roof("memory", "DRAM", float(memory.value), memory.source),)


# The measured point


def _measured_view(trace: Trace, track: Track, ceilings: Ceilings, now_ns: int, trail_ns: int) -> RooflineView:
    history = rates_history(trace, track.id, ceilings, now_ns - trail_ns, now_ns)
    why_not = _why_no_point(trace, track.id, ceilings, history, now_ns)
    notes = _notes(trace, track, ceilings, history)
    if why_not is not None:
        return RooflineView(_title(track), _roofs(ceilings, ceilings.precision), (), notes=notes, why_not=why_not)
    newest = history[-1]
    shown = [rates for rates in reversed(history) if rates.has_intensity and not is_resting(rates, ceilings)]
    points = tuple(_point(rates, ceilings, newest.t_ns) for rates in shown)
    roofs = _roofs(ceilings, newest.precision)
    return RooflineView(_title(track), roofs, points, band=_band(newest, ceilings), notes=notes)


def _why_no_point(trace: Trace, track: str, ceilings: Ceilings, history: list[Rates], now_ns: int) -> Unknown | None:
    if not history:
        return why_no_rates(trace, track, now_ns)
    newest = history[-1]
    for metric in NEEDED:
        series = trace.get(track, metric)
        if series is not None and series.last is None:
            return why_absent(trace, track, metric)
    period_ns = newest.t_ns - history[-2].t_ns if len(history) > 1 else 0
    if now_ns - newest.t_ns > max(STALE_NS, 3 * period_ns):
        return too_old(now_ns - newest.t_ns)
    if is_resting(newest, ceilings):
        return Unknown("idle: neither memory nor compute pipes move", "send the server a request")
    if not newest.flops_per_s:
        return Unknown(f"no floating-point work in the last window, {si(newest.bytes_per_s, 'B/s')} of memory traffic")
    if not newest.bytes_per_s:
        return Unknown(f"no memory traffic in the last window, {si(newest.flops_per_s, 'FLOP/s')}")
    return None


def _point(rates: Rates, ceilings: Ceilings, newest_ns: int) -> RooflinePoint:
    age_s = (newest_ns - rates.t_ns) / NS_PER_S
    peak = ceilings.peak(rates.precision)
    return RooflinePoint(
        label="now" if age_s == 0 else f"{age_s:.0f} s ago",
        intensity=rates.flops_per_s / rates.bytes_per_s,
        flops_per_s=rates.flops_per_s,
        bytes_per_s=rates.bytes_per_s,
        precision="..".join(ceilings.band) if rates.precision == ceilings.precision else rates.precision,
        source="GPM",
        quality=_quality(rates, ceilings),
        age_s=age_s,
        roof_fraction=max(rates.flops_per_s / peak, rates.bytes_per_s / ceilings.bytes_per_s),
    )


def _quality(rates: Rates, ceilings: Ceilings) -> Quality:
    """How far the FLOP/s can be trusted.

    Measured on an H100: 16-bit, tf32 and fp8 tensor work on full tiles is within 1.5 %; int8 read twice what was done
    (its pipe also serves slower instructions); CUDA cores read 8 % high; batch 1 reads eightfold, batch 64 4 % high:
    below 64 rows the rest of a tile is padding, which shows as an intensity below 2 x 64 FLOP per element read.
    Under fp8, what runs in 16 bits (attention, often) counts double.
    """
    if ceilings.why_band is not None:
        return Quality.ESTIMATE
    precision = rates.precision
    if precision not in _ELEMENT_BYTES:
        return Quality.UPPER_BOUND
    is_padded = rates.flops_per_s < rates.bytes_per_s * 2 * _FULL_TILE_ROWS / _ELEMENT_BYTES[precision]
    return Quality.UPPER_BOUND if is_padded else Quality.MEASURED


def _band(newest: Rates, ceilings: Ceilings) -> tuple[float, float] | None:
    """FLOP/s of the newest window at the slowest and the fastest precision that its tensor work can have."""
    tensor = newest.flops_by_precision.get(ceilings.precision)
    if len(ceilings.band) < 2 or not tensor:
        return None
    rest = newest.flops_per_s - tensor
    peaks = ceilings.gpu.peaks
    low, high = (rest + tensor * peaks[name] / peaks[ceilings.precision] for name in ceilings.band)
    return low, high


# Roofs and notes


def _roofs(ceilings: Ceilings, precision: str) -> tuple[Roof, ...]:
    """The memory roof, then the compute roofs: of the tensor precision (both ends of a band) and of the point's own."""
    gpu = ceilings.gpu
    memory = Roof(
        "memory",
        "DRAM",
        ceilings.bytes_per_s,
        ceilings.memory.source,
        dram_practical(gpu, ceilings.bytes_per_s),
    )
    names = dict.fromkeys((*ceilings.band, precision))
    return (memory, *(_compute_roof(ceilings, name) for name in names))


def _compute_roof(ceilings: Ceilings, name: str) -> Roof:
    gpu = ceilings.gpu
    practical = compute_practical(gpu, name.lower())
    reach = f"; practical: {PRACTICAL_SOURCE}" if practical is not None else ""
    source = f"{gpu.provenance}, at {ceilings.published_mhz:.0f} MHz{reach}"
    return Roof("compute", name, ceilings.peak(name), source, practical)


def _notes(trace: Trace, track: Track, ceilings: Ceilings, history: list[Rates]) -> tuple[str, ...]:
    notes = []
    if ceilings.why_band is not None:
        ends = " or ".join(ceilings.band)
        notes.append(
            f"precision not known ({ceilings.why_band.reason}; llmtop --dtype tells it): tensor work counts as {ends}"
        )
    if history:
        notes.extend(_clock_note(trace, track, ceilings, history[-1].sm_mhz))
    sharers = sum(process.parent == track.id for process in trace.tracks_of(TrackKind.GPU_PROCESS))
    if sharers > 1:
        notes.append(f"{sharers} processes share this GPU: the point is of all of them")
    if track.facts.get("mig") == "enabled":
        notes.append("MIG is enabled: the roofs are of the whole GPU")
    absent = [metric.title for metric in PIPES if isinstance(latest(trace, track.id, metric), Unknown)]
    if history and absent:
        notes.append(f"not counted, because GPM has no value: {', '.join(absent)}")
    fp16 = latest(trace, track.id, v.GPU_FP16)
    if not isinstance(fp16, Unknown) and fp16 >= 1:
        notes.append(f"FP16 work on CUDA cores ({percent(fp16)} of that pipe) is not counted")
    return tuple(notes)


def _clock_note(trace: Trace, track: Track, ceilings: Ceilings, sm_mhz: float) -> list[str]:
    """The roof at today's clock, where it is off the published one by more than 2 %."""
    scale = sm_mhz / ceilings.published_mhz
    if abs(scale - 1) < 0.02:
        return []
    mask = latest(trace, track.id, v.GPU_CLOCK_REASONS)
    reasons = () if isinstance(mask, Unknown) else clock_reasons(mask)
    because = f" ({', '.join(reasons)})" if reasons else ""
    roof = si(ceilings.gpu.peaks[ceilings.precision] * scale, "FLOP/s")
    return [
        f"at {sm_mhz:.0f} MHz{because} the {ceilings.precision} roof is {roof}; the one drawn is at"
        f" {ceilings.published_mhz:.0f} MHz"
    ]


def _with_estimate(view: RooflineView, estimate: RooflinePoint | Refusal | None) -> RooflineView:
    """The view with the estimate after its newest point; where nothing was measured, the estimate stands in."""
    if isinstance(estimate, RooflinePoint):
        refusals = (*view.refusals, Refusal("GPM", view.why_not)) if view.why_not else view.refusals
        points = (*view.points[:1], estimate, *view.points[1:])
        return RooflineView(view.title, view.roofs, points, view.band, refusals, view.notes)
    if isinstance(estimate, Refusal):
        refusals = (*view.refusals, estimate)
        return RooflineView(view.title, view.roofs, view.points, view.band, refusals, view.notes, view.why_not)
    return view
