"""The charts of a report's sections as their files describe them: NVIDIA's, and those that users write themselves.

Bars, histograms, lines and tables are made of the metrics that they name. Rooflines, memory tables, hot spots and
timelines have views of their own, which are named in their place; what no view draws is said to be not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.section_page import PagePart, PagePlot, PageRow, value_text
from llmtop.model import ChartKind, Instances, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.kernels.counters import Counters
    from llmtop.model import KernelDetails, SectionChart, SectionTable

NOT_COLLECTED = Unknown(
    "a section names it, and the report does not have it: this GPU or this version of the tool does not count it",
    "ncu --query-metrics lists what the GPU counts",
)
_NOT_NUMBERS = Unknown("its values are not numbers")
_BREAKDOWN = "breakdown:"
_BINS = 10
"""Of a histogram that does not say how many it wants."""
_INSTEAD: Mapping[ChartKind, str] = {
    ChartKind.ROOFLINE: "its roofline is drawn in Roofline and in Roofline by level",
    ChartKind.HOTSPOTS: "the places that it lists are in Source",
    ChartKind.MEMORY: "its chart and its tables of the memory are in Memory chart",
    ChartKind.TIMELINE: "its series over time are in PM samples",
    ChartKind.EVICTION: "its table of eviction policies of L2 is not drawn here: ncu-ui shows it",
    ChartKind.NVLINK: "what it says of NVLink is not drawn here: ncu-ui shows it, nvidia-smi nvlink --status the links",
    ChartKind.NUMA: "its table is below, by GPU",
    ChartKind.DAMAGED: "a chart of it cannot be read: copy the report again",
}
"""What is said in the place of a chart that this page does not draw."""
_IN_SPEED_OF_LIGHT = "what the throughputs are made of is in Speed of light"


def section_parts(details: KernelDetails, launch: int, section: SectionTable) -> list[PagePart]:
    """The table at its head and each of its charts; what is drawn elsewhere is said with the last of them."""
    every = (_head(details, launch, section), *_drawn(details, launch, section))
    parts = [part for part in every if part.rows or part.asides]
    said = tuple(text for text in dict.fromkeys(map(_instead, section.charts)) if text)
    if not said:
        return parts
    *others, last = parts or [PagePart(section.title or section.id, ())]
    return [*others, replace(last, asides=(*last.asides, *said))]


def _head(details: KernelDetails, launch: int, section: SectionTable) -> PagePart:
    """What was asked for by `--metrics` stands as one row of many names."""
    metrics = details.metrics(launch)
    rows = (
        value_row(details, metrics, one, label if one == name else one)
        for name, label in section.rows
        for one in name.split(",")
    )
    return PagePart(section.title or section.id, tuple(rows))


def _drawn(details: KernelDetails, launch: int, section: SectionTable) -> Iterator[PagePart]:
    for chart in section.charts:
        if (make := _MAKERS.get(chart.kind)) is not None and not _is_breakdown(chart):
            yield replace(make(details, launch, chart), title=_title(section, chart))


def value_row(details: KernelDetails, metrics: Counters, name: str, label: str) -> PageRow:
    """A metric of a section under the label that it has there."""
    return PageRow(label or name, metrics.get(name, NOT_COLLECTED), details.unit(name), metric=name)


def _title(section: SectionTable, chart: SectionChart) -> str:
    head = section.title or section.id
    return f"{head}: {chart.title}" if chart.title not in ("", head) else head


def _is_breakdown(chart: SectionChart) -> bool:
    return any(name.startswith(_BREAKDOWN) for name, _ in chart.cells)


def _instead(chart: SectionChart) -> str:
    return _IN_SPEED_OF_LIGHT if _is_breakdown(chart) else _INSTEAD.get(chart.kind, "")


def _table(details: KernelDetails, launch: int, chart: SectionChart) -> PagePart:
    metrics = details.metrics(launch)
    return PagePart("", tuple(value_row(details, metrics, name, label) for name, label in chart.cells))


def _statistics(details: KernelDetails, launch: int, chart: SectionChart) -> PagePart:
    """Metrics that are 0 are named alone: a table of all formats of the tensor cores has few that a kernel uses."""
    by_metric: dict[str, list[PageRow]] = {}
    for row in _table(details, launch, chart).rows:
        by_metric.setdefault(row.name.rpartition(", ")[0], []).append(row)
    unused = [metric for metric, rows in by_metric.items() if rows[0].value == 0]
    rows = tuple(row for metric, found in by_metric.items() if metric not in unused for row in found)
    return PagePart("", rows, asides=(f"0: {'; '.join(unused)}",) if unused else ())


def _bars(details: KernelDetails, launch: int, chart: SectionChart) -> PagePart:
    """Bars go up to where the chart's axis ends; without an end, to the highest value."""
    rows = _table(details, launch, chart).rows
    if chart.is_split:
        rows = tuple(row for name, label in chart.cells for row in _split(details, launch, name, label))
    top = chart.most or max((row.value for row in rows if isinstance(row.value, int | float)), default=0.0)
    return PagePart("", tuple(replace(row, bar=_length(row.value, top)) for row in rows))


def _length(value: object, top: float) -> float | None:
    return max(0.0, min(1.0, value / top)) if isinstance(value, int | float) and top > 0 else None


def _split(details: KernelDetails, launch: int, name: str, label: str) -> Iterator[PageRow]:
    """The values of one metric by what they are of, the highest first."""
    found = details.instances(launch, name)
    if isinstance(found, Unknown):
        yield PageRow(label or name, found, metric=name)
        return
    keys = found.keys or tuple(range(len(found.values)))
    pairs = [(str(key), value) for key, value in zip(keys, found.values, strict=True) if not isinstance(value, str)]
    unit = details.unit(name)
    yield from (PageRow(key, value, unit, metric=name) for key, value in sorted(pairs, key=lambda one: -one[1]))


def _histogram(details: KernelDetails, launch: int, chart: SectionChart) -> PagePart:
    """How many of a metric's values are in each of equal steps from the least to the highest."""
    (name, label), *_ = chart.cells or (("", ""),)
    values = _numbers(details.instances(launch, name))
    if isinstance(values, Unknown):
        return PagePart("", (PageRow(label or name, values, metric=name),))
    least, most, unit = min(values), max(values), details.unit(name)
    bins = max(1, chart.bins or _BINS) if most > least else 1
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - least) / ((most - least) or 1) * bins))] += 1
    ends = [least + (most - least) * i / bins for i in range(bins + 1)]
    rows = [(f"{value_text(ends[i], '')} to {value_text(ends[i + 1], unit)}", count) for i, count in enumerate(counts)]
    drawn = tuple(PageRow(said, count, metric=name, bar=count / max(counts)) for said, count in rows)
    return PagePart("", drawn, (f"{label or name}: how many of {len(values)} values are in each step",))


def _line(details: KernelDetails, launch: int, chart: SectionChart) -> PagePart:
    metrics = details.metrics(launch)
    label, mark = next(((label, metrics.get(name)) for name, label in chart.marks), ("", None))
    at = float(mark) if isinstance(mark, int | float) else None
    rows = tuple(_curve(details, launch, cell, label, at) for cell in chart.cells)
    return PagePart("", rows, plot=PagePlot(chart.x_label, chart.y_label, chart.most, at))


def _curve(details: KernelDetails, launch: int, cell: tuple[str, str], mark: str, at: float | None) -> PageRow:
    """A metric's values by their keys, with the one that the kernel has."""
    name, label = cell
    points = _points(details.instances(launch, name))
    if isinstance(points, Unknown):
        return PageRow(label or name, points, metric=name)
    x, y = max(points, key=lambda point: point[1])
    says = f"highest, at {value_text(x, '')}"
    if at is not None:
        says = f"at {value_text(at, '')} ({mark}); at most {value_text(y, '')}"
        _, y = min(points, key=lambda point: abs(point[0] - at))
    return PageRow(label or name, y, details.unit(name), metric=name, says=says, points=points)


def _points(found: Instances | Unknown) -> tuple[tuple[float, float], ...] | Unknown:
    if isinstance(found, Unknown):
        return found
    pairs = zip(found.keys, found.values, strict=False)
    points = [(x, y) for x, y in pairs if not isinstance(x, str) and not isinstance(y, str)]
    return tuple(sorted((float(x), float(y)) for x, y in points)) or _NOT_NUMBERS


def _numbers(found: Instances | Unknown) -> Sequence[float] | Unknown:
    if isinstance(found, Unknown):
        return found
    return [float(value) for value in found.values if not isinstance(value, str)] or _NOT_NUMBERS


_MAKERS: Mapping[ChartKind, Callable[[KernelDetails, int, SectionChart], PagePart]] = {
    ChartKind.TABLE: _table,
    ChartKind.STATISTICS: _statistics,
    ChartKind.BARS: _bars,
    ChartKind.HISTOGRAM: _histogram,
    ChartKind.LINE: _line,
}
