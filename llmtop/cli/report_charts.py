"""The one-shot charts of the text report, drawn by plotext.

Axes are logarithms that we take ourselves: plotext's own log scale wants limits in log units and ticks in plain ones,
and takes the logarithm again at every build.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import plotext

from llmtop.analysis.views import Roof, RooflinePoint, RooflineView
from llmtop.units import duration, number, si

_POINT_MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BINS_PER_DECADE = 5


def roofline_chart(view: RooflineView, width: int, height: int, *, ascii_only: bool = False) -> str:
    """The roofs and up to 26 points, each a letter in the order of `view.points`."""
    points = view.points[: len(_POINT_MARKS)]
    slopes = view.roofs_of("memory")
    flats = view.roofs_of("compute")
    low, high = _intensity_range(points, slopes, flats)
    _start(width, height)
    line = "." if ascii_only else "braille"
    for slope in slopes:
        peak = max((flat.value for flat in flats), default=slope.value * 10**high)
        xs = _steps(low, min(high, math.log10(peak / slope.value)))
        plotext.plot(xs, [x + math.log10(slope.value) for x in xs], marker=line)
    for flat in flats:
        knee = max(low, min((math.log10(flat.value / slope.value) for slope in slopes), default=low))
        xs = _steps(knee, high)
        plotext.plot(xs, [math.log10(flat.value)] * len(xs), marker=line)
    # The heaviest kernel is drawn last, so that it is not hidden.
    for mark, point in reversed(list(zip(_POINT_MARKS, points, strict=False))):
        plotext.scatter([math.log10(point.intensity)], [math.log10(point.flops_per_s)], marker=mark)
    return _built(_ticks(low, high, view, width))


def point_marks(view: RooflineView) -> list[tuple[str, RooflinePoint]]:
    """The letters of the chart and what they stand for."""
    return list(zip(_POINT_MARKS, view.points, strict=False))


def duration_histogram(durations_ns: Sequence[float], width: int, height: int, *, ascii_only: bool = False) -> str:
    """How many launches took how long, in steps of a fifth of a decade."""
    times = Counter(durations_ns)  # of a million launches few take a time of their own
    logs = {ns: math.log10(max(ns, 1.0)) for ns in times}
    low = math.floor(min(logs.values()) * _BINS_PER_DECADE) / _BINS_PER_DECADE
    bins = max(1, math.ceil((max(logs.values()) - low) * _BINS_PER_DECADE + 1e-9))
    counts = [0] * bins
    for ns, log in logs.items():
        counts[min(bins - 1, int((log - low) * _BINS_PER_DECADE))] += times[ns]
    labels = [duration(10 ** (low + i / _BINS_PER_DECADE)) for i in range(bins)]
    _start(width, height)
    plotext.bar(range(bins), counts, width=0.8, marker="#" if ascii_only else "sd")
    shown = _every(bins, width - len(str(max(counts))), len("00.0 ms"))
    plotext.xticks(list(shown), [" "] * len(shown))
    top = max(counts)
    plotext.ylim(0, top)
    ticks = sorted({0, top // 2, top})
    plotext.yticks(ticks, [str(tick) for tick in ticks])
    return _built([labels[i] for i in shown])


def _every(count: int, width: int, label: int) -> range:
    """The ticks whose labels fit side by side. Of labels that do not, plotext drops other ones at every run."""
    return range(0, count, max(1, math.ceil(count * (label + 2) / max(1, width))))


def _start(width: int, height: int) -> None:
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.theme("clear")


def _built(labels: Sequence[str]) -> str:
    """The chart without colour codes and trailing blanks, with labels under the ticks of its lower axis.

    Plotext would put labels left or right of their ticks as Python's hash seed falls.
    """
    lines = plotext.uncolorize(plotext.build()).splitlines()
    plotext.clear_figure()
    axis = max(i for i, line in enumerate(lines) if "└" in line)
    under = ""
    ticks = [column for column, character in enumerate(lines[axis]) if character == "┬"]
    for column, label in zip(ticks, labels, strict=True):
        start = min(column - len(label) // 2, len(lines[axis]) - len(label))
        under = under.ljust(max(0, start)) + label
    lines[axis + 1] = under
    return "\n".join(line.rstrip() for line in lines)


def _intensity_range(points: Sequence[RooflinePoint], slopes: list[Roof], flats: list[Roof]) -> tuple[float, float]:
    """Decades of intensity that hold all points and all ridges, with some room."""
    ridges = [math.log10(flat.value / slope.value) for flat in flats for slope in slopes]
    places = [*ridges, *(math.log10(point.intensity) for point in points)] or [0.0]
    return math.floor(min(places) - 0.5), math.ceil(max(places) + 0.5)


def _steps(low: float, high: float, count: int = 200) -> list[float]:
    return [low + (high - low) * i / count for i in range(count + 1)] if high > low else []


def _ticks(low: float, high: float, view: RooflineView, width: int) -> list[str]:
    """Set the ticks of both axes; returns the labels of the lower one."""
    tops = [math.log10(roof.value) for roof in view.roofs_of("compute")]
    values = [*tops, *(math.log10(point.flops_per_s) for point in view.points)] or [0.0, 1.0]
    bottom, top = math.floor(min(values)), math.ceil(max(values) + 0.1)
    decades = range(int(low), int(high) + 1)
    xs = [float(decades[i]) for i in _every(len(decades), width - len("100 TFLOP/s"), len("10000"))]
    ys = [float(y) for y in range(bottom, top + 1)]
    plotext.xlim(low, high)
    plotext.ylim(bottom, top)
    plotext.xticks(xs, [" "] * len(xs))
    plotext.yticks(ys, [si(10**y, "FLOP/s") for y in ys])
    plotext.xlabel("FLOP per byte of DRAM traffic")
    return [number(10**x) for x in xs]
