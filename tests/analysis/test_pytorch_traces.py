"""What is made of a PyTorch trace: operators among the causes of idle time and the spans, and how to record more."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmtop import columns, ids
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.analysis.kernels.lacking import lacking, typed
from llmtop.analysis.kernels.programs import Words, trains
from llmtop.analysis.kernels.table import SIZE_NOT_TOLD, kernel_table
from llmtop.analysis.pages.launch import launch_view
from llmtop.analysis.rules import (
    fusion_chances,
    host_code,
    kernel_memory_roof,
    kernel_small_grid,
    launch_gaps,
    no_work,
)
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.capture import capture_length
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.holders import idle_holder
from llmtop.analysis.timeline.memory import memory_pools
from llmtop.analysis.timeline.span_rows import TITLES, span_rows
from llmtop.cli.report_csv import report_csv
from llmtop.cli.report_json import report_json
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.tui.render.launch import launch_lines
from llmtop.tui.render.look import Look
from tests.kernel_traces import Launch, report
from tests.parsers.kineto_files import SHIPPED, few_events, kernel_pair, span, written

US = 1000


def trace_of(folder: Path, events: list[dict[str, Any]]) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(written(events))
    return load(path)


def idle(trace: Trace) -> dict[tuple[str, str], int]:
    (gpu,) = idle_account(trace).gpus
    found: Counter[tuple[str, str]] = Counter()
    for part in gpu.parts:
        if part.cause != "no-work":
            found[part.cause.value, part.name] += part.ns
    return dict(found)


@pytest.fixture(params=[columns.LONG, 1], ids=["one by one", "in columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds of long traces, whose gaps are added in columns, as of short ones."""
    monkeypatch.setattr(columns, "LONG", request.param)


@pytest.mark.usefixtures("way")
def test_idle_time_outside_calls_is_of_the_operator_or_range_that_runs(tmp_path: Path) -> None:
    assert idle(trace_of(tmp_path, few_events())) == {
        ("own-code", "aten::mm"): (10 + 25 + 35) * US,
        ("own-code", "ProfilerStep#"): (10 + 10) * US,
        ("launch", "cudaLaunchKernel"): (8 + 8) * US,
        ("launch-latency", ""): 2 * US,
        ("copy", "cudaMemcpyAsync (pageable)"): 10 * US,
    }


@pytest.mark.usefixtures("way")
def test_the_innermost_of_python_and_operators_counts(tmp_path: Path) -> None:
    events = [
        span("python_function", "model.py(3): forward", 1000, 200),
        span("cpu_op", "aten::linear", 1040, 30),
        span("python_function", "model.py(9): helper", 1050, 5),
        *kernel_pair(1, 1005),
        *kernel_pair(2, 1100),
    ]
    assert idle(trace_of(tmp_path, events)) == {
        ("own-code", "model.py(3): forward"): (1100 - 1020 - 30) * US,
        ("own-code", "aten::linear"): 25 * US,
        ("own-code", "model.py(9): helper"): 5 * US,
        ("launch", "cudaLaunchKernel"): (8 + 8) * US,
        ("launch-latency", ""): 2 * US,
    }


def test_operators_are_rows_of_the_spans(tmp_path: Path) -> None:
    events = [*few_events(), span("python_function", "model.py(3): forward", 1000, 150)]
    rows = [(row.kind, row.name, row.count, row.total_ns) for row in span_rows(trace_of(tmp_path, events))]
    assert rows == [
        ("nvtx", "ProfilerStep#", 1, 200 * US),
        ("memcpy", "copy DtoH (pageable)", 1, 4 * US),
        ("operator", "aten::mm", 1, 100 * US),
        ("python", "model.py(3): forward", 1, 150 * US),
        ("launch", "cudaLaunchKernel", 2, 16 * US),
        ("call", "cudaMemcpyAsync", 1, 20 * US),
    ]


@pytest.mark.parametrize(
    ("path", "category", "kind"),
    [
        (SHIPPED.with_name("graph-and-eager.pt.trace.json.gz"), "cpu_op", "operator"),
        (SHIPPED, "python_function", "python"),
    ],
    ids=["operators", "functions"],
)
def test_operators_and_functions_have_the_gpu_time_that_their_threads_launched_in_them(
    path: Path, category: str, kind: str
) -> None:
    told = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]
    works: Counter[int] = Counter()
    for event in told:
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            works[event["args"]["correlation"]] += round(event["dur"] * US)
    calls = [event for event in told if event["cat"] in ("cuda_runtime", "cuda_driver")]
    expected: Counter[str] = Counter()
    for event in told:
        if event["cat"] == category:
            within = (call for call in calls if call["tid"] == event["tid"] and _lies_in(call, event))
            expected[event["name"]] += sum(works[call["args"]["correlation"]] for call in within)
    rows = [row for row in span_rows(load(path)) if row.kind == kind]
    assert {row.name: row.gpu_ns for row in rows} == expected
    assert rows or category == "python_function"


def _lies_in(call: dict[str, Any], event: dict[str, Any]) -> bool:
    return bool(event["ts"] <= call["ts"] < event["ts"] + event["dur"])


def test_without_a_gpu_nothing_is_said_of_its_time(tmp_path: Path) -> None:
    rows = span_rows(trace_of(tmp_path, [span("cpu_op", "aten::mm", 1000, 30)]))
    assert [(row.name, row.gpu_ns, row.launches) for row in rows] == [("aten::mm", None, None)]


def test_stacks_say_their_time_in_readable_units(tmp_path: Path) -> None:
    (one,) = functions(trace_of(tmp_path, few_events()))
    assert one.title == "120 µs in 3 stacks"
    assert next((share.name, share.own) for share in one.shares) == ("aten::mm", 84 * US)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "torch.profiler.profile(..., with_stack=True, profile_memory=True)"),
        ([span("python_function", "f", 1, 2)], "torch.profiler.profile(..., profile_memory=True)"),
    ],
)
def test_what_pytorch_would_have_recorded_is_told_with_its_settings(
    more: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    (first, *others) = lacking(trace_of(tmp_path, [*few_events(), *more]))
    assert typed(first) == said
    assert all(typed(one).startswith("$ ") for one in others)


def test_a_capture_of_a_cpu_is_as_long_as_its_operators(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [span("cpu_op", "a", 10, 5), span("cpu_op", "b", 20, 4)])
    assert capture_length(trace) == '"of the capture" is a share of the 14.0 µs from the first to the last operator'


def test_numbers_of_a_timeline_name_the_tool_that_recorded_it(tmp_path: Path) -> None:
    evidence = [said for one in diagnose(trace_of(tmp_path, few_events())).findings for said in one.evidence]
    sourced = [said for said in evidence if said.endswith(")")]
    assert "host code aten::mm: 60.0 µs in 2 gaps, the longest 35.0 µs (PyTorch's profiler)" in sourced
    assert not [said for said in sourced if "(nsys)" in said]


def test_an_operator_of_a_library_is_not_the_program_s_own_code(tmp_path: Path) -> None:
    events = [span("cpu_op", "aten::empty", 1010 + 1000 * i, 900) for i in range(9)]
    events += [one for i in range(9) for one in kernel_pair(i + 1, 1920 + 1000 * i)]
    (finding,) = (one for one in diagnose(trace_of(tmp_path, events)).findings if one.rule == "host-code")
    assert finding.message.endswith("runs code on the CPU, most of it in the operator aten::empty")
    marked = [{**one, "cat": "user_annotation"} if one["name"] == "aten::empty" else one for one in events]
    (own,) = host_code.check(trace_of(tmp_path, marked))
    assert own.message.endswith("runs its own code, most of it in the range aten::empty")


@pytest.mark.parametrize(
    ("name", "lengths", "says"),
    [
        ("aten::empty", [900] * 9, "it is a library's code: call it less often"),
        ("aten::bmm", [10] * 8 + [9000], "most of it is in few of the operator's calls"),
        ("aten::_cudnn_attention_forward", [10] * 8 + [9000], "cuDNN makes a plan for each new shape"),
        ("my_ops::encode", [900] * 9, "make this code faster"),
        ("aten::empty", [450] * 9, "make this code faster"),  # less than half of it
    ],
)
def test_nobody_is_told_to_make_the_code_of_a_library_faster(
    name: str, lengths: list[int], says: str, tmp_path: Path
) -> None:
    starts = [1010 + sum(lengths[:i]) + 100 * i for i in range(9)]
    events = [span("cpu_op", name, *one) for one in zip(starts, lengths, strict=True)]
    events += kernel_pair(50, 990)  # what comes before the first work is no finding on code
    ends = [start + length + 10 for start, length in zip(starts, lengths, strict=True)]
    events += [one for i, end in enumerate(ends) for one in kernel_pair(i + 1, end)]
    other = span("cpu_op", "other", ends[-1] + 100, 4000)  # what is open all the time holds nothing in particular
    events += [other, *kernel_pair(20, ends[-1] + 4110)]
    events += [span("cpu_op", "more", ends[-1] + 4200, 500), *kernel_pair(21, ends[-1] + 4710)]
    (finding,) = host_code.check(trace_of(tmp_path, events))
    assert name in finding.message
    assert finding.action.startswith(says)


def test_several_operators_are_a_library_s_code_together(tmp_path: Path) -> None:
    names = ["aten::empty", "aten::view", "aten::slice", "mine"]
    events = [span("cpu_op", names[i % 4], 1010 + 1000 * i, 900) for i in range(12)]
    events += [one for i in range(12) for one in kernel_pair(i + 1, 1920 + 1000 * i)]
    (finding,) = host_code.check(trace_of(tmp_path, events))
    assert finding.action.startswith("it is a library's code")


def test_what_holds_the_idle_time_of_other_findings_is_no_evidence_of_this_one(tmp_path: Path) -> None:
    """Of 9 ms within an annotation 8 are those of launches, one by one."""
    events = [span("user_annotation", "forward", 1000, 9000), span("cpu_op", "aten::empty", 1010, 900)]
    events += [*kernel_pair(900, 980), *kernel_pair(1, 1920)]
    events += [one for i in range(400) for one in kernel_pair(2 + i, 2000 + 20 * i)]
    trace = trace_of(tmp_path, [*events, span("user_annotation", "after", 10_500, 3000)])
    holder = idle_holder(trace, ids.gpu(0))
    assert holder is not None
    (finding,) = host_code.check(trace)
    assert not [said for said in finding.evidence if said.startswith("within ")]


@pytest.mark.parametrize(
    ("kernel", "does"),
    [
        ("void (anonymous namespace)::softmax_warp_backward<float, float, float, 10>(float *)", True),
        ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", True),
        ("sm80_xmma_wgrad_implicit_gemm_tf32", True),
        ("sm80_xmma_dgrad_implicit_gemm_tf32", False),
        ("flash_fwd_kernel", False),
    ],
)
def test_kernels_tell_that_a_program_trains(kernel: str, *, does: bool) -> None:
    assert trains(report(Launch(kernel), counted=False)) is does


def test_who_trains_is_told_of_the_optimizer_and_not_of_requests(tmp_path: Path) -> None:
    assert not trains(trace_of(tmp_path, few_events()))
    for name, category in (("Optimizer.step#SGD.step", "user_annotation"), ("AddmmBackward0", "cpu_op")):
        trace = trace_of(tmp_path, [*few_events(), span(category, name, 1500, 60)])
        assert trains(trace)
        assert "zero_grad(set_to_none=True)" in fusion_chances._ACTION.of(trace)
        for module in (fusion_chances, launch_gaps, no_work, kernel_small_grid, kernel_memory_roof):
            for words in (one for one in vars(module).values() if isinstance(one, Words)):
                said = words.of(trace)
                assert not [word for word in ("vLLM", "engine", "request", "token") if word in said], said


def test_ranges_as_they_ran_on_the_gpu_are_no_calls_of_a_library(tmp_path: Path) -> None:
    on_gpu = span("gpu_user_annotation", "forward", 1020, 60, 0, tid=7)
    (row,) = (one for one in span_rows(trace_of(tmp_path, [*few_events(), on_gpu])) if one.name == "forward")
    assert (row.kind, TITLES[row.kind]) == ("gpu-range", "GPU range")


def test_a_kernel_without_its_grid_is_told_as_such_everywhere(tmp_path: Path) -> None:
    """As AMD's tracer records what the runtime did not launch."""
    args = {"device": 0, "stream": 0, "correlation": 1, "kind": "Dispatch Task"}
    trace = trace_of(tmp_path, [*kernel_pair(5, 900), span("kernel", "triton_poi_fused_0", 1000, 40, 0, tid=0, **args)])
    table = kernel_table(trace)
    assert [SIZE_NOT_TOLD in table.cells(row) for row in range(len(table))] == [True, False]
    document = json.loads("".join(report_json(trace)))
    told = {kernel["calls"]: kernel["grid"] for kernel in document["kernels"] if kernel["name"] == "triton_poi_fused_0"}
    assert told == {1: {"unknown": SIZE_NOT_TOLD.reason, "remedy": ""}}
    assert ",-1," not in "".join(report_csv(trace))


AMD_DEVICE = {"id": 0, "name": "", "warpSize": 64, "numSms": 304}


@pytest.mark.parametrize(
    ("facts", "gpu"),
    [
        ({"deviceProperties": [AMD_DEVICE]}, "AMD GPU with 304 compute units"),
        ({"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]}, "AMD Instinct MI300X"),
        ({"deviceProperties": [{"id": 0, "name": ""}], "hip_runtime_version": 70051831}, "AMD GPU"),
    ],
)
def test_a_trace_of_amd_says_so_and_names_no_tool_of_nvidia(facts: dict[str, Any], gpu: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(written(few_events(), **facts))
    trace = load(path)
    assert (trace.origin.gpu, trace.origin.facts["GPU vendor"]) == (gpu, "AMD")
    commands = [group.command for group in lacking(trace)][1:]
    assert commands == [
        "rocprof-sys-sample -- COMMAND",
        "rocprof-compute profile --name kernel --kernel step -- COMMAND",
    ]
    assert profiling.timeline(trace) == "rocprofv3 --sys-trace --output-format pftrace -- COMMAND"
    assert profiling.clocks(trace).startswith("amd-smi ")
    text = "".join(report_text(trace, TextStyle(100)))
    assert gpu in text
    assert not re.search(r"\bncu\b|\bnsys\b|nvidia-smi|cudaProfiler", text + "".join(report_json(trace)))


def test_a_trace_of_nvidia_keeps_its_tools(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, few_events())
    assert "GPU vendor" not in trace.origin.facts
    assert [group.command.split()[0] for group in lacking(trace)][1:] == ["nsys", "ncu"]
    assert profiling.clocks(trace).startswith("nvidia-smi ")


def test_an_estimated_occupancy_is_shown_as_one_and_none_where_the_profiler_has_none(tmp_path: Path) -> None:
    events = [*kernel_pair(1, 1000), *kernel_pair(2, 1100), *kernel_pair(3, 1200)]
    for event, percents in zip(events[1::2], (43, 0, None), strict=True):
        event["args"] |= {} if percents is None else {"est. achieved occupancy %": percents}
    views = [launch_view(trace_of(tmp_path, events), launch) for launch in range(3)]
    assert [view.estimated_occupancy for view in views] == [43, None, None]
    said = ["\n".join(strip.text for strip in launch_lines(view, 120, Look())) for view in views]
    assert "43 % estimated by PyTorch's profiler from the sizes of the launch, not measured" in said[0]
    assert [" ".join(text.split()).count("estimated by") for text in said] == [1, 0, 0]


PLANTED = SHIPPED.with_name("graph-and-eager.pt.trace.json.gz")


def test_what_was_planted_in_eager_steps_and_steps_by_graph_is_found() -> None:
    """The sample's README row says what is true of it."""
    trace = load(PLANTED)
    steps = breakdown(trace, By.STEP)
    assert isinstance(steps, Breakdown)
    assert [part.name for part in steps.parts] == ["step eager", "step graph"] * 6
    assert [part.account.kernels for part in steps.parts] == [9] * 7 + [10] + [9] * 4  # the tenth is the sum's
    slow = {steps.parts.index(part) + 1: part for part in steps.parts if part.is_slow}
    assert set(slow) == {8, 10}
    assert slow[10].more[0].part == ("idle", Cause.OWN_CODE)
    assert "collect" in slow[10].more[0].name
    assert slow[8].more[0].name == "aten::sum"

    pools = memory_pools(trace)
    assert not isinstance(pools, Unknown)
    (pool,) = pools
    assert not isinstance(pool.owners, Unknown)
    [largest] = [owner for owner in pool.owners if owner.at_peak == 256 << 20]
    assert "aten::empty" in largest.name
