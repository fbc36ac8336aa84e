"""What would help, in numbers: for the largest parts of a step, what the evidence supports of each change.

Only what the server does not do already is said: its command line, its defaults and its metrics tell. Every gain is of
a step with all else as it is; they do not add up, because what one change saves another cannot save again (Performance
Engineering, "Combining techniques"). Bytes and acceptance are arithmetic on what was measured; where nothing more than
the part itself is known, it is the bound.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.pages.batch_advice import batch_advice
from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetPart
from llmtop.analysis.roofline.efficiency import efficiency_view, tensor_peak_of
from llmtop.analysis.roofline.what_if import (
    EAGER_LAUNCH_S,
    ELEMENTWISE_SAVED,
    LAUNCHES_SAVED,
    acceptance_from,
    largest_batch,
    saved_by_compiling_s,
    speculative_s,
    tokens_per_round,
)
from llmtop.analysis.series.readings import busy_metric, counter_increase, latest, mean
from llmtop.analysis.server.configuration import change, is_on, switch_on
from llmtop.analysis.server.kv_cache import kv_capacity, kv_tokens_per_request
from llmtop.analysis.threads.near_gpu import NEAR_DISTANCE, far_from_gpus
from llmtop.analysis.threads.probes import launch_rate
from llmtop.frozen import frozen
from llmtop.model import Feature, TrackKind, Unknown
from llmtop.units import count, number, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from llmtop.analysis.pages.budget_terms import BudgetTerm
    from llmtop.analysis.roofline.model_facts import ModelSize
    from llmtop.model import Target, Trace, Track

_MOST_PARTS = 3
"""Parts of a step, the largest first, for which it is said what would shorten them."""
_NARROWER = ((2.0, 1.0, "8 bits"), (1.0, 4.25 / 8, "4 bits"))
"""Bytes of a value from which on, those that it becomes, and what that is called. Four bits have a scale for each 64
values (Machine Learning Systems, block-wise quantization)."""
_NEARLY = 0.75
_LEAST_LARGER = 1.1
"""Times the batch of now, from which on a larger one is worth a line."""
_SMALL_BATCH = 16.0
"""Running requests up to which verifying drafts is nearly free (the 70B case study, round 3)."""
_DRAFTED, _ACCEPTED = 5, 0.78
"""Drafted tokens of a step, and how likely each is accepted, in the 70B case study."""
_LEAST_DRAFTED = 100.0
"""Drafted tokens, below which nothing is said of how many are taken."""
_PRECISION, _COMPILATION, _GRAPHS, _OVERLAP, _DRAFTS, _BATCHES = (
    f"Performance Engineering, {where}"
    for where in (
        "napkin math 1.2",
        "napkin math 1.3",
        "CUDA graphs",
        "communication-computation overlap",
        "the 70B case study, round 3",
        "batch size as the universal control knob",
    )
)

_NUMA = "ACPI specification, SLIT: relative distances, 10 is local"
_COLLECTOR = "docs.python.org, gc.freeze"


@frozen
class MeasuredStep:
    """A mean step, and whose it is; `steps_per_s` over all of the window, requests or not."""

    trace: Trace
    target: Target
    server: Track
    gpus: Sequence[Track]
    size: ModelSize
    terms: Sequence[BudgetTerm]
    step_s: float
    batch: float
    tokens: float
    steps_per_s: float
    window_ns: int


def budget_gains(step: MeasuredStep) -> tuple[BudgetGain, ...]:
    """Those of the largest parts, the most saved first."""
    found = [gain for term in _largest(step) if term.seconds > 0 for gain in _BY_PART[term.part](step, term)]
    return tuple(sorted((gain for gain in found if gain.high > 0), key=lambda gain: -gain.high))


def _largest(step: MeasuredStep) -> Sequence[BudgetTerm]:
    return sorted(step.terms, key=lambda term: -term.seconds)[:_MOST_PARTS]


# Bytes


def _of_weights(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    yield from _narrower(step, term, "weights", step.size.bytes_per_parameter, Feature.QUANTIZATION, _NARROWER)
    yield from _larger_batch(step)
    yield from _more_drafted(step)
    yield from _first_drafted(step)


def _of_cache(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    yield from _narrower(step, term, "KV cache", step.size.kv_value_bytes, Feature.KV_CACHE_DTYPE, _NARROWER[:1])


def _narrower(
    step: MeasuredStep,
    term: BudgetTerm,
    what: str,
    value_bytes: float,
    feature: Feature,
    formats: Sequence[tuple[float, float, str]],
) -> Iterator[BudgetGain]:
    """The next narrower format: less to read, at the peak at least and at the bandwidth that is achieved at most."""
    found = next((one for one in formats if value_bytes > _NEARLY * one[0]), None)
    if found is None:
        return
    _, narrow, name = found
    way = change(step.trace, feature, "") if is_on(step.trace, feature) is not True else ""
    low_s = term.seconds * (1 - narrow / value_bytes)
    high_s, reached = _at_the_bandwidth_reached(step, low_s)
    how = f"{number(value_bytes)} bytes a value become {number(narrow)}, at {reached}; check the answers"
    room = _room(step, what, narrow / value_bytes)
    yield BudgetGain(term.part, f"{what} in {name}{way}", low_s, high_s, how + room, _PRECISION)


def _at_the_bandwidth_reached(step: MeasuredStep, peak_s: float) -> tuple[float, str]:
    """Time that bytes take of the step as it is: no more than beyond the model's least time is left of it.

    The bandwidth is that while kernels run: the time without any is late CPU, which fewer bytes do not make shorter.
    """
    reached = efficiency_view(step.trace, step.target, step.window_ns).dram_share
    share = 0.0 if isinstance(reached, Unknown) else float(reached.value) / (_busy(step) or 1.0)
    if not 0 < share < 1:
        return peak_s, "the published bandwidth"
    rest_s = sum(max(0.0, one.seconds) for one in step.terms if one.part is BudgetPart.REST)
    how = f"the published bandwidth, and at the {percent(share * 100)} reached while kernels run"
    return min(peak_s / share, peak_s + rest_s), how


def _busy(step: MeasuredStep) -> float | None:
    """Share of the window in which the server's GPUs had work, on the mean; None where that is not known of one."""
    each = [mean(step.trace, gpu.id, busy_metric(step.trace, gpu.id), step.window_ns) for gpu in step.gpus]
    known = [one / 100 for one in each if not isinstance(one, Unknown)]
    return fmean(known) if known and len(known) == len(each) else None


def _room(step: MeasuredStep, what: str, left: float) -> str:
    """How many requests fit then: what weights give up becomes cache, and a narrower cache holds more of them."""
    capacity, each = kv_capacity(step.server), kv_tokens_per_request(step.trace, step.server, step.window_ns)
    per_token = step.size.kv_bytes_per_token
    if isinstance(capacity, Unknown) or isinstance(each, Unknown) or per_token is None or not each:
        return ""
    weights, request = step.size.parameters * step.size.bytes_per_parameter, each * per_token
    memory = capacity * per_token + weights
    now = largest_batch(memory, weights, request)
    of_weights, of_cache = (left, 1.0) if what == "weights" else (1.0, left)
    then = largest_batch(memory, weights * of_weights, request * of_cache)
    return f"; room for {count(then)} such requests, now {count(now)}"


# Tokens for the same bytes


def _larger_batch(step: MeasuredStep) -> Iterator[BudgetGain]:
    """The same weights for more tokens: what of a step's time each token is spared at the knee."""
    advice = batch_advice(step.trace, step.target)
    if isinstance(advice, Unknown) or isinstance(advice.line, Unknown) or isinstance(advice.knee, Unknown):
        return
    knee, line = advice.knee, advice.line.line
    if knee.batch < _LEAST_LARGER * advice.batch or not advice.batch:
        return
    now = line.at(advice.batch) / advice.batch
    low, high = (
        max(0.0, 1 - line.at(one) / one / now) * step.step_s if one > 0 else 0.0 for one in (knee.low, knee.high)
    )
    waiting = latest(step.trace, step.server.id, v.SERVER_WAITING)
    clients = "" if isinstance(waiting, Unknown) or waiting >= 1 else "; nothing waits: it takes more clients"
    how = f"of each token's share of a step, by {advice.line.text}; {advice.text}{clients}"
    yield BudgetGain(BudgetPart.WEIGHTS, f"batch {count(round(knee.batch))}", low, high, how, _BATCHES)


def _more_drafted(step: MeasuredStep) -> Iterator[BudgetGain]:
    """One drafted token more where drafts are on and the batch is small: their acceptance tells what it yields."""
    drafted, accepted = (
        counter_increase(step.trace, step.server.id, metric, step.window_ns)
        for metric in (v.SERVER_DRAFTED, v.SERVER_ACCEPTED)
    )
    if isinstance(drafted, Unknown) or isinstance(accepted, Unknown) or not 0 < step.batch <= _SMALL_BATCH:
        return
    more = step.tokens / step.batch - 1
    if drafted.amount < _LEAST_DRAFTED or not accepted.amount or more <= 0:
        return
    length = more * drafted.amount / accepted.amount
    chance = acceptance_from(more, length)
    then_s, now_s = (speculative_s(0.0, step.step_s, chance, one) for one in (length + 1, length))
    how = (
        f"{number(length)} drafted a step, each accepted with p = {number(chance)}: (1 - p^(k + 1)) / (1 - p) is "
        f"{number(more + 1)} tokens now, {number(step.step_s / then_s)} with one more; drafting it not counted"
    )
    saved_s = step.step_s * (1 - then_s / now_s)
    yield BudgetGain(BudgetPart.WEIGHTS, "one more drafted token a step", 0.0, saved_s, how, _DRAFTS)


def _first_drafted(step: MeasuredStep) -> Iterator[BudgetGain]:
    """Drafts where there are none and the batch is small: nobody knows yet how many would be accepted."""
    way = change(step.trace, Feature.SPECULATIVE_DECODING, "speculative decoding")
    if is_on(step.trace, Feature.SPECULATIVE_DECODING) is not False or not way or not 0 < step.batch <= _SMALL_BATCH:
        return
    most, usual = (tokens_per_round(chance, _DRAFTED) for chance in (1.0, _ACCEPTED))
    how = (
        f"{_DRAFTED} drafted tokens a step make {most:.0f} of one, were all accepted, {number(usual)} at p = "
        f"{number(_ACCEPTED)}; drafting them not counted, and yours is not known before it is tried"
    )
    yield BudgetGain(BudgetPart.WEIGHTS, way, 0.0, step.step_s * (1 - 1 / most), how, _DRAFTS)


def why_no_larger_batch(step: MeasuredStep) -> Unknown | None:
    """Why it is not known what a larger batch would gain; None where it is, or where weights are not a large part."""
    if not any(term.part is BudgetPart.WEIGHTS for term in _largest(step)):
        return None
    advice = batch_advice(step.trace, step.target)
    if isinstance(advice, Unknown):
        return advice
    return advice.knee if isinstance(advice.knee, Unknown) else None


# Arithmetic


def _of_compute(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    now, narrow = tensor_peak_of(step.gpus, step.target.dtype), tensor_peak_of(step.gpus, "fp8")
    if isinstance(now, Unknown) or isinstance(narrow, Unknown) or narrow <= now:
        return
    if is_on(step.trace, Feature.QUANTIZATION) is not True:
        way = change(step.trace, Feature.QUANTIZATION, "")
        how = f"the tensor cores' peak is {number(narrow / now)} times as high; check the answers"
        yield BudgetGain(
            term.part, f"fp8 weights and activations{way}", 0.0, term.seconds * (1 - now / narrow), how, _PRECISION
        )


def _of_prompts(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    hits = counter_increase(step.trace, step.server.id, v.SERVER_PREFIX_HITS, step.window_ns)
    is_cached = not isinstance(hits, Unknown) and hits.amount > 0
    said = switch_on(step.trace, Feature.PREFIX_CACHING, "the beginnings of prompts cached")
    if said and not is_cached:
        yield BudgetGain(term.part, said, 0.0, term.seconds, "all of it: every prompt begins as one before")
    yield BudgetGain(term.part, "prefill elsewhere", 0.0, term.seconds, "all of it: steps that decode alone")


# Time of the CPU, and what is left


def _of_communication(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    sent_s = term.seconds - term.waiting_s
    how = "all of its least time, where a layer computes for longer than it sends: T_comm - T_overlap"
    yield BudgetGain(term.part, "communication behind computation", 0.0, sent_s, how, _OVERLAP)
    how = "all that the others wait: see the late rank's threads"
    yield BudgetGain(term.part, "the late rank in step with the others", 0.0, term.waiting_s, how)


def _of_late_cpu(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    graphs = switch_on(step.trace, Feature.CUDA_GRAPHS, "CUDA graphs")
    if graphs and term.working_s > 0:
        low_s, high_s, how = _launches(step, term)
        yield BudgetGain(term.part, graphs, low_s, high_s, how, _COMPILATION if low_s == 0 else _GRAPHS)
    if term.collecting_s > 0:
        how = "all of it: gc.freeze() once warm leaves out what stands then, a higher gc.set_threshold() makes it rarer"
        yield BudgetGain(term.part, "less garbage collection", 0.0, term.collecting_s, how, _COLLECTOR)
    yield from _near_its_gpu(step, term)
    ahead = switch_on(step.trace, Feature.ASYNC_SCHEDULING, "the next step scheduled while this one computes")
    how = "all of it: no multiprocessor waits for the engine"
    yield BudgetGain(term.part, ahead or "the CPU hidden behind the GPU", 0.0, term.seconds, how)


def _near_its_gpu(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    """The thread that works while the GPU idles, and its memory, on the GPU's own NUMA node."""
    far = far_from_gpus(step.trace, step.gpus)
    if not far:
        return
    first, others = far[0], len(far) - 1
    saved_s, bound = term.working_s, "all of its work"
    if first.distance is not None and first.distance > NEAR_DISTANCE:
        saved_s *= 1 - NEAR_DISTANCE / first.distance
        bound = f"were all of its work waits for memory at distance {first.distance:.0f}, and {NEAR_DISTANCE:.0f} then"
    who = f"{first.thread} and {count(others)} more" if others else first.thread
    how = f"{first.text}; {bound}; from the next start on: {first.at_start}"
    yield BudgetGain(term.part, f"{who} near the GPU: {first.command}", 0.0, saved_s, how, _NUMA)


def _launches(step: MeasuredStep, term: BudgetTerm) -> tuple[float, float, str]:
    """What launching takes of the engine's work, and how that is known: one graph is launched in their place."""
    threads = [track.id for track in step.trace.tracks_of(TrackKind.THREAD)]
    rate = launch_rate(step.trace, threads, step.window_ns)
    if not rate:
        worked = f"{percent(LAUNCHES_SAVED * 100)} of the time in which the engine's thread worked"
        return 0.0, saved_by_compiling_s(0.0, term.working_s), f"{worked}, were all of it launches"
    each = rate / step.steps_per_s
    low_s, high_s = (max(0.0, each - 1) * one for one in EAGER_LAUNCH_S)
    become = f"{count(round(each))} launches a step become one, with what Python does for each"
    if high_s < term.working_s:
        return low_s, high_s, f"{become}: 5 to 50 µs"
    most = saved_by_compiling_s(0.0, term.working_s)
    return most, term.working_s, f"{become}: {percent(LAUNCHES_SAVED * 100)} of the engine's work and more"


def _of_rest(step: MeasuredStep, term: BudgetTerm) -> Iterator[BudgetGain]:
    if fused := switch_on(step.trace, Feature.TORCH_COMPILE, "torch.compile"):
        saved_s = saved_by_compiling_s(term.seconds, 0.0)
        how = f"{percent(ELEMENTWISE_SAVED * 100)} of it, were all of it element-wise kernels"
        yield BudgetGain(term.part, fused, 0.0, saved_s, how, _COMPILATION)
    how = "all of it; no kernel gets there: profile a step"
    yield BudgetGain(term.part, "kernels at their roofs, without gaps", 0.0, term.seconds, how)


_BY_PART: Mapping[BudgetPart, Callable[[MeasuredStep, BudgetTerm], Iterator[BudgetGain]]] = {
    BudgetPart.WEIGHTS: _of_weights,
    BudgetPart.KV_CACHE: _of_cache,
    BudgetPart.COMPUTE: _of_compute,
    BudgetPart.PROMPTS: _of_prompts,
    BudgetPart.COMMUNICATION: _of_communication,
    BudgetPart.LATE_CPU: _of_late_cpu,
    BudgetPart.REST: _of_rest,
}
