"""The model of a PyTorch trace runs on the CPU, all of it or its matrix work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import stakes
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.work import gpus_at_work
from llmtop.model import KINETO, Finding, Severity, SpanKind
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.threads.functions import FunctionShare
    from llmtop.model import Trace

id = "operators-on-cpu"
summary = "Operators compute on the CPU: the model, or its inputs, are not on the GPU."
source = "PyTorch documentation, CUDA semantics (operators run where their tensors are)"

_NOTABLE_SHARE = 0.2
"""Of the capture, that operators compute on the CPU. Ours."""
_OF_CPUS = re.compile(r"mkldnn|onednn|(?:^|::|_)mkl(?:_|$)|_cpu(?:_|$)")
"""Operators that there are for CPUs alone, by their names."""
_OPERATOR = re.compile(r"^\w+::")
_SHOWN = 3
_ACTION = (
    "move the model and its inputs to the GPU (model.to('cuda'), tensor.to('cuda')); with device_map or offloaded "
    "layers, see which stay on the CPU"
)


def check(trace: Trace) -> Iterator[Finding]:
    """Where nothing was launched although CUDA was recorded, of all operators; else of those for CPUs alone."""
    if trace.origin.kind != KINETO or SpanKind.OPERATOR not in trace.spans:
        return
    is_idle = not gpus_at_work(trace) and SpanKind.LAUNCH not in trace.spans and SpanKind.CALL in trace.spans
    pattern = _OPERATOR if is_idle else _OF_CPUS
    own = [one for each in functions(trace) if each.unit == "ns" for one in each.shares if pattern.search(one.name)]
    computed_ns = sum(one.own for one in own)
    share = stakes.share(trace, computed_ns)
    if share >= _NOTABLE_SHARE:
        yield _finding(trace, own, computed_ns, is_idle=is_idle)


def _finding(trace: Trace, own: list[FunctionShare], computed_ns: float, *, is_idle: bool) -> Finding:
    of = percent(100 * stakes.share(trace, computed_ns))
    what = "the model runs" if is_idle else "part of the model runs"
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject="the CPU",
        message=f"{what} on the CPU: operators compute {duration(computed_ns)} there, {of} of the capture",
        evidence=(
            *(f"{one.name}: {duration(one.own)} by itself (PyTorch's profiler)" for one in own[:_SHOWN]),
            *(("CUDA calls were recorded, and none of them launches anything (PyTorch's profiler)",) * is_idle),
            *((f"the machine has {trace.origin.gpu}",) if trace.origin.gpu else ()),
        ),
        action=_ACTION,
        no_command="the trace has each operator: record again once it runs on the GPU",
        source=source,
        at_stake_ns=computed_ns,
    )
