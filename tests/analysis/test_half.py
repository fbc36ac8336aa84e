"""Work in half precision: the multiply-adds that compute, and not those that compilers make constants with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from llmtop.analysis.kernels.roofline import KernelRoofline
from llmtop.analysis.kernels.roofline_levels import RooflineLevels, roofline_levels
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.views import Quality
from llmtop.model import KernelCodes, Trace, Unknown
from llmtop.parsers.registry import load
from tests.analysis.test_roofline_kernels import HALF_NEW
from tests.kernel_traces import CLOCKS, DRAM_COUNTERS, LADDER, Launch, report

if TYPE_CHECKING:
    from llmtop.analysis.kernels.roofline import Rate


class Codes:
    """Three multiply-adds: one that computes, one that makes a constant, one that never ran."""

    def __init__(self, metric: str, *, known: bool = True) -> None:
        self._metric, self._known = metric, known

    def metrics(self, i: int) -> frozenset[str]:
        return frozenset({self._metric})

    def fused_half(self, i: int) -> Mapping[int, bool] | Unknown:
        return {0: True, 16: False, 32: True} if self._known else Unknown("no code")

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        return {0: 10.0, 16: 30.0, 48: 1000.0}


def trace_with(codes: Codes | None) -> Trace:
    trace = report(Launch("k", metrics={**DRAM_COUNTERS, **CLOCKS, **HALF_NEW}))
    assert trace.kernels is not None
    return replace(trace, kernels=replace(trace.kernels, codes=cast("KernelCodes | None", codes)))


def half_of(trace: Trace) -> Rate:
    found = kernels_of(trace).facts(0).roofline
    assert isinstance(found, KernelRoofline)
    return found.work[0]


@pytest.mark.parametrize("metric", ["thread_inst_executed_true", "thread_inst_executed", "inst_executed"])
def test_constants_are_no_work(metric: str) -> None:
    """Of 400 fused operations a cycle a quarter computes; 20 additions do."""
    half = half_of(trace_with(Codes(metric)))
    assert half.achieved == pytest.approx(120e9)
    assert half.quality is Quality.MEASURED


@pytest.mark.parametrize("codes", [None, Codes("sampled"), Codes("inst_executed", known=False)])
def test_without_the_instructions_it_is_an_upper_bound(codes: Codes | None) -> None:
    half = half_of(trace_with(codes))
    assert half.achieved == pytest.approx(420e9)
    assert half.quality is Quality.UPPER_BOUND


def test_a_kernel_in_fp32_does_no_work_in_fp16() -> None:
    trace = load(LADDER)
    for launch in range(5):
        found = kernels_of(trace).facts(launch).roofline
        assert isinstance(found, KernelRoofline)
        assert {rate.level for rate in found.work} <= {"FP32"}


def test_atomic_updates_alone_are_no_floating_point_work() -> None:
    trace = load(LADDER.with_name("contended-atomics.ncu-rep.xz"))
    found = kernels_of(trace).facts(0).roofline
    assert isinstance(found, KernelRoofline)
    assert found.work == ()


def test_what_may_be_constants_is_said_to_be_at_most_so_much() -> None:
    trace = load(LADDER)
    assert trace.kernels is not None
    without = replace(trace, kernels=replace(trace.kernels, codes=None))
    page = roofline_levels(without, 0)
    assert isinstance(page, RooflineLevels)
    assert page.said[-1] == (
        "besides it works in FP16 at most 475 MFLOP/s (compilers make constants with its multiply-adds)"
    )
