"""The time of a timeline's GPUs step by step, by NVTX range, by stream, or by GPU, and which steps are slow and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from llmtop import ids, whats
from llmtop.analysis.kernels.breakdown.accounts import TimeAccount, account_of, gpu_times, stream_times
from llmtop.analysis.kernels.breakdown.ranks import RankMeeting, meetings
from llmtop.analysis.kernels.breakdown.step_groups import ALIKE, StepGroup, step_groups
from llmtop.analysis.kernels.breakdown.step_phases import step_phases
from llmtop.analysis.kernels.breakdown.within import RangeTimes, range_times
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.timeline.account import idle_account, idle_pieces
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.analysis.timeline.causes import TITLES, Cause
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.ranges import TimeWindow, begun_on, demands, windows_by_name
from llmtop.analysis.timeline.steps import StepPhase, find_steps
from llmtop.analysis.timeline.work import gpu_title
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.model import ClockFit, Trace, TrackId


class By(StrEnum):
    """What one row stands for."""

    STEP = "step"
    NVTX = "nvtx"
    STREAM = "stream"
    RANK = "rank"
    """A GPU of a capture, with all that its process made it do."""


Share: TypeAlias = 'tuple[Literal["kernels"], KernelFamily] | tuple[Literal["idle"], Cause]'
"""A part of a step's time: kernels of one family, or idle time of one cause. "copy" is the name of one of either."""


@frozen
class Difference:
    """By how much a step has more of something than the median step, in ns.

    Attributes:
        name: Of idle time, the call or range that has most of it in this step; may be empty.
    """

    part: Share
    ns: float
    name: str = ""

    @property
    def title(self) -> str:
        """What it is: "GEMM kernels", "idle: synchronisation (cudaStreamSynchronize)"."""
        if self.part[0] == "kernels":
            return f"{self.part[1]} kernels"
        return f"idle: {TITLES[self.part[1]]}{f' ({self.name})' if self.name else ''}"


@frozen
class TimePart:
    """One row.

    Attributes:
        name: Of the step or range in full, or of the stream or GPU; `owner` is that of the thread or process whose it
            is.
        times: How many stretches of time it is of.
        start_ns: When the first began.
        cpu_ns: How long the range itself was open on the CPU; None of what is no range.
        longest_ns: The longest stretch.
        phase: Of steps.
        alone_ns: Of a stream, the time in which no other stream of its GPU is at work.
        met: Of a GPU that communicates, how it comes to operations in which several meet.
        clock: Of a rank whose file is not the first, how its clock was brought onto that one's.
        group: Of steps, which of the others do the same.
        is_slow: Whether a step is an outlier among those of its group; `more` is what it has more of than the median
            one, the largest first.
    """

    name: str
    owner: str
    times: int
    start_ns: int
    cpu_ns: int | None
    longest_ns: int
    account: TimeAccount
    phase: StepPhase | Unknown | None = None
    alone_ns: int | None = None
    met: RankMeeting | None = None
    clock: ClockFit | Unknown | None = None
    group: StepGroup = ALIKE
    is_slow: bool = False
    more: tuple[Difference, ...] = ()


@frozen
class Spread:
    """How long steps of one group last, in ns.

    Attributes:
        phase: None where it is not told.
        steps: Their numbers among all steps, from 1 on.
        p95_ns, p99_ns: None of fewer steps than it takes for one to lie above: `_FOR_P95`, `_FOR_P99`.
        slow_from_ns: How long one has to be to be an outlier; None where there are too few to tell.
        parts: What the median step has of each part, by itself; likewise `kernels` and `copied`, None where that is not
            known, and `exposed_ns`.
        more: Of long steps beside short ones, what the median one has more of than that of these, the largest first.
    """

    group: StepGroup
    phase: StepPhase | None
    steps: tuple[int, ...]
    median_ns: float
    p95_ns: float | None
    p99_ns: float | None
    longest_ns: float
    slow_from_ns: float | None
    parts: Mapping[Share, float]
    kernels: float | None
    copied: float | None
    exposed_ns: float
    more: tuple[Difference, ...] = ()


@frozen
class Breakdown:
    """All rows: steps by when they begin, else those with the most time first.

    Attributes:
        found: What the rows are, and how they were found.
        sureness: Of steps that nothing marks, how well they repeat, 0 to 1.
        spreads: Of steps by group.
    """

    by: By
    found: str
    parts: tuple[TimePart, ...]
    sureness: float | None = None
    spreads: tuple[Spread, ...] = ()


@lru_cache(maxsize=8)
def breakdown(trace: Trace, by: By, *, each: bool = False, within: str = "") -> Breakdown | Unknown:
    """The rows; why there are none.

    Args:
        trace: Any trace.
        by: What a row is.
        each: NVTX ranges by their full names, not those as one that differ by numbers or addresses only.
        within: The name of ranges to whose time all rows are cut; empty for all of the time.
    """
    if (why := why_no_work(trace)) is not None:
        return why
    times = range_times(trace, within) if within else None
    if isinstance(times, Unknown):
        return times
    found = _rows(trace, by, times, each=each)
    if times is None or isinstance(found, Unknown):
        return found
    if not found.parts:
        return Unknown(f'nothing of it lies in the ranges "{within}"')
    return replace(found, found=f'{found.found}; of each only the time in the ranges "{within}"')


def _rows(trace: Trace, by: By, times: RangeTimes | None, *, each: bool) -> Breakdown | Unknown:
    match by:
        case By.STEP:
            return _by_step(trace, times)
        case By.NVTX:
            return _by_range(trace, times, each=each)
        case By.STREAM:
            return Breakdown(by, "by stream: its time is that of its own work", tuple(_streams(trace, times)))
        case By.RANK:
            return Breakdown(by, f"by {_RANKS if trace.parts else _GPUS}", tuple(_ranks(trace, times)))


def _cut(windows: Sequence[TimeWindow], times: RangeTimes | None) -> Sequence[TimeWindow]:
    """What of stretches of time lies in the ranges that are looked at alone."""
    return windows if times is None else [piece for one in windows for piece in times.cut(one)]


# -- steps ------------------------------------------------------------------------------------------------------------

OUTLYING = 3.5
"""Modified z-score from which on a step is an outlier: 0.6745 (x - median) / median absolute deviation (Iglewicz and
Hoaglin, How to Detect and Handle Outliers)."""
_LONGER = 1.1
"""And by how much it has to be longer than the median: of steps that are all but equal the smallest noise outlies."""
_FEWEST = 5
"""Steps of a phase from which on one of them can be an outlier."""
_TOLD = 5
"""Parts of which it is told that they are longer, the largest first."""
_NOTABLE = 0.05
"""Of what a slow step has more in all, the share from which on a part is worth a word."""
_UNNAMED: Mapping[Share, str] = {}


def _by_step(trace: Trace, times: RangeTimes | None) -> Breakdown | Unknown:
    steps = find_steps(trace)
    if isinstance(steps, Unknown):
        return steps
    cut = [(one, own) for one in steps.windows if (own := _cut([one], times))]
    phases = step_phases(trace, [one for one, _ in cut])
    groups = step_groups([one for one, _ in cut], phases, [sum(own.wall_ns for own in pieces) for _, pieces in cut])
    rows = zip(cut, phases, groups, strict=True)
    made = (replace(_part(trace, one.name, own), phase=phase, group=group) for (one, own), phase, group in rows)
    parts = [replace(part, times=1, longest_ns=part.account.wall_ns) for part in made]
    spreads = _spreads(parts)
    judged = (_judged(part, spreads[part.group]) for part in parts)
    return Breakdown(By.STEP, steps.found, tuple(judged), steps.sureness, tuple(spreads.values()))


def _spreads(parts: Sequence[TimePart]) -> Mapping[StepGroup, Spread]:
    """Of each group, in the order of their first steps."""
    numbers: dict[StepGroup, list[int]] = defaultdict(list)
    for number, part in enumerate(parts, 1):
        numbers[part.group].append(number)
    found = {group: _spread(group, own, [parts[i - 1] for i in own]) for group, own in numbers.items()}
    for group, long in found.items():
        if (shorter := group.shorter) is not None:
            short = found[shorter]
            more = _differences(long.parts, short.parts, long.median_ns - short.median_ns)
            found[group] = replace(long, more=more)
    return found


def shares_of(account: TimeAccount) -> Mapping[Share, int]:
    """All parts of its time: kernels by family, idle time by cause."""
    shares: Counter[Share] = Counter()
    for family, ns in account.families:
        shares["kernels", family] += ns
    for (cause, _), ns in account.idle:
        shares["idle", cause] += ns
    return shares


_FOR_P95, _FOR_P99 = 20, 100
"""Steps from which on the twentieth and the hundredth part of them is one at least: of fewer the longest is told."""


def _spread(group: StepGroup, numbers: Sequence[int], parts: Sequence[TimePart]) -> Spread:
    accounts = [one.account for one in parts]
    walls = sorted(one.wall_ns for one in accounts)
    shares = [shares_of(one) for one in accounts]
    every = dict.fromkeys(share for one in shares for share in one)
    phase = parts[0].phase
    return Spread(
        group=group,
        phase=None if isinstance(phase, Unknown) else phase,
        steps=tuple(numbers),
        median_ns=median(walls),
        p95_ns=quantile(walls, 0.95) if len(walls) >= _FOR_P95 else None,
        p99_ns=quantile(walls, 0.99) if len(walls) >= _FOR_P99 else None,
        longest_ns=walls[-1],
        slow_from_ns=_slow_from(walls) if len(walls) >= _FEWEST else None,
        parts={share: median(one.get(share, 0) for one in shares) for share in every},
        kernels=_middle([one.kernels for one in accounts]),
        copied=_middle([one.copied for one in accounts]),
        exposed_ns=median(one.exposed_ns for one in accounts),
    )


def _middle(values: Sequence[int | None]) -> float | None:
    """The median; None where one of them is not known."""
    known = [one for one in values if one is not None]
    return median(known) if len(known) == len(values) else None


def quantile(ascending: Sequence[float], q: float) -> float:
    """The value below which a share `q` of the values lies, linear between two of them.

    >>> quantile([10, 20, 30], 0.5), quantile([10, 20], 0.95), quantile([7], 0.99)
    (20.0, 19.5, 7.0)
    """
    place = q * (len(ascending) - 1)
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])


def _slow_from(walls: Sequence[float]) -> float:
    """How long a step has to be to be an outlier."""
    middle = median(walls)
    deviation = median(abs(one - middle) for one in walls)
    return max(middle + OUTLYING * deviation / 0.6745, middle * _LONGER)


def _judged(part: TimePart, spread: Spread) -> TimePart:
    """With what it has more of than the median step, if it is slow."""
    if spread.slow_from_ns is None or part.account.wall_ns <= spread.slow_from_ns:
        return part
    names: dict[Share, str] = {("idle", cause): name for (cause, name), _ in reversed(part.account.idle)}
    longer = part.account.wall_ns - spread.median_ns
    return replace(part, is_slow=True, more=_differences(shares_of(part.account), spread.parts, longer, names))


def _differences(
    shares: Mapping[Share, float], usual: Mapping[Share, float], longer: float, names: Mapping[Share, str] = _UNNAMED
) -> tuple[Difference, ...]:
    """What there is more of than usual, as far as that is a notable part of how much longer it is in all."""
    more = [Difference(share, ns - usual.get(share, 0), names.get(share, "")) for share, ns in shares.items()]
    notable = sorted((one for one in more if one.ns >= _NOTABLE * longer), key=lambda one: -one.ns)
    return tuple(notable[:_TOLD])


def _part(trace: Trace, name: str, windows: Sequence[TimeWindow]) -> TimePart:
    owners = dict.fromkeys(_owner(trace, one.thread) for one in windows)
    return TimePart(
        name,
        next(iter(owners)) if len(owners) == 1 else f"{len(owners)} threads",
        len(windows),
        min(one.start_ns for one in windows),
        sum(one.cpu_end_ns - one.cpu_start_ns for one in windows),
        max(one.wall_ns for one in windows),
        account_of(windows, gpu_times(trace), idle_pieces(trace)),
    )


def _owner(trace: Trace, track: TrackId) -> str:
    """What to call the thread or the stream whose a step is."""
    if ids.kind(track) is TrackKind.STREAM:
        return gpu_title(ids.gpu_of(track))
    known = trace.tracks.get(track)
    return known.name if known is not None and known.name else track


# -- ranges, streams, GPUs --------------------------------------------------------------------------------------------


def _by_range(trace: Trace, times: RangeTimes | None, *, each: bool) -> Breakdown | Unknown:
    named = windows_by_name(trace, each=each)
    if not named:
        return trace.why_missing(whats.NVTX) or Unknown("the capture has no NVTX ranges", "add --trace=nvtx")
    parts = [_part(trace, name, own) for name, windows in named.items() if (own := _cut(windows, times))]
    found = (
        f"by {trace.origin.range_term}: each lasts until all that was asked for in it is done; one within another "
        f"counts in both, unless both have one name{_disputed(trace)}"
    )
    return Breakdown(By.NVTX, found, tuple(sorted(parts, key=lambda one: (-one.account.wall_ns, one.name))))


def _disputed(trace: Trace) -> str:
    """What is said of launches that ranges of several threads could hold."""
    if not (count := demands(trace).disputed):
        return ""
    are = "launches are" if count > 1 else "launch is"
    return (
        f". {count} {are} of threads without ranges while several others had one open: each counts in the one "
        "that began last"
    )


_GPUS = "GPU: its time is all of the capture"
_RANKS = "rank: its time is that from the first event of any file to the last of any"


def _ranks(trace: Trace, times: RangeTimes | None) -> Iterator[TimePart]:
    """All of the capture for each GPU, or what of it lies in ranges; who meets whom is told of all of it alone."""
    for gpu in idle_account(trace).gpus:
        begun = begun_on(trace, gpu.gpu).within(gpu.start_ns, gpu.end_ns + 1)
        window = TimeWindow(gpu.gpu, gpu.gpu, (gpu.gpu,), gpu.start_ns, gpu.end_ns, gpu.start_ns, gpu.end_ns, *begun)
        if not (own := _cut([window], times)):
            continue
        part = _part(trace, gpu_title(gpu.gpu), own)
        owner = ", ".join(name.removeprefix(f"{part.name}: ") for name in _processes(trace, gpu.gpu))
        clock = next((one.clock for one in trace.parts[1:] if gpu.gpu in one.gpus), None)
        met = meetings(trace).get(gpu.gpu) if times is None else None
        yield replace(part, owner=owner, cpu_ns=None, met=met, clock=clock)


def _processes(trace: Trace, gpu: TrackId) -> list[str]:
    """The processes that had work on a GPU."""
    streams = (
        track
        for kind in GPU_WORK
        if kind in trace.spans
        for track in trace.spans[kind].tracks
        if ids.gpu_of(track) == gpu and ids.kind(track) is TrackKind.STREAM
    )
    return list(dict.fromkeys(_owner(trace, ids.process_of(track)) for track in streams))


def _streams(trace: Trace, ranges: RangeTimes | None) -> Iterator[TimePart]:
    """Each stream's own work from its first to its last, the longest first."""
    times = stream_times(trace)
    for stream, own in sorted(times.items(), key=lambda one: (-one[1].busy.total, one[0])):
        gpu, busy = ids.gpu_of(stream), own.busy
        start, end = busy.begins[0], busy.closes[-1]
        begun = begun_on(trace, stream).within(start, end + 1)
        cut = _cut([TimeWindow(stream, stream, (stream,), start, end, start, end, *begun)], ranges)
        worked = [length for one in cut for length in busy.lengths_within(one.start_ns, one.end_ns)]
        others = Cover.union(one.busy for track, one in times.items() if ids.gpu_of(track) == gpu and track != stream)
        every = Cover.union([busy, others])
        if worked:
            yield TimePart(
                name=_stream_name(trace, stream),
                owner=gpu_title(gpu),
                times=len(worked),
                start_ns=cut[0].start_ns,
                cpu_ns=None,
                longest_ns=max(worked),
                account=account_of(cut, times),
                alone_ns=sum(every.within(*edges) - others.within(*edges) for edges in map(_edges, cut)),
            )


def _edges(window: TimeWindow) -> tuple[int, int]:
    return window.start_ns, window.end_ns


def _stream_name(trace: Trace, stream: TrackId) -> str:
    known = trace.tracks.get(stream)
    return known.name if known is not None and known.name else stream
