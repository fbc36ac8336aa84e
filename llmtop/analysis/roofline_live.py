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

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus import (
    PRACTICAL_SOURCE,
    Gpu,
    clock_reasons,
    compute_practical,
    dram_peak,
    dram_practical,
    find_gpu,
    precision_of,
)
from llmtop.analysis.readings import counter_increase, latest, server_track, source, why_absent, why_kind_missing
from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint, RooflineView
from llmtop.model import NS_PER_S, Quantity, Trace, TrackKind, Unknown
from llmtop.units import percent, si

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.model import Fact, Metric, Series, Track

IDLE_SHARE = 0.001
"""Below this share of every peak the GPU rests. An idle H100 shows 0.0005 % of DRAM traffic and nothing else."""
STALE_NS = 5 * NS_PER_S
"""A point older than this, and than three of its own periods, is not "now"."""
_MOST_TRAIL_POINTS = 80
"""A trail is a path, not a record: more points only cost time to place."""
ESTIMATE_WINDOW_NS = 15 * NS_PER_S
"""Servers renew their FLOP counters once per logging interval, 10 s in vLLM."""
_FULL_TILE_ROWS = 64
"""Rows of the smallest warp-group tile of Hopper's matrix units (PTX wgmma, m64); fewer rows are padded to it."""
_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4}
_HMMA_PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp4")
_BAND = ("bf16", "fp8")
_ENABLE_ESTIMATE = "start the server with --enable-mfu-metrics (vLLM, SGLang)"
_PIPES = (
    v.GPU_TENSOR_HMMA,
    v.GPU_TENSOR_IMMA,
    v.GPU_TENSOR_DFMA,
    v.GPU_FP64,
    v.GPU_FP32,
)


_NEEDED = (v.GPU_DRAM, v.GPU_SM_CLOCK, v.GPU_TENSOR_HMMA)
"""Without one of these a window says nothing; the other pipes are noted when they are absent."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a GPU does per second in one GPM window.

    Attributes:
        flops_by_precision: FLOP/s (integer: OP/s) of each kind of work; "FP32" and "FP64" are the CUDA cores.
        sm_mhz: The clock they were counted at.
    """

    t_ns: int
    bytes_per_s: float
    flops_by_precision: Mapping[str, float]
    sm_mhz: float

    @property
    def flops_per_s(self) -> float:
        """Tensor and CUDA-core work together."""
        return sum(self.flops_by_precision.values())

    @property
    def has_intensity(self) -> bool:
        """Whether FLOP per byte means something: not for a pure copy, nor for work that never leaves the caches."""
        return self.flops_per_s > 0 and self.bytes_per_s > 0

    @property
    def precision(self) -> str:
        """The kind of work that most FLOP/s are of."""
        return max(self.flops_by_precision, key=lambda name: self.flops_by_precision[name], default="")


@dataclass(frozen=True, slots=True)
class _Ceilings:
    """What one GPU can do, and how its clock scales that.

    Attributes:
        precision: What its tensor cores compute in; the lower end of the band where that is not known.
        why_band: Why the precision is not known.
    """

    gpu: Gpu
    memory: Quantity
    published_mhz: float
    precision: str
    why_band: Unknown | None

    @property
    def bytes_per_s(self) -> float:
        return float(self.memory.value)

    @property
    def band(self) -> tuple[str, ...]:
        """The precisions that the tensor work may be of."""
        known = tuple(name for name in _BAND if name in self.gpu.peaks)
        return known if self.why_band is not None and len(known) > 1 else (self.precision,)


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
        return _with_estimate(RooflineView(gpu_track_id, (), (), why_not=why), _estimate(trace, None))
    ceilings = _ceilings(track, dtype)
    if isinstance(ceilings, Unknown):
        alone = RooflineView(_title(track), _memory_roof_alone(track), (), why_not=ceilings)
        return _with_estimate(alone, _estimate(trace, None))
    measured = _measured_view(trace, track, ceilings, now_ns, int(trail_s * NS_PER_S))
    return _with_estimate(measured, _estimate(trace, ceilings))


def dram_bytes_per_s(trace: Trace, gpu_track_id: str) -> float | Unknown:
    """DRAM traffic of a GPU now; needs GPM and the memory clock, but no published peaks."""
    share = latest(trace, gpu_track_id, v.GPU_DRAM)
    if isinstance(share, Unknown):
        return share
    track = trace.tracks[gpu_track_id]
    peak = dram_peak(track.facts, find_gpu(str(track.facts.get("name", track.name))))
    return peak if isinstance(peak, Unknown) else share / 100 * float(peak.value)


def newest_rates(trace: Trace, gpu_track_id: str, dtype: Fact, now_ns: int | None = None) -> Rates | Unknown:
    """FLOP/s and bytes/s of the newest GPM window, idle or not."""
    now_ns = trace.end_ns if now_ns is None else now_ns
    track = trace.tracks.get(gpu_track_id)
    if track is None:
        return why_kind_missing(trace, TrackKind.GPU)
    ceilings = _ceilings(track, dtype)
    if isinstance(ceilings, Unknown):
        return ceilings
    history = _history(trace, gpu_track_id, ceilings, now_ns - STALE_NS, now_ns)
    return history[-1] if history else _why_no_rates(trace, gpu_track_id, now_ns)


def _title(track: Track) -> str:
    return f"{track.name} ({track.id})"


def _memory_roof_alone(track: Track) -> tuple[Roof, ...]:
    memory = dram_peak(track.facts, Unknown(""))
    return () if isinstance(memory, Unknown) else (Roof("memory", "DRAM", float(memory.value), memory.source),)


def _ceilings(track: Track, dtype: Fact) -> _Ceilings | Unknown:
    gpu = find_gpu(str(track.facts.get("name", track.name)))
    if isinstance(gpu, Unknown):
        return gpu
    memory = dram_peak(track.facts, gpu)
    if isinstance(memory, Unknown):
        return memory
    highest = track.facts.get("max_sm_mhz")
    published_mhz = gpu.boost_mhz or (float(highest) if isinstance(highest, int) else 0.0)
    if not published_mhz:
        return Unknown(f"no source gives the clock at which {gpu.name} reaches its peak")
    precision = precision_of(dtype)
    if precision == "fp32":
        precision = "tf32"  # the only thing that tensor cores do with fp32 inputs
    if not isinstance(precision, Unknown) and precision not in gpu.peaks:
        precision = Unknown(f"no published {precision} peak for {gpu.name}", gpu.provenance)
    if isinstance(precision, Unknown):
        return _Ceilings(gpu, memory, published_mhz, "bf16" if "bf16" in gpu.peaks else "fp16", precision)
    return _Ceilings(gpu, memory, published_mhz, precision, None)


# Rates


def _history(trace: Trace, track: str, ceilings: _Ceilings, start_ns: int, end_ns: int) -> list[Rates]:
    """Rates of the GPM windows that ended in the span, oldest first.

    One without a value for DRAM, the clock or the main tensor pipe is left out: its sum would be too small.
    All metrics of one GPM window carry the same time.
    """
    dram = trace.get(track, v.GPU_DRAM)
    clock = trace.get(track, v.GPU_SM_CLOCK)
    if dram is None or clock is None:
        return []
    windows = _thinned(dram.between(start_ns, end_ns), (end_ns - start_ns) // _MOST_TRAIL_POINTS)
    pipes = {metric: _by_time(trace.get(track, metric), start_ns, end_ns) for metric in _PIPES}
    clocks = _mean_clocks(clock, start_ns, end_ns)
    rates = []
    for t_ns, dram_percent in windows:
        if t_ns not in clocks or t_ns not in pipes[v.GPU_TENSOR_HMMA]:
            continue
        percents = {metric: values[t_ns] for metric, values in pipes.items() if t_ns in values}
        flops = _flops(percents, ceilings, clocks[t_ns])
        rates.append(Rates(t_ns, dram_percent / 100 * ceilings.bytes_per_s, flops, clocks[t_ns]))
    return rates


def _thinned(series: Series, spacing_ns: int) -> list[tuple[int, float]]:
    """Samples with a value, oldest first, the newest always among them, none closer than `spacing_ns`."""
    kept: list[tuple[int, float]] = []
    for t_ns, value in reversed(list(series)):
        if value is not None and (not kept or kept[-1][0] - t_ns >= spacing_ns):
            kept.append((t_ns, value))
    return kept[::-1]


def _by_time(series: Series | None, start_ns: int, end_ns: int) -> dict[int, float]:
    if series is None:
        return {}
    return {t_ns: value for t_ns, value in series.between(start_ns, end_ns) if value is not None}


def _mean_clocks(clock: Series, start_ns: int, end_ns: int) -> dict[int, float]:
    """The clock over each window: the mean of the readings at its ends, because a power cap moves it all the time."""
    readings = list(_by_time(clock, start_ns - STALE_NS, end_ns).items())
    means = dict(readings[:1])
    for (_, before), (t_ns, after) in pairwise(readings):
        means[t_ns] = (before + after) / 2
    return means


def _flops(percents: Mapping[Metric, float], ceilings: _Ceilings, sm_mhz: float) -> dict[str, float]:
    """FLOP/s by kind of work.

    HMMA counts bf16, fp16, tf32 and fp8 alike: its precision is the server's. IMMA is int8, DFMA fp64. A CUDA core's
    FLOP/s take every instruction for a multiply-add (2 FLOP), which the published peak does too.
    """
    precision = ceilings.precision if ceilings.precision in _HMMA_PRECISIONS else "bf16"
    kinds = (
        (v.GPU_TENSOR_HMMA, precision, precision),
        (v.GPU_TENSOR_IMMA, "int8", "int8"),
        (v.GPU_TENSOR_DFMA, "fp64_tensor", "fp64_tensor"),
        (v.GPU_FP64, "FP64", "fp64"),
        (v.GPU_FP32, "FP32", "fp32"),
    )
    scale = sm_mhz / ceilings.published_mhz / 100
    return {
        name: percents[metric] * ceilings.gpu.peaks[peak] * scale
        for metric, name, peak in kinds
        if percents.get(metric) and peak in ceilings.gpu.peaks
    }


# The measured point


def _measured_view(trace: Trace, track: Track, ceilings: _Ceilings, now_ns: int, trail_ns: int) -> RooflineView:
    history = _history(trace, track.id, ceilings, now_ns - trail_ns, now_ns)
    why_not = _why_no_point(trace, track.id, ceilings, history, now_ns)
    notes = _notes(trace, track, ceilings, history)
    if why_not is not None:
        return RooflineView(_title(track), _roofs(ceilings, ceilings.precision), (), notes=notes, why_not=why_not)
    newest = history[-1]
    shown = [rates for rates in reversed(history) if rates.has_intensity and not _is_resting(rates, ceilings)]
    points = tuple(_point(rates, ceilings, newest.t_ns) for rates in shown)
    roofs = _roofs(ceilings, newest.precision)
    return RooflineView(_title(track), roofs, points, band=_band(newest, ceilings), notes=notes)


def _why_no_point(trace: Trace, track: str, ceilings: _Ceilings, history: list[Rates], now_ns: int) -> Unknown | None:
    if not history:
        return _why_no_rates(trace, track, now_ns)
    newest = history[-1]
    for metric in _NEEDED:
        series = trace.get(track, metric)
        if series is not None and series.last is None:
            return why_absent(trace, track, metric)
    period_ns = newest.t_ns - history[-2].t_ns if len(history) > 1 else 0
    if now_ns - newest.t_ns > max(STALE_NS, 3 * period_ns):
        return _too_old(now_ns - newest.t_ns)
    if _is_resting(newest, ceilings):
        return Unknown("idle: neither memory nor compute pipes move", "send the server a request")
    if not newest.flops_per_s:
        return Unknown(f"no floating-point work in the last window, {si(newest.bytes_per_s, 'B/s')} of memory traffic")
    if not newest.bytes_per_s:
        return Unknown(f"no memory traffic in the last window, {si(newest.flops_per_s, 'FLOP/s')}")
    return None


def _why_no_rates(trace: Trace, track: str, now_ns: int) -> Unknown:
    dram = trace.get(track, v.GPU_DRAM)
    if dram is None or dram.last is None or dram.last_t_ns is None:
        return why_absent(trace, track, v.GPU_DRAM)
    if now_ns - dram.last_t_ns > STALE_NS:
        return _too_old(now_ns - dram.last_t_ns)
    needed = (latest(trace, track, metric) for metric in _NEEDED)
    return next((why for why in needed if isinstance(why, Unknown)), Unknown("the last GPM window is incomplete"))


def _too_old(age_ns: int) -> Unknown:
    return Unknown(
        f"the last GPM window ended {age_ns / NS_PER_S:.0f} s ago", "a driver call may hang: dmesg | grep -i nvrm"
    )


def _is_resting(rates: Rates, ceilings: _Ceilings) -> bool:
    peaks = ceilings.gpu.peaks
    shares = [flops / peaks[_peak_key(kind)] for kind, flops in rates.flops_by_precision.items()]
    return max(shares, default=0.0) < IDLE_SHARE and rates.bytes_per_s < IDLE_SHARE * ceilings.bytes_per_s


def _point(rates: Rates, ceilings: _Ceilings, newest_ns: int) -> RooflinePoint:
    age_s = (newest_ns - rates.t_ns) / NS_PER_S
    peak = ceilings.gpu.peaks[_peak_key(rates.precision)]
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


def _peak_key(kind: str) -> str:
    """The peak that a kind of work has, in `Gpu.peaks`."""
    return kind.lower()


def _quality(rates: Rates, ceilings: _Ceilings) -> Quality:
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


def _band(newest: Rates, ceilings: _Ceilings) -> tuple[float, float] | None:
    """FLOP/s of the newest window at the slowest and the fastest precision that its tensor work can have."""
    tensor = newest.flops_by_precision.get(ceilings.precision)
    if len(ceilings.band) < 2 or not tensor:
        return None
    rest = newest.flops_per_s - tensor
    peaks = ceilings.gpu.peaks
    low, high = (rest + tensor * peaks[name] / peaks[ceilings.precision] for name in ceilings.band)
    return low, high


# Roofs and notes


def _roofs(ceilings: _Ceilings, precision: str) -> tuple[Roof, ...]:
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


def _compute_roof(ceilings: _Ceilings, name: str) -> Roof:
    gpu, peak = ceilings.gpu, _peak_key(name)
    practical = compute_practical(gpu, peak)
    reach = f"; practical: {PRACTICAL_SOURCE}" if practical is not None else ""
    source = f"{gpu.provenance}, at {ceilings.published_mhz:.0f} MHz{reach}"
    return Roof("compute", name, gpu.peaks[peak], source, practical)


def _notes(trace: Trace, track: Track, ceilings: _Ceilings, history: list[Rates]) -> tuple[str, ...]:
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
    absent = [metric.title for metric in _PIPES if isinstance(latest(trace, track.id, metric), Unknown)]
    if history and absent:
        notes.append(f"not counted, because GPM has no value: {', '.join(absent)}")
    fp16 = latest(trace, track.id, v.GPU_FP16)
    if not isinstance(fp16, Unknown) and fp16 >= 1:
        notes.append(f"FP16 work on CUDA cores ({percent(fp16)} of that pipe) is not counted")
    return tuple(notes)


def _clock_note(trace: Trace, track: Track, ceilings: _Ceilings, sm_mhz: float) -> list[str]:
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


# The server's own estimate


def _estimate(trace: Trace, ceilings: _Ceilings | None) -> RooflinePoint | Refusal | None:
    """What the server says that its model does per GPU; None without a server."""
    server = server_track(trace)
    if server is None:
        return None
    flops = counter_increase(trace, server.id, v.SERVER_FLOPS, ESTIMATE_WINDOW_NS)
    read = counter_increase(trace, server.id, v.SERVER_READ_BYTES, ESTIMATE_WINDOW_NS)
    written = counter_increase(trace, server.id, v.SERVER_WRITE_BYTES, ESTIMATE_WINDOW_NS)
    if isinstance(flops, Unknown):
        return _refused(flops)
    if isinstance(read, Unknown):
        return _refused(read)
    traffic = read.per_second + (0.0 if isinstance(written, Unknown) else written.per_second)
    if not flops.amount or not traffic:
        return _refused(_why_no_estimate(trace, server))
    return _estimated_point(flops.per_second, traffic, ceilings, source(trace, server.id, v.SERVER_FLOPS))


def _refused(why: Unknown) -> Refusal:
    return Refusal("server estimate", Unknown(why.reason, _ENABLE_ESTIMATE))


def _why_no_estimate(trace: Trace, server: Track) -> Unknown:
    """Servers export the counters at 0 when the feature is off: only tokens tell that from rest."""
    tokens = [
        counter_increase(trace, server.id, metric, ESTIMATE_WINDOW_NS)
        for metric in (v.SERVER_OUTPUT_TOKENS, v.SERVER_PROMPT_TOKENS)
    ]
    if any(not isinstance(grown, Unknown) and grown.amount > 0 for grown in tokens):
        return Unknown("the server's FLOP counters stand still while tokens advance: they are off")
    return Unknown("the server's FLOP counters stand still: it is idle, or they are off")


def _estimated_point(flops_per_s: float, bytes_per_s: float, ceilings: _Ceilings | None, origin: str) -> RooflinePoint:
    fraction = None
    precision = ""
    if ceilings is not None:
        precision = ceilings.precision
        fraction = max(flops_per_s / ceilings.gpu.peaks[precision], bytes_per_s / ceilings.bytes_per_s)
    return RooflinePoint(
        label="server estimate",
        intensity=flops_per_s / bytes_per_s,
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        precision=precision,
        source=f"model estimate ({origin})",
        quality=Quality.ESTIMATE,
        roof_fraction=fraction,
    )


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
