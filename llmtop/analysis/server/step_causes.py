"""Steps that took longer than the others, each with its causes, and what the tail of all steps is made of.

A step's excess is what it takes more than the median step. It is divided by what the probes measured in it: each part
(run queue, lock, allocation ...) explains what it has more than in the median step; what the wait for the GPU has more
is explained by what was going on (a rank that came late, a clock that dropped, prompts, more kernels); what is left was
spent on the CPU, by page faults where there were enough of them, else by the engine's own code.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import server_gpus, server_track
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S
from llmtop.units import count, duration, percent
from llmtop.vocabulary import RoundPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.analysis.server.engine_steps import EngineLoop, EngineStep
    from llmtop.model import Metric, Trace, TrackId

_OUTLIER = 3.5
"""Modified z-score (Iglewicz and Hoaglin, How to Detect and Handle Outliers); 0.6745 makes it one of a normal
distribution."""
_TO_SIGMA = 0.6745
_LEAST_SPREAD = 0.03
"""Of the median, the spread that steps are taken to have at the least: a server that is very even has no outliers of a
few microseconds."""
_LEAST_EXCESS = 0.2
"""Of the median step: a step that takes less more is not slow. Ours."""
_NS_PER_FAULT = 5_000.0
"""Time on the CPU that a page fault explains at most: with fewer in it, it was spent otherwise. A minor fault takes
half a microsecond, and that of a huge page a hundred times as long."""
_MORE_WORK = 1.2
_FEWEST_MORE = 5
"""Times the launches of the median step, and so many more: another batch, not the same one."""
_SLOWER_CLOCK = 0.95
_OF_A_PROMPT = 0.5
"""Of the median step, how much longer the GPU is waited for at the least where nothing but the counter of prompts,
which moves all the time, says that there was one: decode steps differ by less, as batches and their caches do."""
_BY_CLOCK = 0.5
"""Of what a step waited longer for the GPU, the part that a lower clock must explain."""
_LATE = 0.5
"""Of what a step waited longer for the GPU, the part by which another rank must have been late to explain it."""
_AROUND_NS = NS_PER_S // 4
_TAIL = 0.99
_FEWEST_OF_TAIL = 100
_EVEN = 0.05
"""Of the median: a tail no longer than this is none."""


class StepCause(StrEnum):
    """Why a step takes longer than others."""

    PREFILL = "prefill in the batch"
    PREEMPTION = "preemption and recompute"
    MORE_WORK = "more work launched"
    LATE_RANK = "a late rank"
    CLOCK = "a lower GPU clock"
    SLOWER_GPU = "the GPU took longer for as much work"
    LONGER_WAIT = "a longer wait for the GPU"
    COPY = "a copy"
    ALLOCATION = "allocation of GPU memory"
    COLLECTION = "garbage collection"
    QUEUE = "run queue"
    LOCK = "lock"
    FAULTS = "page faults"
    ASLEEP = "asleep in a call"
    OWN_CODE = "the engine's own code"
    UNSEEN = "CPU (cause not seen)"


_OF_PARTS = {
    RoundPart.COLLECTION: StepCause.COLLECTION,
    RoundPart.ALLOCATION: StepCause.ALLOCATION,
    RoundPart.COPY: StepCause.COPY,
    RoundPart.QUEUE: StepCause.QUEUE,
    RoundPart.LOCK: StepCause.LOCK,
    RoundPart.ASLEEP: StepCause.ASLEEP,
}
"""What is measured as such, what is known best first: a sleep within an allocation is the allocation's."""
_BY_WORK = frozenset({StepCause.PREFILL, StepCause.PREEMPTION, StepCause.MORE_WORK})
"""More work is also launched for longer: what the CPU has more then is the same cause."""
_OF_THE_CPU = (RoundPart.QUEUE, RoundPart.LOCK, RoundPart.ASLEEP, RoundPart.ALLOCATION, RoundPart.COPY)
"""All that must have been looked at for the rest to be called the engine's own code."""


@frozen
class SlowStep:
    """A step that stands out.

    Attributes:
        excess_ns: What it takes more than the median step.
        blame: That excess by cause, the largest first.
        evidence: What was measured, half a sentence.
    """

    step: EngineStep
    excess_ns: float
    blame: Mapping[StepCause, float]
    evidence: str

    @property
    def cause(self) -> StepCause:
        """What explains most of it."""
        return next(iter(self.blame))

    @property
    def share(self) -> float:
        """How much of its excess that explains, 0 to 1."""
        return self.blame[self.cause] / self.excess_ns


@frozen
class StepTail:
    """What the slowest steps take more than the median one, by cause: shares of it, the largest first."""

    p50_ns: float
    p99_ns: float
    shares: Mapping[StepCause, float]

    @property
    def sentence(self) -> str:
        """Such as "of p99 - p50 (12 ms), 61 % prefill in the batch, 27 % run queue"."""
        told = ", ".join(f"{percent(100 * share)} {cause}" for cause, share in self.shares.items() if share >= 0.01)
        return f"of p99 - p50 ({duration(self.p99_ns - self.p50_ns)}), {told}"


class StepJudge:
    """Compares the steps of a loop with their medians.

    Args:
        trace: Where else something is told of the moments of steps: server, GPUs.
        loop: Whose steps.
        others: The other ranks' loops.
    """

    def __init__(self, trace: Trace, loop: EngineLoop, others: Sequence[EngineLoop] = ()) -> None:
        self._trace = trace
        self.steps = tuple(one for one in loop.steps if not _was_idle(trace, one))
        self._usual = _Usual(self.steps)
        self._others = [(one, _Usual(one.steps), [step.end_ns for step in one.steps]) for one in others]

    @property
    def median_ns(self) -> float:
        """Of a step's time."""
        return self._usual.time_ns

    def slow(self) -> tuple[SlowStep, ...]:
        """Those that stand out, oldest first."""
        least = self._usual.slow_from_ns
        return tuple(self._judged(one) for one in self.steps if one.time_ns >= least)

    def tail(self) -> StepTail | None:
        """What p99 is above p50 by; None of fewer than 100 steps, and where there is no tail."""
        if len(self.steps) < _FEWEST_OF_TAIL:
            return None
        p99 = sorted(one.time_ns for one in self.steps)[math.ceil(_TAIL * len(self.steps)) - 1]
        if p99 <= self.median_ns * (1 + _EVEN):
            return None
        blame: defaultdict[StepCause, float] = defaultdict(float)
        for one in (one for one in self.steps if one.time_ns >= p99):
            for cause, ns in self._judged(one).blame.items():
                blame[cause] += ns
        whole = math.fsum(blame.values())
        return StepTail(self.median_ns, p99, {cause: ns / whole for cause, ns in _largest_first(blame)})

    def _judged(self, step: EngineStep) -> SlowStep:
        excess, usual = max(1.0, step.time_ns - self._usual.time_ns), self._usual
        left, blame = excess, defaultdict[StepCause, float](float)
        for part, cause in _OF_PARTS.items():
            blame[cause] = min(left, max(0.0, step.parts.get(part, 0.0) - usual.parts[part]))
            left -= blame[cause]
        of_gpu = self._of_gpu(step)
        waited = min(left, max(0.0, step.gpu_ns - usual.gpu_ns))
        blame[of_gpu] += waited
        left -= waited
        blame[of_gpu if self._does_more(step) else self._on_cpu(step, left)] += left
        found = dict(_largest_first(blame))
        return SlowStep(step, excess, found, self._evidence(step, next(iter(found))))

    def _does_more(self, step: EngineStep) -> bool:
        usual = self._usual
        has_no_graph = bool(usual.graphs) and step.graphs == 0
        if step.launches is None or usual.launches is None:
            return has_no_graph or _is_more(step.graphs, usual.graphs)
        return (has_no_graph and step.launches > _FEWEST_MORE) or _is_more(step.launches, usual.launches)

    def _of_gpu(self, step: EngineStep) -> StepCause:
        """Why the GPU was waited for longer."""
        if not self._does_more(step):
            if self._has_late_rank(step):
                return StepCause.LATE_RANK
            if self._is_by_clock(step):
                return StepCause.CLOCK
        if self._grew(step, v.SERVER_PREEMPTIONS):
            return StepCause.PREEMPTION
        is_large = step.gpu_ns - self._usual.gpu_ns >= _OF_A_PROMPT * self._usual.time_ns
        if (is_large or self._does_more(step)) and self._grew(step, v.SERVER_PROMPT_TOKENS):
            return StepCause.PREFILL
        if self._does_more(step):
            return StepCause.MORE_WORK
        is_counted = step.launches is not None and self._usual.launches is not None
        return StepCause.SLOWER_GPU if is_counted else StepCause.LONGER_WAIT

    def _on_cpu(self, step: EngineStep, ns: float) -> StepCause:
        """What the CPU did for so much longer."""
        more_faults = (step.faults or 0.0) - (self._usual.faults or 0.0)
        if more_faults * _NS_PER_FAULT >= ns > 0:
            return StepCause.FAULTS
        return StepCause.OWN_CODE if all(part in step.parts for part in _OF_THE_CPU) else StepCause.UNSEEN

    def _has_late_rank(self, step: EngineStep) -> bool:
        """Whether another rank was late on the CPU by about as much as this one waited longer."""
        needed = _LATE * (step.gpu_ns - self._usual.gpu_ns)
        return needed > 0 and any(
            one.cpu_ns - usual.time_ns + usual.gpu_ns >= needed
            for loop, usual, ends in self._others
            for one in _overlapping(loop.steps, ends, step)
        )

    def _is_by_clock(self, step: EngineStep) -> bool:
        """Whether the same work at the usual clock takes at least half as much less as this step waited longer.

        A step that computes more draws more power, and the clock falls with that: it is no cause of the rest.
        """
        clock = self._clock(step)
        more = step.gpu_ns - self._usual.gpu_ns
        return clock < _SLOWER_CLOCK and step.gpu_ns * (1 - clock) >= _BY_CLOCK * more

    def _clock(self, step: EngineStep) -> float:
        """The lowest of the GPUs' SM clocks then, as a share of what it mostly is; 1 where nobody tells."""
        found = 1.0
        for gpu in server_gpus(self._trace):
            series = self._trace.get(gpu.id, v.GPU_SM_CLOCK_TRUE) or self._trace.get(gpu.id, v.GPU_SM_CLOCK)
            near = [] if series is None else [*series.between(step.start_ns, step.end_ns + NS_PER_S).known]
            if series is not None and near and (usual := median(value for _, value in series.known)) > 0:
                found = min(found, near[0][1] / usual)
        return found

    def _grew(self, step: EngineStep, metric: Metric) -> bool:
        """Whether a counter of the server's moved between its samples around the step."""
        server = server_track(self._trace)
        series = None if server is None else self._trace.get(server.id, metric)
        if series is None:
            return False
        later = next((t for t, _ in series.between(step.end_ns, step.end_ns + 5 * NS_PER_S).known), None)
        before = series.at(step.start_ns - _AROUND_NS)
        after = None if later is None else series.at(later)
        return before is not None and after is not None and after > before

    def _evidence(self, step: EngineStep, cause: StepCause) -> str:
        """The step's numbers beside those of the median one."""
        usual = self._usual
        gpu = f"waits for the GPU {duration(step.gpu_ns)} (median {duration(usual.gpu_ns)})"
        cpu = f"CPU {duration(step.cpu_ns)} (median {duration(usual.time_ns - usual.gpu_ns)})"
        said = [gpu, cpu] if step.gpu_ns - usual.gpu_ns > step.cpu_ns - usual.cpu_ns else [cpu, gpu]
        if cause in _BY_WORK:
            said += _launched(step.launches, usual.launches, "launches") or _launched(
                step.graphs, usual.graphs, "graph launches"
            )
        if cause is StepCause.FAULTS and step.faults is not None:
            said.append(f"{count(step.faults)} page faults")
        part = next((part for part, of in _OF_PARTS.items() if of is cause), None)
        if part is not None:
            said.insert(0, f"{duration(step.parts[part])} of it")
        return ", ".join(said)


class _Usual:
    """What the median step of several has."""

    def __init__(self, steps: Sequence[EngineStep]) -> None:
        times = [one.time_ns for one in steps]
        self.time_ns = median(times) if times else 0.0
        spread = median(abs(one - self.time_ns) for one in times) / _TO_SIGMA if times else 0.0
        outlier_ns = _OUTLIER * max(spread, _LEAST_SPREAD * self.time_ns)
        self.slow_from_ns = self.time_ns + max(outlier_ns, _LEAST_EXCESS * self.time_ns)
        self.gpu_ns = median(one.gpu_ns for one in steps) if steps else 0.0
        self.cpu_ns = self.time_ns - self.gpu_ns
        self.launches = _median_of(one.launches for one in steps)
        self.graphs = _median_of(one.graphs for one in steps)
        self.faults = _median_of(one.faults for one in steps)
        self.parts = {part: _median_of(one.parts.get(part) for one in steps) or 0.0 for part in RoundPart}


def _is_more(launches: float | None, usual: float | None) -> bool:
    """Whether so many launches are of more work than usual ones."""
    if launches is None or usual is None:
        return False
    return launches > max(_MORE_WORK * usual, usual + _FEWEST_MORE)


def _launched(launches: float | None, usual: float | None, words: str) -> list[str]:
    """How much was launched; nothing where that is not known."""
    return [] if launches is None or usual is None else [f"{count(launches)} {words} (median {count(usual)})"]


def _largest_first(blame: Mapping[StepCause, float]) -> Iterator[tuple[StepCause, float]]:
    return ((cause, ns) for cause, ns in sorted(blame.items(), key=lambda one: -one[1]) if ns > 0)


def _median_of(values: Iterator[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return median(known) if known else None


def _was_idle(trace: Trace, step: EngineStep) -> bool:
    """Whether the server said during it that it ran no request."""
    server: TrackId | None = None if (found := server_track(trace)) is None else found.id
    series = None if server is None else trace.get(server, v.SERVER_RUNNING)
    return series is not None and any(value == 0 for _, value in series.between(step.start_ns, step.end_ns).known)


def _overlapping(steps: Sequence[EngineStep], ends: Sequence[int], step: EngineStep) -> Iterator[EngineStep]:
    for i in range(bisect_left(ends, step.start_ns), len(steps)):
        if steps[i].start_ns >= step.end_ns:
            return
        yield steps[i]
