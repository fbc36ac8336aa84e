"""The GPU waits for launches: the CPU cannot feed it fast enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import COMPILED, Program, Words, program_of
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import is_for_another
from llmtop.model import Severity
from llmtop.units import count, percent

if TYPE_CHECKING:
    from llmtop.analysis.timeline.account import GpuAccount, IdlePart
    from llmtop.model import Finding, Trace

id = "launch-gaps"
summary = "The GPU idles because kernels are launched one by one, more slowly than they end."
source = "Machine Learning Systems, Performance Engineering (launch gaps above 10 %: CUDA graphs first)"

_FEWEST_WORKS = 50
"""With fewer, a capture shows no steady state: information at most."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for the launches outside of graphs."""
    lost = idle.stake(trace, _is_launching)
    if lost is not None:
        is_steady = lost.worst.gpu.works >= _FEWEST_WORKS
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message="kernels are launched one by one, later than the GPU is ready for them",
            evidence=_evidence(lost.worst.gpu),
            action=_action(trace, lost.worst),
            severity=None if is_steady else Severity.INFO,
            source=source,
        )


def _is_launching(part: IdlePart) -> bool:
    return idle.culprit(part) is Cause.LAUNCH and not part.before_graph


def _evidence(gpu: GpuAccount) -> Iterator[str]:
    if gpu.works < _FEWEST_WORKS:
        yield f"{count(gpu.works)} kernels and copies in all: a start, and no steady state"
    if gpu.joined_ns:
        late, gaps = percent(100 * gpu.late_ns / gpu.joined_ns), f"{count(gpu.short)} short gaps"
        yield f"in {late} of the time of {gaps} the next work was not launched yet: the CPU is late"
    if gpu.graph_works:
        inside = f"{count(gpu.graph_works)} of {count(gpu.works)}"
        yield f"{inside} kernels and copies come from {count(gpu.graph_launches)} graph launches, and cost none of this"


_CORE = "; if the launching thread waits for a core, give it one"
_ASYNC = f"queue launches ahead of the GPU (async clauses; OpenMP: nowait), fuse loops into fewer constructs{_CORE}"
_FEWER = Words(
    pytorch=f"fuse small kernels (torch.compile), batch more{_CORE}",
    compiled=f"fuse small kernels ({COMPILED}), batch more{_CORE}",
    directives=_ASYNC,
    other=f"fuse small kernels, give each launch more work{_CORE}",
)
_GRAPH = "capture the step as a CUDA graph"
_AS_GRAPH = Words(
    pytorch=f"{_GRAPH} (vLLM: without --enforce-eager), ",
    other=f"{_GRAPH} (cudaStreamBeginCapture), ",
    training=Words(pytorch=f"{_GRAPH} (torch.cuda.make_graphed_callables), ", other=""),
)


def _action(trace: Trace, lost: idle.Loss) -> str:
    fewer = _FEWER.of(trace)
    if 2 * _elsewhere_ns(lost) > lost.ns:
        return f"its thread launches for other GPUs meanwhile: give each GPU a thread or a process of its own; {fewer}"
    if lost.gpu.graph_works:
        return f"take the kernels that are launched one by one into the CUDA graph of the step, or {fewer}"
    return fewer if program_of(trace) is Program.DIRECTIVES else f"{_AS_GRAPH.of(trace)}{fewer}"


def _elsewhere_ns(lost: idle.Loss) -> int:
    """The time that went into launches for other GPUs."""
    return sum(part.ns for part in lost.parts if is_for_another(part.name, lost.gpu.gpu))
