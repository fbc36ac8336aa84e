"""The steps of a program on a timeline: by the marks of a profiler, by NVTX ranges that recur, or by what repeats.

Nothing is guessed: how steps were found, and how surely, is said with them; where nothing shows them there are none.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain, pairwise
from statistics import median
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.analysis.timeline.ranges import (
    Range,
    TimeWindow,
    begun_on,
    demands,
    outermost,
    ranges_by_thread,
    windows,
)
from llmtop.analysis.timeline.work import work_by_gpu
from llmtop.frozen import frozen
from llmtop.model import KINETO, SpanKind, Unknown
from llmtop.text import is_operator, range_name
from llmtop.units import percent

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

FEWEST = 3
"""Times that something has to recur before it is taken for a step; ranges that say prefill or decode need not."""
COVERED = 0.5
"""Of the works that a thread asked for, the share that its steps have to hold."""
_NEAR = 0.1
"""Repetitions differ in length by no more than this share of the middle one."""
_REGULAR = 0.8
"""The share of repetitions that have to be so near."""
_AS_GOOD = 0.995
"""A shorter period is taken where it repeats as well as the best one but for this."""
_LONGER = 3
"""Times the middle pause between kernels, from which on one before a repetition is that between two passes. Ours."""
_BRIEF_NS = 2000
"""What the GPU takes from one kernel to the next by itself: less is no pause."""
_TOGETHER = (1, 2, 4, 8, 16)
"""How many kernels together tell where a step begins; the fewest that do."""
_FOLLOWING = 4
"""Kernels that have to follow each other in both of two repetitions: what comes in no order has few such runs."""
_NAMED = 3
"""Phases that are named."""
_IN_TURN = 4
"""Names of ranges that come by turns, at most: with more they are parts of a step."""
_AS_OFTEN = 0.5
"""Of how often the most frequent of these come, the share in which all of them do."""
_FEWEST_WORKS = 2
"""A range with less work in it is that of an operation, not of a step."""
_MARK = re.compile(r"^(?:.*:)?ProfilerStep#\d+$")
_PREFILL = re.compile(r"prefill|extend|context(?!_?(?:manager|switch))|prompt", re.IGNORECASE)
_COUNTED = re.compile(r"context_(\d+)\(.*_generation_(\d+)\(")
"""As vLLM names the range of a step: the number of requests in each phase, and their tokens."""
_DECODE = re.compile(r"decod(?:e|ing)|generation|generate_token", re.IGNORECASE)


class StepPhase(StrEnum):
    """What a step of a language model does."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "prefill and decode"


@frozen
class Steps:
    """The steps of a trace, by when they begin.

    Attributes:
        found: How they were found, as a sentence without its full stop.
        sureness: How well they repeat, 0 to 1; None where the program itself marks them.
    """

    windows: tuple[TimeWindow, ...]
    found: str
    sureness: float | None = None


@lru_cache(maxsize=2)
def find_steps(trace: Trace) -> Steps | Unknown:
    """The steps: those that are marked, else those of an NVTX range that recurs, else what kernels repeat."""
    if (why := why_no_work(trace)) is not None:
        return why
    by_thread = ranges_by_thread(trace)
    return _marked(trace, by_thread) or _recurring(trace, by_thread) or _repeated(trace) or _NOT_FOUND


_NOT_FOUND = Unknown(
    "no range recurs over the GPU work, and its kernels do not repeat",
    "mark each step: for nsys by torch.cuda.nvtx.range or nvtxRangePush and --trace=cuda,nvtx, for PyTorch's profiler "
    "with its step()",
)


def phase_of_name(name: str) -> StepPhase | None:
    """What the name of a range says that a step does.

    >>> str(phase_of_name("decode bs=8")), phase_of_name("step 12"), str(phase_of_name("prefill+decode"))
    ('decode', None, 'prefill and decode')
    >>> str(phase_of_name("execute_context_0(0)_generation_8(8)"))
    'decode'
    """
    counted = _COUNTED.search(name)
    is_prefill, is_decode = (
        (int(counted[1]) > 0, int(counted[2]) > 0)
        if counted
        else (bool(_PREFILL.search(name)), bool(_DECODE.search(name)))
    )
    return _phase(is_prefill=is_prefill, is_decode=is_decode)


def together(phases: Iterable[StepPhase]) -> StepPhase | None:
    """What a step does in which these are done."""
    done = set(phases)
    mixed = StepPhase.MIXED in done
    return _phase(is_prefill=mixed or StepPhase.PREFILL in done, is_decode=mixed or StepPhase.DECODE in done)


def _phase(*, is_prefill: bool, is_decode: bool) -> StepPhase | None:
    if is_prefill and is_decode:
        return StepPhase.MIXED
    return StepPhase.PREFILL if is_prefill else StepPhase.DECODE if is_decode else None


# -- marks and ranges -------------------------------------------------------------------------------------------------


def _marked(trace: Trace, by_thread: Mapping[TrackId, Sequence[Range]]) -> Steps | None:
    marks = [one for ranges in by_thread.values() for one in ranges if _MARK.match(one.name)]
    if not marks:
        return None
    return _steps(trace, marks, "by the profiler's step marks (ProfilerStep#N)")


def _steps(trace: Trace, ranges: Sequence[Range], found: str) -> Steps:
    made = windows(trace, ranges)
    return Steps(tuple(sorted(made, key=lambda one: (one.start_ns, one.end_ns))), found)


@frozen
class _StepCandidate:
    """Ranges that may be the steps of one thread.

    Attributes:
        covered: The share of the works of its thread that was asked for in them.
        regular: How alike the times between their beginnings are: 1 where all are the same.
        works: How many works were asked for in the middle one.
    """

    title: str
    ranges: tuple[Range, ...]
    covered: float
    regular: float
    works: float


def _recurring(trace: Trace, by_thread: Mapping[TrackId, Sequence[Range]]) -> Steps | None:
    """Of each thread the ranges that recur most regularly over most of its GPU work."""
    best = [one for ranges in by_thread.values() if (one := _best(trace, ranges)) is not None]
    if not best:
        return None
    titles = ", ".join(dict.fromkeys(one.title for one in best))
    covered = min(one.covered for one in best)
    found = (
        f"by the {trace.origin.range_term}s {titles}, in which {percent(100 * covered)} of the GPU's work was asked for"
    )
    return _steps(trace, [one for candidate in best for one in candidate.ranges], found)


def _best(trace: Trace, ranges: Sequence[Range]) -> _StepCandidate | None:
    """Most of the work counts first, in tenths; then how regular they are, and of ranges as good the outer ones."""
    asked = demands(trace).of(ranges[0].thread).asked
    named = _alike(ranges).items()
    enough_of = ((title, alike) for title, alike in named if len(alike) >= FEWEST or phase_of_name(alike[0].name))
    candidates = [_candidate(title, alike, asked) for title, alike in enough_of]
    enough = [one for one in candidates if one.covered >= COVERED and one.works >= _FEWEST_WORKS]
    return max(
        enough, key=lambda one: (round(10 * one.covered), round(10 * one.regular), -len(one.ranges)), default=None
    )


def _alike(ranges: Sequence[Range]) -> Mapping[str, Sequence[Range]]:
    """Ranges of one name; and, as steps alternate, those that come by turns, or whose names say prefill or decode."""
    named: dict[str, list[Range]] = defaultdict(list)
    for one in ranges:
        if not is_operator(one.name):
            named[range_name(one.name)].append(one)
    found: dict[str, Sequence[Range]] = {f'"{name}"': tuple(outermost(alike)) for name, alike in named.items()}
    phases = [name for name in named if phase_of_name(name)]
    if len(phases) > 1:
        more = f'" and {len(phases) - _NAMED} more' if len(phases) > _NAMED else '"'
        title = '"' + '", "'.join(phases[:_NAMED]) + more
        of_phases = (one for one in ranges if phase_of_name(one.name))
        found[title] = tuple(outermost(of_phases))
    turns = _by_turns(ranges, named)
    if len(turns) > 1:
        every = chain.from_iterable(turns.values())
        found['"{}" by turns'.format('", "'.join(turns))] = sorted(every, key=lambda one: one.start_ns)
    return found


def _by_turns(ranges: Sequence[Range], named: Mapping[str, Sequence[Range]]) -> Mapping[str, Sequence[Range]]:
    """Ranges of a few names that recur and lie in no other that recurs, as often as one another; empty of any else."""
    recurring = {name for name, alike in named.items() if len(alike) >= FEWEST}
    turns: dict[str, list[Range]] = defaultdict(list)
    for one in outermost(one for one in ranges if range_name(one.name) in recurring and not is_operator(one.name)):
        turns[range_name(one.name)].append(one)
    often = [len(alike) for alike in turns.values()]
    return turns if often and len(often) <= _IN_TURN and min(often) >= _AS_OFTEN * max(often) else {}


def _candidate(title: str, ranges: Sequence[Range], asked: Sequence[int]) -> _StepCandidate:
    works = [bisect_left(asked, one.end_ns) - bisect_left(asked, one.start_ns) for one in ranges]
    regular = _regularity([one.start_ns for one in ranges])
    return _StepCandidate(title, tuple(ranges), sum(works) / len(asked) if asked else 0.0, regular, median(works))


def _regularity(starts: Sequence[int]) -> float:
    """1 less the middle deviation of the times between, as a share of the middle one.

    >>> _regularity([0, 10, 20, 30, 90]), _regularity([0, 10])
    (1.0, 0.0)
    """
    if len(starts) < FEWEST:
        return 0.0
    between = [after - before for before, after in pairwise(starts)]
    middle = median(between)
    return max(0.0, 1 - median(abs(one - middle) for one in between) / middle) if middle else 0.0


# -- repetition -------------------------------------------------------------------------------------------------------


@frozen
class _Period:
    """What begins each repetition.

    Attributes:
        places: Where its first kernel stands among the kernels of its stream.
        length: Kernels from one to the next, of the middle repetition.
        pause_ns: How long the stream is without work before it, of the middle one.
    """

    places: Sequence[int]
    length: float
    pause_ns: float


def _repeated(trace: Trace) -> Steps | None:
    """Of each GPU by the kernels of the stream that was at work longest."""
    spans = trace.spans.get(SpanKind.KERNEL)
    if spans is None:
        return None
    found = [one for stream, rows in _busiest(spans) if (one := _of_stream(trace, spans, stream, rows)) is not None]
    if not found:
        return None
    every = sorted((one for steps in found for one in steps.windows), key=lambda one: (one.start_ns, one.end_ns))
    return Steps(tuple(every), found[0].found, min(one.sureness for one in found if one.sureness is not None))


def _busiest(spans: SpanTable) -> Iterator[tuple[TrackId, array[int]]]:
    """Of each GPU the stream whose kernels take longest together, and their rows."""
    rows: dict[int, array[int]] = defaultdict(lambda: array("q"))
    at_work: Counter[int] = Counter()
    for i, track in enumerate(spans.track_id):
        rows[track].append(i)
        at_work[track] += spans.end_ns[i] - spans.start_ns[i]
    first: dict[TrackId, int] = {}
    for track, _ in at_work.most_common():
        first.setdefault(ids.gpu_of(spans.tracks[track]), track)
    for track in first.values():
        yield spans.tracks[track], rows[track]


def _of_stream(trace: Trace, spans: SpanTable, stream: TrackId, rows: Sequence[int]) -> Steps | None:
    period = _period(trace, spans, stream, rows)
    if period is None:
        return None
    cuts = [*period.places, *_end_of_last(period, len(rows))]
    sureness = _sureness(_shapes(trace, spans, rows), cuts)
    if sureness < COVERED:
        return None
    begins = [spans.start_ns[rows[cut]] for cut in cuts if cut < len(rows)]
    if trace.origin.kind == KINETO and not _are_passes(trace, begins, _pauses(trace, spans, stream, rows), period):
        return None
    ends = begins[1:] if len(begins) == len(cuts) else [*begins[1:], max(spans.end_ns[i] for i in rows[cuts[-2] :])]
    name_id = spans.name_id[rows[cuts[0]]]
    name = spans.names[name_id] if trace.kernels is None else trace.kernels.functions[name_id]
    found = (
        f"by repetition, as nothing marks them: {period.length:.0f} kernels from {name} on; {percent(100 * sureness)} "
        "of them come in the same order, with the same grids, in the step before"
    )
    return Steps(tuple(_unmarked(trace, stream, zip(begins, ends, strict=False))), found, sureness)


def _are_passes(trace: Trace, begins: Sequence[int], pauses: Sequence[int], period: _Period) -> bool:
    """Whether repetitions are passes of a model, and not the layers within one: something happens between passes.

    A result is copied to the host in most of them, a range of the program recurs with them, or the GPU waits longer
    where they begin than between their kernels.
    """
    copies = trace.spans.get(SpanKind.MEMCPY)
    to_host = [] if copies is None else [i for i, name in enumerate(copies.names) if "DtoH" in name]
    if copies is not None and to_host:
        at = sorted(start for start, name in zip(copies.start_ns, copies.name_id, strict=True) if name in to_host)
        with_copy = sum(bisect_left(at, after) > bisect_left(at, begin) for begin, after in pairwise(begins))
        if with_copy >= _REGULAR * (len(begins) - 1):
            return True
    ranges = trace.spans.get(SpanKind.NVTX)
    often = Counter() if ranges is None else Counter(ranges.names[i] for i in ranges.name_id)
    if any(abs(times - len(begins)) <= 1 for times in often.values()):
        return True
    return period.pause_ns > _LONGER * max(median(pauses), _BRIEF_NS)


def _period(trace: Trace, spans: SpanTable, stream: TrackId, rows: Sequence[int]) -> _Period | None:
    """The shortest one that repeats about as well as any; it begins where the GPU had to wait longest.

    Told by one kernel; where each stands several times in a step, by several that follow each other.
    """
    names = [spans.name_id[row] for row in rows]
    pauses = _pauses(trace, spans, stream, rows)
    for together in _TOGETHER:
        places: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, run in enumerate(zip(*(names[i:] for i in range(together)), strict=False)):
            places[run].append(place)
        periods = [one for found in places.values() if (one := _candidate_period(found, pauses))]
        if periods:
            return _shortest(periods, names)
    return None


def _pauses(trace: Trace, spans: SpanTable, stream: TrackId, rows: Sequence[int]) -> Sequence[int]:
    """How long the GPU had no work before each kernel."""
    work = work_by_gpu(trace)[ids.gpu_of(stream)]
    pauses = array("q")
    for row in rows:
        start = spans.start_ns[row]
        i = bisect_left(work.starts, start)
        pauses.append(max(0, start - work.reach[i - 1]) if i else 0)
    return pauses


def _shortest(periods: Sequence[_Period], names: Sequence[int]) -> _Period:
    """Layers are shorter than steps and repeat less well: what is between two steps is between two of them too."""
    groups: dict[tuple[float, int], list[_Period]] = defaultdict(list)
    for one in periods:
        groups[one.length, len(one.places)].append(one)
    firsts = [max(group, key=lambda one: (one.pause_ns, -one.places[0])) for group in groups.values()]
    alike = {id(one): _sureness(names, one.places) for one in firsts}
    best = max(alike.values())
    good = [one for one in firsts if alike[id(one)] >= _AS_GOOD * best]
    shortest = min(one.length for one in good)
    return max((one for one in good if one.length <= shortest * (1 + _NEAR)), key=lambda one: one.pause_ns)


def _candidate_period(places: Sequence[int], pauses: Sequence[int]) -> _Period | None:
    """Of kernels that recur at about equal distances over most of the stream."""
    if len(places) < FEWEST or places[-1] - places[0] < COVERED * len(pauses):
        return None
    between = [after - before for before, after in pairwise(places)]
    middle = median(between)
    alike = sum(abs(one - middle) <= _NEAR * middle for one in between) / len(between)
    if middle < 2 or alike < _REGULAR:
        return None
    return _Period(places, middle, median(pauses[at] for at in places))


def _end_of_last(period: _Period, count: int) -> Iterator[int]:
    """Where the last repetition ends; nothing where the capture ends before it does."""
    if abs(count - period.places[-1] - period.length) <= _NEAR * period.length:
        yield count


def _shapes(trace: Trace, spans: SpanTable, rows: Sequence[int]) -> Sequence[Hashable]:
    """Name and grid of each kernel; the name alone where there is no table of them."""
    table = trace.kernels
    if table is None or len(table) != len(spans):
        return [spans.name_id[i] for i in rows]
    x, y, z = table.grid
    return [(spans.name_id[i], x[i], y[i], z[i]) for i in rows]


def _sureness(kernels: Sequence[Hashable], cuts: Sequence[int]) -> float:
    """How much of each repetition is in the one before: in kernels that are followed by the same ones in both."""
    begun_again = [*kernels, *kernels[cuts[0] : cuts[0] + _FOLLOWING]]
    runs = list(zip(*(begun_again[i:] for i in range(_FOLLOWING)), strict=False))
    parts = [Counter(runs[start:end]) for start, end in pairwise(cuts)]
    pairs = list(pairwise(parts))
    common = sum((one & other).total() for one, other in pairs)
    return common / max(1, sum(max(one.total(), other.total()) for one, other in pairs))


def _unmarked(trace: Trace, stream: TrackId, stretches: Iterable[tuple[int, int]]) -> Iterator[TimeWindow]:
    """Windows of the GPU alone: from the first kernel of a step to that of the next."""
    gpu = ids.gpu_of(stream)
    begun = begun_on(trace, gpu)
    for number, (start, end) in enumerate(stretches, 1):
        yield TimeWindow(f"step {number}", stream, (gpu,), start, end, start, end, *begun.within(start, end))
