"""The call that launched a kernel of a timeline: from which thread, how long before, in which ranges and which step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.launch_times import NO_CALL
from llmtop.analysis.kernels.nvtx_ranges import launch_paths
from llmtop.analysis.timeline.span_facts import track_name
from llmtop.analysis.timeline.steps import find_steps
from llmtop.columns import places_of
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, SpanKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.timeline.ranges import TimeWindow
    from llmtop.model import SpanTable, Trace

_AFTER_IT = Unknown("the call that launched it began after it did: their clocks do not fit")


@frozen
class LaunchCall:
    """What is known of how a kernel came to run.

    Attributes:
        name, thread: The call, and the thread that made it with its process.
        latency_ns: From the begin of the call to the kernel's own, as `nsys stats` has it.
        queue_ns: From the end of the call to the kernel's begin; None where it had begun by then.
        ranges: Those that the program marked around the call, the outermost first.
    """

    name: str
    thread: str
    latency_ns: int
    queue_ns: int | None
    ranges: tuple[str, ...]


@frozen
class StepOfLaunch:
    """The step in which a kernel was launched: which of how many, and the name of its range."""

    number: int
    steps: int
    name: str

    def __str__(self) -> str:
        """As it is read: "2 of 7: decode"."""
        place = f"{self.number} of {self.steps}"
        return place if self.name == f"step {self.number}" else f"{place}: {self.name}"


def launch_call(trace: Trace, launch: int) -> LaunchCall | Unknown | None:
    """The call that launched a kernel; None of a report without a timeline.

    Args:
        trace: One with kernels.
        launch: Counted from 0.
    """
    kernels = _timed_kernels(trace)
    if kernels is None:
        return None
    found = _call_of(trace, kernels.correlation[launch])
    if found is None:
        return NO_CALL
    calls, row = found
    began, paths = kernels.start_ns[launch], launch_paths(trace)
    if began < calls.start_ns[row]:
        return _AFTER_IT
    return LaunchCall(
        name=calls.names[calls.name_id[row]],
        thread=track_name(trace, calls.tracks[calls.track_id[row]]),
        latency_ns=began - calls.start_ns[row],
        queue_ns=began - calls.end_ns[row] if began > calls.end_ns[row] else None,
        ranges=paths.paths[paths.numbers[launch]],
    )


def step_of_launch(trace: Trace, launch: int) -> StepOfLaunch | None:
    """The step in which a kernel was launched; of steps that no thread marks that in which it ran."""
    kernels, steps = _timed_kernels(trace), find_steps(trace)
    if kernels is None or isinstance(steps, Unknown):
        return None
    gpu = ids.gpu_of(kernels.tracks[kernels.track_id[launch]])
    found, ran = _call_of(trace, kernels.correlation[launch]), kernels.start_ns[launch]
    asked = ran if found is None else found[0].start_ns[found[1]]
    for number, window in enumerate(steps.windows, 1):
        if gpu in window.gpus and _holds(window, asked, ran):
            return StepOfLaunch(number, len(steps.windows), window.name)
    return None


def _holds(window: TimeWindow, asked: int, ran: int) -> bool:
    is_marked = (window.cpu_start_ns, window.cpu_end_ns) != (window.start_ns, window.end_ns)
    return window.cpu_start_ns <= (asked if is_marked else ran) < window.cpu_end_ns


def _timed_kernels(trace: Trace) -> SpanTable | None:
    """The spans of kernels where they are the launches of the kernel table, row by row."""
    kernels = trace.spans.get(SpanKind.KERNEL)
    return kernels if kernels is not None and trace.kernels is not None and len(kernels) == len(trace.kernels) else None


def _call_of(trace: Trace, join: int) -> tuple[SpanTable, int] | None:
    """The table and the row of the call that has this join key."""
    for calls in (trace.spans[kind] for kind in API_CALLS if kind in trace.spans) if join >= 0 else ():
        if rows := places_of(calls.correlation, join):
            return calls, rows[-1]
    return None
