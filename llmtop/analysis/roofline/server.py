"""The roofline of a server: what its GPUs do, what it says it does, and where its model would decode.

The ladder, best first; each point says which rung it stands on:

1. GPM (Hopper and newer), or a DCGM exporter's profiling counters: measured on the GPU.
2. The server's own FLOP and byte counters (vLLM, SGLang with --enable-mfu-metrics): an estimate from its model.
3. 2 N FLOP for each token and the weights and KV cache for each step: an estimate from the model's size.

NVML's duty cycles are no rung: they are shares of time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.roofline.ceilings import Ceilings, common_ceilings
from llmtop.analysis.roofline.efficiency import kv_bytes_in_use, model_bytes_per_s, model_flops_per_s
from llmtop.analysis.roofline.estimate import ESTIMATE_WINDOW_NS, SERVER_ESTIMATE, estimated_point
from llmtop.analysis.roofline.live import all_gpus_view, live_view, with_estimate
from llmtop.analysis.roofline.model_facts import ModelSize, decode_intensity, model_size
from llmtop.analysis.roofline.work import with_work
from llmtop.analysis.series.readings import NO_TARGET, latest, server_track, target_gpus, why_kind_missing, why_no_gpu
from llmtop.analysis.server.liveness import liveness
from llmtop.analysis.views import Quality, Refusal, RooflinePoint, RooflineView
from llmtop.model import NS_PER_S, Trace, TrackId, TrackKind, Unknown
from llmtop.units import number

if TYPE_CHECKING:
    from llmtop.model import Target

GHOST_BATCHES = (1, 8, 32, 128)
"""Batches for which it is shown where decoding would lie."""
FROM_TOKENS = "from tokens"
"""The label of the last rung."""
FAR_APART = 1.3
"""From this ratio on, measured and estimated are called different. GPM's own error is below 4 % (batch 64) and the two
are of windows that end up to a logging interval (10 s) apart, in which a busy server's rate moves by some 20 %."""
_OVER = Unknown(
    "the server serves no requests any more: its numbers are of before", "the findings say what became of it"
)


def server_roofline(
    trace: Trace,
    target: Target | None,
    gpu: TrackId | None = None,
    *,
    trail_s: float = 60,
    now_ns: int | None = None,
) -> RooflineView:
    """The roofline of one of a server's GPUs, or of all of them together.

    Args:
        trace: What the recorder holds.
        target: The server; None for GPUs alone.
        gpu: A track ("gpu:0"), or None for the target's GPUs together: sums under the sums of their roofs.
        trail_s: How far back the trail goes, in seconds.
        now_ns: The moment to look from; by default the newest.
    """
    gpus = target_gpus(trace, target)
    dtype = target.dtype if target is not None else NO_TARGET
    if gpu is None:
        shown = gpus
        view = all_gpus_view(trace, gpus, dtype, trail_s=trail_s, now_ns=now_ns)
    else:
        shown = tuple(track for track in (trace.tracks.get(gpu),) if track is not None)
        view = live_view(trace, gpu, dtype, trail_s=trail_s, now_ns=now_ns)
    ceilings = common_ceilings(shown, dtype) if shown else why_no_gpu(trace) or why_kind_missing(trace, TrackKind.GPU)
    size = model_size(target)
    is_over = liveness(trace).is_over
    if is_over:
        view = _without_server(view)
    elif not view.points and target is not None:
        view = _with_arithmetic(trace, view, size, ceilings, len(gpus))
    view = replace(view, notes=(*_ratio_notes(view), *view.notes))
    if target is not None and not is_over:
        view = with_work(trace, view, size, ceilings, len(shown) / max(1, len(gpus)))
    if isinstance(ceilings, Unknown) or isinstance(size, Unknown):
        return view
    return replace(view, ghosts=decode_ghosts(trace, size, ceilings))


def _without_server(view: RooflineView) -> RooflineView:
    """A server that serves nobody any more does no work, whatever its counters said last."""
    points = tuple(point for point in view.points if point.label != SERVER_ESTIMATE)
    why = None if points else view.why_not or _OVER
    return replace(view, points=points, refusals=(*view.refusals, Refusal(FROM_TOKENS, _OVER)), why_not=why)


# -- The last rung


def _with_arithmetic(
    trace: Trace, view: RooflineView, size: ModelSize | Unknown, ceilings: Ceilings | Unknown, gpus: int
) -> RooflineView:
    """Where neither the GPU nor the server counts: what the tokens are worth by the model's size."""
    flops, traffic = model_flops_per_s(trace, size), model_bytes_per_s(trace, size)
    for part in (flops, traffic):
        if isinstance(part, Unknown):
            return replace(view, refusals=(*view.refusals, Refusal(FROM_TOKENS, part)))
    if isinstance(flops, Unknown) or isinstance(traffic, Unknown) or not flops.value or not traffic.value:
        idle = Unknown("no tokens went through the model in the window")
        return replace(view, refusals=(*view.refusals, Refusal(FROM_TOKENS, idle)))
    count = 1 if isinstance(ceilings, Unknown) else ceilings.count
    share = count / max(1, gpus)
    known = None if isinstance(ceilings, Unknown) else ceilings
    point = estimated_point(
        FROM_TOKENS, float(flops.value) * share, float(traffic.value) * share, known, traffic.source
    )
    return with_estimate(view, point)


# -- The server's word against the GPU's


def _ratio_notes(view: RooflineView) -> tuple[str, ...]:
    """How the measured point and the server's estimate differ, and what that usually means."""
    estimate = next((point for point in view.points if point.label == SERVER_ESTIMATE), None)
    measured = [
        point
        for point in view.points
        if point.quality is not Quality.ESTIMATE and point.age_s <= ESTIMATE_WINDOW_NS / NS_PER_S
    ]
    if estimate is None or not measured:
        return ()
    flops = sum(point.flops_per_s for point in measured) / len(measured) / estimate.flops_per_s
    traffic = sum(point.bytes_per_s for point in measured) / len(measured) / estimate.bytes_per_s
    notes = [
        _ratio_note("bytes", traffic, "re-reads, spills or another process", "caches, or prefix hits it counts in"),
        _ratio_note("FLOP/s", flops, "padding, or fp8 work counted twice", "prefix hits it counts in, or fewer tokens"),
    ]
    said = "; ".join(note for note in notes if note)
    return (said or "measured FLOP/s and bytes agree with the server's estimate",)


def _ratio_note(what: str, ratio: float, why_more: str, why_less: str) -> str:
    """One ratio in words; empty where the two agree.

    >>> _ratio_note("bytes", 2.5, "re-reads", "caches")
    'measured bytes are 2.50 x the estimate: re-reads'
    """
    if 1 / FAR_APART < ratio < FAR_APART:
        return ""
    return f"measured {what} are {number(ratio)} x the estimate: {why_more if ratio > 1 else why_less}"


# -- Where the model would decode


def decode_ghosts(trace: Trace, size: ModelSize, ceilings: Ceilings) -> tuple[RooflinePoint, ...]:
    """Points on the roof at I(B) of `GHOST_BATCHES` and of the requests that run now, the smallest batch first.

    At the batch of now the KV cache in use is part of the bytes; at the others it is taken to grow with the batch.
    Where the cache's use is not known the points are of weights alone, further right than decode will get.
    """
    running, cache = _running(trace), kv_bytes_in_use(trace, size)
    kv_per_request = 0.0 if isinstance(cache, Unknown) or not running else cache / running
    what = "weights only" if not kv_per_request else "weights and KV cache"
    now = round(running)  # a gauge that is a mean may say 0.3: no batch of none is drawn
    batches = {batch: f"B{batch}" for batch in GHOST_BATCHES} | ({now: f"B{now} now"} if now else {})
    origin = f"decode model: {what}; {size.source}"
    return tuple(
        _ghost(decode_intensity(size, batch, kv_per_request * batch), ceilings, label, origin)
        for batch, label in sorted(batches.items())
    )


def _running(trace: Trace) -> float:
    server = server_track(trace)
    running = Unknown("") if server is None else latest(trace, server.id, v.SERVER_RUNNING)
    return 0.0 if isinstance(running, Unknown) else running


def _ghost(intensity: float, ceilings: Ceilings, label: str, origin: str) -> RooflinePoint:
    flops = min(intensity * ceilings.bytes_per_s, ceilings.peak(ceilings.precision))
    return RooflinePoint(
        label=label,
        intensity=intensity,
        flops_per_s=flops,
        bytes_per_s=flops / intensity,
        precision=ceilings.precision,
        source=origin,
        quality=Quality.ESTIMATE,
        roof_fraction=1.0,
    )
