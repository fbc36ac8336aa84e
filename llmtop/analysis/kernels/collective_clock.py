"""The clocks of several ranks brought onto one, by the operations that all of them end together.

A collective ends on no rank before it has data of each of the others, so that its kernels end nearly at one moment,
whoever came late. Of each pair of files the sequences of these kernels are laid beside each other, in each way that
fits; the way in which the ends are apart by the same time everywhere is the right one, and that time is what the clocks
differ by. What it grows by is drift.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.timeline.collectives import group_of_kernels
from llmtop.columns import differences
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, ClockBasis, ClockFit, SpanKind, Unknown
from llmtop.units import duration

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

FEWEST = 4
"""Collectives that two files must share. Ours: of fewer the median tells nothing."""
LOOSEST_NS = 50_000.0
"""Ends further apart, in the median, are not of one operation: NCCL's ranks leave it within microseconds. Ours."""
_AMBIGUOUS = 3.0
"""Another way to match them that leaves at most so many times as much may be the right one. Ours."""
_FINE_NS = 2_000.0
"""Below it residuals are alike: as near as profilers write the end of a kernel down."""
_MOST_NS = 1_000_000
"""What one end counts for at most where two files are laid beside each other: one that is far off is of something
else."""
_FEW, _KEPT, _MOST = 200, 40, 2_000
"""Collectives that are laid beside each other in each way; the ways that are best then, and how many collectives choose
among these. All of them make the fit."""
_FARTHEST = 500
"""By how many collectives one file may begin earlier than the other."""
_OVERLAP = 0.5
"""Of the shorter sequence, that has to lie beside the other."""
_ALIKE = 0.8
"""Of those that lie beside each other, that have to have one name."""
_HOSTS_NS = 60_000_000_000
"""Clocks of hosts that are further apart than that tell nothing of which way is the right one."""


@frozen
class Collectives:
    """The collectives of one file in the order of their ends.

    Attributes:
        names: Of kernel and group of ranks together, by a number that all files share.
    """

    ends: array[int]
    names: array[int]

    def __len__(self) -> int:
        return len(self.ends)


def clocks(traces: Sequence[Trace]) -> list[ClockFit | Unknown]:
    """How the clock of each trace becomes that of the first; why it cannot be told."""
    first, *others = traces
    one, *rest = _collectives(traces)
    fits = [_by_collectives(one, own, _apart(first, trace)) for own, trace in zip(rest, others, strict=True)]
    told = (_by_utc(first, trace, fit) for fit, trace in zip(fits, others, strict=True))
    return [ClockFit(ClockBasis.FIRST), *told]


def clock_groups(trace: Trace, gpus: Iterable[TrackId]) -> list[frozenset[TrackId]]:
    """The GPUs of a trace, those together whose moments can be compared as near as they wait for each other."""
    if not trace.parts:
        return [frozenset(gpus)]
    alike = [isinstance(part.clock, ClockFit) and part.clock.is_comparable for part in trace.parts]
    together = (gpu for part, is_alike in zip(trace.parts, alike, strict=True) if is_alike for gpu in part.gpus)
    alone = (frozenset(part.gpus) for part, is_alike in zip(trace.parts, alike, strict=True) if not is_alike)
    return [frozenset(together), *alone]


def _apart(first: Trace, other: Trace) -> int | None:
    """By how much the clock of the other reads less, as the hosts' clocks have it."""
    if first.origin.utc_ns is None or other.origin.utc_ns is None:
        return None
    return other.origin.utc_ns - first.origin.utc_ns


def _by_utc(first: Trace, other: Trace, fit: ClockFit | Unknown) -> ClockFit | Unknown:
    """What the hosts' clocks say, where collectives say nothing."""
    apart = _apart(first, other)
    if apart is None or isinstance(fit, ClockFit):
        return fit
    between = max(other.start_ns + apart - first.end_ns, first.start_ns - other.end_ns - apart)
    if between > _HOSTS_NS:
        return Unknown(f"{fit.reason}, and its time of day is {between // NS_PER_S} s from that of the first file")
    is_one_host = bool(first.origin.host) and first.origin.host == other.origin.host
    return ClockFit(ClockBasis.HOST if is_one_host else ClockBasis.UTC, apart)


# -- by collectives ---------------------------------------------------------------------------------------------------


def _collectives(traces: Sequence[Trace]) -> list[Collectives]:
    """Of each trace; those that pass data from one rank to another alone only where there are no others."""
    numbers: dict[tuple[str, str], int] = {}
    return [_of(trace, numbers) for trace in traces]


def _of(trace: Trace, numbers: dict[tuple[str, str], int]) -> Collectives:
    spans = trace.spans.get(SpanKind.KERNEL)
    if spans is None:
        return Collectives(array("q"), array("q"))
    sent = {i for i, name in enumerate(spans.names) if kernel_kind(name).family is KernelFamily.COMMUNICATION}
    among_all = {i for i in sent if "SendRecv" not in spans.names[i]} or sent
    groups = group_of_kernels(trace)
    rows = [row for row, name in enumerate(spans.name_id) if name in among_all]
    rows.sort(key=spans.end_ns.__getitem__)
    keys = ((spans.names[spans.name_id[row]], groups.get(row, "")) for row in rows)
    return Collectives(
        array("q", map(spans.end_ns.__getitem__, rows)),
        array("q", (numbers.setdefault(key, len(numbers)) for key in keys)),
    )


def _by_collectives(one: Collectives, other: Collectives, apart: int | None) -> ClockFit | Unknown:
    """The fit of the ends of their collectives.

    Args:
        one: Of the file whose clock is taken.
        other: Of the file that is brought onto it.
        apart: What the hosts' clocks say.
    """
    if not (len(one) and len(other)):
        return Unknown("it has no collectives", "record all ranks while they work together")
    rough = sorted(_ways(one, other))[:_KEPT]
    further = ((_matched(one, other, lag, _MOST), _matched(one, other, lag), lag) for _, lag in rough)
    ways = sorted((_left(*some), lag) for some, every, lag in further if min(len(some[0]), len(every[0])) >= FEWEST)
    if not ways:
        return Unknown("its collectives are not those of the first file", "record the ranks at the same time")
    best, _ = ways[0]
    near = [lag for left, lag in ways if left <= max(_FINE_NS, _AMBIGUOUS * best)]
    lag = near[0] if len(near) == 1 else _likeliest(one, other, near, apart)
    fit = _fit(*_matched(one, other, lag), is_sure=len(near) == 1)
    left = 0.0 if fit.residual_ns is None else fit.residual_ns
    if left > LOOSEST_NS:
        return Unknown(f"its collectives end {duration(left)} apart from those of the first file, whatever the clocks")
    return fit


def _likeliest(one: Collectives, other: Collectives, lags: Sequence[int], apart: int | None) -> int:
    """The one nearest to what the hosts' clocks say; without those the one in which most is matched."""

    def unlikely(lag: int) -> tuple[float, int]:
        ends, others = _matched(one, other, lag)
        if apart is None:
            return -len(ends), abs(lag)
        off = abs(median(a - b for a, b in zip(ends, others, strict=True)) - apart)
        return (off, abs(lag)) if off < _HOSTS_NS else (float(_HOSTS_NS), abs(lag))

    return min(lags, key=unlikely)


def _ways(one: Collectives, other: Collectives) -> Iterator[tuple[float, int]]:
    """How far ends are apart when collective i of the other is i + lag of the one, for each lag that fits."""
    least = max(FEWEST, int(_OVERLAP * min(len(one), len(other))))
    for lag in range(max(-_FARTHEST, least - len(other)), min(_FARTHEST, len(one) - least) + 1):
        ends, others = _matched(one, other, lag, _FEW)
        if len(ends) >= max(FEWEST, _ALIKE * min(least, _FEW)):
            yield _left(ends, others), lag


def _matched(one: Collectives, other: Collectives, lag: int, most: int | None = None) -> tuple[array[int], array[int]]:
    """The ends of those that have one name, on both; none where too many have another."""
    first, since = max(lag, 0), max(-lag, 0)
    number = min(len(one) - first, len(other) - since)
    number = number if most is None else min(number, most)
    columns = [(own.ends[at : at + number], own.names[at : at + number]) for own, at in ((one, first), (other, since))]
    (ends, names), (others, other_names) = columns
    if names == other_names:
        return ends, others
    same = [i for i, (a, b) in enumerate(zip(names, other_names, strict=True)) if a == b]
    if len(same) < _ALIKE * number:
        return array("q"), array("q")
    return array("q", map(ends.__getitem__, same)), array("q", map(others.__getitem__, same))


def _left(ends: array[int], others: array[int]) -> float:
    """How much longer or shorter it is from one end to the next on one of them, in the mean.

    The clocks' difference is no part of it. Steps of a program look alike but for their edges: these count by the mean,
    and what is out of all measure counts no more than the rest.
    """
    apart = differences(ends, others)
    steps = [min(abs(after - before), _MOST_NS) for before, after in pairwise(apart)]
    return sum(steps) / max(1, len(steps))


def _fit(ends: Sequence[int], others: Sequence[int], *, is_sure: bool) -> ClockFit:
    """Offset by the median; drift where the ends at both thirds tell more of it than they scatter."""
    apart = [a - b for a, b in zip(ends, others, strict=True)]
    third = max(1, len(apart) // 3)
    early, late = (slice(third), slice(len(apart) - third, None))
    length = median(others[late]) - median(others[early])
    at_first, at_last = median(apart[early]), median(apart[late])
    grown = at_last - at_first
    scatter = median([*(abs(one - at_first) for one in apart[early]), *(abs(one - at_last) for one in apart[late])])
    is_drift = len(apart) >= 2 * FEWEST and length > 0 and abs(grown) > _DRIFTS * max(scatter, _TICK_NS)
    drift = grown / length if is_drift else 0.0
    since = others[0]
    offset = round(median(one - drift * (at - since) for one, at in zip(apart, others, strict=True)))
    left = median(abs(one - offset - drift * (at - since)) for one, at in zip(apart, others, strict=True))
    return ClockFit(ClockBasis.COLLECTIVES, offset, drift, since, left, len(apart), is_sure)


_DRIFTS = 2.0
"""Times the scatter of the ends, from which on their growing apart is drift."""
_TICK_NS = 500.0
"""And at least so much: as fine as ends are written down."""
