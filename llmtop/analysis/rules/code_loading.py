"""Code is loaded or compiled while the GPU waits for its launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause, cause_of_call
from llmtop.analysis.timeline.host import LAUNCH_GAP_NS
from llmtop.facts import OriginFact
from llmtop.model import SpanKind
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.timeline.account import GpuAccount
    from llmtop.model import Finding, SpanTable, Trace

id = "code-loading"
summary = "The GPU idles while code is loaded or compiled, or in single launches that last."
source = "CUDA C++ Programming Guide (lazy loading: a kernel's code is loaded at its first launch)"


class _When(Enum):
    """When such calls come, by where in the GPU's work their time lies."""

    AT_FIRST = auto()
    AGAIN = auto()
    NOT_TOLD = auto()


_START = 1 / 3
"""Of the time from the GPU's first work to its last: what is at its start alone may be a warm-up. Ours."""
_NO_MORE, _AGAIN = 0.1, 1 / 3
"""Shares of the time in such calls that lie after that start: below the first it is over, from the second on it comes
again. Ours."""
_EAGER = "CUDA_MODULE_LOADING=EAGER loads all code at once"
_SAME_SHAPES = Words(
    pytorch="keep shapes and types the same from step to step, and cache what is compiled (NVRTC, Triton) or captured",
    other="keep sizes and types the same from step to step, and cache what is compiled (NVRTC) or captured",
    directives="have the code of all kernels loaded before the loop",
)
_IF_LAZY = f" ({_EAGER})"
_WARM = f"warm up before what matters{_IF_LAZY}, and leave the warm-up out of the capture"
_LATER = "later ones wait for a lock (other threads that call CUDA) or for a CPU (--cpuctxsw=process-tree tells)"
_LOADING = frozenset({Cause.LOADING, Cause.GRAPH_BUILD})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause in _LOADING or part.cause is Cause.SLOW_LAUNCH)
    if lost is not None:
        loading_ns = sum(part.ns for part in lost.together if part.cause in _LOADING)
        is_loading = 2 * loading_ns >= sum(part.ns for part in lost.together)
        late = _late_share(trace, lost.worst.gpu)
        message = (
            "code is loaded, compiled or captured while the GPU waits"
            if is_loading
            else f"single launch calls last longer than {duration(LAUNCH_GAP_NS)}"
        )
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=message,
            evidence=_evidence(late),
            action=(_of_loading if is_loading else _of_launches)(trace, _when(late)).replace(_IF_LAZY, _if_lazy(trace)),
            source=source,
        )


def _if_lazy(trace: Trace) -> str:
    """The setting that loads code at once, where the program does not have it."""
    return "" if str(trace.origin.facts.get(OriginFact.MODULE_LOADING)).upper() == "EAGER" else _IF_LAZY


def _of_loading(trace: Trace, when: _When) -> str:
    again = _SAME_SHAPES.of(trace)
    return {
        _When.AT_FIRST: f"{_WARM}: it ends after the start",
        _When.AGAIN: f"{again}: it comes again and again, so that no warm-up takes it away",
        _When.NOT_TOLD: f"where it is the first use of each kernel, {_WARM}; where it comes at every step, {again}",
    }[when]


def _of_launches(trace: Trace, when: _When) -> str:
    first = "the first launch of a kernel loads its code"
    return {
        _When.AT_FIRST: f"{first}: {_WARM}",
        _When.AGAIN: f"they come again and again, so that it is no loading at first use: {_LATER}",
        _When.NOT_TOLD: f"{first}: if these are the first, {_WARM}; {_LATER}",
    }[when]


def _when(late: float | None) -> _When:
    if late is None or _NO_MORE <= late < _AGAIN:
        return _When.NOT_TOLD
    return _When.AT_FIRST if late < _NO_MORE else _When.AGAIN


def _evidence(late: float | None) -> Iterator[str]:
    if late is not None:
        yield f"{percent(100 * late)} of the time in such calls comes after the first third of the GPU's work (nsys)"


def _late_share(trace: Trace, gpu: GpuAccount) -> float | None:
    """Of the time in such calls, what begins after the start of the GPU's work; None without any."""
    start_ns = gpu.first_ns + _START * (gpu.last_ns - gpu.first_ns)
    early = late = 0
    for since, ns in _calls(trace):
        early, late = (early + ns, late) if since < start_ns else (early, late + ns)
    return late / (early + late) if early + late else None


def _calls(trace: Trace) -> Iterator[tuple[int, int]]:
    """(start, length) of the calls that load, compile or capture, and of launches that last, in ns."""
    calls, launches = trace.spans.get(SpanKind.CALL), trace.spans.get(SpanKind.LAUNCH)
    if calls is not None:
        yield from _of_names(calls, [cause_of_call(name) in _LOADING for name in calls.names])
    if launches is not None:
        alone = _of_names(launches, ["Graph" not in name for name in launches.names])
        yield from ((start, ns) for start, ns in alone if ns > LAUNCH_GAP_NS)


def _of_names(spans: SpanTable, are_wanted: Sequence[bool]) -> Iterator[tuple[int, int]]:
    for name_id, start, end in zip(spans.name_id, spans.start_ns, spans.end_ns, strict=True):
        if are_wanted[name_id]:
            yield start, end - start
