"""What stands below the head of a section: the charts and tables that its file describes, as the report holds it.

A file names a metric for some GPUs and others for the rest (filters by compute capability, options). The report has
the one that was collected: it is looked for by name, and what is of other GPUs alone is left out.

Numbers of fields are those that Nsight Compute's reports have (2022.2 to 2025.3), in the order in which its published
messages name them (ProfilerSection.proto of the Customization Guide).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.message import DecodeError

from llmtop.model import ChartKind, SectionChart
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.parsers.ncu_rep.details import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Cell: TypeAlias = tuple[str, str]
"""(metric, label)."""

_ELSEWHERE = {
    "roofline": ChartKind.ROOFLINE,
    "hotspots": ChartKind.HOTSPOTS,
    "shared_memory": ChartKind.MEMORY,
    "device_memory": ChartKind.MEMORY,
    "memory_chart": ChartKind.MEMORY,
    "first_level_cache": ChartKind.MEMORY,
    "second_level_cache": ChartKind.MEMORY,
    "eviction": ChartKind.EVICTION,
    "nvlink_topology": ChartKind.NVLINK,
    "nvlink_properties": ChartKind.NVLINK,
    "nvlink_throughput": ChartKind.NVLINK,
    "numa": ChartKind.NUMA,
    "timeline": ChartKind.TIMELINE,
}
"""Kinds that are drawn from the metrics alone, whatever the section says of them."""


class CollectedMetrics:
    """Which of the metrics that a section names a report has.

    Args:
        has: Whether the report has a metric of this name.
        gpu: 10 x major + minor of the GPU's compute capability; 0 where it is not known.
    """

    def __init__(self, has: Callable[[str], bool], gpu: int) -> None:
        self._has = has
        self._gpu = gpu

    def cells(self, cells: Iterable[pb.SectionCell]) -> tuple[Cell, ...]:
        """Those of this GPU, each under the name that the report has."""
        return tuple(cell for stored in cells if stored.metric and (cell := self._cell(stored)) is not None)

    def is_here(self, on: pb.GpuFilter) -> bool:
        """Whether a filter lets this GPU pass; one that names no GPU lets all pass."""
        is_one = on.HasField("first") or on.HasField("last")
        ranges: list[pb.GpuRange | pb.GpuFilter] = [*on.ranges, *([on] if is_one else [])]
        return not self._gpu or not ranges or any(self._is_within(one) for one in ranges)

    def _is_within(self, gpus: pb.GpuRange | pb.GpuFilter) -> bool:
        return gpus.first <= self._gpu and (not gpus.HasField("last") or self._gpu <= gpus.last)

    def _cell(self, stored: pb.SectionCell) -> Cell | None:
        label = text(stored.label)
        names = [text(stored.metric), *(text(option.metric) for option in stored.options)]
        collected = next((name for name in names if self._has(name)), None)
        if collected is not None:
            return collected, label
        return (names[0], label) if self.is_here(stored.on) else None


def charts_of(bodies: Iterable[bytes], chosen: CollectedMetrics) -> Iterator[SectionChart]:
    """In the order of the section; a body that does not decode is left out, and none of the others with it."""
    for stored in bodies:
        try:
            body = pb.SectionBody.FromString(stored)
        except DecodeError:
            yield SectionChart(ChartKind.DAMAGED, "")
            continue
        yield from _items(body, chosen)


def _items(body: pb.SectionBody, chosen: CollectedMetrics) -> Iterator[SectionChart]:
    for item in body.items:
        if not chosen.is_here(item.on):
            continue
        if item.HasField("group"):
            yield from _items(item.group, chosen)
        else:
            yield from _charts(item, chosen)


def _charts(item: pb.BodyItem, chosen: CollectedMetrics) -> Iterator[SectionChart]:
    if item.HasField("table"):
        yield SectionChart(ChartKind.TABLE, text(item.table.title), chosen.cells(item.table.cells))
    if item.HasField("bars"):
        yield _bars(item.bars, chosen)
    if item.HasField("histogram"):
        found = item.histogram
        cells = chosen.cells([found.cell])
        yield SectionChart(ChartKind.HISTOGRAM, text(found.title), cells, bins=found.bins.count)
    if item.HasField("line"):
        yield _line(item.line, chosen)
    if item.HasField("statistics"):
        yield _statistics(item.statistics, chosen)
    yield from dict.fromkeys(SectionChart(kind, "") for field, kind in _ELSEWHERE.items() if item.HasField(field))


def _bars(bars: pb.BarChart, chosen: CollectedMetrics) -> SectionChart:
    is_split = any(cell.split for cell in bars.cells)
    cells, most = chosen.cells(bars.cells), _most(bars.values)
    return SectionChart(ChartKind.BARS, text(bars.title), cells, most=most, is_split=is_split)


def _most(axis: pb.ValueAxis) -> float | None:
    return float(axis.range.most) if axis.range.HasField("most") else None


def _line(line: pb.LineChart, chosen: CollectedMetrics) -> SectionChart:
    cells, marks = chosen.cells(line.cells), chosen.cells(line.highlight.cells)
    labels = text(line.x.label), text(line.y.label)
    return SectionChart(ChartKind.LINE, text(line.title), cells, marks, *labels, _most(line.y))


def _statistics(statistics: pb.Statistics, chosen: CollectedMetrics) -> SectionChart:
    """Each metric with each way to put its values of all units together."""
    cells = []
    for metric in statistics.metrics.cells:
        for rollup in statistics.rollups.cells:
            cell = pb.SectionCell(on=metric.on)
            cell.metric = metric.metric + rollup.metric
            cell.label = metric.label + b", " + rollup.label
            cell.options.extend(pb.CellOption(metric=one.metric + rollup.metric) for one in metric.options)
            cells.append(cell)
    return SectionChart(ChartKind.STATISTICS, text(statistics.title), chosen.cells(cells))
