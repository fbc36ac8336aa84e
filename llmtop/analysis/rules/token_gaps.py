"""Why the time between tokens is late: what comes in between, as the server's own numbers and threads tell it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import busy_percent
from llmtop.analysis.rules.prompts import mostly_prompts, prompts_between
from llmtop.analysis.rules.signals import GPU_STARVED_PERCENT, Signal, share_at_hand
from llmtop.analysis.rules.thread_signals import held_off, loops
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import server_gpus
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.objectives import MEDIAN
from llmtop.model import TrackId, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.server.objectives import JudgedObjective
    from llmtop.model import Trace

_HELD_OFF = 0.2
"""Share of the time that a loop waits for a CPU from which its steps are late by that, whatever is in them."""
TAIL = 4.0
"""A p99 of so many medians is a tail: what is slow is not the step itself, but what comes between."""


def tail_ratio(verdicts: Sequence[JudgedObjective]) -> float:
    """How many medians a p99 is at least; 0 where the buckets do not tell."""
    by_percent = {one.objective.percent: one.seen for one in verdicts if one.seen is not None}
    middle, tail = by_percent.get(MEDIAN), by_percent.get(99)
    return tail.low / middle.high if middle is not None and tail is not None and 0 < middle.high < math.inf else 0.0


def preempted(trace: Trace, track: TrackId, window_ns: int) -> Signal | None:
    """Requests were thrown out of the KV cache."""
    grown = increase(trace.get(track, v.SERVER_PREEMPTIONS), window_ns, trace.end_ns)
    if isinstance(grown, Unknown) or grown.amount <= 0:
        return None
    where = source_of(trace, track, v.SERVER_PREEMPTIONS)
    return Signal(grown.amount, f"preemptions {grown.amount:.0f} in {grown.seconds:.0f} s ({where})")


def held_off_loop(trace: Trace) -> Signal | None:
    """The loop that waits most for a CPU, where it does for much of the time: a prompt then takes longer too."""
    held = [wait for thread in loops(trace) if (wait := held_off(trace, thread)) is not None]
    most = max(held, key=lambda wait: wait.value, default=None)
    return most if most is not None and most.value >= _HELD_OFF else None


def prompts_in_between(
    trace: Trace, track: TrackId, verdicts: Sequence[JudgedObjective], window_ns: int
) -> Signal | None:
    """Prompts are computed, and single tokens are late beside a median that is not: neither of the above does that.

    A prompt that holds up others keeps the GPU busy: while that rests most of the time, something else is late.
    """
    if tail_ratio(verdicts) < TAIL or preempted(trace, track, window_ns) or held_off_loop(trace):
        return None
    return None if _gpus_rest(trace, window_ns) else prompts_between(trace, track, window_ns)


def steps_of_prompts(trace: Trace, track: TrackId, window_ns: int) -> Signal | None:
    """Nearly all tokens that are computed are of prompts: every step has some, and no median is without."""
    prompts = None if _gpus_rest(trace, window_ns) else mostly_prompts(trace, track, window_ns)
    return prompts if prompts is not None and prompts.value >= _NEARLY_ALL else None


_NEARLY_ALL = 0.95


def _gpus_rest(trace: Trace, window_ns: int) -> bool:
    """Whether the server's GPUs are known to have work for less than half of the time in which there are requests."""
    seen = (busy_percent(trace, gpu.id, window_ns) for gpu in server_gpus(trace))
    return max((one for one in seen if one is not None), default=100.0) < GPU_STARVED_PERCENT * share_at_hand(trace)
