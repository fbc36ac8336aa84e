"""One launch as a person reads it: how near the machine's limits, what it waits for, what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.bounds import Verdict
from llmtop.analysis.kernels.counters import Counters, first
from llmtop.analysis.kernels.elsewhere import Elsewhere, elsewhere
from llmtop.analysis.kernels.in_time import launch_stretch
from llmtop.analysis.kernels.lacking import missing_of_launch
from llmtop.analysis.kernels.occupancy import Occupancy, occupancy
from llmtop.analysis.kernels.stalls import Stalls
from llmtop.analysis.kernels.table import Dim3, KernelFacts, Kernels, dram_point, kernels_of, roofline_view
from llmtop.analysis.pages.launch_call import LaunchCall, StepOfLaunch, launch_call, step_of_launch
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.collectives import collectives, speed_text
from llmtop.analysis.views import RooflinePoint, RooflineView
from llmtop.frozen import frozen
from llmtop.model import Finding, RuleResult, Trace, Unknown

_LEVELS = (
    ("compute", (c.COMPUTE_PERCENT,)),
    ("memory", c.MEMORY_PERCENT),
    ("DRAM", c.DRAM_PERCENT),
    ("L2", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",)),
    (
        "L1",
        (
            "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
            "l1tex__throughput.avg.pct_of_peak_sustained_active",
        ),
    ),
    ("tensor", c.TENSOR_PERCENT),
)
_ADVICE = ("optimization", "warning", "error")


@frozen
class ToolAdvice:
    """What one of the tool's own rules says of the launch.

    Attributes:
        worth: The rule's estimate of the time saved, in %; None where it gives none.
        is_local: Whether that is of the part it looks at, not of the whole kernel.
    """

    title: str
    message: str
    worth: float | None
    is_local: bool


@frozen
class LaunchBeside:
    """A launch beside that of a baseline.

    Attributes:
        launch: The one of the baseline that stands for all of its calls of the kernel; None where it has none.
        said: What differs, in a sentence.
    """

    launch: int | None
    said: str


@frozen
class LaunchView:
    """All that is known of one launch but its single counters.

    Attributes:
        short: What lists call the kernel; `name` in full.
        share: Of all kernels' time, 0 to 1; None without times.
        since_ns: When it began, counted from the begin of the capture; None where the capture has no times.
        levels: (what, % of its peak), compute and memory first; only what was collected.
        estimated_occupancy: % as PyTorch's profiler computes it, not measured; None where it does not.
        point: Its place against DRAM; `roofline` has it at every memory level that was collected.
        findings: Those of llmtop's rules about this kernel.
        command: Collects of this launch what the capture lacks; empty where it lacks nothing, or `no_command` says why.
        elsewhere: The same kernel in other reports.
        sent: What it exchanges with other ranks and how fast, in a sentence; empty of other kernels.
        beside: What differs from a baseline, where there is one.
        call: What launched it; None of a report without a timeline.
        step: In which it was launched; None where there are no steps, or it is in none.
        note: What the user wrote of it; empty where nothing.
    """

    launch: int
    launches: int
    short: str
    name: str
    duration_ns: float | Unknown
    since_ns: int | None
    share: float | None
    grid: Dim3
    block: Dim3
    facts: KernelFacts
    levels: tuple[tuple[str, float], ...]
    occupancy: Occupancy
    estimated_occupancy: int | None
    point: RooflinePoint | Unknown
    roofline: RooflineView
    findings: tuple[Finding, ...]
    advice: tuple[ToolAdvice, ...]
    ranges: tuple[str, ...]
    command: str
    no_command: str
    elsewhere: tuple[Elsewhere, ...]
    sent: str = ""
    beside: LaunchBeside | None = None
    call: LaunchCall | Unknown | None = None
    step: StepOfLaunch | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict | Unknown:
        """What limits it."""
        return self.facts.bound

    @property
    def stalls(self) -> Stalls | Unknown:
        """What its warps wait for."""
        return self.facts.stalls


def launch_view(trace: Trace, launch: int, reports: Sequence[tuple[str, Trace]] = ()) -> LaunchView:
    """Gather what a report says of a launch. Runs all rules: what they say of the kernel is part of it.

    Args:
        trace: A report with kernels.
        launch: Counted from 0.
        reports: Those that are open, with what they are called, in which the kernel is looked for too.
    """
    kernels = kernels_of(trace)
    facts, metrics, details = kernels.facts(launch), kernels.metrics(launch), kernels.table.details
    ns, short = kernels.table.duration_ns[launch], kernels.short_name(launch)
    share, when = kernels.share(ns), launch_stretch(trace, launch)
    (command, no_command), call = missing_of_launch(trace, launch), launch_call(trace, launch)
    return LaunchView(
        launch=launch,
        launches=len(kernels.table),
        short=short,
        name=kernels.table.name(launch),
        since_ns=None if isinstance(when, Unknown) else when.start_ns - trace.start_ns,
        duration_ns=ns if ns == ns else c.not_collected("duration", c.SPEED_OF_LIGHT),
        share=share,
        grid=kernels.grid(launch),
        block=kernels.block(launch),
        facts=facts,
        levels=tuple(_levels(metrics)),
        estimated_occupancy=_estimated(kernels.table.estimated_occupancy, launch),
        occupancy=_occupancy(kernels, metrics),
        point=dram_point(facts.roofline, short, share or 0.0),
        roofline=roofline_view(trace, launch),
        findings=_findings_of(trace, kernels, launch),
        advice=() if details is None else tuple(_advice(details.rules(launch))),
        ranges=_ranges(call) if details is None else details.ranges(launch),
        command=command,
        no_command=no_command,
        elsewhere=elsewhere(trace, launch, reports),
        sent=_sent(trace, launch, ns),
        call=call,
        step=step_of_launch(trace, launch),
        note=trace.notes.kernels.get(kernels.table.name(launch), ""),
    )


def _occupancy(kernels: Kernels, metrics: Counters) -> Occupancy:
    why = kernels.no_counters
    return Occupancy(why, why, ()) if kernels.table.details is None else occupancy(metrics)


def _ranges(call: LaunchCall | Unknown | None) -> tuple[str, ...]:
    return call.ranges if isinstance(call, LaunchCall) else ()


def _sent(trace: Trace, launch: int, ns: float) -> str:
    sent = collectives(trace).get(launch)
    return "" if sent is None or ns != ns else f"{sent.title}: {speed_text(sent, [round(ns)])}"


def _estimated(column: Sequence[int], launch: int) -> int | None:
    """A kernel that runs has a warp somewhere: an occupancy of 0 is one that the profiler did not compute."""
    return column[launch] if column and column[launch] > 0 else None


def _levels(metrics: Counters) -> Iterator[tuple[str, float]]:
    for what, names in _LEVELS:
        value = first(metrics, names)
        if value is not None:
            yield what, value


def _findings_of(trace: Trace, kernels: Kernels, launch: int) -> tuple[Finding, ...]:
    short = kernels.short_name(launch)
    return tuple(finding for finding in diagnose(trace).findings if short in (finding.subject, *finding.parts))


def _advice(rules: Sequence[RuleResult]) -> Iterator[ToolAdvice]:
    """What is advice, by what it may be worth: estimates of the whole kernel before those of a part."""
    said = [(rule, message) for rule in rules for severity, message in rule.titled if severity in _ADVICE]
    for rule, message in sorted(said, key=lambda pair: _worth(pair[0]), reverse=True):
        is_whole, worth = _worth(rule)
        yield ToolAdvice(rule.name or rule.id, message, worth if rule.speedups else None, not is_whole)


def _worth(rule: RuleResult) -> tuple[bool, float]:
    return max(((kind == "global", percent) for kind, percent in rule.speedups), default=(False, 0.0))
