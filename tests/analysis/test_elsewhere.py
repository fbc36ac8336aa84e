"""A kernel of one report in the others that are open."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from llmtop.analysis.kernels.elsewhere import elsewhere
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.kernel_traces import LLAMA, TIMELINE, Launch, report

NVCC = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<bool>>(int, T2)"
CLANG = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<bool> >(int, bool)"


def test_of_several_alike_the_same_size_leads_then_the_same_name_then_the_time() -> None:
    mine = report(Launch(NVCC, grid=(8, 1, 1)))
    sized = report(Launch(NVCC, 50.0, grid=(16, 1, 1)), Launch(CLANG, 10.0, grid=(8, 1, 1)), Launch("other", 99.0))
    named = report(Launch(CLANG, 50.0, grid=(32, 1, 1)), Launch(NVCC, 10.0, grid=(16, 1, 1)))
    longest = report(Launch(CLANG, 50.0, grid=(32, 1, 1)), Launch(CLANG, 60.0, grid=(16, 1, 1)))
    found = elsewhere(mine, 0, [("sized", sized), ("named", named), ("longest", longest)])
    assert [(one.report, one.launch, one.has_same_size) for one in found] == [
        ("sized", 1, True),
        ("named", 1, False),
        ("longest", 1, False),
    ]


def test_what_is_said_is_of_all_launches_of_that_size() -> None:
    theirs = report(Launch("mul", 10.0), Launch("mul", 30.0), Launch("mul", 40.0, grid=(1, 1, 1)), Launch("add", 20.0))
    [found] = elsewhere(report(Launch("mul")), 0, [("theirs", theirs)])
    assert (found.launches, found.mean_ns) == (2, 20.0)
    assert found.share == pytest.approx(0.4)
    assert found.trace is theirs


def test_the_order_goes_on_after_the_report_itself() -> None:
    first, own, last = (report(Launch("mul")) for _ in range(3))
    reports = [("first", first), ("own", own), ("last", last)]
    assert [one.report for one in elsewhere(own, 0, reports)] == ["last", "first"]
    assert [one.report for one in elsewhere(report(Launch("mul")), 0, reports)] == ["first", "own", "last"]


def test_another_kernel_is_nowhere() -> None:
    functions = report(Launch("mul(float*)")), report(Launch("add(float*)"))
    without = replace(report(Launch("mul(float*)")), kernels=None)
    assert elsewhere(functions[0], 0, [("own", functions[0]), ("add", functions[1]), ("none", without)]) == ()
    empty = report(Launch("mul(float*)"))
    assert empty.kernels is not None
    none = replace(empty, kernels=replace(empty.kernels, name_id=array("q"), duration_ns=array("d")))
    assert elsewhere(functions[0], 0, [("none", none)]) == ()


def test_kernels_of_a_real_timeline_are_found_in_the_profile_of_the_same_program() -> None:
    timeline, profile = load(TIMELINE), load(LLAMA)
    assert profile.kernels is not None
    assert timeline.kernels is not None
    both = set(profile.kernels.names) & set(timeline.kernels.names)
    launches = [i for i in range(len(profile.kernels)) if profile.kernels.name(i) in both]
    assert len(launches) > 40
    for i in launches:
        [found] = elsewhere(profile, i, [("timeline", timeline)])
        assert _name(timeline, found.launch) == _name(profile, i)


def _name(trace: Trace, launch: int) -> str:
    assert trace.kernels is not None
    return trace.kernels.name(launch)
