"""How far a larger batch goes: the knee of step time = a + b x batch, and what limits it.

* the objective: the batch at which the fitted mean step takes as long as ITL is promised to be for half of the tokens
  (without such a promise: for nearly all);
* the KV cache: the batch that fills it with requests as long as those of now;
* compute: the batch from which on a step computes for longer than it reads, at published peaks;
* the most requests that the server is set to run at once.

The least of them is the knee. Batch size as the control knob of serving, bounded by memory and by the ridge of the
roofline, is after Performance Engineering ("Batch size as the universal control knob", napkin math 1.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.roofline.efficiency import dram_peak_of, kv_bytes_in_use, tensor_peak_of
from llmtop.analysis.roofline.model_facts import model_size
from llmtop.analysis.series.readings import latest, mean, server_track, target_gpus, why_kind_missing
from llmtop.analysis.server.batches import BatchRange, StepLine, batch_points, by_batch, step_line
from llmtop.analysis.server.configuration import Setting, setting
from llmtop.analysis.server.objectives import objectives
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Feature, TrackKind, Unknown
from llmtop.units import count, two_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Target, Trace, Track

_NOW_NS = 15 * NS_PER_S
"""In which the batch of now is the mean."""
_KV_WINDOW_NS = 60 * NS_PER_S
"""In which the KV cache's use is the highest one."""
_LEAST_USED = 0.05
"""Of a cache that is emptier the gauge's rounding tells more than the requests."""
_SURE = 2.0
"""Standard errors either way: 95 %."""


@frozen
class BatchLimit:
    """A batch that is not passed, and why.

    Attributes:
        name: What limits: "ITL p50 25 ms", "KV cache", "compute", "requests at once".
        low, high: Between what it lies, by `how`.
    """

    name: str
    batch: float
    low: float
    high: float
    how: str

    @property
    def text(self) -> str:
        """In a few words: "96 (88 to 104) by ITL p50 25 ms"."""
        low, high = count(round(self.low)), count(round(self.high))
        spread = f" ({low} to {high})" if low != high else ""
        return f"{count(round(self.batch))}{spread} by {self.name}"


@frozen
class BatchAdvice:
    """What was seen of batches, and how far a larger one would go.

    Attributes:
        batch: Of now.
        line: Step time by batch, or why there is none yet.
        limits: The least first; without a line that of the objective lacks.
    """

    batch: float
    ranges: tuple[BatchRange, ...]
    line: StepLine | Unknown
    limits: tuple[BatchLimit, ...]

    @property
    def knee(self) -> BatchLimit | Unknown:
        """The least limit; not told without the line, which may be the least one."""
        if isinstance(self.line, Unknown):
            return self.line
        return self.limits[0] if self.limits else Unknown("nothing that is known limits the batch")

    @property
    def tokens_per_s(self) -> tuple[float, float] | None:
        """By the line: now, and at the knee."""
        if isinstance(self.line, Unknown) or isinstance(self.knee, Unknown) or not self.knee.batch:
            return None
        line = self.line.line
        return self.batch / line.at(self.batch), self.knee.batch / line.at(self.knee.batch)

    @property
    def text(self) -> str:
        """One line: "knee at batch 96 (88 to 104) by ITL p50 25 ms: 4200 tok/s, now 64: 3100"."""
        if isinstance(self.knee, Unknown):
            return str(self.knee)
        others = ", then " + ", ".join(one.text for one in self.limits[1:]) if len(self.limits) > 1 else ""
        said = f"knee at batch {self.knee.text}{others}"
        if (rates := self.tokens_per_s) is None:
            return f"{said}: no batch keeps it"
        now, then = (two_digits(rate, "tok/s") for rate in rates)
        beyond = "; beyond what was seen" if self.is_beyond else ""
        return f"{said}: {then} there, {now} at the batch of now, {count(self.batch)}{beyond}"

    @property
    def is_beyond(self) -> bool:
        """Whether the knee lies at a larger batch than was seen."""
        knee, line = self.knee, self.line
        return not isinstance(knee, Unknown) and not isinstance(line, Unknown) and knee.batch > line.largest


def batch_advice(trace: Trace, target: Target | None) -> BatchAdvice | Unknown:
    """The knee of a server's batch; why nothing can be said of batches."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    points, batch = batch_points(trace, server), mean(trace, server.id, v.SERVER_RUNNING, _NOW_NS, at_least=1)
    if isinstance(points, Unknown):
        return points
    if isinstance(batch, Unknown):
        return batch
    line = step_line(points)
    limits = sorted(_limits(trace, server, target, line), key=lambda one: one.batch)
    return BatchAdvice(batch, by_batch(points), line, tuple(limits))


def _limits(trace: Trace, server: Track, target: Target | None, line: StepLine | Unknown) -> Iterator[BatchLimit]:
    if not isinstance(line, Unknown):
        yield from _by_objective(trace, line)
    yield from _by_cache(trace, server)
    yield from _by_compute(trace, server, target)
    most = setting(trace, Feature.MAX_RUNNING)
    if isinstance(most, Setting) and not isinstance(most.value, str):
        yield BatchLimit("requests at once", *(float(most.value),) * 3, f"{most.title}: {most.source}")


def _by_objective(trace: Trace, fit: StepLine) -> Iterator[BatchLimit]:
    promised = [one for one in objectives(trace) if one.key == "itl"]
    if promised:
        least = min(promised, key=lambda one: one.percent)
        batch = max(0.0, (least.limit_s - fit.line.intercept) / fit.line.slope)
        off = _SURE * fit.line.error_at(batch) / fit.line.slope
        name = f"{least.title} {two_digits(least.limit_s, 's')}"
        yield BatchLimit(name, batch, max(0.0, batch - off), batch + off, f"(limit - a) / b; {fit.text}")


def _by_cache(trace: Trace, server: Track) -> Iterator[BatchLimit]:
    usage, running = (trace.get(server.id, metric) for metric in (v.SERVER_KV_USAGE, v.SERVER_RUNNING))
    if usage is None or running is None:
        return
    used = usage.between(trace.end_ns - _KV_WINDOW_NS, trace.end_ns).known
    fits = [batch / share for t, share in used if share >= _LEAST_USED and (batch := running.at(t) or 0.0)]
    if fits:
        how = f"requests running over the share of the cache that they use, {len(fits)} looks in 60 s"
        yield BatchLimit("KV cache", sum(fits) / len(fits), min(fits), max(fits), how)


def _by_compute(trace: Trace, server: Track, target: Target | None) -> Iterator[BatchLimit]:
    """Where 2 N B / FLOP/s is what (weights + KV B) / bytes/s is; with long contexts nowhere."""
    gpus, size = target_gpus(trace, target), model_size(target)
    if target is None or not gpus or isinstance(size, Unknown):
        return
    bandwidth, flops = dram_peak_of(gpus), tensor_peak_of(gpus, target.dtype)
    running = latest(trace, server.id, v.SERVER_RUNNING)
    cache = kv_bytes_in_use(trace, size)
    if isinstance(bandwidth, Unknown) or isinstance(flops, Unknown):
        return
    if isinstance(running, Unknown) or isinstance(cache, Unknown) or not running:
        return
    more_s = 2 * size.active / flops - cache / running / bandwidth
    if more_s > 0:
        batch = size.weight_bytes_per_step(_ALL_EXPERTS) / bandwidth / more_s
        how = f"a step reads for as long as it computes, at published peaks; {size.source}"
        yield BatchLimit("compute", batch, batch, batch, how)


_ALL_EXPERTS = 1e6
"""Tokens that touch every expert, as batches near the ridge do."""
