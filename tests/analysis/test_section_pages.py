"""Pages of sections: against NVIDIA's own printing, and against arithmetic of their own."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from llmtop.analysis.kernels.instruction_mix import instruction_mix
from llmtop.analysis.kernels.pm_samples import pm_samples
from llmtop.analysis.kernels.section_page import PageOf, PagePart, PagePlot, PageRow, SectionPage
from llmtop.analysis.kernels.section_tables import section_tables
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.kernels.warps import warps_page
from llmtop.model import ChartKind, Instances, KernelCodes, SectionChart, SectionTable, Trace, Unknown, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA, ROOT, STALL, TIMELINE, FakeDetails, Launch, stall_ratios
from tests.kernel_traces import report as made

PRINTED = ROOT / "sample_traces" / "ncu" / "2024.1.1" / "llama-decode.details.csv.xz"
SMEM = 2
SCHEDULER: Mapping[str, Value] = {
    "smsp__warps_active.avg.peak_sustained": 16.0,
    "smsp__maximum_warps_avg_per_active_cycle": 12.0,
    "smsp__warps_active.avg.per_cycle_active": 10.0,
    "smsp__warps_eligible.avg.per_cycle_active": 0.6,
    "smsp__issue_active.avg.per_cycle_active": 0.25,
    "smsp__issue_inst0.avg.pct_of_peak_sustained_active": 75.0,
}
PAGES = (warps_page, instruction_mix, pm_samples, section_tables)


def page_of(make: PageOf, trace: Trace, launch: int = 0) -> SectionPage:
    found = make(trace, launch)
    assert isinstance(found, SectionPage)
    return found


def part(page: SectionPage, title: str) -> PagePart:
    return next(one for one in page.parts if one.title.startswith(title))


def by_name(rows: Sequence[PageRow]) -> dict[str, PageRow]:
    return {row.name: row for row in rows}


# -- warps ------------------------------------------------------------------------------------------------------


def scheduler(**changed: float) -> PagePart:
    names = {"issued": "smsp__issue_active.avg.per_cycle_active", "active": "smsp__warps_active.avg.per_cycle_active"}
    metrics = {**SCHEDULER, **{names[name]: value for name, value in changed.items()}}
    return part(page_of(warps_page, made(Launch("k", metrics=metrics))), "Scheduler")


def test_warps_are_shares_of_what_a_scheduler_holds_and_instructions_of_one_a_cycle() -> None:
    rows = by_name(scheduler().rows)
    assert {name: row.share for name, row in rows.items()} == {
        "holds at most": 1.0,
        "the launch allows": 0.75,
        "active": 0.625,
        "eligible": 0.0375,
        "issued": 0.25,
        "no warp eligible": 0.75,
    }
    assert rows["active"].text == "10"


def test_more_warps_help_where_all_of_them_would_be_enough() -> None:
    """A warp issues once in active / issued cycles: of 16 such warps 16 times as often."""
    (said,) = scheduler(issued=0.5).says
    assert said == (
        "each warp issues once in 20 cycles: with all 16 warps that would be an instruction in 80 % of the cycles: "
        "more warps help (Occupancy)"
    )


def test_more_warps_do_not_help_where_each_waits_too_long() -> None:
    (said,) = scheduler().says
    assert said == (
        "each warp issues once in 40 cycles: with all 16 warps that would be an instruction in 40 % of the cycles at "
        "most: they must wait less, see below"
    )


def test_warps_that_the_launch_allows_and_that_are_not_there_are_named_first() -> None:
    assert scheduler(active=9.0).says[0].startswith("it has 9 of the 12 warps that the launch allows: ")
    assert len(scheduler(active=9.7).says) == 1


def test_a_scheduler_that_issues_most_of_the_time_needs_nothing() -> None:
    assert scheduler(issued=0.8).says == (
        "a scheduler issues in 80 % of its cycles: fewer instructions help, not more warps",
    )


def test_each_reason_says_what_it_means_and_what_to_do() -> None:
    metrics = stall_ratios(long_scoreboard=6.0, barrier=3.0, not_selected=1.0)
    latency: Mapping[str, Value] = {"smsp__average_warp_latency_per_inst_issued.ratio": 11.0}
    page = page_of(warps_page, made(Launch("k", metrics={**metrics, **latency, **SCHEDULER})))
    states = part(page, "What warps wait for, in cycles per issued instruction")
    assert [(row.name, row.value, row.share) for row in states.rows] == [
        ("long_scoreboard", 6.0, 0.6),
        ("barrier", 3.0, 0.3),
        ("not_selected", 1.0, 0.1),
    ]
    assert all(row.says for row in states.rows)
    assert ["cp.async" in row.advice for row in states.rows] == [True, False, False]
    assert "__syncthreads" in states.rows[1].advice
    assert states.rows[2].advice == "", "it costs nothing"
    assert states.says == ("with issuing itself these are the 11 cycles between two instructions of a warp",)
    assert page.missing is None


def test_the_half_that_is_missing_is_said_with_its_section() -> None:
    page = page_of(warps_page, made(Launch("k", metrics=SCHEDULER), command="ncu ./a"))
    assert [one.title for one in page.parts] == ["Scheduler, in the mean of a cycle"]
    assert page.missing is not None
    assert "not collected" in page.missing.reason
    assert page.missing.remedy.startswith("ncu ")


def test_stall_cycles_are_those_of_the_report() -> None:
    trace = load(LADDER)
    metrics = kernels_of(trace).metrics(SMEM)
    rows = part(page_of(warps_page, trace, SMEM), "What warps wait for").rows
    assert {row.name: row.value for row in rows} == {row.name: metrics[STALL.format(row.name)] for row in rows}
    assert len(rows) == 14


def total(rows: Sequence[PageRow]) -> float:
    return sum(float(row.value) for row in rows if not isinstance(row.value, Unknown))


# -- instruction mix ----------------------------------------------------------------------------------------------


def opcodes_add_up_to_what_was_executed(trace: Trace) -> None:
    metrics = kernels_of(trace).metrics(0)
    found = instruction_mix(trace, 0)
    if isinstance(found, Unknown) or "sass__inst_executed_per_opcode" not in metrics:
        return
    rows = part(found, "Instructions by opcode").rows
    assert total(rows) == metrics["sass__inst_executed_per_opcode"]
    assert sum(row.share or 0.0 for row in rows) == pytest.approx(1)


def test_a_tiled_gemm_loads_from_shared_memory_and_multiplies() -> None:
    page = page_of(instruction_mix, load(LADDER), SMEM)
    opcodes = part(page, "Instructions by opcode").rows
    assert [row.name for row in opcodes[:2]] == ["LDS", "FFMA"]
    assert opcodes[0].value == 335544320
    kinds = part(page, "Instructions by kind").rows
    assert kinds[0].name == "Load/Store"
    fed = part(page, "Pipes, instructions")
    assert fed.rows[0].name == "lsu"
    assert fed.rows[0].value == pytest.approx(78, abs=0.5)
    assert "xu" in fed.says[0]
    assert page.missing is None


class Codes:
    """Instructions by address: two multiplications, a branch, and one that nobody can name."""

    def assembly(self, i: int) -> Mapping[int, str]:
        return {0: "FFMA R1, R2, R3, R4", 16: "@!P0 FFMA.FTZ R1, R2, R3, R4", 32: "@UP1 BRA `(.L_1)"}

    def metrics(self, i: int) -> frozenset[str]:
        return frozenset({"inst_executed"})

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        return {0: 4.0, 16: 2.0, 32: 1.0, 48: 9.0}


def test_instructions_counted_one_by_one_are_added_up_by_their_text() -> None:
    trace = made(Launch("k"))
    assert trace.kernels is not None
    with_code = replace(trace, kernels=replace(trace.kernels, codes=cast("KernelCodes", Codes())))
    rows = part(page_of(instruction_mix, with_code), "Instructions by opcode").rows
    assert [(row.name, row.value) for row in rows] == [("FFMA", 6), ("BRA", 1)]


def test_threads_are_of_the_32_of_a_warp() -> None:
    metrics: Mapping[str, Value] = {"smsp__thread_inst_executed_per_inst_executed.ratio": 24.0}
    (row,) = part(page_of(instruction_mix, made(Launch("k", metrics=metrics))), "Instructions").rows
    assert (row.name, row.share) == ("threads", 0.75)


# -- PM samples -----------------------------------------------------------------------------------------------------


def test_a_series_begins_and_ends_with_the_kernel() -> None:
    """Its mean is then what the counter of the whole kernel says, and all samples together take as long as it."""
    trace = load(LADDER)
    kernels = kernels_of(trace)
    page = page_of(pm_samples, trace, SMEM)
    sm = by_name(part(page, "SM").rows)
    counted = kernels.metrics(SMEM)["sm__inst_executed.avg.pct_of_peak_sustained_elapsed"]
    assert sm["inst_executed"].value == pytest.approx(counted, rel=0.01)
    assert len(sm["inst_executed"].samples) * 1500 == pytest.approx(kernels.table.duration_ns[SMEM], rel=0.01)
    assert page.parts[0].says[0] == "1227 samples of 1.50 µs over 1.85 ms; what is counted is of one sample"
    assert {one.title for one in page.parts} == {"SM", "L1/TEX", "L2", "DRAM", "Launches"}


def sampled(**series: Sequence[float]) -> Launch:
    """A report of 2024.1: `sm` and `dram` are counters of two runs of the kernel."""
    names = {
        "sm": "pmsampling:sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
        "dram": "pmsampling:dramc__throughput.avg.pct_of_peak_sustained_elapsed",
    }
    found = {
        names[name]: Instances(tuple(range(100, 100 + 20 * len(values), 20)), tuple(values))
        for name, values in series.items()
    }
    groups = Instances(tuple(range(len(found))), tuple(found))
    dropped = Instances((0,), (3,))
    more = {"profiler__pmsampler_pass_groups": groups, "profiler__pmsampler_dropped_samples": dropped}
    return Launch("k", instances={**found, **more})


def test_samples_before_and_after_the_kernel_are_left_out() -> None:
    page = page_of(pm_samples, made(sampled(sm=(0, 0, 10, 0, 30, 0), dram=(1, 2, 3))))
    (row,) = part(page, "SM").rows
    assert (row.samples, row.unit) == ((10.0, 0.0, 30.0), "%")
    assert row.value == pytest.approx(40 / 3)
    assert row.says == "at most 30 %"
    (dram,) = part(page, "DRAM").rows
    assert dram.samples == (1.0, 2.0, 3.0), "nothing of its run tells when the kernel ran"
    assert page.parts[0].says == (
        "3 samples of 20.0 ns over 60.0 ns; what is counted is of one sample",
        "taken in 2 runs of the kernel: what is below each other need not be of one run",
        "3 samples were dropped",
    )


def test_what_was_never_used_is_named_alone() -> None:
    page = page_of(pm_samples, made(sampled(sm=(5.0,), dram=(0.0,))))
    assert part(page, "DRAM").rows == ()
    assert part(page, "DRAM").says == ("always 0: throughput",)
    assert page.parts[0].says[0] == "the kernel is over within one sample"


# -- section tables -------------------------------------------------------------------------------------------------

SAME_UNITS = {"%", "warp", "inst/cycle", "block", "thread", "register/thread", ""}
"""In which nothing is scaled for reading."""


def printed() -> dict[tuple[int, str, str], str]:
    """What `ncu --import --page details --csv` (2024.1.1) prints of the report, by launch, section and label."""
    rows = csv.DictReader(io.StringIO(lzma.decompress(PRINTED.read_bytes()).decode()))
    return {
        (int(row["ID"]), row["Section Name"], row["Metric Name"]): row["Metric Value"]
        for row in rows
        if row["Metric Name"] and row["Metric Unit"] in SAME_UNITS
    }


def test_tables_are_as_nvidias_own_tool_prints_them() -> None:
    trace, told, compared = load(LLAMA), printed(), 0
    for launch in range(0, 60, 12):
        for one, row in page_of(section_tables, trace, launch).rows:
            value = told.get((launch, one.title, row.name))
            if value is not None and isinstance(row.value, int | float):
                assert float(value.replace(",", "")) == pytest.approx(row.value, abs=0.00501), (one.title, row.name)
                compared += 1
    assert compared > 100


def test_the_affinity_of_each_gpu_stands_by_itself() -> None:
    page = page_of(section_tables, load(LADDER))
    numa = part(page, "NUMA affinity of GPU 0, NVIDIA H100 80GB HBM3")
    assert [(row.name, row.value) for row in numa.rows] == [
        ("CPUs near the GPU", "0-15"),
        ("NUMA node by CPU", "0"),
        ("NUMA node by memory", "0"),
    ]


def test_metrics_asked_for_by_name_have_a_table() -> None:
    page = page_of(section_tables, load(LADDER.with_name("few-metrics.ncu-rep.xz")))
    assert [row.name for row in page.parts[0].rows] == [
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "lts__t_sector_hit_rate.pct",
    ]


def test_what_the_report_does_not_have_is_named_once_for_each_reason() -> None:
    page = page_of(section_tables, load(LLAMA))
    assert page.unknown == (
        "Local Memory Spilling Request Overhead: a section names it, and the report does not have it: this GPU or this "
        "version of the tool does not count it (ncu --query-metrics lists what the GPU counts)",
        "Active Clusters: launch__occupancy_per_cluster_size was not collected per instance",
    )


CHARTED: Mapping[str, Value] = {"a": 25.0, "b": 50.0, "r": 30.0, "s.avg": 2.0, "s.max": 3.0, "z.avg": 0.0, "z.max": 0.0}


class Charted(FakeDetails):
    """A section that a user wrote, of these charts."""

    charts: tuple[SectionChart, ...] = ()

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        return (SectionTable("Mine", "My section", (("a", "A"),), self.charts),)


def charted(*charts: SectionChart, instances: Mapping[str, Instances] | None = None) -> tuple[PagePart, ...]:
    """What the page shows below the section's head."""
    trace = made(Launch("k"))
    assert trace.kernels is not None
    details = Charted([CHARTED], split={0: instances or {}})
    details.charts = charts
    trace = replace(trace, kernels=replace(trace.kernels, details=details))
    head, *parts = page_of(section_tables, trace).parts
    assert [row.name for row in head.rows] == ["A"]
    return (head, *parts)


def test_bars_go_up_to_the_end_of_their_axis_or_to_the_highest() -> None:
    cells = (("a", "A"), ("b", "B"), ("gone", "Gone"))
    _, ended, free = charted(
        SectionChart(ChartKind.BARS, "Pipes", cells, most=100.0), SectionChart(ChartKind.BARS, "", cells)
    )
    assert (ended.title, free.title) == ("My section: Pipes", "My section")
    assert [row.bar for row in ended.rows] == [0.25, 0.5, None]
    assert [row.bar for row in free.rows] == [0.5, 1.0, None]
    assert isinstance(ended.rows[2].value, Unknown)


def test_bars_of_what_a_metric_is_split_by_stand_the_highest_first() -> None:
    split = {"m": Instances(("LDS", "FFMA"), (1.0, 4.0))}
    _, part = charted(SectionChart(ChartKind.BARS, "Mix", (("m", "Mix"),), is_split=True), instances=split)
    assert [(row.name, row.value, row.bar) for row in part.rows] == [("FFMA", 4.0, 1.0), ("LDS", 1.0, 0.25)]


def test_a_histogram_counts_values_in_equal_steps() -> None:
    values = {"h": Instances((), (0.0, 1.0, 2.5, 10.0))}
    _, part = charted(SectionChart(ChartKind.HISTOGRAM, "Spread", (("h", "H"),), bins=4), instances=values)
    assert [(row.name, row.value) for row in part.rows] == [
        ("0 to 2.50", 2),
        ("2.50 to 5", 1),
        ("5 to 7.50", 0),
        ("7.50 to 10", 1),
    ]
    assert [row.bar for row in part.rows] == [1.0, 0.5, 0.0, 0.5]
    assert part.says == ("H: how many of 4 values are in each step",)


@pytest.mark.parametrize("values", [(3.0,), (3.0, 3.0)])
def test_a_histogram_of_one_value_has_one_step(values: tuple[float, ...]) -> None:
    found = {"h": Instances((), values)}
    _, part = charted(SectionChart(ChartKind.HISTOGRAM, "", (("h", "H"),), bins=4), instances=found)
    assert [(row.name, row.value) for row in part.rows] == [("3 to 3", len(values))]


def test_a_line_has_the_value_where_the_kernel_stands() -> None:
    points = {"l": Instances((64, 32), (8.0, 16.0))}
    chart = SectionChart(ChartKind.LINE, "Impact", (("l", "Warps"),), (("r", "Registers"),), "Registers", "Warps", 64.0)
    _, part = charted(chart, instances=points)
    (row,) = part.rows
    assert (row.value, row.points) == (16.0, ((32.0, 16.0), (64.0, 8.0)))
    assert row.says == "at 30 (Registers); at most 16"
    assert part.plot == PagePlot("Registers", "Warps", 64.0, 30.0)
    _, unmarked = charted(replace(chart, marks=()), instances=points)
    assert unmarked.rows[0].says == "highest, at 32"
    _, gone = charted(chart)
    assert isinstance(gone.rows[0].value, Unknown)


def test_metrics_of_a_table_that_are_0_are_named_alone() -> None:
    cells = (("s.avg", "S, Average"), ("s.max", "S, Max"), ("z.avg", "Z, Average"), ("z.max", "Z, Max"))
    _, part = charted(SectionChart(ChartKind.STATISTICS, "Work", cells))
    assert [row.name for row in part.rows] == ["S, Average", "S, Max"]
    assert part.asides == ("0: Z",)


@pytest.mark.parametrize("kind", ChartKind)
def test_every_chart_is_drawn_or_says_why_not(kind: ChartKind) -> None:
    values = {"a": Instances((1, 2), (1.0, 2.0))}
    *_, last = charted(SectionChart(kind, "Chart", (("a", "A"),)), instances=values)
    assert last.title == "My section: Chart" or len(last.asides) == 1


def test_parts_of_throughputs_are_in_speed_of_light() -> None:
    (head,) = charted(SectionChart(ChartKind.TABLE, "Breakdown", (("breakdown:sm__x", "{UNIT}"),)))
    assert head.asides == ("what the throughputs are made of is in Speed of light",)


def test_a_launch_that_failed_has_no_tables_and_says_so() -> None:
    found = section_tables(made(Launch("k", grid=(0, 0, 0)), sections=("SpeedOfLight",)), 0)
    assert isinstance(found, Unknown)
    assert "the launch failed" in found.reason


# -- all of them ----------------------------------------------------------------------------------------------------


def every_page_is_there_or_says_why_not(trace: Trace) -> None:
    for make in PAGES:
        found = make(trace, 0)
        if isinstance(found, Unknown):
            assert found.reason
            continue
        assert found.parts
        assert all(0 <= row.share <= 1.01 for _, row in found.rows if row.share is not None)


@pytest.mark.parametrize("make", PAGES)
def test_a_report_without_counters_says_how_to_get_them(make: PageOf) -> None:
    found = make(made(Launch("k"), command="ncu ./a"), 0)
    assert isinstance(found, Unknown)
    timeline = make(load(TIMELINE), 0)
    assert isinstance(timeline, Unknown)
    assert timeline.reason.startswith("this capture has no counters of its kernels")
