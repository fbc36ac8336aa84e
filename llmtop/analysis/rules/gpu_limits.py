"""What the rules on the limit of GPUs at work share: each says which unit leads, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import gpu_names, gpus_where, on_gpus
from llmtop.analysis.rules.needs import lacks_gpu_gauges
from llmtop.frozen import frozen
from llmtop.model import Finding, Metric, Severity, Trace


def _nothing(trace: Trace) -> tuple[str, ...]:
    return ()


@frozen
class GpuLimit:
    """A limit of GPUs at work.

    Attributes:
        name: As a message says it: "compute-bound".
        gauges: How busy units are, in per cent: the one at its limit first.
        is_reached: Whether it is, by the gauges while kernels run, and by the SMs' activity in all of the window (in
            per cent, None where it is not known).
        action: What to do about it.
        evidence: What else the advice rests on.
    """

    name: str
    gauges: tuple[Metric, ...]
    is_reached: Callable[[tuple[float, ...], float | None], bool]
    action: Callable[[Trace], str]
    evidence: Callable[[Trace], tuple[str, ...]] = _nothing


def findings(rule: str, source: str, limit: GpuLimit, trace: Trace) -> Iterator[Finding | Unjudged]:
    """One finding for all GPUs that are at it, or what a verdict lacks."""
    found = gpus_where(trace, limit.gauges, limit.is_reached)
    if found is None:
        yield from unjudged(rule, lacks_gpu_gauges(trace, *limit.gauges))
        return
    busy = (f"{gauge.title} {percent:.0f} %" for gauge, percent in zip(limit.gauges, found.percents, strict=True))
    yield Finding(
        rule=rule,
        severity=Severity.INFO,
        subject=gpu_names(found.tracks),
        message=f"{limit.name}{on_gpus(found.tracks)}: {', '.join(busy)}{found.when}",
        evidence=found.evidence + limit.evidence(trace),
        action=limit.action(trace),
        next_command=profiling.timeline_of_server(trace),
        source=source,
    )
