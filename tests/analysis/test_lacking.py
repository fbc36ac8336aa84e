"""What a capture does not hold, and the one command for each tool that would bring it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.kernels.counting import MEETS_OTHERS
from llmtop.analysis.kernels.lacking import lacking, typed
from llmtop.analysis.pages.launch import launch_view
from llmtop.parsers.registry import load
from tests.kernel_traces import COMPUTE, LADDER, LLAMA, MEMORY, TIMELINE, Launch, report
from tests.nsys_capture import US, Capture


def test_a_timeline_lacks_counters_and_what_of_the_cpu_was_not_sampled() -> None:
    of_time, of_kernels = lacking(load(TIMELINE))
    assert {what for what, _ in of_time.parts} == {"CPU scheduling", "CPU samples"}
    assert "--sample=process-tree --cpuctxsw=process-tree" in of_time.command
    ((what, why),) = of_kernels.parts
    assert why == "a timeline has no counters"
    assert what.startswith("bound, roofline, occupancy")
    assert " --set full " in of_kernels.command, "which has throughputs, occupancy and stalls"


@pytest.mark.parametrize("path", [LADDER, LLAMA], ids=lambda path: path.name)
def test_a_full_report_lacks_the_time_line_alone(path: Path) -> None:
    (of_time,) = lacking(load(path))
    assert [what for what, _ in of_time.parts] == ["timeline"]
    assert of_time.command.startswith("nsys profile ")


def test_only_the_sections_of_what_is_missing_are_asked_for_and_how_many_kernels_lack_it() -> None:
    (of_kernels,) = lacking(report(Launch("a", metrics={COMPUTE: 70.0, MEMORY: 20.0}), Launch("b")))
    assert ("bound of 1 of 2 kernels", "compute and memory throughput not collected") in of_kernels.parts
    assert "--section SpeedOfLight " in of_kernels.command
    assert of_kernels.command.count("ncu ") == 1
    whole = report(Launch("a", metrics={COMPUTE: 70.0, MEMORY: 20.0}))
    assert "--section SpeedOfLight " not in lacking(whole)[0].command


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_a_kernel_that_waits_for_other_gpus_is_not_run_again_by_itself(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(10 * US, 910 * US, made.call("cudaLaunchKernel", 0, 5 * US), ALL_REDUCE)
    (tmp_path / "alone").mkdir()
    assert typed(lacking(made.trace(tmp_path / "alone"))[-1]) == f"no command: {MEETS_OTHERS}"
    made.kernel(1010 * US, 1015 * US, made.call("cudaLaunchKernel", 1000 * US, 1005 * US), "mine")
    trace = made.trace(tmp_path)
    *_, of_kernels = lacking(trace)
    assert "--kernel-name mine " in of_kernels.command
    communicates = launch_view(trace, 0)
    assert (communicates.command, communicates.no_command) == ("", MEETS_OTHERS)
    assert "--kernel-name mine " in launch_view(trace, 1).command


def test_a_report_with_counters_of_such_a_kernel_may_be_made_again() -> None:
    trace = report(Launch(ALL_REDUCE, function="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"))
    assert "--kernel-name ncclDevKernel_AllReduce_Sum_bf16_RING_LL " in launch_view(trace, 0).command


@pytest.mark.parametrize(
    ("stacks", "is_offered"),
    [
        ("main;hash_insert 3\nmain;read 1\n", False),
        ("main;cudaLaunchKernel;ioctl 3\nmain;read 1\n", True),
        ("MainThread;forward (torch/nn/modules/module.py:1) 3\nMainThread;a 1\n", True),
        ("MainThread;forward (/Users/me/torch/module.py:1) 3\nMainThread;a 1\n", False),
    ],
)
def test_a_profile_of_cpus_alone_is_offered_a_timeline_of_gpus_where_one_may_be_used(
    tmp_path: Path, stacks: str, is_offered: bool
) -> None:
    path = tmp_path / "a.folded"
    path.write_text(stacks)
    (group,) = lacking(load(path))
    assert bool(group.command) is is_offered
    assert bool(group.no_command) is not is_offered
