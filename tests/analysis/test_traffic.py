"""A report of a few metrics is used for what it holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmtop.analysis.kernels.bounds import Bound, Verdict
from llmtop.analysis.kernels.table import KernelFacts, kernel_table, kernels_of
from llmtop.analysis.kernels.traffic import Traffic, dram_traffic
from llmtop.model import Unknown, Value
from tests.kernel_traces import DRAM, Launch, report

H100 = "NVIDIA H100 80GB HBM3"
FEW: Mapping[str, Value] = {
    "dram__bytes_read.sum": 20e6,
    "dram__bytes_write.sum": 15.1e6,
    "lts__t_sector_hit_rate.pct": 42.0,
    "launch__waves_per_multiprocessor": 4.0,
    "launch__grid_size": 4096,
}


def facts(metrics: Mapping[str, Value], ns: float = 16_500.0, gpu: str = H100) -> KernelFacts:
    return kernels_of(report(Launch("k", ns, metrics), gpu=gpu)).facts(0)


def known(traffic: Traffic | Unknown) -> Traffic:
    assert isinstance(traffic, Traffic)
    return traffic


def test_bytes_and_duration_are_a_rate_and_a_share_of_the_published_peak() -> None:
    found = facts(FEW)
    traffic = known(found.traffic)
    assert traffic.bytes_per_s == pytest.approx(35.1e6 / 16.5e-6)
    assert traffic.fraction == pytest.approx(0.635, abs=0.001)
    assert str(traffic) == ("DRAM 2.13 TB/s, 64 % of the peak (bytes over duration, ncu; peak published for H100 SXM)")
    assert (found.l2_hits, found.waves) == (42.0, 4.0)
    assert isinstance(found.l1_hits, Unknown)
    assert isinstance(found.bound, Unknown), "64 % of DRAM leaves open what the SMs do"


@pytest.mark.parametrize(
    ("ns", "grid", "bound"), [(12_000.0, 4096, Bound.MEMORY), (100_000.0, 16, Bound.LATENCY), (100_000.0, 4096, None)]
)
def test_the_bound_is_told_where_two_of_the_numbers_decide(ns: float, grid: int, bound: Bound | None) -> None:
    found = facts({**FEW, "launch__grid_size": grid}, ns)
    assert (found.bound.bound if isinstance(found.bound, Verdict) else None) is bound
    assert isinstance(found.roof_fraction, float) is (bound is Bound.MEMORY), "then the roof is DRAM's"


def test_without_a_published_peak_there_is_still_a_rate() -> None:
    traffic = known(facts(FEW, gpu="Prototype").traffic)
    assert traffic.fraction is None
    assert str(traffic) == "DRAM 2.13 TB/s (bytes over duration, ncu)"


def test_the_peak_of_the_launch_counts_more_than_the_published_one() -> None:
    rates: dict[str, Value] = {"dram__bytes.sum.per_second": 1e12, DRAM: 50.0}
    assert known(dram_traffic(rates, None, Unknown("no GPU"))).peak == 2e12


@pytest.mark.parametrize(
    ("metrics", "ns", "reason"),
    [
        ({}, 1000.0, "DRAM bytes not collected"),
        ({"dram__bytes_read.sum": 5.0}, 1000.0, "DRAM bytes not collected"),
        (FEW, float("nan"), "duration not collected"),
    ],
)
def test_a_part_that_is_missing_is_named(metrics: Mapping[str, Value], ns: float, reason: str) -> None:
    traffic = facts(metrics, ns).traffic
    assert isinstance(traffic, Unknown)
    assert traffic.reason == reason


def test_the_table_has_what_the_report_holds() -> None:
    table = kernel_table(report(Launch("k", 16_500.0, FEW), gpu=H100))
    cells = dict(zip((column.key for column in table.columns), table.cells(0), strict=True))
    assert cells["dram"] == pytest.approx(2.127e12, rel=1e-3)
    assert cells["dram_share"] == pytest.approx(63.5, abs=0.1)
    assert (cells["l2"], cells["waves"], cells["family"]) == (42.0, 4.0, "other")
    assert isinstance(cells["class"], Unknown)
