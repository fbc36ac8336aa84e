"""Steps that take longer than the others of their kind, and what they have more of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.breakdown.breakdown import By, Difference, breakdown
from llmtop.analysis.kernels.breakdown.breakdown_table import why_slow
from llmtop.analysis.kernels.breakdown.step_groups import how_they_come
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.rules import stakes
from llmtop.analysis.timeline.causes import Cause
from llmtop.model import Finding, Stretch, Unknown
from llmtop.units import duration

if TYPE_CHECKING:
    from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, Share, Spread, TimePart
    from llmtop.model import Trace

id = "slow-steps"
summary = "Some steps take longer than the others that do the same."
source = "Iglewicz and Hoaglin, How to Detect and Handle Outliers (modified z-score above 3.5)"

_FOUND_SHARE = 0.02
"""Of the capture; as of idle time."""
_STANDS_OUT = 1.5
"""Times the median step, from which on a step is reported although its share of the capture is small. Ours."""
_LEAST_SHARE = 0.001
"""Of the capture: what is less is worth no finding, however it stands out. Ours."""
_TOLD = 4
"""Steps with a line of their own."""
_AMONG_LONGEST = 0.5
"""Of what the slowest step takes longer, the share from which on others are slow as it is."""
_DOES = {
    Cause.SYNC: "look at what synchronises there alone, and read results a step later",
    Cause.COPY: "look at what is copied there alone; pinned memory and copies that do not block take it off the step",
    Cause.ALLOCATION: "allocate before the first step: a pool, a caching allocator with enough room",
    Cause.LOADING: "warm up before: run every shape once, so that no step loads or compiles code",
    Cause.SLOW_LAUNCH: "warm up before: run every shape once, so that no step loads or compiles code",
    Cause.GRAPH_BUILD: "capture all CUDA graphs before the first step",
    Cause.MIGRATION: "bring the pages of managed memory before the step (cudaMemPrefetchAsync)",
    Cause.OS: "take that call off the launching thread: it is not part of the other steps",
    Cause.DESCHEDULED: "look at why the launching thread is off its CPU there: it blocks, or needs a core of its own",
    Cause.OWN_CODE: "look at what the launching thread runs there alone, and move it to another thread or off the step",
    Cause.QUEUED: "look at what the work waits for there: an event, a host function, another GPU",
    Cause.NO_WORK: "it waits for input: send requests more evenly, or batch those that wait",
}
"""What to do about idle time that other steps do not have."""
_COLLECTIVES = "look at which rank came late there (open the files of all ranks together): a slow one makes all wait"
_LARGER = "it was given more work: look at the batch and the lengths of that step, and split what is larger than others"
_SLOWER = "the same kernels ran longer: look at the GPU's clocks, and at what else ran on it then"
_LOOK = "look at that time on the timeline, beside a step of the median length"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for the steps of each group."""
    found = breakdown(trace, By.STEP)
    if isinstance(found, Unknown):
        return
    for spread in found.spreads:
        slow = [number for number in spread.steps if found.parts[number - 1].is_slow]
        if slow and (at_stake := _at_stake(trace, found, spread, slow)):
            yield _finding(trace, found, spread, slow, at_stake)


def _at_stake(trace: Trace, found: Breakdown, spread: Spread, slow: Sequence[int]) -> float:
    """What slow steps take more than the median one; 0 where that is not worth a finding."""
    walls = [found.parts[number - 1].account.wall_ns for number in slow]
    more = sum(walls) - len(walls) * spread.median_ns
    share = stakes.share(trace, more)
    stands_out = max(walls) >= _STANDS_OUT * spread.median_ns and share >= _LEAST_SHARE
    is_told = share >= _FOUND_SHARE or stands_out
    return more if is_told else 0.0


def _finding(trace: Trace, found: Breakdown, spread: Spread, slow: Sequence[int], at_stake: float) -> Finding:
    parts = sorted(((found.parts[number - 1], number) for number in slow), key=lambda one: -one[0].account.wall_ns)
    worst, _ = parts[0]
    mostly = _mostly([part for part, _ in parts])
    command, no_command = profiling.of_threads(trace)
    return stakes.finding(
        trace,
        at_stake,
        "what they take longer than the median step",
        rule=id,
        subject=how_they_come(slow),
        message=_message(spread, slow, worst, mostly),
        evidence=(
            *(_told(trace, part, number, spread) for part, number in parts[:_TOLD]),
            *_more_of_them(parts),
            *_rhythm(parts, spread),
        ),
        action=_action(worst, mostly, spread),
        next_command=command,
        no_command=no_command,
        source=source,
        place=_stretch(worst),
        times=tuple(_stretch(part) for part, _ in parts),
    )


def _stretch(part: TimePart) -> Stretch:
    return Stretch(part.start_ns, part.start_ns + part.account.wall_ns)


def _message(spread: Spread, slow: Sequence[int], worst: TimePart, mostly: Difference | None) -> str:
    kind = f"{spread.group.title} steps".strip()
    times = worst.account.wall_ns / max(1, spread.median_ns)
    long = f"{duration(worst.account.wall_ns)}, {times:.1f} times the median of {duration(spread.median_ns)}"
    of = f"of {len(spread.steps)} {kind} "
    takes = f"{of}one takes {long}" if len(slow) == 1 else f"{of}{len(slow)} are slow, the slowest takes {long}"
    return f"{takes}{f': mostly {mostly.title}' if mostly else ''}"


def _mostly(parts: Sequence[TimePart]) -> Difference | None:
    """What slow steps have most more of, all of them together, with the name that it has most often."""
    more: Counter[Share] = Counter()
    for part in parts:
        for one in part.more:
            more[one.part] += round(one.ns)
    if not more:
        return None
    ((share, ns),) = more.most_common(1)
    names = Counter(one.name for part in parts for one in part.more if one.part == share)
    return Difference(share, ns, names.most_common(1)[0][0])


def _told(trace: Trace, part: TimePart, number: int, spread: Spread) -> str:
    at = duration(part.start_ns - trace.start_ns)
    return f"{part.name} (#{number}), {duration(part.account.wall_ns)} from {at} on: {why_slow(part, spread)} (nsys)"


def _more_of_them(parts: Sequence[tuple[TimePart, int]]) -> Iterator[str]:
    if len(parts) > _TOLD:
        least, most = (duration(parts[i][0].account.wall_ns) for i in (-1, _TOLD))
        rest = len(parts) - _TOLD
        yield f"{rest} more take {most if rest == 1 or least == most else f'{least} to {most}'}"


def _rhythm(parts: Sequence[tuple[TimePart, int]], spread: Spread) -> Iterator[str]:
    """How the longest of them come, where that is regularly."""
    worst, _ = parts[0]
    least = spread.median_ns + _AMONG_LONGEST * (worst.account.wall_ns - spread.median_ns)
    longest = sorted(number for part, number in parts if part.account.wall_ns >= least)
    come = how_they_come(longest)
    if len(longest) < len(parts) and "every" in come:
        yield f"the {len(longest)} longest come {come}"


def _action(worst: TimePart, mostly: Difference | None, spread: Spread) -> str:
    if mostly is None:
        return _LOOK
    of = mostly.part[1]
    if isinstance(of, Cause):
        return _DOES.get(of, _LOOK)
    if of is KernelFamily.COMMUNICATION:
        return _COLLECTIVES
    kernels = worst.account.kernels
    return _LARGER if kernels is None or kernels > (spread.kernels or 0) else _SLOWER
