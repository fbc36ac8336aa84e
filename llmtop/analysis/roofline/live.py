"""Where a running GPU stands on its roofline, from GPM: no profiler, no privileges.

    FLOP/s  = pipe % x peak(precision) x true SM clock / SM clock of the published peak
    bytes/s = DRAM % x (bus width x highest memory clock x 2)

The true SM clock comes from GPM's raw samples; without it NVML's stands in. Checked against known work on an H100 SXM
(docs/gpu-checks.md): bf16, fp16, tf32 and fp8 matrix multiplication within 1.5 %, memory-bound kernels within 1 %. The
clock term is not optional: GPM counts cycles, and under its power cap that GPU ran bf16 at 1390 MHz, where the
published 989 TFLOP/s hold at 1830.

GPM cannot tell two things, and the view shows both. fp8 and bf16 share one counter (HMMA), so an unknown precision
gives a band. A tile that is partly padding counts as full, so the FLOP/s are an upper bound of the work: a vLLM's
decode of 64 and 128 requests reads 1.5 times what it does, batch 1 eightfold. int8 reads twice the work (its pipe also
serves slower instructions), CUDA cores 8 % more, 16-bit work next to fp8 double, an unchecked clock up to 10 % more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import dram_peak
from llmtop.analysis.roofline.ceilings import ceilings_of, common_ceilings
from llmtop.analysis.roofline.estimate import server_estimate
from llmtop.analysis.roofline.rates import (
    STALE_NS,
    averaged,
    is_resting,
    needed_metrics,
    rates_history,
    summed_history,
    too_old,
    why_no_rates,
)
from llmtop.analysis.roofline.roofs import notes_on, roofs_of
from llmtop.analysis.series.readings import source, why_absent, why_kind_missing
from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint, RooflineView
from llmtop.model import NS_PER_S, Trace, TrackId, TrackKind, Unknown, UnknownKind
from llmtop.units import si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.roofline.ceilings import Ceilings
    from llmtop.analysis.roofline.rates import Rates
    from llmtop.model import Fact, Track


def live_view(
    trace: Trace, gpu_track_id: TrackId, dtype: Fact, *, trail_s: float = 60, now_ns: int | None = None
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
        return with_estimate(RooflineView(gpu_track_id, (), (), why_not=why), server_estimate(trace, None))
    ceilings = ceilings_of(track, dtype)
    if isinstance(ceilings, Unknown):
        alone = RooflineView(_title([track]), _memory_roof_alone(track), (), why_not=ceilings)
        return with_estimate(alone, server_estimate(trace, None))
    measured = _measured_view(trace, [track], ceilings, now_ns, int(trail_s * NS_PER_S))
    return with_estimate(measured, server_estimate(trace, ceilings))


def mean_point(trace: Trace, gpu_track_id: TrackId, dtype: Fact, window_ns: int) -> RooflinePoint | Unknown:
    """Where a GPU stood over a window, idle times included; its intensity is FLOPs over bytes of the whole window."""
    track = trace.tracks[gpu_track_id]
    ceilings = ceilings_of(track, dtype)
    if isinstance(ceilings, Unknown):
        return ceilings
    history = rates_history(trace, gpu_track_id, ceilings, trace.end_ns - window_ns, trace.end_ns)
    if not history:
        return why_no_rates(trace, gpu_track_id, trace.end_ns)
    rates = averaged(history)
    if not rates.has_intensity or is_resting(rates, ceilings):
        return Unknown("idle, or no work that moves both FLOPs and bytes, over the window")
    point = _point(rates, ceilings, rates.t_ns, source(trace, gpu_track_id, v.GPU_DRAM))
    return replace(point, label=f"mean of {window_ns / NS_PER_S:.3g} s")


def all_gpus_view(
    trace: Trace, gpus: Sequence[Track], dtype: Fact, *, trail_s: float = 60, now_ns: int | None = None
) -> RooflineView:
    """The roofline of several GPUs together: sums of FLOP/s and bytes/s under the sums of their roofs.

    Only GPUs of one kind have a common roofline: under roofs of different shape the sum stands nowhere.
    """
    if len(gpus) == 1:
        return live_view(trace, gpus[0].id, dtype, trail_s=trail_s, now_ns=now_ns)
    if not gpus:
        nothing = RooflineView("all GPUs", (), (), why_not=why_kind_missing(trace, TrackKind.GPU))
        return with_estimate(nothing, server_estimate(trace, None))
    ceilings = common_ceilings(gpus, dtype)
    if isinstance(ceilings, Unknown):
        return RooflineView(_title(gpus), (), (), why_not=ceilings)
    now_ns = trace.end_ns if now_ns is None else now_ns
    measured = _measured_view(trace, gpus, ceilings, now_ns, int(trail_s * NS_PER_S))
    return with_estimate(measured, server_estimate(trace, ceilings))


def with_estimate(view: RooflineView, estimate: RooflinePoint | Refusal | None) -> RooflineView:
    """The view with the estimate after its newest point; where nothing was measured, the estimate stands in."""
    if isinstance(estimate, RooflinePoint):
        refusals = (*view.refusals, Refusal("GPM", view.why_not)) if view.why_not else view.refusals
        points = (*view.points[:1], estimate, *view.points[1:])
        return replace(view, points=points, refusals=refusals, why_not=None)
    return view if estimate is None else replace(view, refusals=(*view.refusals, estimate))


def _title(gpus: Sequence[Track]) -> str:
    first = gpus[0]
    return f"{first.name} ({first.id})" if len(gpus) == 1 else f"{first.name} ({len(gpus)} GPUs together)"


def _memory_roof_alone(track: Track) -> tuple[Roof, ...]:
    memory = dram_peak(track.facts, Unknown(""))
    return () if isinstance(memory, Unknown) else (Roof("memory", "DRAM", float(memory.value), memory.source),)


# The measured point


def _measured_view(trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, now_ns: int, trail_ns: int) -> RooflineView:
    history = summed_history(trace, gpus, ceilings, now_ns - trail_ns, now_ns)
    why_not = _why_no_point(trace, gpus, ceilings, history, now_ns)
    notes = notes_on(trace, gpus, ceilings, history)
    sm_mhz = history[-1].sm_mhz if history else None
    if why_not is not None:
        roofs = roofs_of(ceilings, ceilings.precision, sm_mhz)
        return RooflineView(_title(gpus), roofs, (), notes=notes, why_not=why_not)
    newest = history[-1]
    shown = [rates for rates in reversed(history) if rates.has_intensity and not is_resting(rates, ceilings)]
    origin = source(trace, gpus[0].id, v.GPU_DRAM)
    points = tuple(_point(rates, ceilings, newest.t_ns, origin) for rates in shown)
    roofs = roofs_of(ceilings, newest.precision, sm_mhz)
    return RooflineView(_title(gpus), roofs, points, band=_band(newest, ceilings), notes=notes)


def _why_no_point(
    trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, history: list[Rates], now_ns: int
) -> Unknown | None:
    for track in gpus:
        own = history or rates_history(trace, track.id, replace(ceilings, count=1), now_ns - STALE_NS, now_ns)
        why = _why_no_window(trace, track.id, own, now_ns)
        if why is not None:
            which = "" if len(gpus) == 1 else f"GPU {ids.gpu_index(track.id)}: "
            return replace(why, reason=f"{which}{why.reason}")
    if not history:
        return Unknown("the GPUs' windows do not end together", "look at one GPU at a time")
    newest = history[-1]
    if is_resting(newest, ceilings):
        return Unknown("idle: neither memory nor compute pipes move", "send the server a request", UnknownKind.PASSING)
    if not newest.flops_per_s:
        return Unknown(f"no floating-point work in the last window, {si(newest.bytes_per_s, 'B/s')} of memory traffic")
    if not newest.bytes_per_s:
        return Unknown(f"no memory traffic in the last window, {si(newest.flops_per_s, 'FLOP/s')}")
    return None


def _why_no_window(trace: Trace, track: TrackId, history: list[Rates], now_ns: int) -> Unknown | None:
    """Why a GPU's newest values make no window that is of now."""
    for metric in needed_metrics(trace, track):
        series = trace.get(track, metric)
        if series is None or not len(series.between(0, now_ns)):
            return why_no_rates(trace, track, now_ns)
        if series.between(0, now_ns).last is None:
            return why_absent(trace, track, metric)
    if not history:
        return why_no_rates(trace, track, now_ns)
    newest_ns = history[-1].t_ns
    period_ns = newest_ns - history[-2].t_ns if len(history) > 1 else 0
    if now_ns - newest_ns > max(STALE_NS, 3 * period_ns):
        return too_old(now_ns - newest_ns)
    return None


def _point(rates: Rates, ceilings: Ceilings, newest_ns: int, origin: str) -> RooflinePoint:
    age_s = (newest_ns - rates.t_ns) / NS_PER_S
    flops_per_s, precision = rates.flops_per_s, rates.precision  # sums, of dozens of points
    peak = ceilings.peak(precision)
    return RooflinePoint(
        label="now" if age_s == 0 else f"{age_s:.0f} s ago",
        intensity=flops_per_s / rates.bytes_per_s,
        flops_per_s=flops_per_s,
        bytes_per_s=rates.bytes_per_s,
        precision="..".join(ceilings.band) if precision == ceilings.precision else precision,
        source=origin,
        quality=Quality.UPPER_BOUND if ceilings.why_band is None else Quality.ESTIMATE,
        age_s=age_s,
        roof_fraction=max(flops_per_s / peak, rates.bytes_per_s / ceilings.bytes_per_s),
    )


def _band(newest: Rates, ceilings: Ceilings) -> tuple[float, float] | None:
    """FLOP/s of the newest window at the slowest and the fastest precision that its tensor work can have."""
    tensor = newest.flops_by_precision.get(ceilings.precision)
    if len(ceilings.band) < 2 or not tensor:
        return None
    rest = newest.flops_per_s - tensor
    peaks = ceilings.gpu.peaks
    low, high = (rest + tensor * peaks[name] / peaks[ceilings.precision] for name in ceilings.band)
    return low, high
