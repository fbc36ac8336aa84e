"""Whether times of two reports can be compared, and what they do not have in common beside what was changed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.breakdown.breakdown import By, TimePart, breakdown
from llmtop.analysis.kernels.counters import first
from llmtop.analysis.kernels.nvtx_ranges import in_range
from llmtop.analysis.pages.damage import lost_parts
from llmtop.analysis.pages.diff.kernels import KernelChange, kernel_changes
from llmtop.analysis.pages.diff.match import Likeness
from llmtop.analysis.timeline.work import gpus_at_work
from llmtop.frozen import frozen
from llmtop.model import TrackKind, Unknown
from llmtop.text import listed
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.model import Trace

SM_CLOCK = ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
_NUMBER = re.compile(r"(?:^|\s)(?:GPU|rank) [\d.]+$")
"""How a GPU is called that has no name."""
_SAME_CLOCK = 0.03
_OTHER_CLOCK = 0.1
"""What one GPU's clock hardly moves by with the heat that a kernel makes."""
_NOTABLE = 0.1
"""Of the kernels' time, from which on kernels of another size are worth a word."""
_CLOCKS = 12
"""The longest kernels are asked at which clock they ran."""
_MUST = ("clock-control", "cache-control", "replay-mode", "graph-profiling", "pipeline-boost-state")
"""Options of Nsight Compute that times depend on."""
_CHOICE = (
    "nvtx-include", "nvtx-exclude", "kernel-name", "kernel-id", "kernel-regex", "launch-skip", "launch-count",
    "launch-skip-before-match", "range-filter", "profile-from-start",
)  # fmt: skip
"""Those that choose what is in the report."""
_DEFAULTS = {
    "clock-control": "base", "cache-control": "all", "replay-mode": "kernel", "graph-profiling": "node",
    "pipeline-boost-state": "stable",
}  # fmt: skip
"""What they are where they are not given (Nsight Compute CLI manual)."""
_STEP_KERNELS = 0.2
"""By so much more kernels in a step they are hardly the same steps."""
_OTHER_WORK = math.log(4.0)
"""So far apart not even fusing them explains it: steps that are called otherwise too are other work."""


@frozen
class Caveat:
    """Something that the two reports do not have in common.

    Attributes:
        text: Half a sentence: "they are of other GPUs: A100 and H100".
        is_grave: Whether times mean nothing beside each other.
        leaves_nothing: Whether not even what was measured says which is faster.
    """

    text: str
    is_grave: bool = False
    leaves_nothing: bool = False


@lru_cache(maxsize=8)
def caveats(before: Side, after: Side) -> tuple[Caveat, ...]:
    """All of them, the gravest first."""
    found = [one for ask in _ASKED for one in ask(before, after)]
    return tuple(sorted(found, key=lambda one: (not one.leaves_nothing, not one.is_grave)))


def are_comparable(before: Side, after: Side) -> bool:
    """Whether times of the two mean something beside each other."""
    return not any(one.is_grave for one in caveats(before, after))


@lru_cache(maxsize=8)
def is_whole(side: Side) -> bool:
    """Whether what a report does not have was not there: of one that is damaged nothing is known of it."""
    return not lost_parts(side.trace)


def _gpu(before: Side, after: Side) -> Iterator[Caveat]:
    names = [_gpu_name(side.trace) for side in (before, after)]
    if all(names) and names[0] != names[1]:
        yield Caveat(f"they are of other GPUs: {names[0]} and {names[1]}", is_grave=True)
    elif any(names) and not all(names):
        title = _title(before, "baseline") if not names[0] else _title(after, "other")
        yield Caveat(f"{title} does not name its GPU, which may be another one than {names[0] or names[1]}")
    counts = [len(gpus_at_work(side.trace)) for side in (before, after)]
    if all(counts) and counts[0] != counts[1]:
        yield Caveat(f"they are of {counts[0]} and {counts[1]} GPUs", is_grave=True)


def _gpu_name(trace: Trace) -> str:
    """Of all of its GPUs; empty where they have numbers alone."""
    names = (track.name for track in trace.tracks_of(TrackKind.GPU) if not _NUMBER.search(track.name))
    return trace.origin.gpu or ", ".join(sorted(dict.fromkeys(names)))


def _title(side: Side, which: str) -> str:
    """What to call a report: which it is, and its file."""
    return f"the {which} {PurePath(side.trace.origin.path).name}".strip()


def _tool(before: Side, after: Side) -> Iterator[Caveat]:
    mine, theirs = before.trace.origin, after.trace.origin
    if mine.is_ncu != theirs.is_ncu:
        yield Caveat(
            "Nsight Compute runs each kernel alone, at a clock and with caches of its own choice, and the other is a "
            "timeline of the program as it ran",
            is_grave=True,
        )
    elif mine.kind.partition("-")[0] != theirs.kind.partition("-")[0]:
        yield Caveat(f"{mine.kind} and {theirs.kind} slow a program down differently")
    elif mine.is_ncu and mine.tool_version.split(" ")[0] != theirs.tool_version.split(" ")[0]:
        versions = (one.tool_version.split(" ")[0] or "unknown" for one in (mine, theirs))
        yield Caveat(f"versions {listed(versions)} of the profiler may count a metric differently")


def _options(before: Side, after: Side) -> Iterator[Caveat]:
    """What Nsight Compute was told."""
    if not (before.trace.origin.is_ncu and after.trace.origin.is_ncu):
        return
    told = [_told(side.trace) for side in (before, after)]
    for name in (*_MUST, *_CHOICE):
        mine, theirs = (one.get(name, _DEFAULTS.get(name, "")) for one in told)
        if mine != theirs and all(told):
            said = f"{mine or 'not given'} in the baseline and {theirs or 'not given'} in the other"
            yield Caveat(f"--{name} is {said}", is_grave=name in _MUST)


def _told(trace: Trace) -> dict[str, str]:
    """Options by name; where the report does not say how it was made, none."""
    command = profiling.ncu_command(trace)
    return {option.name: option.value or "given" for option in command.options} | (
        {"program": command.program} if command.program else {}
    )


def _clock(before: Side, after: Side) -> Iterator[Caveat]:
    """At which clock the same kernels ran, by their time: of short ones it is counted badly."""
    asked = [one for one in kernel_changes(before, after) if one.is_in_both][:_CLOCKS]
    clocks = [
        (ns, mine, theirs)
        for one in asked
        if one.before is not None and one.after is not None
        and (mine := first(before.kernels.metrics(one.before.launch), SM_CLOCK))
        and (theirs := first(after.kernels.metrics(one.after.launch), SM_CLOCK))
        and (ns := min(one.before.total_ns, one.after.total_ns))
    ]  # fmt: skip
    if not clocks:
        return
    whole = math.fsum(ns for ns, _, _ in clocks)
    means = [math.fsum(part[0] * part[i] for part in clocks) / whole for i in (1, 2)]
    apart = abs(math.log(means[1] / means[0]))
    if apart > _SAME_CLOCK:
        baseline, other = (quantity(clock, "Hz") for clock in means)
        said = f"{baseline} in the baseline and {other} in the other"
        remedy = "the same --clock-control, or clocks that are locked, make them comparable"
        yield Caveat(f"the SMs ran at {said}: {remedy}", is_grave=apart > _OTHER_CLOCK)


def _sections(before: Side, after: Side) -> Iterator[Caveat]:
    """What was collected of kernels."""
    details = [None if side.kernels.table.details is None else side.kernels.table.details for side in (before, after)]
    if details[0] is None or details[1] is None or not (before.rows and after.rows):
        return
    mine, theirs = (
        set(one.sections(side.rows[0].launches[0]))
        for one, side in zip(details, (before, after), strict=True)
        if one is not None
    )
    only = ((mine - theirs, "baseline"), (theirs - mine, "other"))
    parts = [f"{listed(sorted(which))} only in the {side}" for which, side in only if which]
    if parts:
        yield Caveat(f"other sections were collected: {'; '.join(parts)}")


def _sizes(before: Side, after: Side) -> Iterator[Caveat]:
    """Kernels that ran with other grids or blocks: another size of the problem, or another tiling."""
    changes = kernel_changes(before, after)
    both = [one for one in changes if one.is_in_both]
    other = [one for one in both if one.likeness is Likeness.NAME]
    share = _time(other) / (_time(both) or 1.0)
    if other and share >= _NOTABLE:
        number = f"{len(other)} kernels" if len(other) > 1 else other[0].name
        yield Caveat(f"{number} ran with another grid or block, {percent(100 * share)} of the time: the same work?")
    if not both and changes:
        yield Caveat("no kernel is in both", is_grave=True, leaves_nothing=True)


def _time(changes: Sequence[KernelChange]) -> float:
    return math.fsum(one.before.total_ns for one in changes if one.before is not None)


def _ranges(before: Side, after: Side) -> Iterator[Caveat]:
    mine, theirs = in_range(before.trace), in_range(after.trace)
    if mine != theirs:
        yield Caveat(f"they are of other ranges: {mine or 'all'} and {theirs or 'all'}")


def _steps(before: Side, after: Side) -> Iterator[Caveat]:
    """Steps that nothing marks may be cut at another place, or be several in one; and be of several kinds."""
    if before.steps is None or after.steps is None:
        return
    kinds = [{part.group.title or "of one kind" for part in _all_steps(side)} for side in (before, after)]
    kernels = [math.fsum(row.calls for row in side.rows) / side.units for side in (before, after)]
    apart = abs(math.log(kernels[1] / kernels[0])) if all(kernels) else 0.0
    if kinds[0] != kinds[1]:
        said = " in the baseline and ".join(", ".join(sorted(several)) for several in kinds)
        compared = f"those of {before.steps.kind}" if before.steps.kind else "all"
        is_other_work = kinds[0].isdisjoint(kinds[1]) and apart > _OTHER_WORK
        yield Caveat(f"steps are {said} in the other, and {compared} are compared", is_grave=is_other_work)
    if apart > _STEP_KERNELS:
        yield Caveat(
            f"a step has {kernels[0]:.0f} kernels in the baseline and {kernels[1]:.0f} in the other: if nothing was "
            "fused or captured in a graph, mark steps with NVTX ranges"
        )


def _all_steps(side: Side) -> Sequence[TimePart]:
    found = breakdown(side.trace, By.STEP)
    return () if isinstance(found, Unknown) else found.parts


def _damage(before: Side, after: Side) -> Iterator[Caveat]:
    for side, name in ((before, "baseline"), (after, "other")):
        said = (f"{_title(side, name)} is damaged: {message}" for message in lost_parts(side.trace))
        yield from (Caveat(one, is_grave=True, leaves_nothing=True) for one in said)


_ASKED: tuple[Callable[[Side, Side], Iterator[Caveat]], ...] = (
    _damage, _gpu, _tool, _ranges, _clock, _options, _sizes, _steps, _sections,
)  # fmt: skip
"""Each says what it finds; what is grave is sorted first."""
