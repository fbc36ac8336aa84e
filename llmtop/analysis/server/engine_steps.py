"""The steps of a server's engine, found in how its threads launch work and wait for the GPU, without the server's help.

Probes tell of rounds: a thread launches work, and somebody waits for the GPU (`vocabulary.THREAD_ROUND`). A step is one
round or several: beside the one in which the model runs there are small ones, for a token that is read back or a flag
that is looked at. Where launches are counted, a step ends with each round that launches a CUDA graph, or at least a
quarter of what rounds typically launch. Where those of graphs alone are, it begins with each round that has them, if
such come again after as many rounds; else it ends with every n-th round, for the n whose sums are most alike.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import median, median_low
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import told_why_unseen, why_no_gpu
from llmtop.analysis.threads.shares import track_label
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.text import clean
from llmtop.vocabulary import RoundPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.model import Metric, Trace, TrackId

WINDOW_NS = 60 * NS_PER_S
_NEWEST_NS = 15 * NS_PER_S
FEWEST = 20
"""Steps from which something is said of how long they usually take."""
MOST = 4000
"""Rounds of a thread that are looked at, the newest: 20 s of 200 steps a second."""
_OF_TYPICAL = 0.25
"""Of the launches of the round in which the middle one of all launches stands: rounds of fewer are within a step."""
_OF_A_GRAPH = 100
"""Kernels that a launch of a graph stands for, at least as to which rounds are small beside it."""
_MOST_TOGETHER = 8
_REPEATS = 0.75
"""Of the ways from one round with graphs to the next, the part that must be as long: prompts of kernels alone, and
waits that are not made in each step, come in between."""
_AS_REGULAR, _REGULAR = 1.5, 0.02
"""Of several rounds together that are about as regular, or regular enough, the fewest are a step."""
_PARTS = tuple(RoundPart)
_TELL_WHY = (whats.ROUNDS, whats.LIBRARY_CALLS, whats.BEST_TRACER)
_NO_ROUNDS = Unknown(
    "no thread was seen to launch work and to wait for the GPU",
    "send the server a request; the probes must count waits for the GPU: llmtop doctor",
    UnknownKind.PASSING,
)


@frozen
class EngineStep:
    """A step, or a round of one: times in ns on the trace's clock.

    Attributes:
        parts: How long of it was what; a part that nobody looked at is not in it.
        launches: Of kernels and graphs; None where they are not counted, as of the next two.
        graphs: Of CUDA graphs alone.
        faults: Page faults of the thread that launches.
    """

    start_ns: int
    end_ns: int
    parts: Mapping[RoundPart, float]
    launches: float | None = None
    graphs: float | None = None
    faults: float | None = None

    @property
    def time_ns(self) -> float:
        """How long it took, without the time in which there was nothing to do."""
        return max(0.0, self.end_ns - self.start_ns - self.parts.get(RoundPart.INPUT, 0.0))

    @property
    def gpu_ns(self) -> float:
        """How long the GPU was waited for."""
        return min(self.time_ns, self.parts.get(RoundPart.WAIT, 0.0))

    @property
    def cpu_ns(self) -> float:
        """All the rest: the CPU's part, in which the GPU may be at work too."""
        return self.time_ns - self.gpu_ns


@frozen
class EngineLoop:
    """A thread that makes steps.

    Attributes:
        found: How its steps were told, half a sentence.
        source: Who saw them.
    """

    track: TrackId
    name: str
    steps: tuple[EngineStep, ...]
    found: str
    source: str


def engine_loops(trace: Trace, window_ns: int = WINDOW_NS) -> tuple[EngineLoop, ...] | Unknown:
    """The threads that make steps: first the one whose steps took most of the last 15 s, then of the whole window.

    A thread that compiled kernels and captured graphs while the server started has the longest steps of the minute, and
    may have none since.
    """
    tracks = [track for track, name in trace.series if name == v.THREAD_ROUND.name]
    if not tracks:
        return _without_gpu(trace) or told_why_unseen(trace, *_TELL_WHY) or _NO_ROUNDS
    loops = [one for track in tracks if len((one := _loop(trace, track, window_ns)).steps) >= FEWEST]
    if not loops:
        return Unknown(
            f"fewer than {FEWEST} steps in {window_ns // NS_PER_S} s",
            "send the server requests, or wait",
            UnknownKind.PASSING,
        )
    newest_ns = trace.end_ns - _NEWEST_NS
    return tuple(sorted(loops, key=lambda loop: (_time_since(loop, newest_ns), _time_since(loop, 0)), reverse=True))


def _without_gpu(trace: Trace) -> Unknown | None:
    """Where there is no GPU no probe would find a step, whatever it may cost."""
    why = why_no_gpu(trace)
    return None if why is None else replace(why, reason=f"steps are found by waits for a GPU: {why.reason}")


def _time_since(loop: EngineLoop, start_ns: int) -> float:
    return math.fsum(step.time_ns for step in loop.steps if step.start_ns >= start_ns)


def _loop(trace: Trace, track: TrackId, window_ns: int) -> EngineLoop:
    rounds = tuple(_rounds(trace, track, window_ns))
    steps, found = _steps(rounds)
    return EngineLoop(track, _name(trace, track), steps, found, clean(trace.series[track, v.THREAD_ROUND.name].source))


def _name(trace: Trace, track: TrackId) -> str:
    """As all else calls it: by its role, as the kernel cuts names off after 15 characters."""
    if (thread := trace.tracks.get(track)) is not None:
        return track_label(thread)
    process = trace.tracks.get(ids.process_of(track))
    return ids.thread_label(track) if process is None else process.name


# -- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(trace: Trace, track: TrackId, window_ns: int) -> Iterator[EngineStep]:
    known = trace.series[track, v.THREAD_ROUND.name].newest(MOST)
    lengths = [(t, ns) for t, ns in known.between(trace.end_ns - window_ns, trace.end_ns).known]
    times = [t for t, _ in lengths]
    parts = {part: _sparse(trace, track, v.labelled(v.THREAD_ROUND, part), times) for part in _PARTS}
    numbers = (_sparse(trace, track, one, times) for one in (v.ROUND_LAUNCHES, v.ROUND_GRAPHS, v.ROUND_FAULTS))
    for i, ((t, ns), launches, graphs, faults) in enumerate(zip(lengths, *numbers, strict=True)):
        of = {part: value for part, column in parts.items() if (value := column[i]) is not None}
        yield EngineStep(t - int(ns), t, of, launches, graphs, faults)


def _sparse(trace: Trace, track: TrackId, metric: Metric, times: Sequence[int]) -> Sequence[float | None]:
    """A number of each round: 0 where there is no sample; None where nobody looked."""
    series = trace.get(track, metric)
    if series is None or not times:
        return [None] * len(times)
    at, values = series.stretch(times[0] - 1, times[-1])
    found: list[float | None] = []
    i, is_known = 0, False
    for t in times:
        value = 0.0
        while i < len(at) and at[i] <= t:
            is_known = not math.isnan(values[i])
            value = values[i] if at[i] == t else 0.0
            i += 1
        found.append(value if is_known else None)
    return found


# -- steps ------------------------------------------------------------------------------------------------------------


def _steps(rounds: Sequence[EngineStep]) -> tuple[tuple[EngineStep, ...], str]:
    """The steps that rounds make up, and how they were told."""
    typical = _typical_launches(rounds)
    if typical is None:
        rounds, ends, how = _by_graphs(rounds) or _by_rhythm(rounds)
    else:
        rounds = [one for one in rounds if one.launches is not None]
        ends = [bool(one.graphs) or (one.launches or 0.0) >= _OF_TYPICAL * typical for one in rounds]
        with_graph = sum(bool(one.graphs) for one in rounds) > sum(ends) / 2
        how = f"by launches{' of CUDA graphs' if with_graph else ''} and the wait for them"
    return tuple(_joined(rounds, ends)), how


def _by_rhythm(rounds: Sequence[EngineStep]) -> tuple[Sequence[EngineStep], list[bool], str]:
    """The rounds, which of them end a step, and how that is told."""
    unbroken = _unbroken(rounds)
    several = _together([[one.time_ns for one in some] for some in unbroken])
    ends = [(i + 1) % several == 0 for some in unbroken for i in range(len(some))]
    return rounds, ends, "by the rhythm of waits for the GPU alone, as launches are not counted all the time"


def _by_graphs(rounds: Sequence[EngineStep]) -> tuple[Sequence[EngineStep], list[bool], str] | None:
    """Likewise; None where graphs do not repeat, or are not known of half the rounds."""
    known = [one for one in rounds if one.graphs is not None]
    ends = _ends_by_graphs([[bool(one.graphs) for one in some] for some in _unbroken(known)])
    if ends is None or len(known) < len(rounds) / 2:
        return None
    return known, ends, "by launches of CUDA graphs alone, as those of kernels are not counted all the time"


def _typical_launches(rounds: Sequence[EngineStep]) -> float | None:
    """Of the round in which the middle one of all launches stands; None where most rounds tell of none."""
    known = sorted(one.launches + _OF_A_GRAPH * (one.graphs or 0.0) for one in rounds if one.launches is not None)
    if not known or len(known) < len(rounds) / 2:
        return None
    half = math.fsum(known) / 2
    return next(one for one, so_far in zip(known, accumulate(known), strict=True) if so_far >= half)


def _unbroken(rounds: Sequence[EngineStep]) -> list[list[EngineStep]]:
    """Rounds that follow each other, without those that nobody saw in between."""
    found: list[list[EngineStep]] = []
    for one in rounds:
        if not found or one.start_ns != found[-1][-1].end_ns:
            found.append([])
        found[-1].append(one)
    return found


def _ends_by_graphs(unbroken: Sequence[Sequence[bool]]) -> list[bool] | None:
    """Which rounds end a step, by whether rounds that follow each other have graphs; None where these do not repeat.

    A step begins with a round that has them, so that it holds the waits for what it launched, however many these are.
    The pieces of a graph may lie in several rounds in a row; and a step of kernels alone, as of a long prompt, has as
    many rounds as the others.

    >>> [int(is_end) for is_end in _ends_by_graphs([[True, False] * 21 + [False, False, True, True]])][-6:]
    [0, 1, 0, 1, 0, 1]
    """
    each = [[i for i, has in enumerate(some) if has] for some in unbroken]
    first = [[i for i in places if not i or not some[i - 1]] for places, some in zip(each, unbroken, strict=True)]
    for starts in (first, each):
        several = _apart(starts)
        if several is not None:
            begun = [_begun(places, several, len(some)) for places, some in zip(starts, unbroken, strict=True)]
            return [i + 1 in places for places, some in zip(begun, unbroken, strict=True) for i in range(len(some))]
    return None


def _apart(starts: Sequence[Sequence[int]]) -> int | None:
    """How many rounds are from one of these to the next, nearly always; None where that differs, and of few."""
    apart = [later - one for places in starts for one, later in pairwise(places)]
    if len(apart) < FEWEST:
        return None
    usual = median_low(apart)
    return usual if usual <= _MOST_TOGETHER and apart.count(usual) >= _REPEATS * len(apart) else None


def _begun(starts: Sequence[int], several: int, end: int) -> set[int]:
    """Where steps begin: there, and where steps of so many rounds fit in between."""
    places = [*starts, end + several // 2 + 1]
    return {i for one, later in pairwise(places) for i in range(one, later - several // 2, several)}


def _together(unbroken: Sequence[Sequence[float]]) -> int:
    """How many rounds make a step: so many that these take alike long, more so than chance makes sums of several.

    >>> _together([[1, 9, 1, 9, 1, 9], [9, 1, 9, 1, 9, 1]]), _together([[5, 5, 5, 5, 6, 5, 5, 5]])
    (2, 1)

    Args:
        unbroken: How long rounds took that follow each other.
    """
    most = min(_MOST_TOGETHER, sum(map(len, unbroken)) // 4)
    unevenness = {n: math.sqrt(n) * _unevenness(unbroken, n) for n in range(1, most + 1)}
    best = min(unevenness.values(), default=0.0)
    return next((n for n, one in unevenness.items() if one <= _AS_REGULAR * best + _REGULAR), 1)


def _unevenness(unbroken: Sequence[Sequence[float]], together: int) -> float:
    """How far sums of so many are from their middle on the mean, as a share of it, which counts at most once for each.

    Of all that follow each other, wherever they begin: a round is missed now and then, a prompt has one more, and what
    follows begins elsewhere.
    """
    sums = [math.fsum(lengths[i : i + together]) for lengths in unbroken for i in range(len(lengths) - together + 1)]
    middle = median(sums) if sums else 0.0
    return math.fsum(min(abs(one - middle), middle) for one in sums) / len(sums) / middle if middle else math.inf


def _joined(rounds: Sequence[EngineStep], ends: Sequence[bool]) -> Iterator[EngineStep]:
    """Rounds from the end of a step to that of the next; where some are missing in between, that step is too."""
    pending: list[EngineStep] = []
    is_whole, last_ns = False, 0
    for one, is_end in zip(rounds, ends, strict=True):
        if one.start_ns != last_ns:
            pending, is_whole = [], False
        pending.append(one)
        last_ns = one.end_ns
        if is_end:
            if is_whole:
                yield _one_of(pending)
            pending, is_whole = [], True


def _one_of(rounds: Sequence[EngineStep]) -> EngineStep:
    """Rounds that follow each other, as one; what is not known of one of them is not known."""
    if len(rounds) == 1:
        return rounds[0]
    parts = set.intersection(*(set(one.parts) for one in rounds))
    return EngineStep(
        rounds[0].start_ns,
        rounds[-1].end_ns,
        {part: math.fsum(one.parts[part] for one in rounds) for part in _PARTS if part in parts},
        *(_summed([getattr(one, name) for one in rounds]) for name in ("launches", "graphs", "faults")),
    )


def _summed(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return math.fsum(known) if len(known) == len(values) else None
