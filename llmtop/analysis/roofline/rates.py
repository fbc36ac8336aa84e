"""FLOP/s and bytes/s of a GPU, from GPM's percentages (or DCGM's) and the clock of the moment.

    FLOP/s  = pipe % x peak(precision) x true SM clock / SM clock of the published peak
    bytes/s = DRAM % x (bus width x highest memory clock x 2)

The clock term is not optional: these counters count cycles, and under its power cap an H100 ran bf16 at 1390 MHz, where
the published 989 TFLOP/s hold at 1830. The true clock is told by GPM's raw samples; without it NVML's stands in, which
on an H200 was up to 10 % above it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import dram_peak, find_gpu
from llmtop.analysis.roofline.ceilings import Ceilings, ceilings_of
from llmtop.analysis.series.readings import latest, mean, why_absent, why_kind_missing
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Trace, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llmtop.model import Fact, Metric, Series, Track

IDLE_SHARE = 0.001
"""Below this share of every peak the GPU rests. An idle H100 shows 0.0005 % of DRAM traffic and nothing else."""
STALE_NS = 5 * NS_PER_S
"""A point older than this, and than three of its own periods, is not "now"."""
_TOGETHER_NS = NS_PER_S // 4
"""Readings whose ends are no further apart are of one look."""
_MOST_POINTS = 80
"""A trail is a path, not a record: more points only cost time to place."""
PIPES = (
    v.GPU_TENSOR_HMMA,
    v.GPU_TENSOR_IMMA,
    v.GPU_TENSOR_DFMA,
    v.GPU_FP64,
    v.GPU_FP32,
)
_NEEDED = (v.GPU_DRAM, v.GPU_SM_CLOCK, v.GPU_TENSOR_HMMA)
"""Without one of these a window says nothing; the other pipes are noted when they are absent."""


@frozen
class Rates:
    """What a GPU does per second in one GPM window.

    Attributes:
        flops_by_precision: FLOP/s (integer: OP/s) of each kind of work; "FP32" and "FP64" are the CUDA cores.
        sm_mhz: The clock they were counted at.
        is_true_clock: Whether that is the SMs' own count of cycles; else it is NVML's word.
    """

    t_ns: int
    bytes_per_s: float
    flops_by_precision: Mapping[str, float]
    sm_mhz: float
    is_true_clock: bool = False

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


def newest_rates(trace: Trace, gpu_track_id: TrackId, dtype: Fact, now_ns: int | None = None) -> Rates | Unknown:
    """FLOP/s and bytes/s of the newest GPM window, idle or not."""
    now_ns = trace.end_ns if now_ns is None else now_ns
    track = trace.tracks.get(gpu_track_id)
    if track is None:
        return why_kind_missing(trace, TrackKind.GPU)
    ceilings = ceilings_of(track, dtype)
    if isinstance(ceilings, Unknown):
        return ceilings
    history = rates_history(trace, gpu_track_id, ceilings, now_ns - STALE_NS, now_ns)
    return history[-1] if history else why_no_rates(trace, gpu_track_id, now_ns)


def dram_bytes_per_s(trace: Trace, gpu_track_id: TrackId, window_ns: int) -> float | Unknown:
    """Mean DRAM traffic of a GPU over a window; needs GPM and the memory clock, but no published peaks."""
    share = mean(trace, gpu_track_id, v.GPU_DRAM, window_ns, at_least=1)
    if isinstance(share, Unknown):
        return share
    track = trace.tracks[gpu_track_id]
    peak = dram_peak(track.facts, find_gpu(str(track.facts.get(GpuFact.NAME, track.name))))
    return peak if isinstance(peak, Unknown) else share / 100 * float(peak.value)


def is_resting(rates: Rates, ceilings: Ceilings) -> bool:
    """Whether the GPU does nothing to speak of in this window."""
    if not rates.bytes_per_s < IDLE_SHARE * ceilings.bytes_per_s:  # the quick part first: of a trail nearly all do
        return False
    shares = [flops / ceilings.peak(kind) for kind, flops in rates.flops_by_precision.items()]
    return max(shares, default=0.0) < IDLE_SHARE


def too_old(age_ns: int) -> Unknown:
    """Why a window that ended so long ago is not shown as now."""
    return Unknown(
        f"the last GPM window ended {age_ns / NS_PER_S:.0f} s ago", "a driver call may hang: dmesg | grep -i nvrm"
    )


def rates_history(trace: Trace, track: TrackId, ceilings: Ceilings, start_ns: int, end_ns: int) -> list[Rates]:
    """Rates of the GPM windows that ended in the span, oldest first.

    One without a value for DRAM, the clock or the main tensor pipe is left out: its sum would be too small.
    All metrics of one GPM window carry the same time.
    """
    dram = trace.get(track, v.GPU_DRAM)
    clock = trace.get(track, v.GPU_SM_CLOCK)
    if dram is None or clock is None:
        return []
    windows = _thinned(dram.between(start_ns, end_ns), (end_ns - start_ns) // _MOST_POINTS)
    pipes = {metric: _by_time(trace.get(track, metric), start_ns, end_ns) for metric in PIPES}
    if v.GPU_TENSOR in needed_metrics(trace, track):
        # DCGM's usual set has one counter for all tensor pipes: it counts as the server's precision.
        pipes[v.GPU_TENSOR_HMMA] = _by_time(trace.get(track, v.GPU_TENSOR), start_ns, end_ns)
    clocks = _clocks(clock, [t_ns for t_ns, _ in windows], start_ns, end_ns)
    true_clocks = _by_time(trace.get(track, v.GPU_SM_CLOCK_TRUE), start_ns, end_ns)
    rates = []
    for t_ns, dram_percent in windows:
        if t_ns not in clocks or t_ns not in pipes[v.GPU_TENSOR_HMMA]:
            continue
        percents = {metric: values[t_ns] for metric, values in pipes.items() if t_ns in values}
        sm_mhz = true_clocks.get(t_ns, clocks[t_ns])
        flops = _flops(percents, ceilings, sm_mhz)
        traffic = dram_percent / 100 * ceilings.bytes_per_s
        rates.append(Rates(t_ns, traffic, flops, sm_mhz, is_true_clock=t_ns in true_clocks))
    return rates


def summed_history(trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, start_ns: int, end_ns: int) -> list[Rates]:
    """Rates of several GPUs added up, window by window of the first; without one GPU's a window is left out.

    All GPUs are sampled within tens of milliseconds, then waited for, then sampled again: windows that belong together
    end within `_TOGETHER_NS`.
    """
    alone = replace(ceilings, count=1)
    first, *others = (rates_history(trace, track.id, alone, start_ns, end_ns) for track in gpus)
    if not others:
        return first
    return [
        _added([rates, *(one for one in near if one is not None)])
        for rates in first
        if None not in (near := [_nearest(history, rates.t_ns) for history in others])
    ]


def _nearest(history: Sequence[Rates], t_ns: int) -> Rates | None:
    at = bisect_left(history, t_ns, key=lambda rates: rates.t_ns)
    near = min(history[max(0, at - 1) : at + 1], key=lambda rates: abs(rates.t_ns - t_ns), default=None)
    return near if near is not None and abs(near.t_ns - t_ns) <= _TOGETHER_NS else None


def averaged(several: Sequence[Rates]) -> Rates:
    """The mean of windows of one length, told as of the last one."""
    together, number = _added(several), len(several)
    return Rates(
        several[-1].t_ns,
        together.bytes_per_s / number,
        {kind: flops / number for kind, flops in together.flops_by_precision.items()},
        together.sm_mhz,
        together.is_true_clock,
    )


def _added(several: Sequence[Rates]) -> Rates:
    flops: dict[str, float] = {}
    for rates in several:
        for kind, amount in rates.flops_by_precision.items():
            flops[kind] = flops.get(kind, 0.0) + amount
    return Rates(
        several[0].t_ns,
        sum(rates.bytes_per_s for rates in several),
        flops,
        sum(rates.sm_mhz for rates in several) / len(several),
        all(rates.is_true_clock for rates in several),
    )


def needed_metrics(trace: Trace, track: TrackId) -> tuple[Metric, ...]:
    """Metrics without which a window says nothing."""
    hmma, tensor = (trace.get(track, metric) for metric in (v.GPU_TENSOR_HMMA, v.GPU_TENSOR))
    has_hmma = hmma is not None and hmma.at(trace.end_ns) is not None
    return _NEEDED if has_hmma or tensor is None or tensor.last is None else (v.GPU_DRAM, v.GPU_SM_CLOCK, v.GPU_TENSOR)


def _thinned(series: Series, spacing_ns: int) -> list[tuple[int, float]]:
    """Samples with a value, oldest first, the newest always among them, none closer than `spacing_ns`."""
    kept: list[tuple[int, float]] = []
    for t_ns, value in reversed(list(series.known)):
        if not kept or kept[-1][0] - t_ns >= spacing_ns:
            kept.append((t_ns, value))
    return kept[::-1]


def _by_time(series: Series | None, start_ns: int, end_ns: int) -> dict[int, float]:
    return {} if series is None else dict(series.between(start_ns, end_ns).known)


def _clocks(clock: Series, times: Sequence[int], start_ns: int, end_ns: int) -> dict[int, float]:
    """The clock over each window: the mean of the readings at its ends, because a power cap moves it all the time.

    Where another source than GPM gives the windows, no reading ends when they do: the nearest one stands in.
    """
    samples = clock.between(start_ns - STALE_NS, end_ns)
    readings = list(samples.known)
    means = dict(readings[:1])
    for (_, before), (t_ns, after) in pairwise(readings):
        means[t_ns] = (before + after) / 2
    taken = set(samples.times)
    for t_ns in times:
        if t_ns not in taken and readings:
            near_ns, value = min(readings, key=lambda reading: abs(reading[0] - t_ns))
            if abs(near_ns - t_ns) <= STALE_NS:
                means[t_ns] = value
    return means


def _flops(percents: Mapping[Metric, float], ceilings: Ceilings, sm_mhz: float) -> dict[str, float]:
    """FLOP/s by kind of work.

    HMMA counts bf16, fp16, tf32 and fp8 alike: its precision is the server's. IMMA is int8, DFMA fp64. A CUDA core's
    FLOP/s take every instruction for a multiply-add (2 FLOP), which the published peak does too.
    """
    precision = ceilings.hmma_precision
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


def why_no_rates(trace: Trace, track: TrackId, now_ns: int) -> Unknown:
    """Why there is no window that ended just now."""
    dram = trace.get(track, v.GPU_DRAM)
    if dram is None or dram.last is None or dram.last_t_ns is None:
        return why_absent(trace, track, v.GPU_DRAM)
    if now_ns - dram.last_t_ns > STALE_NS:
        return too_old(now_ns - dram.last_t_ns)
    needed = (latest(trace, track, metric) for metric in needed_metrics(trace, track))
    return next((why for why in needed if isinstance(why, Unknown)), Unknown("the last GPM window is incomplete"))
