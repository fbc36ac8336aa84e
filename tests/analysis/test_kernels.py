"""Kernels: verdicts, groups, the lazy table, names that stay apart, and the views over a whole report."""

from __future__ import annotations

import csv
import math
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.bounds import Bound, Verdict, kernel_bound, lean
from llmtop.analysis.kernels.names import short_names
from llmtop.analysis.kernels.table import (
    Grouping,
    Totals,
    kernel_table,
    kernels_of,
    roofline_view,
    stall_bars,
    stall_tree,
)
from llmtop.analysis.tables import SORTED_AT_ONCE
from llmtop.model import Missing, Origin, Trace, Unknown, Value, What
from llmtop.text import base_name
from tests.kernel_traces import (
    COMPUTE,
    DRAM,
    DRAM_COUNTERS,
    MEMORY,
    OCCUPANCY,
    SAMPLES,
    Launch,
    decoded,
    fp32_counters,
    report,
    stall_ratios,
)

FULL: dict[str, Value] = {
    **DRAM_COUNTERS,
    **fp32_counters(fma=500),
    COMPUTE: 20.0,
    MEMORY: 90.0,
    OCCUPANCY: 45.0,
    "launch__registers_per_thread": 32,
    "launch__waves_per_multiprocessor": 4.0,
    **stall_ratios(wait=3.0, barrier=1.0),
    "l1tex__t_sector_hit_rate.pct": 20.0,
    "lts__t_sector_hit_rate.pct": 60.0,
}


@pytest.mark.parametrize(
    ("compute", "memory", "bound"),
    [
        (90, 84.9, Bound.COMPUTE),
        (90, 85, Bound.BALANCED),
        (85, 90, Bound.BALANCED),
        (84.9, 90, Bound.MEMORY),
        (6, 96, Bound.MEMORY),
        (59.9, 3, Bound.LATENCY),
        (60, 3, Bound.COMPUTE),
        (0, 0, Bound.LATENCY),
    ],
)
def test_the_bound_follows_from_two_percentages(compute: float, memory: float, bound: Bound) -> None:
    verdict = kernel_bound({COMPUTE: compute, MEMORY: memory})
    assert isinstance(verdict, Verdict)
    assert verdict.bound is bound


def test_a_kernel_that_saturates_its_caches_waits_for_memory() -> None:
    verdict = kernel_bound({COMPUTE: 5.8, MEMORY: 96.0, DRAM: 0.04})
    assert isinstance(verdict, Verdict)
    assert verdict.bound is Bound.MEMORY
    assert verdict.leaning is Bound.COMPUTE, "by DRAM alone"
    assert verdict.why == "compute 5.8 %, memory 96 % (DRAM 0.0 %) of peak"


@pytest.mark.parametrize("values", [{}, {COMPUTE: 50.0}, {MEMORY: 50.0}, {COMPUTE: math.nan, MEMORY: 1.0}])
def test_without_both_there_is_no_verdict(values: dict[str, Value]) -> None:
    why = Unknown("compute and memory throughput not collected", "add --section SpeedOfLight")
    assert kernel_bound(values) == why


STUDY = SAMPLES / "dsocr_v2"


@pytest.mark.skipif(not STUDY.exists(), reason="the kernel study is not here")
def test_leaning_reproduces_the_classes_of_the_study() -> None:
    rows = list(csv.DictReader((STUDY / "metrics_summary.csv").read_text().splitlines()))
    assert len(rows) == 20
    for row in rows:
        leaning = lean(float(row["sm_throughput_pct"]), float(row["dram_throughput_pct"]))
        assert str(leaning) == row["classification"].removesuffix("_bound"), row["kernel_id"]


def test_facts_say_what_a_basic_report_lacks() -> None:
    facts = kernels_of(report(Launch("k", metrics={COMPUTE: 10.0, MEMORY: 80.0}))).facts(0)
    remedies = {missing.what: missing.why.remedy for missing in facts.missing}
    assert remedies == {
        "roofline": "add --section SpeedOfLight_RooflineChart --section SpeedOfLight_HierarchicalTensorRooflineChart",
        "occupancy": "add --section Occupancy",
        "registers": "add --section LaunchStats",
        "waves": "add --section LaunchStats",
        "stalls": "add --section WarpStateStats",
        "DRAM traffic": "add --section MemoryWorkloadAnalysis",
        "L1 hit rate": "add --section MemoryWorkloadAnalysis",
        "L2 hit rate": "add --section MemoryWorkloadAnalysis",
    }
    assert kernels_of(report(Launch("k", metrics=FULL))).facts(0).missing == ()


@pytest.mark.parametrize(("percents", "is_known"), [(99.0, True), (100.4, True), (112.0, False)])
def test_more_hits_than_lookups_are_no_hit_rate(percents: float, is_known: bool) -> None:
    facts = kernels_of(report(Launch("k", metrics={"lts__t_sector_hit_rate.pct": percents}))).facts(0)
    assert isinstance(facts.l2_hits, Unknown) is not is_known
    if isinstance(facts.l2_hits, Unknown):
        assert facts.l2_hits.reason.startswith("L2 hit rate of 112 %: hits and lookups are of different passes")
        assert facts.l2_hits.remedy == "", "nothing that is collected again would settle it"


def test_a_timeline_knows_durations_and_how_to_get_the_rest() -> None:
    trace = report(Launch("k", ns=500), Launch("k", ns=1500), counted=False)
    table = kernel_table(trace, "shape")
    cells = dict(zip([column.key for column in table.columns], table.cells(0), strict=True))
    assert (cells["calls"], cells["duration"], cells["mean"]) == (2, 2000, 1000)
    assert not {"bound", "roofline", "occupancy", "stall"} & cells.keys(), "columns of dashes take room"
    facts = kernels_of(trace).facts(0)
    for part in (facts.bound, facts.roofline, facts.occupancy, facts.stalls, facts.registers, facts.shared_memory):
        assert isinstance(part, Unknown)
        assert part.remedy.startswith("profile it with ncu: ")


def test_a_timeline_may_know_registers_and_shared_memory() -> None:
    trace = report(Launch("k"), Launch("k"), counted=False)
    assert trace.kernels is not None
    table = replace(trace.kernels, registers=array("q", [32, -1]), shared_bytes=array("q", [0, -1]))
    facts = [kernels_of(replace(trace, kernels=table)).facts(i) for i in (0, 1)]
    assert (facts[0].registers, facts[0].shared_memory) == (32, 0)
    assert isinstance(facts[1].registers, Unknown)
    assert isinstance(facts[1].shared_memory, Unknown)


def test_rows_of_one_name_are_told_apart_by_their_grid_and_found_by_it() -> None:
    trace = report(Launch("a", 300), Launch("a", 200, grid=(8, 2, 1)), Launch("a", 100, block=(64, 1, 1)), Launch("b"))
    table = kernel_table(trace, Grouping.SHAPE)
    assert [table.cells(i)[0] for i in range(4)] == ["b", "a [64 of 128]", "a [8x2]", "a [64 of 64]"]
    assert len(table.filtered("8x2")) == 1
    again = report(Launch("a", 300), Launch("a", 200, grid=(8, 2, 1)), Launch("a", 100))
    assert [kernel_table(again, Grouping.SHAPE).cells(i)[0] for i in range(2)] == ["a [64]", "a [8x2]"]
    assert table.filtered("[64").totals() == Totals(2, 2, 400.0, 0.25)


def named_cells(trace: Trace, grouped: Grouping | str, row: int = 0) -> dict[str, object]:
    table = kernel_table(trace, grouped)
    return dict(zip([column.key for column in table.columns], table.cells(row), strict=True))


def test_a_row_has_the_numbers_of_its_kernel() -> None:
    cells = named_cells(report(Launch("k", 3000.0, FULL), Launch("other", 1000.0)), Grouping.LAUNCH)
    assert isinstance(cells.pop("shared"), Unknown)
    assert cells == {
        "name": "k", "share": 75.0, "duration": 3000.0, "bound": "memory", "roofline": 50.0, "occupancy": 45.0,
        "stall": "wait 75 %", "grid": "64", "block": "128", "registers": 32, "launch": 0,
        "dram": 1e12, "dram_share": 50.0, "l1": 20.0, "l2": 60.0, "waves": 4.0, "class": "DRAM", "family": "other",
        "range": "(in no range)",
    }  # fmt: skip


def test_groups_are_by_shape_or_by_name_and_the_longest_comes_first() -> None:
    trace = report(
        Launch("a", 100), Launch("b", 500), Launch("a", 300, grid=(8, 1, 1)), Launch("a", 200), Launch("b", 100)
    )
    by_shape, by_name = kernels_of(trace).groups(Grouping.SHAPE), kernels_of(trace).groups(Grouping.NAME)
    assert [(list(row.launches), row.total_ns) for row in by_shape] == [([1, 4], 600), ([0, 3], 300), ([2], 300)]
    assert [(list(row.launches), row.total_ns) for row in by_name] == [([0, 2, 3], 600), ([1, 4], 600)]
    a = by_name[0]
    assert (a.calls, a.mean_ns, a.min_ns, a.max_ns) == (3, 200, 100, 300)


@pytest.mark.parametrize(("long_ns", "occupancy"), [(900, 1.0), (120, 3.0)])
def test_the_call_in_which_half_of_the_time_lies_stands_for_its_group(long_ns: float, occupancy: float) -> None:
    trace = report(
        Launch("k", long_ns, {OCCUPANCY: 1.0}), Launch("k", 100, {OCCUPANCY: 2.0}), Launch("k", 110, {OCCUPANCY: 3.0})
    )
    assert named_cells(trace, Grouping.SHAPE)["occupancy"] == occupancy


def test_unknown_durations_are_neither_zero_nor_in_the_way() -> None:
    trace = report(Launch("k", math.nan), Launch("j", 50))
    table = kernel_table(trace)
    assert [table.cells(row)[0] for row in range(2)] == ["j", "k"]
    cells = named_cells(trace, Grouping.LAUNCH, row=1)
    assert cells["duration"] == Unknown("duration not collected", "add --section SpeedOfLight")
    assert cells["share"] == cells["duration"]


def test_a_table_decodes_only_what_is_seen() -> None:
    trace = report(*(Launch("k", 1000 - i, FULL) for i in range(50)))
    table = kernel_table(trace)
    assert decoded(trace) == []
    assert len(table.sorted_by("duration", descending=False).filtered("K")) == 50
    assert decoded(trace) == [], "times and names are in the columns"
    table.cells(3)
    table.cells(3)
    assert decoded(trace) == [3]
    table.sorted_by("occupancy", descending=True)
    assert sorted(decoded(trace)) == list(range(50))


def test_a_frame_has_time_to_sort_by_columns_without_counters() -> None:
    trace = report(*(Launch("k", 1000 - i, FULL) for i in range(3)))
    for grouping in Grouping:
        table = kernel_table(trace, grouping)
        for column in (one.key for one in table.columns if table.sorts_at_once(one.key)):
            table.sorted_by(column, descending=True)
            assert decoded(trace) == [], column
    table = kernel_table(trace)
    assert [table.sorts_at_once(column) for column in ("duration", "grid", "occupancy", "range")] == [
        True,
        True,
        False,
        False,
    ]
    assert not replace(table, rows=[*table.rows] * SORTED_AT_ONCE).sorts_at_once("duration")


def test_a_frame_has_time_to_look_for_names_and_not_for_the_launches_of_a_range() -> None:
    table = kernel_table(report(Launch("k")), Grouping.NAME)
    assert [table.filters_at_once(text) for text in ("k", "nvtx", "NVTX:decode", "nvtx:")] == [True, True, False, False]
    assert not replace(table, rows=[*table.rows] * (SORTED_AT_ONCE + 1)).filters_at_once("k")


def test_sorting_puts_unknown_values_last_either_way() -> None:
    trace = report(Launch("a", metrics={OCCUPANCY: 5.0}), Launch("b"), Launch("c", metrics={OCCUPANCY: 9.0}))
    table = kernel_table(trace)
    for descending, order in ((True, ["c", "a", "b"]), (False, ["a", "c", "b"])):
        ordered = table.sorted_by("occupancy", descending=descending)
        assert [ordered.cells(row)[0] for row in range(3)] == order


def test_filtering_looks_into_the_full_name() -> None:
    trace = report(Launch("void ns::gemm<float>(int)", function="gemm"), Launch("void ns::copy(int)", function="copy"))
    found = kernel_table(trace).filtered("GEMM<FLO")
    assert [found.cells(row)[0] for row in range(len(found))] == ["gemm"]
    assert found.key(0) == 0
    assert len(kernel_table(trace).filtered("nothing")) == 0


def test_a_trace_without_kernels_says_why() -> None:
    why = Unknown("the capture has no CUDA kernels", "nsys profile")
    trace = Trace(Origin("nsys-sqlite"), missing=(Missing(What("kernels"), why),))
    assert len(kernel_table(trace)) == 0
    assert no_kernels(trace) == why
    assert roofline_view(trace).why_not == why
    assert stall_bars(trace) == ()


def test_the_roofline_has_a_dot_for_each_shape_as_heavy_as_its_time() -> None:
    trace = report(
        Launch("k", 600, FULL),
        Launch("k", 200, FULL),
        Launch("copy", 150, {**DRAM_COUNTERS, **fp32_counters(fma=0)}),
        Launch("bare", 50, {COMPUTE: 1.0, MEMORY: 2.0}),
    )
    view = roofline_view(trace)
    assert [(point.label, point.weight) for point in view.points] == [("k", 0.8)]
    assert {roof.level: roof.value for roof in view.roofs} == {"DRAM": 2e12, "FP32": 2e13}
    assert {refusal.label: refusal.why.reason for refusal in view.refusals} == {
        "copy": "no floating-point operations; it moves data at 50 % of the DRAM peak",
        "bare": "no FLOP counters were collected; of peak: compute 1.0 %, memory 2.0 %",
    }
    assert view.why_not is None


def test_the_roofs_are_the_highest_of_all_clocks() -> None:
    slow = {**FULL, "dram__cycles_elapsed.avg.per_second": 1e9}
    view = roofline_view(report(Launch("a", metrics=slow), Launch("b", metrics=FULL)))
    assert next(roof.value for roof in view.roofs if roof.level == "DRAM") == 2e12


def test_launches_at_several_clocks_say_which_the_roofs_are_at() -> None:
    clock = float(FULL["sm__cycles_elapsed.avg.per_second"])
    slow, full_mhz = {**FULL, "sm__cycles_elapsed.avg.per_second": clock / 2}, clock / 1e6
    several = roofline_view(report(Launch("a", metrics=slow), Launch("b", metrics=FULL)))
    assert {roof.mhz for roof in several.roofs if roof.kind == "compute"} == {full_mhz}
    assert several.notes == (
        f"compute roofs are at {full_mhz:.0f} MHz, the fastest launch's clock; a launch is judged by its own roof, and"
        f" the slowest ran at {full_mhz / 2:.0f} MHz",
    )
    assert roofline_view(report(Launch("a", metrics=FULL))).notes == ()


def test_one_launch_shows_all_levels_and_why_it_cannot() -> None:
    trace = report(Launch("k", metrics=FULL), Launch("bare"))
    assert [point.level for point in roofline_view(trace, 0).points] == ["DRAM"]
    why = roofline_view(trace, 1).why_not
    assert why is not None
    assert why.remedy.startswith("add --section SpeedOfLight_RooflineChart")


def test_stall_bars_are_as_long_as_their_kernels() -> None:
    trace = report(Launch("k", 750, FULL), Launch("bare", 250))
    bars = stall_bars(trace)
    assert [(bar.kernel, bar.total, bar.shares) for bar in bars] == [
        ("k", 0.75, (("wait", 0.75), ("barrier", 0.25))),
        ("bare", 0.25, ()),
    ]
    assert bars[1].why_not == Unknown("warp stalls not collected", "add --section WarpStateStats")
    assert stall_tree(trace).root.total == 75.0


ADD = "void tiles::run<(int)128, tiles::add<float>>(int, T3)"
MUL = "void tiles::run<(int)128, tiles::mul<float>>(int, T3)"


def test_short_names_keep_what_differs() -> None:
    assert short_names([ADD, MUL], ["run"] * 2) == ("run<add>", "run<mul>")
    assert short_names([ADD], ["run"]) == ("run",)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("sgemm(int)", "sgemm"),
        ("void (anonymous namespace)::f<int>(T1)", "f"),
        ("silu[lambda() (instance 1)]", "silu[lambda"),
        ("nvjet_sm90_tst", "nvjet_sm90_tst"),
        ("", ""),
    ],
)
def test_the_base_name_is_the_function(name: str, base: str) -> None:
    assert base_name(name) == base


@given(st.lists(st.text(st.sampled_from("ab<>(),: 12[]"), max_size=40), unique=True, max_size=12))
def test_short_names_are_as_distinct_as_the_names(names: list[str]) -> None:
    shorts = short_names(names, ["f"] * len(names))
    assert len(set(shorts)) == len(names)


def test_names_of_ten_kilobytes_stay_apart_and_quick() -> None:
    long = "f<" + "std::tuple<int>, " * 6000
    shorts = short_names([long + "a>", long + "b>"], ["f", "f"])
    assert len(set(shorts)) == 2


def a_report_has_a_table_and_views(trace: Trace) -> None:
    table = kernel_table(trace, Grouping.SHAPE)
    assert [len(table.cells(row)) for row in range(len(table))] == [len(table.columns)] * len(table)
    view = roofline_view(trace)
    assert len(view.points) + len(view.refusals) == len(table)
    assert all(0 < (point.roof_fraction or 0) < 1.1 for point in view.points)
    assert len(stall_bars(trace)) == len(table)
