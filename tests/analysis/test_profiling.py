"""Commands that profile again: complete, for what is lacking, of the launch in question."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counting
from llmtop.analysis.kernels.lacking import lacking
from llmtop.analysis.kernels.nvtx_ranges import only_range
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.capture import capture_length
from llmtop.model import Origin, Trace, Track, TrackKind
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, TIMELINE, Launch, report
from tests.nsys_capture import US, Capture

WHOLE = "--set full --section SpeedOfLight_HierarchicalTensorRooflineChart"
COMMAND = "/opt/ncu --clock-control none --set full -o out python3 serve.py"


def test_a_launch_is_looked_at_whole_where_something_of_it_is_missing() -> None:
    trace = report(Launch("k"), sections=("SpeedOfLight", "Occupancy"), command=COMMAND)
    assert profiling.of_launch(trace, 0, ["Occupancy", "SpeedOfLight"]) == ""
    assert profiling.of_launch(trace, 0, ["Occupancy", "SourceCounters", "SourceCounters"]) == (
        f"ncu --clock-control none --kernel-name k --launch-count 1 {WHOLE} -o kernel_%i python3 serve.py"
    )


def test_what_no_set_has_is_asked_for_by_name() -> None:
    trace = report(Launch("k"), command=COMMAND)
    asked = "SpeedOfLight_HierarchicalDoubleRooflineChart"
    assert f" {WHOLE} --section {asked} -o " in profiling.of_launch(trace, 0, [asked, "Occupancy"])


def test_templates_of_one_function_are_told_apart_by_their_number() -> None:
    launches = [Launch(f"void k<{kind}>()", function="k") for kind in ("int", "float", "int")]
    trace = report(Launch("other"), *launches, command="ncu ./p")
    assert "--kernel-name k --launch-skip 2 --launch-count 1 " in profiling.of_launch(trace, 3, ["SpeedOfLight"])


def test_a_report_that_does_not_say_how_it_was_made_leaves_the_program_open() -> None:
    for command in ("", "ncu --not-known-yet ./p", "something else"):
        trace = report(Launch("k"), command=command)
        assert profiling.of_launch(trace, 0, ["Occupancy"]).endswith(f" {WHOLE} -o kernel_%i COMMAND")
        assert profiling.timeline(trace).endswith(" COMMAND")


def test_a_whole_report_is_collected_again_as_it_was() -> None:
    trace = report(Launch("k"), command="ncu -k regex:gemm -c 60 -s 5 --section LaunchStats ./p")
    assert profiling.of_report(trace, ["Occupancy"]) == (
        "ncu --kernel-name regex:gemm --launch-count 60 --launch-skip 5 --section Occupancy -o report_%i ./p"
    )


def test_a_timeline_says_which_program_it_is_of() -> None:
    assert profiling.program(load(TIMELINE)) == "/srv/llm/venv/bin/python3 decode2.py 8 512 6 4 8"


def test_remedies_get_the_program() -> None:
    trace = report(Launch("k"), command="ncu ./p\\1 x")
    assert profiling.filled(trace, "nsys profile COMMAND") == "nsys profile './p\\1' x"
    assert profiling.filled(trace, "COMMANDER") == "COMMANDER"


def live(**facts: str | int) -> Trace:
    tracks = {
        ids.process(7): Track(
            ids.process(7), TrackKind.PROCESS, "worker", facts={"cmdline": "VLLM::Worker", "root": 5}
        ),
        ids.process(5): Track(ids.process(5), TrackKind.PROCESS, "api", facts={"root": 5, **facts}),
    }
    return Trace(Origin("live"), tracks=tracks)


def test_a_server_is_started_again_as_its_root_was() -> None:
    command = profiling.timeline_of_server(live(cmdline="vllm serve m"))
    assert command.endswith(" --delay=120 --duration=10 --kill=none vllm serve m")
    assert profiling.program(live()) == "COMMAND"


def test_metrics_called_all_are_not_all_metrics() -> None:
    """Nsight Compute has no such word: it collects the metrics whose names end so."""
    trace = report(Launch("k"), sections=("section0",), command="ncu --metrics all ./p")
    assert " --set full " in profiling.of_launch(trace, 0, ["SpeedOfLight"])


@pytest.mark.parametrize(("version", "has_it"), [("2023.1.1.0 (build 1)", False), ("2024.1.1.0", True), ("", True)])
def test_a_section_is_asked_only_of_versions_that_have_it(version: str, has_it: bool) -> None:
    made = report(Launch("k"), command="ncu ./p")
    trace = replace(made, origin=replace(made.origin, tool_version=version))
    assert profiling.absent(trace, 0, ["LaunchStats", "WorkloadDistribution"])[1:] == ("WorkloadDistribution",) * has_it


def no_finding_asks_for_what_its_report_has(trace: Trace) -> None:
    for finding in diagnose(trace).findings:
        words = finding.next_command.split()
        asked = {word for before, word in pairwise(words) if before == "--section"}
        asked |= profiling.FULL_SET if "--set full" in finding.next_command else set()
        assert trace.kernels is not None
        details = trace.kernels.details
        assert details is None or not asked or asked - set(details.sections(0)), finding.next_command
        assert "--" not in words
        assert not words or words[0] != "ncu" or {"-o", "kernel_%i", "--launch-count"} <= set(words)


def test_a_report_that_has_everything_is_told_to_collect_nothing() -> None:
    trace = load(LADDER)
    assert trace.origin.facts["command"] != ""
    assert {finding.next_command for finding in diagnose(trace).findings} == {""}
    bare = replace(trace, origin=replace(trace.origin, facts={}))
    assert {finding.next_command for finding in diagnose(bare).findings} == {""}


def test_counters_are_of_the_kernel_that_takes_most_time() -> None:
    trace = report(Launch("a", 5.0), Launch("b", 4.0), Launch("b", 4.0), counted=False)
    assert counting.of_heaviest(trace)[0].startswith(f"ncu --kernel-name b --launch-count 1 {WHOLE} -o ")
    (of_kernels,) = lacking(trace)
    assert of_kernels.command == counting.of_heaviest(trace)[0]


def test_what_a_report_lacks_is_asked_for_without_what_it_has() -> None:
    trace = report(Launch("k"), sections=("SpeedOfLight",), command="ncu ./p")
    (of_kernels,) = lacking(trace)
    assert "--section WarpStateStats " in of_kernels.command
    assert "--section SpeedOfLight " not in of_kernels.command
    assert of_kernels.command.endswith(" -o report_%i ./p")


def test_a_program_that_says_what_to_look_at_is_looked_at_there() -> None:
    trace = report(Launch("k"), command="ncu --profile-from-start off ./p")
    assert " --capture-range=cudaProfilerApi ./p" in profiling.timeline(trace)
    assert "--capture-range" not in profiling.timeline(report(Launch("k"), command="ncu ./p"))


def _steps(path: Path, *, first: str = "", delay: bool = False, lost: bool = False) -> Trace:
    """Three kernels of one name, and what comes before them in the capture."""
    capture = Capture()
    if first:
        capture.call(first, 0, 5 * US)
    for i in range(3):
        at = (i + 1) * 100 * US
        launch = 99 if lost and not i else capture.call("cudaLaunchKernel", at, at + 5 * US)
        capture.kernel(at + 10 * US, at + 50 * US, launch)
    trace = capture.trace(path)
    facts = {**trace.origin.facts, **({profiling.DELAY_FACT: "5 ms"} if delay else {})}
    return replace(trace, origin=replace(trace.origin, facts=facts))


def test_of_a_timeline_the_number_of_a_launch_counts_from_where_it_begins(tmp_path: Path) -> None:
    trace = _steps(tmp_path, first="cuInit")
    assert "--launch-skip counts from where this capture begins" in profiling.where_to_run(trace)
    assert "--launch-skip 2 --launch-count 1 " in profiling.of_launch(trace, 2, ["SpeedOfLight"])
    assert "--launch-skip" not in profiling.where_to_run(load(LADDER))


def test_a_timeline_that_begins_at_a_call_of_the_program_has_ncu_begin_there(tmp_path: Path) -> None:
    trace = _steps(tmp_path, first="cuProfilerStart")
    command = profiling.of_launch(trace, 2, ["SpeedOfLight"])
    assert command.startswith("ncu --profile-from-start off --kernel-name gemm --launch-skip 2 --launch-count 1 ")
    assert "--capture-range=cudaProfilerApi" in profiling.timeline(trace)
    assert "--launch-skip" not in profiling.where_to_run(trace)


def test_a_range_of_such_a_timeline_is_counted_from_there_too() -> None:
    trace = load(TIMELINE)
    assert " --profile-from-start off " in profiling.of_launch(trace, 5, ["SpeedOfLight"])
    alone = only_range(trace, "decode")
    assert isinstance(alone, Trace)
    command = profiling.of_launch(alone, 0, ["SpeedOfLight"])
    assert command.startswith("ncu --profile-from-start off --nvtx --nvtx-include decode/ --kernel-name ")


@pytest.mark.parametrize("how", ["delay", "lost"])
def test_of_a_timeline_that_begins_midway_no_launch_has_a_number(how: str, tmp_path: Path) -> None:
    trace = _steps(tmp_path, first="cudaEventRecord", delay=how == "delay", lost=how == "lost")
    assert profiling.of_launch(trace, 2, ["SpeedOfLight"]).startswith("ncu --kernel-name gemm --launch-count 1 ")
    said = profiling.where_to_run(trace)
    assert "may have another template or grid and belong to a warm-up" in said
    assert "--range NAME" not in said
    ranges = replace(trace, spans={**trace.spans, "nvtx": trace.spans["launch"]})
    assert "--range NAME" in profiling.where_to_run(ranges)


def test_a_report_that_ends_at_the_number_it_was_given_says_so() -> None:
    launches = [Launch("k"), Launch("k")]
    assert "after the 2 launches" in capture_length(report(*launches, command="ncu -c 2 ./p"))
    assert "after the one launch that it was to have: shares are of this one alone" in capture_length(
        report(Launch("k"), command="ncu -c 1 ./p")
    )
    assert capture_length(report(*launches, command="ncu -c 3 ./p")) == ""
