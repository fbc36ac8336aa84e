"""The DeepSeek-OCR study's classes and its table of means."""

from __future__ import annotations

import csv

import pytest

from llmtop.analysis.kernels.classes import kernel_classes
from llmtop.parsers.registry import load
from tests.kernel_traces import COMPUTE, DRAM, MEMORY, OCCUPANCY, SAMPLES, TIMELINE, Launch, report


def test_kernels_are_classed_by_sm_less_dram_and_means_are_over_kernels() -> None:
    trace = report(
        Launch("a", 8000.0, {COMPUTE: 40.0, MEMORY: 50.0, DRAM: 10.0, OCCUPANCY: 20.0}),
        Launch("b", 1000.0, {COMPUTE: 30.0, MEMORY: 30.0, DRAM: 20.0}),
        Launch("c", 1000.0, {COMPUTE: 10.0, MEMORY: 30.0, DRAM: 30.0}),
        Launch("d", 0.0, {COMPUTE: 10.0}),
    )
    compute, memory, everything = kernel_classes(trace)
    assert (compute.name, compute.kernels, compute.share) == ("compute", 2, 0.9)
    assert compute.cached_share == 0.0, "below 60 % of both its bound is latency"
    assert compute.means == {"sm": 35.0, "memory": 40.0, "dram": 15.0, "occupancy": 20.0, "duration": 4500.0}
    assert (memory.name, memory.kernels) == ("memory", 1)
    assert (everything.name, everything.kernels, everything.share) == ("all", 3, 1.0)
    by_time = {"sm": 36.0, "dram": 13.0, "memory": 46.0, "occupancy": 20.0}
    assert everything.by_time == pytest.approx(by_time), "8 of 10 µs are a's"


def test_what_is_memory_bound_and_does_not_lean_to_dram_is_told_apart() -> None:
    trace = report(
        Launch("in_caches", 6000.0, {COMPUTE: 70.0, MEMORY: 90.0, DRAM: 1.0}),
        Launch("in_dram", 3000.0, {COMPUTE: 10.0, MEMORY: 90.0, DRAM: 90.0}),
        Launch("computes", 1000.0, {COMPUTE: 90.0, MEMORY: 30.0, DRAM: 1.0}),
    )
    shares = {one.name: (one.share, one.cached_share) for one in kernel_classes(trace)}
    assert shares == {"compute": (0.7, 0.6), "memory": (0.3, 0.0), "all": (1.0, 0.6)}


def test_a_timeline_has_no_classes() -> None:
    assert kernel_classes(load(TIMELINE)) == ()


def test_the_studys_own_table_comes_out() -> None:
    tables = list((SAMPLES / "dsocr_v2").rglob("*metrics*.csv"))
    if not tables:
        pytest.skip("the study's metrics are not here")
    rows = list(csv.DictReader(tables[0].read_text(encoding="utf-8").splitlines()))
    launches = [
        Launch(
            row["kernel_id"],
            1000.0 * float(row["duration_us"]),
            {
                COMPUTE: float(row["sm_throughput_pct"]),
                DRAM: float(row["dram_throughput_pct"]),
                MEMORY: float(row["mem_throughput_pct"]),
                OCCUPANCY: float(row["achieved_occupancy_pct"]),
            },
        )
        for row in rows
    ]
    classes = {one.name: one for one in kernel_classes(report(*launches))}
    assert {name: one.kernels for name, one in classes.items()} == {
        "compute": 4, "memory": 9, "balanced": 7, "all": 20,
    }  # fmt: skip
    published = {
        "compute": (36.21, 9.89, 32.23, 31.51, 137.44),
        "memory": (9.38, 34.23, 41.20, 43.22, 9.67),
        "balanced": (12.25, 12.62, 27.52, 39.32, 39.75),
        "all": (15.75, 21.80, 34.62, 39.51, 45.75),
    }
    for name, means in published.items():
        found = classes[name].means
        assert (found["sm"], found["dram"], found["memory"], found["occupancy"], found["duration"] / 1000) == (
            pytest.approx(means, abs=0.006)
        )
