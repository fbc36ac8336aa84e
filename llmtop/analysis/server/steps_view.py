"""What is shown of an engine's steps: how long they take, the newest, the slow ones with their causes, the tail."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from itertools import accumulate, groupby
from statistics import median
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.analysis.series.histograms import within
from llmtop.analysis.server.engine_steps import WINDOW_NS, EngineLoop, engine_loops
from llmtop.analysis.server.likely_prompts import likely_prompts
from llmtop.analysis.server.step_causes import StepCause, StepJudge
from llmtop.analysis.views import HeatColumn, Heatmap
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.units import percent
from llmtop.vocabulary import RoundPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.analysis.server.engine_steps import EngineStep
    from llmtop.analysis.server.step_causes import SlowStep, StepTail
    from llmtop.model import Trace

SEEN = 0.9
"""Of the time: steps that make up less of it are said to be a part of all."""
_ROWS_PER_DOUBLING = 4
"""Of the heatmap: bounds 1.19 times apart."""
_NOT_TOLD_APART = (
    (
        (RoundPart.QUEUE, RoundPart.LOCK, RoundPart.ASLEEP),
        "run queue, locks, sleeps: threads are followed in slices",
    ),
    ((RoundPart.ALLOCATION, RoundPart.COPY), "allocations and copies: not all of these calls are counted"),
)


@frozen
class StepsView:
    """Steps of the thread with most of the launched work.

    Attributes:
        newest: The last steps, oldest first, without those in which the server had nothing to do.
        slow: Those that stand out, oldest first.
        tail: What p99 is above p50 by; None where there is no tail, or too few steps to tell.
        per_s: How many steps a second.
        gpu_share: Of the median step, in which the GPU was waited for.
        others: How many other threads make steps.
        notes: What to know about the numbers, a sentence each.
    """

    loop: EngineLoop
    newest: tuple[EngineStep, ...]
    slow: tuple[SlowStep, ...]
    tail: StepTail | None
    p50_ns: float
    p99_ns: float
    per_s: float
    gpu_share: float
    others: int
    notes: tuple[str, ...]
    end_ns: int

    @property
    def seen_share(self) -> float:
        """Of the time from the first step to the last, what they make up: the rest was not seen, or nothing ran."""
        return _seen_share(self.newest)

    @property
    def span_s(self) -> float:
        """From the beginning of the first step to the end of the last."""
        return _span_ns(self.newest) / NS_PER_S


def steps_view(trace: Trace, window_ns: int = WINDOW_NS) -> StepsView | Unknown:
    """The steps of the last `window_ns`, at most 4,000 rounds of them; why there are none."""
    loops = engine_loops(trace, window_ns)
    if isinstance(loops, Unknown):
        return loops
    loop, *others = loops
    judge = StepJudge(trace, loop, others)
    if not judge.steps:
        return Unknown("no request ran while steps were seen", "send the server a request", UnknownKind.PASSING)
    times, slow = sorted(one.time_ns for one in judge.steps), judge.slow()
    active_ns = math.fsum(times)
    return StepsView(
        loop,
        judge.steps,
        slow,
        judge.tail(),
        median(times),
        times[math.ceil(0.99 * len(times)) - 1],
        len(times) / active_ns * NS_PER_S if active_ns else 0.0,
        median(one.gpu_ns / one.time_ns if one.time_ns else 0.0 for one in judge.steps),
        len(others),
        tuple(_notes(trace, judge.steps, slow)),
        trace.end_ns,
    )


def _span_ns(steps: Sequence[EngineStep]) -> int:
    return steps[-1].end_ns - steps[0].start_ns


def _seen_share(steps: Sequence[EngineStep]) -> float:
    return math.fsum(one.end_ns - one.start_ns for one in steps) / max(1, _span_ns(steps))


def _notes(trace: Trace, steps: Sequence[EngineStep], slow: Sequence[SlowStep]) -> Iterator[str]:
    if (seen := _seen_share(steps)) < SEEN:
        yield f"steps are a sample: those of {percent(100 * seen)} of the time were seen, or nothing ran in the rest"
    for parts, words in _NOT_TOLD_APART:
        if any(part not in steps[-1].parts for part in parts):
            yield f"not told apart from the engine's own code: {words}"
    if steps[-1].launches is None:
        has_graphs = any(one.graphs for one in steps)
        how = "is told by launches of CUDA graphs alone" if has_graphs else "is not told from a slower GPU"
        yield f"more work {how}: not all launches are counted"
    prompts = likely_prompts(trace, steps, slow)
    if prompts is not None:
        yield prompts
    if steps[-1].faults is None:
        yield "page faults are not told from the engine's own code: nobody counts them, or no launch told of them"
    if any(one.cause is StepCause.OWN_CODE for one in slow) and RoundPart.COLLECTION not in steps[-1].parts:
        why = trace.why_missing(whats.function(v.PYTHON_COLLECTOR))
        told = "no probe sees all of Python's collections" if why is None else why.reason
        yield f"garbage collection is among the engine's own code: {told}"


def steps_heatmap(
    trace: Trace, _: str | None, window_ns: int, columns: int, known: Heatmap | None = None
) -> Heatmap | Unknown:
    """How long steps took, over time; the arguments are as of `heatmaps.run_queue_heatmap`."""
    loops = engine_loops(trace, window_ns)
    if isinstance(loops, Unknown):
        return loops
    loop = loops[0]
    step_ns = max(1, window_ns // max(1, columns))
    end_ns = -(-trace.end_ns // step_ns) * step_ns
    start_ns = end_ns - step_ns * columns
    uppers = _uppers([one.time_ns for one in loop.steps])
    counts = {
        column: Counter(bisect_left(uppers, one.time_ns) for one in several)
        for column, several in groupby(loop.steps, key=lambda one: (one.end_ns - start_ns) // step_ns)
    }
    first, last = min(counts), max(counts)
    made = tuple(
        _column(counts.get(i, Counter()), uppers, step_ns) if first <= i <= last else None for i in range(columns)
    )
    return Heatmap("engine steps", "ns", loop.source, start_ns, step_ns, uppers, made, loop.steps[-1].end_ns)


def _uppers(lengths: Sequence[float]) -> tuple[float, ...]:
    """Bounds around all lengths, in equal steps of their logarithm."""
    low, high = (math.log2(max(1.0, one)) * _ROWS_PER_DOUBLING for one in (min(lengths), max(lengths)))
    return tuple(2.0 ** (i / _ROWS_PER_DOUBLING) for i in range(math.floor(low), math.ceil(high) + 1))


def _column(counts: Counter[int], uppers: Sequence[float], step_ns: int) -> HeatColumn:
    rows = tuple(counts.get(i, 0) for i in range(len(uppers)))
    sums = list(accumulate(rows))
    rates = tuple(count / step_ns * NS_PER_S for count in rows)
    if not sums[-1]:
        return HeatColumn(rates)
    places = (bisect_left(sums, math.ceil(share * sums[-1])) for share in (0.5, 0.99))
    p50, p99 = (within(uppers[i - 1] if i else 0.0, uppers[i]) for i in places)
    return HeatColumn(rates, p50, p99)
