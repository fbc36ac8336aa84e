"""Where the time of an engine's step goes: what the model must read and compute, what the CPU adds, and the rest.

    step = weights + KV cache + compute + prompts + communication + late CPU + rest

after the iron law of performance, data + compute + overhead (Performance Engineering, "The iron law of ML
performance"):

* weights, KV cache: bytes of a step over the DRAM peak of the server's GPUs: no decode step is shorter;
* compute: 2 N FLOP for each output token over the peak, in as far as that takes longer than the bytes do;
* prompts: 2 N FLOP for each prompt token that is computed, over the peak: prefill lengthens a mean step by that at
  least;
* communication: of several GPUs, the least that their collectives take and that a late rank lets the others wait
  (`budget_communication`);
* late CPU: time in which the GPUs have no kernel, by what the engine's thread did meanwhile;
* rest: what is left of the measured step: kernels below their roofs, gaps between them, communication beyond its least.
  It may be below zero by as much as the others overlap.

A mean step is the window's time, without that in which there was no request, over the steps in it. Terms of the model
are least times at published peaks; the time of the step and of late CPU is measured.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus.scaling import scaling_tax
from llmtop.analysis.pages.budget_communication import SharedStep, communication_notes, communication_term
from llmtop.analysis.pages.budget_gains import MeasuredStep, budget_gains, why_no_larger_batch
from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetPart, BudgetTerm
from llmtop.analysis.roofline.efficiency import (
    WINDOW_NS,
    dram_peak_of,
    kv_bytes_in_use,
    steps_per_s,
    tensor_peak_of,
)
from llmtop.analysis.roofline.model_facts import ModelSize, model_size
from llmtop.analysis.series.readings import counter_rate, mean, server_track, target_gpus, why_kind_missing, why_no_gpu
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.server.tokens import output_tokens, prompt_tokens
from llmtop.analysis.threads.cells import COLLECTING, CUDA_SYNC, ON_CPU, WORKING
from llmtop.analysis.threads.idle_causes import UNKNOWN, idle_causes
from llmtop.analysis.views import Quality
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackKind, Unknown, UnknownKind
from llmtop.units import number, percent, quantity, si

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.model import Quantity, Target, Trace, Track

_NO_STEPS = Unknown("no step was made in the window", "send the server a request", UnknownKind.PASSING)
_BETWEEN_LOOKS = Unknown("requests came and went between two looks: how long their steps took is not known")
_OF_THE_FLOOR = 0.5
"""Of the least time that a step takes, below which the time with requests was not seen as such."""
_NOT_SHARED = Unknown("no layer of the model is shared between GPUs")
FLOOR = frozenset({BudgetPart.WEIGHTS, BudgetPart.KV_CACHE, BudgetPart.COMPUTE})
"""What a decode step cannot do without, on these GPUs and in this number format."""


@frozen
class TokenBudget:
    """A mean step of the window; its terms add up to `step_s`.

    Attributes:
        batch: Requests that ran, on the mean.
        tokens_per_step: Output tokens of a step.
        terms: In the order of `BudgetPart`, without those of no time; the rest is last.
        gains: Of the three largest terms, the most saved first.
        notes: What to know about the numbers, a sentence each.
        scaling_tax: Between which shares of its efficiency each GPU loses to there being several: by the least that
            communication takes, and with all of the rest.
    """

    step_s: float
    batch: float
    tokens_per_step: float
    terms: tuple[BudgetTerm, ...]
    gains: tuple[BudgetGain, ...]
    notes: tuple[str, ...]
    window_s: float
    scaling_tax: tuple[float, float] | Unknown

    @property
    def floor_s(self) -> float:
        """The least that a decode step takes on these GPUs."""
        return sum(term.seconds for term in self.terms if term.part in FLOOR)

    @property
    def sentence(self) -> str:
        """One line: "step 21.0 ms = weights 5.2 + KV cache 1.1 + late CPU 11.0 + rest 3.7 (floor 6.3 ms)"."""
        parts = " + ".join(f"{term.part} {term.seconds * 1e3:.3g}" for term in self.terms)
        return f"step {_ms(self.step_s)} = {parts} (floor {_ms(self.floor_s)})"


def token_budget(trace: Trace, target: Target | None, window_ns: int = WINDOW_NS) -> TokenBudget | Unknown:
    """The budget of a server's mean step over the last `window_ns`; why there is none."""
    server, size = server_track(trace), model_size(target)
    gpus = target_gpus(trace, target)
    if server is None or target is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    if not gpus:
        return why_no_gpu(trace) or why_kind_missing(trace, TrackKind.GPU)
    if isinstance(size, Unknown):
        return size
    steps = steps_per_s(trace, server.id, window_ns)
    if isinstance(steps, Unknown):
        return steps
    if not steps.value:
        return _NO_STEPS
    looked = _Window(trace, target, server, gpus, size, steps, window_ns)
    model = _of_the_model(looked)
    return model if isinstance(model, Unknown) else _budget(looked, model)


@frozen
class _Window:
    """The steps of a server that a budget is the mean of."""

    trace: Trace
    target: Target
    server: Track
    gpus: Sequence[Track]
    size: ModelSize
    steps: Quantity
    window_ns: int

    @property
    def per_s(self) -> float:
        """Steps a second, over all of the window."""
        return float(self.steps.value)

    def each(self, per_second: float | Unknown) -> float:
        """How much of something there is in a step; 0 where that is not known."""
        return 0.0 if isinstance(per_second, Unknown) else per_second / self.per_s

    @property
    def output(self) -> float | Unknown:
        """Output tokens a second."""
        found = output_tokens(self.trace, self.server.id, self.window_ns)
        return found if isinstance(found, Unknown) else found.per_second

    @property
    def prompts(self) -> float | Unknown:
        """Prompt tokens a second that no cache held."""
        prompt = prompt_tokens(self.trace, self.server.id, self.window_ns)
        cached = counter_rate(self.trace, self.server.id, v.SERVER_PREFIX_HITS, self.window_ns)
        if isinstance(prompt, Unknown):
            return prompt
        return prompt.per_second if isinstance(cached, Unknown) else max(0.0, prompt.per_second - cached)

    @property
    def shared(self) -> SharedStep:
        """A step as several GPUs share it."""
        tokens = self.each(self.output) + self.each(self.prompts)
        return SharedStep(self.trace, self.gpus, self.size, tokens, self.per_s, self.window_ns)


def _budget(looked: _Window, model: Sequence[BudgetTerm]) -> TokenBudget | Unknown:
    trace, gpus, window_ns = looked.trace, looked.gpus, looked.window_ns
    idle, sent = _idle(trace, gpus, window_ns), communication_term(looked.shared)
    step_s = (1.0 if isinstance(idle, Unknown) else 1.0 - idle.without_request) / looked.per_s
    if step_s < _OF_THE_FLOOR * sum(term.seconds for term in model if term.part in FLOOR) or step_s <= 0:
        return _BETWEEN_LOOKS
    terms = [*model, *([sent] if isinstance(sent, BudgetTerm) else []), *_late_cpu(idle, looked.per_s)]
    rest_s = step_s - sum(term.seconds for term in terms)
    source = f"what is left of {_ms(step_s)} ({looked.steps.source})"
    terms.append(BudgetTerm(BudgetPart.REST, rest_s, Quality.ESTIMATE, source))
    batch = mean(trace, looked.server.id, v.SERVER_RUNNING, window_ns)
    running, tokens = 0.0 if isinstance(batch, Unknown) else batch, looked.each(looked.output)
    own = looked.target, looked.server, gpus, looked.size
    step = MeasuredStep(trace, *own, terms, step_s, running, tokens, looked.per_s, window_ns)
    tax = _scaling_tax(sent, step_s, rest_s)
    notes = (*_notes(looked, idle, rest_s), *_notes_of_several(looked.shared, sent, tax), *_notes_of_gains(trace, step))
    return TokenBudget(
        step_s,
        running,
        tokens,
        tuple(term for term in terms if term.seconds or term.part is BudgetPart.REST),
        budget_gains(step),
        notes,
        window_ns / NS_PER_S,
        tax,
    )


def _scaling_tax(sent: BudgetTerm | Unknown | None, step_s: float, rest_s: float) -> tuple[float, float] | Unknown:
    """1 - (1 / step) / (1 / step without communication)."""
    if sent is None or isinstance(sent, Unknown):
        return _NOT_SHARED if sent is None else sent
    most_s = sent.seconds + max(0.0, rest_s)
    return scaling_tax(max(0.0, step_s - sent.seconds), step_s), scaling_tax(max(0.0, step_s - most_s), step_s)


# What the model must do


def _of_the_model(looked: _Window) -> list[BudgetTerm] | Unknown:
    size, gpus = looked.size, looked.gpus
    bandwidth, flops = dram_peak_of(gpus), tensor_peak_of(gpus, looked.target.dtype)
    if isinstance(bandwidth, Unknown):
        return bandwidth
    batch = mean(looked.trace, looked.server.id, v.SERVER_RUNNING, looked.window_ns)
    cache = kv_bytes_in_use(looked.trace, size, looked.window_ns)
    weights = size.weight_bytes_per_step(1.0 if isinstance(batch, Unknown) else batch)
    terms = [_read(BudgetPart.WEIGHTS, weights, bandwidth, size)]
    if not isinstance(cache, Unknown):
        terms.append(_read(BudgetPart.KV_CACHE, cache, bandwidth, size))
    if isinstance(flops, Unknown):
        return terms
    data_s = sum(term.seconds for term in terms)
    if not isinstance(looked.output, Unknown):
        terms.append(_computed(BudgetPart.COMPUTE, looked.each(looked.output), flops, size, beyond_s=data_s))
    if not isinstance(looked.prompts, Unknown):
        terms.append(_computed(BudgetPart.PROMPTS, looked.each(looked.prompts), flops, size))
    return terms


def _read(part: BudgetPart, count: float, bandwidth: float, size: ModelSize) -> BudgetTerm:
    source = f"{quantity(count, 'bytes')} at {quantity(bandwidth, 'bytes/s')}; {size.source}"
    return BudgetTerm(part, count / bandwidth, Quality.ESTIMATE, source)


def _computed(part: BudgetPart, tokens: float, flops: float, size: ModelSize, beyond_s: float = 0.0) -> BudgetTerm:
    source = f"{number(tokens)} tokens of {si(2 * size.active, 'FLOP')} at {si(flops, 'FLOP/s')}; {size.source}"
    return BudgetTerm(part, max(0.0, tokens * 2 * size.active / flops - beyond_s), Quality.ESTIMATE, source)


# What the CPU adds


@frozen
class _Idle:
    """Time in which the GPUs have no kernel, as shares of the window.

    Attributes:
        without_request: While there was nothing to do.
        late: While the engine's thread was at something else than waiting for the GPU, by what.
        working: Of that, while it worked; `collecting` while Python's collector ran on it.
        source: Who read it.
    """

    without_request: float
    late: tuple[tuple[str, float], ...]
    working: float
    collecting: float
    source: str


def _idle(trace: Trace, gpus: Sequence[Track], window_ns: int) -> _Idle | Unknown:
    """The mean over the GPUs."""
    late: defaultdict[str, float] = defaultdict(float)
    without_request = working = collecting = 0.0
    sources = dict[str, None]()
    for gpu in gpus:
        found = idle_causes(trace, gpu.id, window_ns)
        if isinstance(found, Unknown):
            return found
        sources |= dict.fromkeys(found.sources)
        for row in found.rows:
            if row.is_demand:
                without_request += row.of_window / len(gpus)
            elif row.cause not in (CUDA_SYNC, UNKNOWN):
                late[row.title] += row.of_window / len(gpus)
                working += row.of_window / len(gpus) if row.cause in (WORKING, ON_CPU) else 0.0
                collecting += row.of_window / len(gpus) if row.cause == COLLECTING else 0.0
    by_size = tuple(sorted(late.items(), key=lambda item: -item[1]))
    return _Idle(without_request, by_size, working, collecting, ", ".join(sources))


def _late_cpu(idle: _Idle | Unknown, steps: float) -> Iterator[BudgetTerm]:
    if not isinstance(idle, Unknown) and idle.late:
        details = tuple((words, share / steps) for words, share in idle.late)
        late_s = sum(seconds for _, seconds in details)
        shares = (idle.working / steps, idle.collecting / steps)
        yield BudgetTerm(BudgetPart.LATE_CPU, late_s, Quality.MEASURED, idle.source, details, *shares)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _notes(looked: _Window, idle: _Idle | Unknown, rest_s: float) -> Iterator[str]:
    if isinstance(idle, Unknown):
        yield f"late CPU is within the rest: {idle.reason}"
    else:
        yield "late CPU is time without a kernel, split in proportion within each sampling interval"
    if isinstance(flops := tensor_peak_of(looked.gpus, looked.target.dtype), Unknown):
        yield f"compute and prompts are within the rest: {flops.reason}"
    if rest_s < 0:
        yield f"the parts overlap by {_ms(-rest_s)}, or the window's steps were uneven"


def _notes_of_gains(trace: Trace, step: MeasuredStep) -> Iterator[str]:
    if (why := why_no_larger_batch(step)) is not None:
        yield f"what a larger batch would gain is not told: {told_of(trace, why)}"


def _notes_of_several(
    step: SharedStep, sent: BudgetTerm | Unknown | None, tax: tuple[float, float] | Unknown
) -> Iterator[str]:
    """What else is to be known of a step that several GPUs make."""
    if len(step.gpus) < 2:
        return
    if isinstance(sent, Unknown):
        yield f"communication is within the rest: {sent.reason}"
    elif isinstance(tax, Unknown):
        yield f"{tax.reason} (tensor parallelism is 1): none waits for another's part of a sum"
    else:
        low, high = (percent(share * 100) for share in tax)
        yield f"scaling tax of {step.ranks} GPUs: {low} at least, {high} were all of the rest communication too"
    yield f"one replica over all {len(step.gpus)} GPUs is taken"
    yield from communication_notes(step)
