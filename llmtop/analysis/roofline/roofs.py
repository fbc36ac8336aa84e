"""The roofs of a live roofline, and what to know about them and the point below."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import PRACTICAL_SOURCE, compute_practical, dram_practical
from llmtop.analysis.roofline.rates import PIPES, needed_metrics
from llmtop.analysis.series.readings import latest, source
from llmtop.analysis.views import Roof
from llmtop.facts import GpuFact
from llmtop.model import Trace, TrackId, TrackKind, Unknown
from llmtop.units import percent, si

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.analysis.roofline.ceilings import Ceilings
    from llmtop.analysis.roofline.rates import Rates
    from llmtop.model import Metric, Track

_CLOCK_OFF = 0.02
"""A clock this far from the published one moves the roof visibly."""

TRUE_CLOCKS = ("H100 SXM",)
"""GPUs on which FLOP/s were found right to 1.5 %, so that NVML's SM clock is the true one (docs/gpu-checks.md). On an
H200 in-kernel counters (clock64 over globaltimer) ran 8 to 10 % slower than it under matrix multiplication."""

CLOCK_HIGH = {"H200 SXM": "6 to 12 %"}
"""By how much the FLOP/s that follow from it were too high (docs/gpu-checks.md)."""


def roofs_of(ceilings: Ceilings, precision: str, sm_mhz: float | None) -> tuple[Roof, ...]:
    """The memory roof, then the compute roofs: of the tensor precision (both ends of a band) and of the point's own."""
    count = ceilings.count
    practical = dram_practical(ceilings.gpu, float(ceilings.memory.value))
    memory = Roof(
        "memory",
        "DRAM",
        ceilings.bytes_per_s,
        _of_all(ceilings.memory.source, count),
        None if practical is None else practical * count,
    )
    names = dict.fromkeys((*ceilings.band, precision))
    return (memory, *(_compute_roof(ceilings, name, sm_mhz) for name in names))


def _compute_roof(ceilings: Ceilings, name: str, sm_mhz: float | None) -> Roof:
    practical = compute_practical(ceilings.gpu, name.lower())
    reach = f"; practical: {PRACTICAL_SOURCE}" if practical is not None else ""
    origin = _of_all(f"{ceilings.gpu.provenance}, at {ceilings.published_mhz:.0f} MHz{reach}", ceilings.count)
    peak = ceilings.peak(name)
    scale = _scale(ceilings, sm_mhz)
    return Roof(
        "compute",
        name,
        peak,
        origin,
        None if practical is None else practical * ceilings.count,
        None if scale is None else peak * scale,
        ceilings.published_mhz,
        sm_mhz,
    )


def _of_all(origin: str, count: int) -> str:
    return origin if count == 1 else f"{count} x {origin}"


def _scale(ceilings: Ceilings, sm_mhz: float | None) -> float | None:
    """The clock over the published one, where it is off by enough to see."""
    scale = None if not sm_mhz else sm_mhz / ceilings.published_mhz
    return scale if scale is not None and abs(scale - 1) >= _CLOCK_OFF else None


def notes_on(trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, history: Sequence[Rates]) -> tuple[str, ...]:
    """What the numbers leave open, one sentence each."""
    notes = []
    if ceilings.why_band is not None:
        ends = " or ".join(ceilings.band)
        notes.append(
            f"precision not known ({ceilings.why_band.reason}; llmtop --dtype tells it): tensor work counts as {ends}"
        )
    if history:
        notes.extend(_clock_note(trace, gpus, ceilings, history[-1].sm_mhz))
        notes.extend(_counter_notes(trace, gpus, ceilings, history[-1]))
    notes.extend(_notes_on_gpus(trace, gpus, has_window=bool(history)))
    return tuple(notes)


def _notes_on_gpus(trace: Trace, gpus: Sequence[Track], *, has_window: bool) -> Iterator[str]:
    holders = Counter(process.parent for process in trace.tracks_of(TrackKind.GPU_PROCESS))
    most = max(holders[track.id] for track in gpus)
    if most > 1:
        yield f"{most} processes share {'this GPU' if len(gpus) == 1 else 'one GPU'}: the point is of all of them"
    if any(track.facts.get(GpuFact.MIG) == "enabled" for track in gpus):
        yield "MIG is enabled: the roofs are of the whole GPU"
    absent = dict.fromkeys(metric.title for track in gpus for metric in _uncounted(trace, track.id))
    if has_window and absent:
        yield f"not counted, because {source(trace, gpus[0].id, v.GPU_DRAM)} has no value: {', '.join(absent)}"
    fp16 = [latest(trace, track.id, v.GPU_FP16) for track in gpus]
    highest = max((share for share in fp16 if not isinstance(share, Unknown)), default=0.0)
    if highest >= 1:
        yield f"FP16 work on CUDA cores ({percent(highest)} of that pipe) is not counted"


def _uncounted(trace: Trace, gpu: TrackId) -> Iterator[Metric]:
    """Pipes without a value, except HMMA where one counter of all tensor pipes stands in for it."""
    for metric in PIPES:
        stands_in = metric is v.GPU_TENSOR_HMMA and metric not in needed_metrics(trace, gpu)
        if not stands_in and isinstance(latest(trace, gpu, metric), Unknown):
            yield metric


def is_clock_checked(rates: Rates, ceilings: Ceilings) -> bool:
    """Whether FLOP/s are by the SMs' own cycles, or by NVML's clock on a GPU where that was found to be right."""
    return rates.is_true_clock or ceilings.gpu.name in TRUE_CLOCKS


def _counter_notes(trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, newest: Rates) -> Iterator[str]:
    """What is special about the counters and the clock."""
    if not is_clock_checked(newest, ceilings):
        high = CLOCK_HIGH.get(ceilings.gpu.name)
        how = f"reads {high} high under tensor load" if high else "was not checked (an H200's reads 6 to 12 % high)"
        yield f"counted FLOP/s are an upper bound: NVML's SM clock on {ceilings.gpu.name} {how}"
    if any(v.GPU_TENSOR in needed_metrics(trace, track.id) for track in gpus):
        yield f"one counter for all tensor work: all of it counts as {ceilings.hmma_precision}"
    if any(source(trace, track.id, v.GPU_DRAM) == "DCGM" for track in gpus):
        yield "read from a DCGM exporter, which renews its numbers every 30 s unless told otherwise (-c 1000)"


def _clock_note(trace: Trace, gpus: Sequence[Track], ceilings: Ceilings, sm_mhz: float) -> Iterator[str]:
    """The roof at today's clock, where it is off the published one."""
    scale = _scale(ceilings, sm_mhz)
    if scale is None:
        return
    masks = [latest(trace, track.id, v.GPU_CLOCK_REASONS) for track in gpus]
    words = dict.fromkeys(word for mask in masks if not isinstance(mask, Unknown) for word in v.clock_reasons(mask))
    because = f" ({', '.join(words)})" if words else ""
    roof = si(ceilings.peak(ceilings.precision) * scale, "FLOP/s")
    yield (
        f"at {sm_mhz:.0f} MHz{because} the {ceilings.precision} roof is {roof}; the one drawn is at"
        f" {ceilings.published_mhz:.0f} MHz"
    )
