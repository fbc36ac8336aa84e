"""One launch under the ceilings of every memory level: its work over the bytes of L1, of L2 and of DRAM.

The hierarchical roofline (Yang, Kurth, Williams: Hierarchical Roofline Analysis for GPUs, 2020), by the counters of
Nsight Compute's sections SpeedOfLight_Hierarchical*RooflineChart. The work is the same at each level and the bytes are
not: how far apart the points are is how often a byte that was fetched is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.commands.profiling import TENSOR_ROOFLINE
from llmtop.analysis.kernels.bounds import LATENCY_PERCENT
from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.table import kernels_of, roofline_view
from llmtop.analysis.views import Quality
from llmtop.frozen import frozen
from llmtop.model import Unknown, UnknownKind
from llmtop.units import number, percent, si

if TYPE_CHECKING:
    from llmtop.analysis.kernels.roofline import KernelRoofline, Rate
    from llmtop.analysis.views import RooflineView
    from llmtop.model import Trace

SOURCE = "counters of Nsight Compute's roofline sections; peaks are those at the clocks of the capture"
LEVELS = ("L1", "L2", "DRAM")
"""The nearest to the SM first."""
_SECTIONS = {
    "FP32": "SpeedOfLight_HierarchicalSingleRooflineChart",
    "FP64": "SpeedOfLight_HierarchicalDoubleRooflineChart",
    "FP16": "SpeedOfLight_HierarchicalHalfRooflineChart",
}
"""What counts the bytes of every level beside the work of a precision; of tensor cores `TENSOR_ROOFLINE` does."""
_UNTOLD = (_SECTIONS["FP32"], TENSOR_ROOFLINE)
"""What counts the work of a kernel of which nobody knows what it computes in."""
_NOWHERE = Unknown("not collected")
_MINOR = 0.01
"""A precision that is nearer its peak than this share of the main one's nearness has rows of its own. Ours."""
_REUSED = 1.5
"""Times that a cache hands out a byte of DRAM, from which on that is told. Ours."""
_ELSEWHERE = "what limits it is not in this plot (Speed of light, Stalls)"
_PAST_L1 = 0.5
"""Of the bytes that L2 hands out: where L1 hands out less, the rest took another way. Ours."""


@frozen
class LevelRow:
    """The work of one precision at one level.

    Attributes:
        work: FLOP/s; None where the launch did no floating-point work that was counted.
        traffic: Bytes/s that the level moved.
    """

    level: str
    work: Rate | None
    traffic: Rate | Unknown

    @property
    def precision(self) -> str:
        """What the work is in; empty where there is none."""
        return "" if self.work is None else self.work.level

    @property
    def intensity(self) -> float | Unknown | None:
        """FLOP per byte of the level; None without work, and where the level moved nothing."""
        if self.work is None:
            return None
        if isinstance(self.traffic, Unknown):
            return self.traffic
        return quotient(self.work.achieved, self.traffic.achieved)

    @property
    def ceiling(self) -> float | Unknown | None:
        """FLOP/s that work of this intensity can reach: the compute peak, or what the level's peak feeds."""
        if self.work is None or not isinstance(self.intensity, float) or isinstance(self.traffic, Unknown):
            return self.intensity
        return min(self.work.peak, self.intensity * self.traffic.peak)

    @property
    def roof_share(self) -> float | Unknown | None:
        """How much of that it reaches, 0 to 1."""
        ceiling = self.ceiling
        return ceiling if self.work is None or not isinstance(ceiling, float) else self.work.achieved / ceiling


@frozen
class RooflineLevels:
    """All of it, for one launch.

    Attributes:
        plot: Points of the precision that does most of the work, named by their levels.
        rows: Of each precision all `LEVELS`; the precision that does most first.
        said: What the rows come to.
        missing: Why some of it is not known, with the command that collects it; None where all is.
    """

    launch: int
    plot: RooflineView
    rows: tuple[LevelRow, ...]
    said: tuple[str, ...]
    missing: Unknown | None


def roofline_levels(trace: Trace, launch: int) -> RooflineLevels | Unknown:
    """The roofline of one launch at every level; why nothing of it is known."""
    if (why := not_counted(trace)) is not None:
        return why
    found = kernels_of(trace).facts(launch).roofline
    if isinstance(found, Unknown):
        return found
    lacking = _lacking(trace, launch, found)
    missing = _unjudged(trace, launch, found) or lacking
    if missing is not None and not found.traffic:
        return missing
    rows = tuple(_rows(found, lacking))
    return RooflineLevels(launch, _plot(trace, launch), rows, tuple(_said(found)), missing)


def _lacking(trace: Trace, launch: int, found: KernelRoofline) -> Unknown | None:
    """Levels whose bytes were not counted, with the command that counts them beside the work that the launch does."""
    there = {rate.level for rate in found.traffic}
    levels = [level for level in LEVELS if level not in there]
    precisions = [rate.level for rate in found.work[:1]]
    sections = [_SECTIONS.get(precision, TENSOR_ROOFLINE) for precision in precisions] or _UNTOLD
    return not_collected(trace, launch, f"bytes of {', '.join(levels)}", *sections) if levels else None


def _unjudged(trace: Trace, launch: int, found: KernelRoofline) -> Unknown | None:
    """Why the work of the launch is not known, with the command that counts it."""
    if not found.refusals:
        return None
    why = found.refusals[0].why
    if why.kind is UnknownKind.NOT_SHOWN:
        return why
    return replace(not_collected(trace, launch, "work", *_UNTOLD), reason=why.reason)


def _rows(found: KernelRoofline, lacking: Unknown | None) -> Iterator[LevelRow]:
    traffic = {rate.level: rate for rate in found.traffic}
    for work in _listed(found) or (None,):
        yield from (LevelRow(level, work, traffic.get(level) or lacking or _NOWHERE) for level in LEVELS)


def _listed(found: KernelRoofline) -> tuple[Rate, ...]:
    """The precisions that keep their units busy beside the one that does most."""
    return tuple(rate for rate in found.work if rate.fraction >= _MINOR * found.work[0].fraction)


def _plot(trace: Trace, launch: int) -> RooflineView:
    """One precision alone: points of several would be six dots that nobody tells apart."""
    view = roofline_view(trace, launch)
    first = view.points[0].precision if view.points else ""
    points = (replace(point, label=point.level) for point in view.points if point.precision == first)
    roofs = (roof for roof in view.roofs if not first or roof.kind == "memory" or roof.level == first)
    return replace(view, roofs=tuple(roofs), points=tuple(points))


def _said(found: KernelRoofline) -> Iterator[str]:
    """Which ceiling is the nearest, and how often bytes are used again."""
    if found.traffic and not found.refusals:
        nearest = max((*found.traffic, *found.work), key=lambda rate: rate.fraction)
        share = 100 * nearest.fraction
        far = (
            ""
            if share >= LATENCY_PERCENT
            else "; none is near: what limits it is not in this plot (Speed of light, Stalls)"
        )
        yield f"the nearest ceiling is that of {nearest.level}, of which it reaches {percent(share)}{far}"
    yield from _said_of_bytes({rate.level: rate.achieved for rate in found.traffic})
    if more := [_worked(rate) for rate in found.work if rate not in _listed(found)]:
        yield f"besides it works in {', '.join(more)}"


def _worked(rate: Rate) -> str:
    if rate.quality is not Quality.UPPER_BOUND:
        return f"{rate.level} {si(rate.achieved, 'FLOP/s')}"
    return f"{rate.level} at most {si(rate.achieved, 'FLOP/s')} (compilers make constants with its multiply-adds)"


def _said_of_bytes(moved: dict[str, float]) -> Iterator[str]:
    reused = {level: quotient(moved.get(level), moved.get("DRAM")) or 0.0 for level in LEVELS[:-1]}
    if told := [f"{level} {number(times)}" for level, times in reused.items() if times >= _REUSED]:
        yield f"for each byte that DRAM moves these caches hand out so many: {', '.join(told)}"
    if moved.get("L1", 0.0) < _PAST_L1 * moved.get("L2", 0.0) and "L1" in moved:
        yield (
            "L1 hands out less than L2 does: only what loads take into registers counts there, and copies into shared "
            "memory (TMA, cp.async) go past it"
        )
