"""Which launches belong to a range: one rule in all views, against interval arithmetic written apart."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.analysis.kernels.nvtx_ranges import launch_ranges, launches_in, range_shares
from llmtop.analysis.timeline.ranges import demands
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.model import SpanTable, Trace, TrackId
from llmtop.parsers.registry import load
from tests.kernel_traces import Launch, report
from tests.kernel_traces import span_table as spans_of

PUBLIC = Path(__file__).parents[3] / "shared/samples/public"
MAIN, HELPER, PRESS = ids.thread(1, 1), ids.thread(1, 2), ids.thread(1, 3)
OTHER = ids.thread(2, 9)
_STREAM = {gpu: ids.stream(ids.gpu(gpu), 1, 7) for gpu in (0, 1)}


def made(ranges: list[tuple[str, TrackId, int, int]], launched: list[tuple[TrackId, int, int]]) -> Trace:
    """Ranges of (name, thread, start, end), and kernels that a thread launches at a time on a GPU."""
    whole = report(*(Launch(f"k{i}", 10.0) for i in range(len(launched))), counted=False)
    assert whole.kernels is not None
    ran = [("k", _STREAM[gpu], 1000 + i * 10, 1010 + i * 10, i, math.nan) for i, (_, _, gpu) in enumerate(launched)]
    calls = [("cudaLaunchKernel", thread, at, at + 1, i, math.nan) for i, (thread, at, _) in enumerate(launched)]
    kernels = spans_of("kernel", *ran)
    found: dict[str, SpanTable] = {
        "kernel": kernels,
        "launch": spans_of("launch", *sorted(calls, key=lambda one: one[2])),
        "nvtx": spans_of("nvtx", *sorted(((*one, -1, math.nan) for one in ranges), key=lambda one: one[2])),
    }
    table = replace(whole.kernels, start_ns=kernels.start_ns)
    return replace(whole, kernels=table, spans=found, end_ns=2000)


def test_a_thread_without_ranges_works_for_the_one_of_its_process_that_marks() -> None:
    trace = made([("step", MAIN, 0, 50), ("loss", MAIN, 20, 40)], [(MAIN, 5, 0), (HELPER, 30, 0), (OTHER, 31, 0)])
    assert launch_ranges(trace) == [("step",), ("step", "loss"), ()]


def test_a_range_begins_with_its_begin_and_is_over_at_its_end() -> None:
    trace = made([("step", MAIN, 10, 50)], [(HELPER, 9, 0), (HELPER, 10, 0), (HELPER, 49, 0), (HELPER, 50, 0)])
    assert launch_ranges(trace) == [(), ("step",), ("step",), ()]


def test_ranges_that_all_lie_within_those_of_another_thread_are_within_them() -> None:
    ranges = [("step 1", MAIN, 0, 50), ("step 2", MAIN, 60, 100), ("nccl", HELPER, 20, 30), ("nccl", HELPER, 70, 80)]
    launched = [(HELPER, 10, 0), (HELPER, 25, 0), (HELPER, 90, 0), (HELPER, 55, 0)]
    assert launch_ranges(made(ranges, launched)) == [("step 1",), ("step 1", "nccl"), ("step 2",), ()]


def test_a_thread_with_ranges_that_reach_out_of_the_other_s_has_its_own_work() -> None:
    ranges = [("a", MAIN, 0, 50), ("a", MAIN, 60, 100), ("b", HELPER, 20, 30), ("b", HELPER, 45, 62)]
    trace = made(ranges, [(HELPER, 10, 0), (HELPER, 25, 0), (MAIN, 26, 0)])
    assert launch_ranges(trace) == [(), ("b",), ("a",)]
    assert demands(trace).disputed == 0


def test_a_thread_that_gives_work_to_another_gpu_does_not_work_for_it() -> None:
    trace = made([("step", MAIN, 0, 50)], [(MAIN, 5, 0), (HELPER, 10, 1), (HELPER, 20, 0)])
    assert launch_ranges(trace) == [("step",), (), ("step",)]


def test_of_two_that_mark_the_one_counts_whose_range_began_last_and_that_is_said() -> None:
    ranges = [("a", MAIN, 0, 50), ("b", HELPER, 20, 30), ("b", HELPER, 45, 62)]
    trace = made(ranges, [(PRESS, 10, 0), (PRESS, 25, 0), (PRESS, 35, 0), (PRESS, 47, 0), (PRESS, 55, 0)])
    assert launch_ranges(trace) == [("a",), ("b",), ("a",), ("b",), ("b",)]
    assert demands(trace).disputed == 2, "at 25 and at 47 both have a range open"
    found = breakdown(trace, By.NVTX)
    assert isinstance(found, Breakdown)
    assert "2 launches are of threads without ranges while several others had one open" in found.found


# -- traces of others -------------------------------------------------------------------------------------------------


def raw(path: Path, name: str) -> tuple[int, float]:
    """Launches and their kernels' time, in us, of all threads, by when the call began: the JSON read by hand."""
    with gzip.open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    within = [
        (one["ts"], one["ts"] + one["dur"])
        for one in events
        if one["name"].startswith(name) and one.get("cat", "").lower() in {"user_annotation", "operator", "cpu_op"}
    ]
    asked = {
        one["args"]["correlation"]: one["ts"]
        for one in events
        if one.get("cat", "").lower() in {"runtime", "cuda_runtime"} and one["name"].startswith("cudaLaunch")
    }
    ran = [
        one["dur"]
        for one in events
        if one.get("cat", "").lower() == "kernel"
        and any(start <= asked[one["args"]["correlation"]] < end for start, end in within)
    ]
    return len(ran), sum(ran)


@pytest.mark.parametrize(
    ("file", "name", "launches"),
    [
        ("facebookresearch__HolisticTraceAnalysis__nccl_data.json.gz", "## backward ##", 1794),
        ("pytorch__kineto__worker0.1623143089861.pt.trace.json.gz", "ProfilerStep#", 8772),
    ],
)
def test_backward_passes_belong_to_the_range_of_the_thread_that_marks_in_every_view(
    file: str, name: str, launches: int
) -> None:
    if not (path := PUBLIC / file).exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    trace = load(path)
    count, us = raw(path, name)
    assert count == launches
    assert trace.kernels is not None
    share = {one.name: one for one in range_shares(trace)}[name]
    assert share.launches == count
    assert share.total_ns == pytest.approx(us * 1000, rel=1e-6)
    assert len(launches_in(trace, name)) == count
    by_range = breakdown(trace, By.NVTX)
    assert isinstance(by_range, Breakdown)
    assert {one.name: one for one in by_range.parts}[name].account.kernels == count
    (row,) = [one for one in span_rows(trace) if (one.kind, one.name) == ("nvtx", name)]
    assert row.gpu_ns is not None
    assert row.gpu_ns >= us * 1000, "copies and fills count too"
    if name == "ProfilerStep#":
        steps = breakdown(trace, By.STEP)
        assert isinstance(steps, Breakdown)
        assert sum(one.account.kernels or 0 for one in steps.parts) == count
