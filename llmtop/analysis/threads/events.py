"""What the processor counted of a thread: how much it gets done in a cycle, and what of its memory the caches hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import counter_increase
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

_NOT_RUN = Unknown("it has not run in the window")


@frozen
class ProcessorEvents:
    """Of one thread over a window.

    Attributes:
        per_cycle: Instructions a cycle (IPC).
        cache_miss_share: Of its accesses to the last-level cache, 0 to 1.
        dtlb_misses_per_1000: Of a thousand instructions.
    """

    per_cycle: float
    cache_miss_share: float
    dtlb_misses_per_1000: float
    instructions: float


def events(trace: Trace, thread: TrackId, window_ns: int) -> ProcessorEvents | Unknown:
    """What was counted over the last `window_ns`; why nothing was."""
    grown = [counter_increase(trace, thread, metric, window_ns) for metric in _COUNTED]
    amounts = [one.amount for one in grown if not isinstance(one, Unknown)]
    if len(amounts) < len(grown):
        return next(one for one in grown if isinstance(one, Unknown))
    cycles, instructions, references, misses, dtlb = amounts
    if not cycles or not instructions:
        return _NOT_RUN
    share = min(1.0, misses / references) if references else 0.0
    return ProcessorEvents(instructions / cycles, share, dtlb / instructions * 1000, instructions)


_COUNTED = (
    v.THREAD_CYCLES,
    v.THREAD_INSTRUCTIONS,
    v.THREAD_CACHE_REFERENCES,
    v.THREAD_CACHE_MISSES,
    v.THREAD_DTLB_MISSES,
)
