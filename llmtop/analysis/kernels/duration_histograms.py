"""How the kernels of a report are spread: over their durations, over how much of each unit they use, over hit rates."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import first
from llmtop.analysis.kernels.table import Grouping, Kernels, kernels_of
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown
from llmtop.units import quantity

_BINS = 10
"""Of a linear axis."""
_BINS_PER_DECADE = 5
"""Of a logarithmic one."""
_MEMORY = "MemoryWorkloadAnalysis"


@frozen
class Histogram:
    """Launches by a value.

    Attributes:
        unit: Of `edges`, as in `Metric.unit`.
        edges: One more than there are bins; each bin has its lower edge in it, the last one both. None without values.
        counts: Launches in each bin.
        unknown: Launches whose value is not known.
        why_not: Why there is no value at all.
    """

    title: str
    unit: str
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    unknown: int = 0
    why_not: Unknown | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The edges, written out."""
        return tuple(quantity(edge, self.unit) for edge in self.edges)


@frozen
class _Spread:
    """One histogram: what it is of, and what its scale is like.

    Attributes:
        top: The end of a linear scale; 0 takes the largest value's, NaN makes the scale logarithmic.
    """

    title: str
    unit: str
    value: Callable[[Kernels, int], float | None]
    why_not: Unknown
    top: float


def _share(title: str, section: str, *names: str) -> _Spread:
    """Of a counter in % of its peak or of its accesses."""

    def value(kernels: Kernels, launch: int) -> float | None:
        return first(kernels.metrics(launch), names)

    return _Spread(title, "%", value, c.not_collected(title, section), 100.0)


def _bandwidth(kernels: Kernels, launch: int) -> float | None:
    roofline = kernels.facts(launch).roofline
    dram = None if isinstance(roofline, Unknown) else roofline.dram
    return None if dram is None else dram.achieved


def _duration(kernels: Kernels, launch: int) -> float | None:
    ns = kernels.table.duration_ns[launch]
    return ns if ns == ns else None


_DURATION = _Spread("duration", "ns", _duration, c.not_collected("duration", c.SPEED_OF_LIGHT), math.nan)
_COUNTED = (
    _share("SM throughput", c.SPEED_OF_LIGHT, c.COMPUTE_PERCENT),
    _share("memory throughput", c.SPEED_OF_LIGHT, c.MEMORY_PERCENT[0]),
    _share("DRAM throughput", c.SPEED_OF_LIGHT, *c.DRAM_PERCENT),
    _Spread("DRAM bandwidth", "bytes/s", _bandwidth, c.not_collected("DRAM bytes", c.ROOFLINE), 0.0),
    _share(
        "L1 throughput",
        c.SPEED_OF_LIGHT,
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    _share("L1 hit rate", _MEMORY, "l1tex__t_sector_hit_rate.pct"),
    _share("L2 throughput", c.SPEED_OF_LIGHT, "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    _share("L2 hit rate", _MEMORY, "lts__t_sector_hit_rate.pct"),
    _share("achieved occupancy", c.OCCUPANCY, c.OCCUPANCY_PERCENT),
    _share("theoretical occupancy", c.OCCUPANCY, c.THEORETICAL_OCCUPANCY_PERCENT),
    _share("memory busy", _MEMORY, "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed"),
    _share("maximum bandwidth", _MEMORY, "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed"),
)


def kernel_histograms(trace: Trace) -> tuple[Histogram, ...]:
    """The durations of all launches; of a report with counters, those too (seed 002's thirteen).

    Of counters the launch of median duration stands for all of its name, grid and block, so that one is decoded of
    each.
    """
    kernels = kernels_of(trace)
    if not len(kernels.table):
        return ()
    every = ((launch, 1) for launch in range(len(kernels.table)))
    if kernels.table.details is None:
        return (_histogram(_DURATION, kernels, every),)
    typical = [(kernels.middle(row), row.calls) for row in kernels.groups(Grouping.SHAPE)]
    return (_histogram(_DURATION, kernels, every), *(_histogram(one, kernels, typical) for one in _COUNTED))


def _histogram(spread: _Spread, kernels: Kernels, launches: Iterable[tuple[int, int]]) -> Histogram:
    known, calls, unknown = array("d"), array("q"), 0
    for launch, several in launches:
        value = spread.value(kernels, launch)
        if value is None:
            unknown += several
        else:
            known.append(value)
            calls.append(several)
    if not known:
        return Histogram(spread.title, spread.unit, unknown=unknown, why_not=spread.why_not)
    edges = tuple(_edges(spread, min(known), max(known)))
    counts = [0] * (len(edges) - 1)
    for value, several in zip(known, calls, strict=True):
        counts[_bin(value, edges)] += several
    return Histogram(spread.title, spread.unit, edges, tuple(counts), unknown)


def _bin(value: float, edges: Sequence[float]) -> int:
    """The bin of a value; one beyond the scale is in the last (a share of a peak can pass 100 %)."""
    return max(0, min(len(edges) - 2, bisect_right(edges, value) - 1))


def _edges(spread: _Spread, least: float, most: float) -> Iterator[float]:
    if spread.top == spread.top:
        top = spread.top or _round_up(most)
        yield from (top * i / _BINS for i in range(_BINS + 1))
        return
    low, high = (math.log10(max(value, 1.0)) * _BINS_PER_DECADE for value in (least, most))
    first = math.floor(low)
    last = max(first + 1, math.ceil(high))
    yield from (10 ** (step / _BINS_PER_DECADE) for step in range(first, last + 1))


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1.0, 2.0, 5.0, 10.0) if value <= step * decade * (1 + 1e-9))
