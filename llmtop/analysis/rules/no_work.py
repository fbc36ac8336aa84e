"""Nobody asked for work: the launching thread waited for input, or the program had not begun or had ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle, stakes
from llmtop.analysis.timeline.account import AFTER, BEFORE
from llmtop.analysis.timeline.causes import Cause
from llmtop.model import KINETO, Severity

if TYPE_CHECKING:
    from llmtop.analysis.timeline.account import IdlePart
    from llmtop.model import Finding, Trace

id = "no-work"
summary = "The GPU idles because nobody asks for work."
source = idle.SOURCE

_ACTION = Words(
    pytorch="send more requests at once, if there are more; if requests were waiting meanwhile, the process that hands "
    "them over (scheduler, tokenizer, data loader) is late: profile that one",
    other="give it more to do, if there is more; if work was waiting meanwhile, whoever hands it over (another process "
    "or thread) is late: profile that one",
    training=Words(
        pytorch="whoever hands over batches is late (data loader, another rank): more num_workers and a larger "
        "prefetch_factor, pin_memory=True, or profile that one",
        other="",
    ),
)


_EDGE_SHARE = 0.1
"""Of the capture: every one begins and ends somewhere. Ours."""
_EDGES = (
    "choose a stretch of steady work: what all shares are of is the time from the first CUDA call to the last, the "
    "program's start and end included"
)
_ONLY_IT_KNOWS = "only the program knows where its steady work begins: mark that "
_IN_RANGE = "and add --capture-range=cudaProfilerApi to the command of this capture"
_RECORD_IT = "only the program knows where its steady work begins: record that alone"
_RECORDED = Words(pytorch=f"{_RECORD_IT} (torch.profiler.schedule, prof.step())", other=_RECORD_IT)
_MARKED = Words(
    pytorch=f"{_ONLY_IT_KNOWS}(torch.cuda.profiler), {_IN_RANGE}",
    other=f"{_ONLY_IT_KNOWS}(cudaProfilerStart and cudaProfilerStop), {_IN_RANGE}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """Of the time between works, and of that before the first and after the last where most of it lies there."""
    lost = idle.stake(trace, _is_input)
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"no work was asked for: the launching thread waits for input ({lost.together[0].name})",
            action=_ACTION.of(trace),
            basis="all of this idle time, if there is more work to ask for",
            severity=Severity.INFO,
        )
    yield from _at_the_edges(trace)


def _is_input(part: IdlePart) -> bool:
    return part.cause is Cause.NO_WORK and not _is_edge(part)


def _is_edge(part: IdlePart) -> bool:
    return part.is_start or part.name == AFTER


def _at_the_edges(trace: Trace) -> Iterator[Finding]:
    """Before the first and after the last work, where no other cause takes as much: nothing can be won there."""
    lost = idle.stake(trace, _is_edge, of_start=True)
    if lost is None or stakes.share(trace, lost.worst.ns) < _EDGE_SHARE:
        return
    if any(idle.largest(loss.gpu) is None for loss in lost.named):
        sides = sorted({BEFORE if part.is_start else AFTER for part in lost.worst.details}, reverse=True)
        where = " and ".join(sides)
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"{where}: the program's start or end is in the capture",
            action=_EDGES,
            no_command=(_RECORDED if trace.origin.kind == KINETO else _MARKED).of(trace),
            basis=None,
            severity=Severity.INFO,
        )
