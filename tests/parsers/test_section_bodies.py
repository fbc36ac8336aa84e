"""Charts of sections: as messages of Nsight Compute describe them, and in real reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.kernels.table import kernels_of
from llmtop.model import ChartKind, SectionChart
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.parsers.ncu_rep.section_bodies import CollectedMetrics, charts_of
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER
from tests.parsers.sample_reports import ncu_reports

H100 = 90


def chosen(*names: str, gpu: int = H100) -> CollectedMetrics:
    return CollectedMetrics(lambda name: name in names, gpu)


def cell(
    metric: str, label: str = "", *, first: int = 0, last: int = 0, options: tuple[str, ...] = ()
) -> pb.SectionCell:
    on = pb.GpuFilter(ranges=[pb.GpuRange(first=first, last=last)]) if last else None
    wanted = [pb.CellOption(metric=name.encode()) for name in options]
    return pb.SectionCell(metric=metric.encode(), label=label.encode(), on=on, options=wanted)


def charts(*items: pb.BodyItem, of: CollectedMetrics | None = None) -> list[SectionChart]:
    return list(charts_of([pb.SectionBody(items=items).SerializeToString()], of or chosen()))


def test_the_metric_that_the_report_has_stands_for_those_of_other_gpus() -> None:
    cells = [cell("old", "Sectors", first=80, last=89, options=("new",))]
    assert chosen("new").cells(cells) == (("new", "Sectors"),)
    assert chosen("old", "new").cells(cells) == (("old", "Sectors"),)


def test_what_is_of_other_gpus_alone_is_left_out_and_what_is_of_this_one_stays() -> None:
    cells = [cell("a", first=87, last=87), cell("b", first=80, last=90), cell("c")]
    assert [name for name, _ in chosen().cells(cells)] == ["b", "c"]
    assert [name for name, _ in chosen(gpu=0).cells(cells)] == ["a", "b", "c"], "of a GPU that is not known all stay"


def test_a_filter_may_have_one_end() -> None:
    newer = pb.SectionCell(metric=b"a", on=pb.GpuFilter(first=100))
    assert chosen().cells([newer]) == ()
    assert chosen(gpu=100).cells([newer]) == (("a", ""),)
    assert chosen(gpu=86).cells([pb.SectionCell(metric=b"a", on=pb.GpuFilter(last=80))]) == ()


def test_every_sort_of_chart_is_read() -> None:
    axis = pb.ValueAxis(range=pb.AxisRange(most=100))
    bars = pb.BarChart(title=b"Pipes", values=axis, cells=[cell("a", "A"), cell("b", "B")])
    split = pb.BarChart(title=b"Mix", cells=[pb.SectionCell(metric=b"m", split=True)])
    histogram = pb.Histogram(title=b"Spread", bins=pb.HistogramAxis(count=4), cell=cell("h", "H"))
    line = pb.LineChart(
        title=b"Impact",
        x=pb.ValueAxis(label=b"Registers"),
        y=pb.ValueAxis(label=b"Warps", range=pb.AxisRange(most=64)),
        cells=[cell("l", "L")],
        highlight=pb.Cells(cells=[cell("r", "R")]),
    )
    statistics = pb.Statistics(
        title=b"Work",
        rollups=pb.Cells(cells=[cell(".avg", "Average"), cell(".max", "Max")]),
        metrics=pb.Cells(cells=[cell("sm", "SM")]),
    )
    grouped = pb.SectionBody(items=[pb.BodyItem(bars=split), pb.BodyItem(table=pb.BodyTable(cells=[cell("t")]))])
    found = charts(
        pb.BodyItem(bars=bars),
        pb.BodyItem(group=grouped),
        pb.BodyItem(histogram=histogram),
        pb.BodyItem(line=line),
        pb.BodyItem(statistics=statistics),
        pb.BodyItem(timeline=pb.Titled()),
    )
    assert found == [
        SectionChart(ChartKind.BARS, "Pipes", (("a", "A"), ("b", "B")), most=100.0),
        SectionChart(ChartKind.BARS, "Mix", (("m", ""),), is_split=True),
        SectionChart(ChartKind.TABLE, "", (("t", ""),)),
        SectionChart(ChartKind.HISTOGRAM, "Spread", (("h", "H"),), bins=4),
        SectionChart(ChartKind.LINE, "Impact", (("l", "L"),), (("r", "R"),), "Registers", "Warps", 64.0),
        SectionChart(ChartKind.STATISTICS, "Work", (("sm.avg", "SM, Average"), ("sm.max", "SM, Max"))),
        SectionChart(ChartKind.TIMELINE, ""),
    ]


def test_a_chart_of_another_gpu_is_left_out() -> None:
    bars = pb.BarChart(title=b"Old", cells=[cell("a")])
    assert charts(pb.BodyItem(bars=bars, on=pb.GpuFilter(first=75, last=75))) == []


def test_a_body_that_does_not_decode_costs_itself() -> None:
    whole = pb.SectionBody(items=[pb.BodyItem(numa=pb.Titled())]).SerializeToString()
    assert [one.kind for one in charts_of([b"\x0a\xff", whole], chosen())] == [ChartKind.DAMAGED, ChartKind.NUMA]


def test_titles_are_cleaned() -> None:
    (chart,) = charts(pb.BodyItem(bars=pb.BarChart(title=b"\x1b[31mred")))
    assert "\x1b" not in chart.title


@pytest.mark.parametrize("path", ncu_reports(), ids=lambda path: path.name)
def test_what_a_chart_names_is_in_the_report(path: Path) -> None:
    """Of all captures of ours: what was collected of a section is what its charts show."""
    details = kernels_of(load(path)).table.details
    assert details is not None
    metrics = details.metrics(0)
    tables = details.tables(0)
    named = {name for table in tables for chart in table.charts for name, _ in chart.cells}
    assert {name for name in named if name not in metrics} == set()
    assert not [table.id for table in tables for chart in table.charts if chart.kind is ChartKind.DAMAGED]


def test_a_gpu_has_the_metric_that_replaced_another() -> None:
    """H100 counts compression in another unit, and steps of samples in time."""
    details = kernels_of(load(LADDER)).table.details
    assert details is not None
    heads = {label: name for table in details.tables(0) for name, label in table.rows}
    assert heads["L2 Compression Input Sectors"] == "lrc__ilc_input_sectors.sum"
    assert heads["Maximum Sampling Interval"] == "profiler__pmsampler_interval_time"
    assert not any(label.endswith("MC Channel Elapsed Cycles") for label in heads)
