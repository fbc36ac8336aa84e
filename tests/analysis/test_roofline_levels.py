"""The roofline at every memory level: against arithmetic of its own, and against the charts of NVIDIA's sections."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.kernels.roofline_levels import LEVELS, LevelRow, RooflineLevels, roofline_levels
from llmtop.analysis.kernels.roofline_levels_table import all_levels_table, levels_by_launch, said_of_levels
from llmtop.analysis.kernels.table import kernels_of
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import DRAM_COUNTERS, GHZ, LADDER, LLAMA, TENSOR, TIMELINE, Launch, fp32_counters
from tests.kernel_traces import report as made
from tests.parsers.embedded_sections import Chart, charts, stored_launches

if TYPE_CHECKING:
    from llmtop.model import Trace

COPY = LADDER.with_name("copy-at-roof.ncu-rep.xz")
L2_COUNTERS = {
    "lts__lts2xbar_cycles_active.sum.per_second": 100 * GHZ,
    "lts__lts2xbar_cycles_active.sum.peak_sustained": 100.0,
    "lts__cycles_elapsed.avg.per_second": 2 * GHZ,
}
"""3.2 of 6.4 TB/s: 32 bytes in an active cycle of a slice."""
L1_COUNTERS = {
    "l1tex__lsu_writeback_active_mem_lgds.sum.per_second": 50 * GHZ,
    "l1tex__lsu_writeback_active_mem_lgds.sum.peak_sustained": 100.0,
    "l1tex__cycles_elapsed.avg.per_second": GHZ,
}
"""6.4 of 12.8 TB/s: 128 bytes in an active cycle of an SM."""
ALL = {**DRAM_COUNTERS, **L2_COUNTERS, **L1_COUNTERS}


def page_of(trace: Trace, launch: int = 0) -> RooflineLevels:
    found = roofline_levels(trace, launch)
    assert isinstance(found, RooflineLevels)
    return found


def by_level(page: RooflineLevels, precision: str) -> dict[str, LevelRow]:
    return {row.level: row for row in page.rows if row.precision == precision}


def test_the_same_work_stands_over_the_bytes_of_each_level() -> None:
    rows = by_level(page_of(made(Launch("k", metrics={**ALL, **fp32_counters(fma=500, peak=4000)}))), "FP32")
    assert tuple(rows) == LEVELS
    assert {level: row.intensity for level, row in rows.items()} == {"DRAM": 1.0, "L2": 0.3125, "L1": 0.15625}
    assert {level: row.ceiling for level, row in rows.items()} == {
        "DRAM": 2000 * GHZ,
        "L2": 2000 * GHZ,
        "L1": 2000 * GHZ,
    }
    assert {row.roof_share for row in rows.values()} == {0.5}


def test_the_compute_peak_is_the_ceiling_right_of_the_ridge() -> None:
    rows = by_level(page_of(made(Launch("k", metrics={**ALL, **fp32_counters(fma=500, peak=1250)}))), "FP32")
    assert {row.ceiling for row in rows.values()} == {1250 * GHZ}
    assert rows["DRAM"].roof_share == 0.8


def test_points_are_named_by_their_level_and_are_of_the_main_precision_alone() -> None:
    page = page_of(load(LADDER))
    assert [point.label for point in page.plot.points] == ["DRAM", "L2", "L1"]
    assert {point.precision for point in page.plot.points} == {"FP32"}
    assert {roof.level for roof in page.plot.roofs} == {"FP32", *LEVELS}
    assert not any(said.startswith("besides it works in") for said in page.said)
    assert {row.precision for row in page.rows} == {"FP32"}


def test_what_a_level_lacks_is_said_with_the_command_and_the_others_stay() -> None:
    page = page_of(made(Launch("k", metrics={**DRAM_COUNTERS, **fp32_counters(fma=500)}), command="ncu ./a"))
    rows = by_level(page, "FP32")
    assert rows["DRAM"].intensity == 1.0
    assert page.missing is not None
    assert page.missing.reason == "bytes of L1, L2 not collected"
    assert "--section SpeedOfLight_HierarchicalSingleRooflineChart" in page.missing.remedy
    assert rows["L1"].intensity == rows["L2"].ceiling == rows["L2"].roof_share == page.missing


def test_hidden_tensor_work_has_no_point_and_its_bytes_do() -> None:
    page = page_of(
        made(
            Launch(
                "k",
                metrics={**ALL, **fp32_counters(fma=5), TENSOR: 40.0},
            )
        )
    )
    assert page.plot.points == ()
    assert [(row.level, row.precision, row.intensity) for row in page.rows] == [(one, "", None) for one in LEVELS]
    assert page.missing is not None
    assert page.missing.reason == "tensor operations were not counted; the tensor pipe is 40 % busy"
    assert "HierarchicalTensorRooflineChart" in page.missing.remedy
    assert not any("nearest" in text for text in page.said), "what is nearest is not known"


def test_a_copy_has_bytes_and_no_work() -> None:
    page = page_of(load(COPY))
    assert {row.precision for row in page.rows} == {""}
    assert page.said == ("the nearest ceiling is that of DRAM, of which it reaches 86 %",)
    assert page.missing is None


def test_what_the_rows_come_to() -> None:
    said = page_of(made(Launch("k", metrics={**ALL, **fp32_counters(fma=500)}))).said
    assert said == (
        "the nearest ceiling is that of DRAM, of which it reaches 50 %; none is near: what limits it is not in this "
        "plot (Speed of light, Stalls)",
        "for each byte that DRAM moves these caches hand out so many: L1 6.40, L2 3.20",
    )
    tma = {**ALL, "l1tex__lsu_writeback_active_mem_lgds.sum.per_second": GHZ}
    assert (
        page_of(made(Launch("k", metrics={**tma, **fp32_counters(fma=500)})))
        .said[-1]
        .startswith("L1 hands out less than L2 does: ")
    )


def test_a_report_without_any_of_it_says_how_to_get_it() -> None:
    found = roofline_levels(made(Launch("scale")), 0)
    assert isinstance(found, Unknown)
    assert found.reason == "no FLOP counters were collected"
    assert found.remedy.startswith("ncu ")
    timeline = load(TIMELINE)
    assert isinstance(roofline_levels(timeline, 0), Unknown)
    assert said_of_levels(timeline, levels_by_launch(timeline))[0].startswith("this capture has no counters")


def test_all_kernels_stand_in_one_table() -> None:
    trace = load(LLAMA)
    found = levels_by_launch(trace, "nvjet")
    assert not isinstance(found, Unknown)
    table = all_levels_table(trace, found)
    assert [table.cells(row)[1] for row in range(3)] == list(LEVELS)
    assert len(table) == 3 * len(found)


# -- against NVIDIA's own sections ------------------------------------------------------------------------------


LOOKED_AT = range(3)
"""Launches of each report: a section of tensor cores alone takes half a megabyte."""
PRECISIONS = {"Single": "FP32", "Double": "FP64", "Half": "FP16"}


def of_nvidia(
    path: Path, trace: Trace, launches: Collection[int]
) -> Iterator[tuple[dict[tuple[str, str], LevelRow], Chart]]:
    """The roofline charts that a report itself describes, beside our rows by (precision, level)."""
    for i, launch in enumerate(stored_launches(path)):
        if i not in launches:
            continue
        metrics, found = kernels_of(trace).metrics(i), roofline_levels(trace, i)
        rows = {} if isinstance(found, Unknown) else {(row.precision, row.level): row for row in found.rows}
        drawn = (chart for section in launch.sections for chart in charts(section, metrics))
        yield from ((rows, chart) for chart in drawn if chart.achieved)


def points_and_ceilings_are_those_of_nvidias_charts(path: Path, trace: Trace) -> None:
    for rows, chart in of_nvidia(path, trace, LOOKED_AT):
        kind = next((PRECISIONS[kind] for kind in PRECISIONS if f"({kind} Precision)" in chart.title), "")
        for label, (work, traffic) in chart.achieved.items():
            row = rows.get((kind, label.split()[0]))
            if row is None or row.work is None or isinstance(row.traffic, Unknown):
                continue
            peaks = chart.peaks[label.replace("Achieved Value", "Roofline")]
            assert (row.work.achieved, row.traffic.achieved) == pytest.approx((work, traffic))
            assert (row.work.peak, row.traffic.peak) == pytest.approx(peaks)
            assert row.intensity == pytest.approx(work / traffic)


def test_tensor_work_stands_where_nvidias_chart_has_it() -> None:
    """Its peaks are another matter: those of plain counters include 2:4 sparsity."""
    trace = load(LLAMA)
    heaviest = kernels_of(trace).standing("nvjet")[:1]
    compared = set()
    for rows, chart in of_nvidia(LLAMA, trace, heaviest):
        for label, (work, traffic) in chart.achieved.items():
            if "Src:bf16 Dst:fp32" in label and work:
                level = next(level for level in LEVELS if label.startswith(level))
                assert rows["bf16 tensor", level].intensity == pytest.approx(work / traffic)
                compared.add(level)
    assert compared == set(LEVELS)


def test_nvidias_charts_were_there_to_compare_with() -> None:
    found = list(of_nvidia(LADDER, load(LADDER), LOOKED_AT))
    compared = [kind for rows, chart in found for kind in PRECISIONS if rows and f"({kind} Precision)" in chart.title]
    assert compared == ["Double", "Half", "Single"] * len(LOOKED_AT)
    assert ("FP32", "L1") in found[0][0]
