"""What of a thread's time Python's garbage collector takes, where probes see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import told_why_absent
from llmtop.analysis.threads.probes import LEAST_OBSERVED, library_watch
from llmtop.analysis.threads.shares import WINDOW_NS
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

_NONE_SEEN = Unknown("no collection was seen: it runs no Python, or has collected nothing yet")
_NO_PROBES = Unknown("no probe sees Python's collector", "see what is missing: d")


@frozen
class GarbageCollection:
    """The share of the time that a thread was in the collector, 0 to 1, and how often a second."""

    share: float
    per_s: float


def garbage_collection(trace: Trace, thread: TrackId, window_ns: int = WINDOW_NS) -> GarbageCollection | Unknown:
    """Of the last `window_ns`, as far as probes looked; why it is not known.

    A thread of an interpreter whose collector was seen at work has not collected where nothing is told of it.
    """
    process = ids.process_of(thread)
    start_ns = trace.end_ns - window_ns
    watch = library_watch(trace, process) or trace.get(process, v.SCHEDULER_OBSERVED)
    watched_ns = step_increase(watch, start_ns, trace.end_ns)
    if watched_ns < LEAST_OBSERVED * window_ns:
        return told_why_absent(trace, thread, v.THREAD_COLLECTING) or _NO_PROBES
    calls = trace.get(process, v.labelled(v.LIBRARY_COUNT, v.PYTHON_COLLECTOR))
    if calls is None or calls.last is None:
        return trace.why_missing(whats.function(v.PYTHON_COLLECTOR)) or _NONE_SEEN
    ns, times = (
        step_increase(trace.get(thread, metric), start_ns, trace.end_ns)
        for metric in (v.THREAD_COLLECTING, v.THREAD_COLLECTIONS)
    )
    return GarbageCollection(min(1.0, ns / watched_ns), times / watched_ns * NS_PER_S)
