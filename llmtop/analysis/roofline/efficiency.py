"""How much of the hardware a server turns into tokens: MFU, MBU, joules per token, and its phase.

    MFU = 2 N tokens/s / peak FLOP/s                    (Chowdhery et al., PaLM, arXiv:2204.02311, appendix B)
    MBU = (weights + KV cache) steps/s / peak bytes/s   (LLM Inference Performance Engineering: Best Practices,
                                                         Databricks, 2023)

N are the parameters that a token is multiplied with; attention's own FLOPs are left out, so MFU is a lower bound, the
lower the longer the contexts. Both are of the model: what the work was worth, not what was executed. Beside them stand
the shares that GPM measures (`flops_share`, `dram_share`): padding, recomputation and whatever else runs on the GPU are
in these. All are means over one window (`WINDOW_NS`) and sums over the target's GPUs, against the sum of their
published peaks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import dram_peak, find_gpu
from llmtop.analysis.roofline.ceilings import Ceilings, ceilings_of
from llmtop.analysis.roofline.model_facts import ModelSize, model_size
from llmtop.analysis.roofline.phases import phase_now
from llmtop.analysis.roofline.rates import rates_history, why_no_rates
from llmtop.analysis.series.readings import (
    NO_TARGET,
    counter_increase,
    counter_rate,
    latest,
    mean,
    server_track,
    source,
    target_gpus,
    why_kind_missing,
    why_no_gpu,
)
from llmtop.analysis.server.kv_cache import kv_tokens_in_use
from llmtop.analysis.server.tokens import output_tokens, prompt_tokens
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Quantity, Trace, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.model import Fact, Target, Track

WINDOW_NS = 15 * NS_PER_S
"""Smooths the bursts of a scheduler, and outlasts the slowest server's renewal of its counters (10 s)."""
Result: TypeAlias = "Quantity | Unknown"
_NO_TOKENS = Unknown("no tokens were generated in the window")


@frozen
class EfficiencyView:
    """What a server makes of its GPUs; shares are "ratio" (0 to 1), each with what it was computed from.

    Attributes:
        mfu: Model FLOP/s over peak.
        mbu: Model bytes/s over peak.
        joules_per_token: Energy of the GPUs over output tokens.
        phase: A `phases.Phase` as text.
        flops_share: Measured FLOP/s over peak, padding included (GPM).
        dram_share: Measured DRAM bytes/s over peak (GPM).
        notes: What to know about the numbers, one sentence each.
        window_s: What all but the phase are means over.
    """

    mfu: Result
    mbu: Result
    joules_per_token: Result
    phase: Result
    flops_share: Result
    dram_share: Result
    notes: tuple[str, ...] = ()
    window_s: float = WINDOW_NS / NS_PER_S


def efficiency_view(trace: Trace, target: Target | None, window_ns: int = WINDOW_NS) -> EfficiencyView:
    """The efficiency of a server over the last `window_ns`."""
    gpus = target_gpus(trace, target)
    if not gpus:
        why = why_no_gpu(trace) or why_kind_missing(trace, TrackKind.GPU)
        return EfficiencyView(why, why, why, why, why, why)
    dtype = target.dtype if target is not None else NO_TARGET
    size = model_size(target)
    ceilings = _all_ceilings(gpus, dtype)
    return EfficiencyView(
        mfu=_mfu(trace, size, ceilings, window_ns),
        mbu=_mbu(trace, size, gpus, window_ns),
        joules_per_token=_joules_per_token(trace, gpus, window_ns),
        phase=phase_now(trace, gpus, dtype),
        flops_share=_flops_share(trace, gpus, ceilings, window_ns),
        dram_share=_dram_share(trace, gpus, window_ns),
        notes=_notes(trace, target, gpus),
        window_s=window_ns / NS_PER_S,
    )


def computed_tokens_per_s(trace: Trace, window_ns: int = WINDOW_NS) -> Quantity | Unknown:
    """Tokens per second that went through the model: prompt tokens that no cache held, and output tokens."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    prompt = prompt_tokens(trace, server.id, window_ns)
    output = output_tokens(trace, server.id, window_ns)
    if isinstance(output, Unknown):
        return output
    if isinstance(prompt, Unknown):
        return prompt
    note = f" ({output.note})" if output.note else ""
    cached = counter_rate(trace, server.id, v.SERVER_PREFIX_HITS, window_ns)
    if isinstance(cached, Unknown):
        origin = f"prompt and output tokens{note}, cached prompts among them"
        return Quantity(prompt.per_second + output.per_second, "tokens/s", origin)
    computed = max(0.0, prompt.per_second - cached) + output.per_second
    return Quantity(computed, "tokens/s", f"prompt tokens not cached, and output tokens{note}")


def kv_bytes_in_use(trace: Trace, size: ModelSize, window_ns: int = 0) -> float | Unknown:
    """Bytes of KV cache in use: what a decode step over all running requests reads of it. Over a window the mean."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    if size.kv_bytes_per_token is None:
        return Unknown("the model's KV heads are not known without its config.json")
    held = kv_tokens_in_use(trace, server, window_ns)
    return held if isinstance(held, Unknown) else held * size.kv_bytes_per_token


def model_flops_per_s(trace: Trace, size: ModelSize | Unknown, window_ns: int = WINDOW_NS) -> Quantity | Unknown:
    """FLOP/s that a server's tokens are worth, over all its GPUs: 2 N each."""
    tokens = computed_tokens_per_s(trace, window_ns)
    if isinstance(tokens, Unknown):
        return tokens
    if isinstance(size, Unknown):
        return size
    origin = f"model estimate: {tokens.source}; {size.source}"
    return Quantity(2 * size.active * float(tokens.value), "FLOP/s", origin)


def model_bytes_per_s(trace: Trace, size: ModelSize | Unknown, window_ns: int = WINDOW_NS) -> Quantity | Unknown:
    """Bytes/s that a server's steps must read, over all its GPUs: weights, and the KV cache where it is known."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    steps = steps_per_s(trace, server.id, window_ns)
    if isinstance(steps, Unknown):
        return steps
    if isinstance(size, Unknown):
        return size
    batch = latest(trace, server.id, v.SERVER_RUNNING)
    weights = size.weight_bytes_per_step(1.0 if isinstance(batch, Unknown) else batch)
    cache = kv_bytes_in_use(trace, size)
    read = weights + (0.0 if isinstance(cache, Unknown) else cache)
    what = f"weights only ({cache.reason})" if isinstance(cache, Unknown) else "weights and KV cache"
    return Quantity(read * float(steps.value), "bytes/s", f"model estimate: {what}; {steps.source}; {size.source}")


def _total(values: Iterable[float | Unknown]) -> float | Unknown:
    """The sum; unknown when any part is, because a sum without it would be too small."""
    amount = 0.0
    for value in values:
        if isinstance(value, Unknown):
            return value
        amount += value
    return amount


# Of the model


def _all_ceilings(gpus: Sequence[Track], dtype: Fact) -> tuple[Ceilings | Unknown, ...]:
    return tuple(ceilings_of(track, dtype) for track in gpus)


def tensor_peak_of(gpus: Sequence[Track], dtype: Fact) -> float | Unknown:
    """FLOP/s of these GPUs together in the precision that a server computes in."""
    return _tensor_peak(_all_ceilings(gpus, dtype))


def _tensor_peak(ceilings: Sequence[Ceilings | Unknown]) -> float | Unknown:
    """FLOP/s of all GPUs together in the precision that the server computes in."""
    return _total(one if isinstance(one, Unknown) else one.why_band or one.peak(one.precision) for one in ceilings)


def dram_peak_of(gpus: Sequence[Track]) -> float | Unknown:
    """Bytes/s that the memories of these GPUs give together at most."""
    peaks = (dram_peak(track.facts, find_gpu(str(track.facts.get(GpuFact.NAME, track.name)))) for track in gpus)
    return _total(peak if isinstance(peak, Unknown) else float(peak.value) for peak in peaks)


def _mfu(trace: Trace, size: ModelSize | Unknown, ceilings: Sequence[Ceilings | Unknown], window_ns: int) -> Result:
    done = model_flops_per_s(trace, size, window_ns)
    peak = _tensor_peak(ceilings)
    return _share(done, peak)


def _mbu(trace: Trace, size: ModelSize | Unknown, gpus: Sequence[Track], window_ns: int) -> Result:
    return _share(model_bytes_per_s(trace, size, window_ns), dram_peak_of(gpus))


def _share(part: Result, whole: float | Unknown) -> Result:
    if isinstance(part, Unknown):
        return part
    return whole if isinstance(whole, Unknown) else Quantity(float(part.value) / whole, "ratio", part.source)


def steps_per_s(trace: Trace, server: TrackId, window_ns: int) -> Quantity | Unknown:
    """Engine steps per second: counted, else one per mean inter-token latency, else one per token of a request."""
    counted = counter_rate(trace, server, v.SERVER_STEPS, window_ns)
    if not isinstance(counted, Unknown):
        return Quantity(counted, "steps/s", "steps counted by the server")
    latency = counter_increase(trace, server, v.total(v.SERVER_ITL), window_ns)
    tokens = counter_increase(trace, server, v.bucket(v.SERVER_ITL, math.inf), window_ns)
    if isinstance(latency, Unknown) or isinstance(tokens, Unknown):
        return _steps_by_batch(trace, server, counted, window_ns)
    if not latency.amount:
        return _NO_TOKENS
    return Quantity(tokens.amount / latency.amount, "steps/s", "a step per mean inter-token latency of one engine")


def _steps_by_batch(trace: Trace, server: TrackId, why_not: Unknown, window_ns: int) -> Quantity | Unknown:
    output = output_tokens(trace, server, window_ns)
    batch = mean(trace, server, v.SERVER_RUNNING, window_ns)
    if isinstance(output, Unknown) or isinstance(batch, Unknown):
        return why_not
    if not batch or not output.per_second:
        return _NO_TOKENS
    return Quantity(output.per_second / batch, "steps/s", "a step per output token of each running request")


# Measured


def _joules_per_token(trace: Trace, gpus: Sequence[Track], window_ns: int) -> Result:
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    output = output_tokens(trace, server.id, window_ns)
    if isinstance(output, Unknown):
        return output
    if not output.per_second:
        return _NO_TOKENS
    powers = [_watts(trace, track.id, window_ns) for track in gpus]
    watts = _total(power if isinstance(power, Unknown) else float(power.value) for power in powers)
    if isinstance(watts, Unknown):
        return watts
    sources = dict.fromkeys(power.source for power in powers if isinstance(power, Quantity))
    number = f"{len(gpus)} GPUs" if len(gpus) > 1 else "1 GPU"
    note = f" ({output.note})" if output.note else ""
    origin = f"{' and '.join(sources)} of {number}, over output tokens{note}"
    return Quantity(watts / output.per_second, "J/token", origin)


def _watts(trace: Trace, gpu: TrackId, window_ns: int) -> Quantity | Unknown:
    """Mean power over the window: from the energy counter, which misses nothing, else from power samples."""
    joules = counter_rate(trace, gpu, v.GPU_ENERGY, window_ns)
    if not isinstance(joules, Unknown):
        return Quantity(joules, "W", f"{source(trace, gpu, v.GPU_ENERGY)} energy counter")
    power = mean(trace, gpu, v.GPU_POWER, window_ns)
    return power if isinstance(power, Unknown) else Quantity(power, "W", f"{source(trace, gpu, v.GPU_POWER)} power")


def _flops_share(trace: Trace, gpus: Sequence[Track], ceilings: Sequence[Ceilings | Unknown], window_ns: int) -> Result:
    peak = _tensor_peak(ceilings)
    if isinstance(peak, Unknown):
        return peak
    done = _total(_mean_flops(trace, track.id, one, window_ns) for track, one in zip(gpus, ceilings, strict=True))
    if isinstance(done, Unknown):
        return done
    origin = source(trace, gpus[0].id, v.GPU_TENSOR_HMMA)
    return Quantity(done / peak, "ratio", f"{origin}, padded tiles counted as full")


def _mean_flops(trace: Trace, gpu: TrackId, ceilings: Ceilings | Unknown, window_ns: int) -> float | Unknown:
    if isinstance(ceilings, Unknown):
        return ceilings
    windows = rates_history(trace, gpu, ceilings, trace.end_ns - window_ns, trace.end_ns)
    if not windows:
        return why_no_rates(trace, gpu, trace.end_ns)
    return sum(rates.flops_per_s for rates in windows) / len(windows)


def _dram_share(trace: Trace, gpus: Sequence[Track], window_ns: int) -> Result:
    shares = [mean(trace, track.id, v.GPU_DRAM, window_ns, at_least=1) for track in gpus]
    peaks = [dram_peak_of([track]) for track in gpus]
    peak, moved = _total(peaks), _total(_product(*pair) for pair in zip(shares, peaks, strict=True))
    if isinstance(moved, Unknown):
        return moved
    if isinstance(peak, Unknown):
        return peak
    return Quantity(moved / peak / 100, "ratio", source(trace, gpus[0].id, v.GPU_DRAM))


def _product(left: float | Unknown, right: float | Unknown) -> float | Unknown:
    if isinstance(left, Unknown):
        return left
    return right if isinstance(right, Unknown) else left * right


def _notes(trace: Trace, target: Target | None, gpus: Sequence[Track]) -> tuple[str, ...]:
    """What the sums may hold that is not the server's."""
    if target is None:
        return ()
    notes = []
    if not target.gpus and len(gpus) > 1:
        notes.append(f"which GPUs the server uses is not known: all {len(gpus)} are counted")
    strangers = _strangers(trace, target, gpus)
    if strangers:
        who = "1 other process uses" if strangers == 1 else f"{strangers} other processes use"
        notes.append(f"{who} these GPUs: energy and measured shares are of all of them")
    return tuple(notes)


def _strangers(trace: Trace, target: Target, gpus: Sequence[Track]) -> int:
    """How many processes of others are on the GPUs; 0 where the server's own are not seen there either."""
    ours = {process.pid for process in target.processes}
    theirs = {track.id for track in gpus}
    pids = {ids.pid(track.id) for track in trace.tracks_of(TrackKind.GPU_PROCESS) if track.parent in theirs}
    strangers = pids - ours
    return 0 if len(strangers) == len(pids) else len(strangers)
