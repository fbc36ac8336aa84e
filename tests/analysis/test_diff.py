"""Two reports beside each other: which kernels are the same, what changed, what that is made of, whether it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.analysis.pages.diff.beside import api_changes, findings_change, idle_changes, memory_changes, setup_changes
from llmtop.analysis.pages.diff.comparable import caveats
from llmtop.analysis.pages.diff.headline import Headline, Unit, headline, what_is_left
from llmtop.analysis.pages.diff.kernels import kernel_changes
from llmtop.analysis.pages.diff.ladder import Rung, ladder_of_kernels
from llmtop.analysis.pages.diff.match import Likeness
from llmtop.analysis.pages.diff.noise import Noise, noise_of_sum
from llmtop.analysis.pages.diff.page import diff_sections, fact_said, facts_said, ladder_section, says
from llmtop.analysis.pages.diff.side import sides
from llmtop.analysis.pages.diff.verdict import Outcome, diff_verdict
from llmtop.analysis.pages.diff.why import FactChange, why
from llmtop.model import Issue, Origin, Severity, SpanKind, Stack, Trace, Track, TrackKind, Unknown
from tests.kernel_traces import (
    COMPUTE,
    DRAM,
    DRAM_COUNTERS,
    MEMORY,
    OCCUPANCY,
    Launch,
    fp32_counters,
    report,
    stall_ratios,
)
from tests.nsys_capture import Capture
from tests.random_reports import random_capture, random_report
from tests.timeline_traces import COMPUTE as COMPUTE_STREAM
from tests.timeline_traces import GEMM, GPU, NORM, THREAD, Made, trace_of

ADD, MUL = (
    f"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_{one}<float>>(int)"
    for one in ("add", "mul")
)


def told(before: Trace, after: Trace) -> Headline:
    found = headline(*sides(before, after))
    assert found is not None
    return found


def times(name: str, *ns: float, grid: tuple[int, int, int] = (64, 1, 1)) -> list[Launch]:
    return [Launch(name, one, grid=grid) for one in ns]


# -- which kernels are the same ---------------------------------------------------------------------------------------


def matched(before: Trace, after: Trace) -> dict[str, Likeness | None]:
    return {one.name: one.likeness for one in kernel_changes(*sides(before, after))}


def test_name_and_launch_come_first_then_less_and_less() -> None:
    before = report(
        Launch("same"), Launch("grown", grid=(8, 1, 1)), Launch("tuned<64>", function="tuned"), Launch("left"),
        Launch("ampere_sgemm_64x32_nn"), Launch("other_left"),
    )  # fmt: skip
    after = report(
        Launch("same"), Launch("grown", grid=(9, 1, 1)), Launch("tuned<128>", function="tuned"), Launch("right"),
        Launch("nvjet_tst_128x64_64x6_1x2_h_bz_coopA_TNN"), Launch("other_right"),
    )  # fmt: skip
    found = matched(before, after)
    assert found.pop("GEMM 64x32 fp32 cuBLAS → GEMM 128x64 bf16 nvjet") is Likeness.FAMILY
    assert found == {
        "same": Likeness.SAME,
        "grown": Likeness.NAME,
        "tuned": Likeness.TITLE,
        "left": None,
        "right": None,
        "other_left": None,
        "other_right": None,
    }


def test_sizes_that_both_have_are_not_mixed_with_the_one_that_changed() -> None:
    before = report(*times("k", 10, grid=(1, 1, 1)), *times("k", 20, grid=(2, 1, 1)))
    after = report(*times("k", 11, grid=(1, 1, 1)), *times("k", 30, grid=(3, 1, 1)), *times("k", 40, grid=(4, 1, 1)))
    changes = {one.likeness: one for one in kernel_changes(*sides(before, after))}
    assert changes[Likeness.SAME].call_ns == 1
    assert (changes[Likeness.NAME].call_ns, changes[Likeness.NAME].by_calls_ns) == (15, 27.5 * 1)


def test_one_kernel_each_is_compared_whatever_it_is_called() -> None:
    assert matched(report(Launch("naive")), report(Launch("tiled"))) == {"naive → tiled": Likeness.ALONE}
    assert matched(report(Launch("k")), report(Launch("k", grid=(1, 1, 1)))) == {"k": Likeness.NAME}


# -- noise ------------------------------------------------------------------------------------------------------------


def test_of_single_calls_a_threshold_is_taken() -> None:
    (change,) = kernel_changes(*sides(report(Launch("k", 1e6)), report(Launch("k", 1.05e6))))
    assert change.noise.common_ns == pytest.approx(0.05 * 1.025e6)
    assert (change.noise.random_ns, change.noise.is_known) == (1000.0, False)
    assert not change.is_changed
    (slower,) = kernel_changes(*sides(report(Launch("k", 1e6)), report(Launch("k", 1.06e6))))
    assert slower.is_changed


def test_several_calls_tell_their_noise() -> None:
    steady = report(*times("k", 999, 1000, 1001, 1000))
    (change,) = kernel_changes(*sides(steady, report(*times("k", 1019, 1020, 1021, 1020))))
    assert change.noise.is_known
    # 1 % of 1010, and three times the root of 2 * (2 / 3) / 4.
    assert change.noise.ns == pytest.approx(10.10 + 3 * math.sqrt(1 / 3))
    assert change.is_changed
    (noisy,) = kernel_changes(*sides(steady, report(*times("k", 800, 1020, 1240, 1020))))
    assert noisy.call_ns == pytest.approx(20)
    assert not noisy.is_changed


def noise_of_parts(before: Trace, after: Trace) -> str:
    (section,) = [one for one in diff_sections(*sides(before, after)) if one.title.startswith("What the difference")]
    return " ".join(section.said)


def test_of_one_call_it_is_said_only_where_there_is_one() -> None:
    one, two = report(*times("k", 1e6)), report(*times("k", 1e6, 1e6))
    assert "not measured: one call of each kernel tells nothing of it" in noise_of_parts(one, report(*times("k", 2e6)))
    assert "not measured: each kernel has fewer than 3 calls in both;" in noise_of_parts(two, report(*times("k", 2e6)))
    many = report(*times("k", 1e6), *times("many", 1, 2, 3)), report(*times("k", 2e6), *times("many", 1, 2, 3))
    assert "not measured: 1 of 2 kernels have fewer than 3 calls in both;" in noise_of_parts(*many)


def test_kernels_that_all_became_slower_are_told_though_the_sum_is_noisy() -> None:
    def steady(ns: float, large: Sequence[float]) -> Trace:
        return report(*times("large", *large), *times("a", *[ns] * 5), *times("b", *[ns] * 5))

    noisy = [1e6, 2e6, 3e6, 2e6, 2e6]
    said = diff_verdict(*sides(steady(1000, noisy), steady(1100, noisy)))
    assert said.outcome is Outcome.NOISE
    assert "; but 2 of 3 kernels are each slower by more than their own noise" in said.said
    back = diff_verdict(*sides(steady(1100, noisy), steady(1000, noisy)))
    assert "; but 2 of 3 kernels are each faster by" in back.said
    assert "own noise" not in diff_verdict(*sides(steady(1000, noisy), steady(1005, noisy))).said


def test_random_noise_evens_out_and_that_of_runs_does_not() -> None:
    parts = [Noise(1.0, 3.0, is_known=True), Noise(1.0, 4.0, is_known=False)]
    assert noise_of_sum(parts) == Noise(2.0, 5.0, is_known=False)


# -- what the difference is made of -----------------------------------------------------------------------------------


def test_kernels_that_are_called_as_often_add_up_with_those_that_are_new_or_gone() -> None:
    before = report(*times("slow", 40_000), *times("same", 5_000), *times("first", 9_000), *times("second", 8_000))
    after = report(*times("slow", 20_000), *times("same", 5_000), *times("fused", 11_000))
    found = told(before, after)
    assert (found.unit, found.before_ns, found.after_ns) == (Unit.KERNELS, 62_000, 36_000)
    assert {one.title: one.ns for one in found.parts} == {
        "slow": -20_000,
        "gone: first and second": -17_000,
        "new: fused": 11_000,
    }
    verdict = diff_verdict(*sides(before, after))
    assert verdict.outcome is Outcome.FASTER
    assert verdict.said.startswith("B is 42 % faster over all kernels: 62.0 µs → 36.0 µs (-26.0 µs); -20.0 µs slow,")
    assert "the kernels that both have differ by -20.0 µs" in verdict.said


def test_fewer_calls_at_the_same_time_are_not_faster() -> None:
    """68 calls of which 60 are left in a shorter capture save nothing."""
    before = report(*times("attention", *[10_000.0] * 68), *times("norm", *[500.0] * 136))
    after = report(*times("attention", *[10_000.0] * 60), *times("norm", *[500.0] * 120))
    found = told(before, after)
    assert found.unit is Unit.CALLS
    assert found.change_ns == 0
    assert [(one.title, one.ns) for one in found.beside] == [
        ("called more or less often: attention and norm", -8 * 10_000 - 16 * 500)
    ]
    said = diff_verdict(*sides(before, after))
    assert said.outcome is Outcome.NOISE
    assert "Not counted: -88.0 µs" in said.said


def test_what_is_left_is_where_to_look_next() -> None:
    before = report(*times("attention", 60_000), *times("norm", 30_000), *times("copy", 10_000))
    after = report(*times("attention", 20_000), *times("norm", 30_000), *times("copy", 10_000))
    there = what_is_left(*sides(before, after))
    assert there == "now most of it is norm 50 %, attention 33 %, copy 17 %; before it was attention 60 %"
    assert what_is_left(*sides(before, before)) == "now most of it is attention 60 %, norm 30 %, copy 10 %"
    steps = stepped(*[(100.0, 10.0, 10.0)] * 8)
    assert what_is_left(*sides(steps, steps)).startswith("now most of it is GEMM kernels 81 %, ")


def test_times_over_two_are_told_as_times() -> None:
    fast, slow = report(*times("k", 10_000)), report(*times("k", 45_000))
    assert diff_verdict(*sides(slow, fast)).said.startswith("B is 4.5 times as fast over all kernels")
    assert diff_verdict(*sides(fast, slow)).said.startswith("B takes 4.5 times as long over all kernels")


def test_a_kernel_without_a_time_is_in_no_sum_and_is_named() -> None:
    before, after = report(*times("a", 1e6), *times("b", math.nan)), report(*times("a", 2e6), *times("b", 9e6))
    found = told(before, after)
    assert (found.before_ns, found.after_ns) == (1e6, 2e6)
    (section,) = [one for one in diff_sections(*sides(before, after)) if one.title.startswith("What the difference")]
    assert section.said[-1] == "without a time in one report, and so in no sum: b"


def stepped(*steps: tuple[float, float, float]) -> Trace:
    """Decode steps of (µs of a GEMM, of a norm, of a synchronisation that the GPU waits for)."""
    spans: dict[str, list[Made]] = {"kernel": [], "launch": [], "call": [], "nvtx": []}
    now = 0.0
    for i, (gemm, norm, waited) in enumerate(steps):
        launches = (now + 1, now + 2)
        spans["launch"] += [Made(THREAD, "cudaLaunchKernel", at, at + 1, 2 * i + n) for n, at in enumerate(launches)]
        begins = now + 4
        spans["kernel"] += [
            Made(COMPUTE_STREAM, GEMM, begins, begins + gemm, 2 * i),
            Made(COMPUTE_STREAM, NORM, begins + gemm, begins + gemm + norm, 2 * i + 1),
        ]
        ended = begins + gemm + norm
        spans["call"].append(Made(THREAD, "cudaStreamSynchronize", now + 3, ended + waited))
        spans["nvtx"].append(Made(THREAD, f"decode {i}", now, ended + waited))
        now = ended + waited
    return trace_of(spans, end=now)


def test_a_step_is_the_mean_of_those_that_are_no_outliers() -> None:
    usual = [(100.0, 20.0, 30.0)] * 8
    before, after = stepped(*usual), stepped(*[(100.0, 10.0, 10.0)] * 7, (100.0, 10.0, 900.0))
    found = told(before, after)
    assert (found.unit, found.what) == (Unit.STEP, "decode step")
    sample = sides(before, after)[1].steps
    assert sample is not None
    assert (sample.kind, sample.slow, len(sample.all)) == ("decode", 1, 8)
    assert found.before_ns == pytest.approx(154_000)
    assert found.after_ns == pytest.approx(124_000)
    parts = {one.title: one.ns for one in found.parts}
    assert parts["norm kernels"] == pytest.approx(-10_000)
    assert math.fsum(one.ns for one in found.parts if one.is_idle) == pytest.approx(-20_000)
    assert math.fsum(parts.values()) == pytest.approx(found.change_ns)
    assert diff_verdict(*sides(before, after)).said.startswith(
        "B is 19 % faster per decode step: 154 µs → 124 µs (-30.0 µs); -16.2 µs idle: synchronisation"
    )


def test_other_findings_and_calls_a_step_are_told() -> None:
    before, after = sides(stepped(*[(100.0, 20.0, 30.0)] * 8), stepped(*[(100.0, 20.0, 30.0)] * 4))
    calls = api_changes(before, after)
    assert not isinstance(calls, Unknown)
    assert {one.name: (one.before, one.after) for one in calls} == {
        "cudaStreamSynchronize": (1, 1),
        "cudaLaunchKernel": (2, 2),
    }
    assert not any(one.is_notable for one in calls)


# -- whether it can be compared ---------------------------------------------------------------------------------------


def grave(before: Trace, after: Trace) -> str:
    return diff_verdict(*sides(before, after)).cannot


def test_reports_of_other_gpus_are_not_comparable_and_say_what_is_compared() -> None:
    said = grave(report(Launch("k")), report(Launch("k"), gpu="NVIDIA A100"))
    assert said.startswith("not comparable in time: they are of other GPUs: NVIDIA H100 and NVIDIA A100. What follows")
    verdict = diff_verdict(*sides(report(Launch("k")), report(Launch("k", 3000.0), gpu="NVIDIA A100")), ("A", "C"))
    assert verdict.said == "no verdict on whether C is faster than A: all kernels take 1.00 µs in A, 3.00 µs in C"
    assert verdict.outcome is Outcome.UNKNOWN


def on_gpus(*names: str) -> Trace:
    tracks = {ids.gpu(i): Track(ids.gpu(i), TrackKind.GPU, name) for i, name in enumerate(names)}
    return replace(report(Launch("k"), gpu=""), tracks=tracks)


@pytest.mark.parametrize("numbers", [("GPU 1", "GPU 0"), ("rank 0", "rank 1"), ("rank 3 GPU 1",), ()])
def test_a_report_that_has_numbers_of_gpus_alone_does_not_name_them(numbers: tuple[str, ...]) -> None:
    named, unnamed = report(Launch("k")), on_gpus(*numbers)
    for both, which in (((unnamed, named), "baseline"), ((named, unnamed), "other")):
        (caveat,) = caveats(*sides(*both))
        assert (caveat.text.split(" ")[1], caveat.is_grave) == (which, False)
        assert caveat.text.endswith("does not name its GPU, which may be another one than NVIDIA H100")
    assert caveats(*sides(unnamed, on_gpus("GPU 5"))) == ()
    assert caveats(*sides(on_gpus("NVIDIA H100"), named)) == ()
    assert grave(on_gpus("NVIDIA A100"), named).startswith(
        "not comparable in time: they are of other GPUs: NVIDIA A100"
    )


def test_a_kernel_that_a_damaged_file_lacks_is_not_gone() -> None:
    whole, cut = report(Launch("a"), Launch("b"), Launch("c")), report(Launch("a"), Launch("b"))
    cut = with_issues(cut, Issue(Severity.ERROR, "any-cut", "the file ends early"))

    def words(before: Trace, after: Trace) -> set[str]:
        both = sides(before, after)
        return {says(*both, one) for one in kernel_changes(*both)}

    assert words(whole, cut) == words(cut, whole) == {"not comparable"}
    assert words(whole, report(Launch("a"), Launch("b"))) == {"same", "gone"}


@pytest.mark.parametrize(
    ("mine", "theirs", "is_grave", "said"),
    [
        ("--clock-control none", "", True, "--clock-control is none in the baseline and base in the other"),
        (
            "--replay-mode application",
            "--replay-mode kernel",
            True,
            "--replay-mode is application in the baseline and kernel in the other",
        ),
        (
            "--nvtx --nvtx-include decode/",
            "",
            False,
            "--nvtx-include is decode/ in the baseline and not given in the other",
        ),
        ("-c 5", "-c 9", False, "--launch-count is 5 in the baseline and 9 in the other"),
    ],
)
def test_options_of_the_profiler_are_compared(mine: str, theirs: str, is_grave: bool, said: str) -> None:
    traces = [report(Launch("k"), command=f"ncu {options} ./program") for options in (mine, theirs)]
    (caveat,) = caveats(*sides(traces[0], traces[1]))
    assert (caveat.text, caveat.is_grave) == (said, is_grave)


def test_a_report_that_does_not_say_how_it_was_made_is_not_held_against_another() -> None:
    assert caveats(*sides(report(Launch("k")), report(Launch("k"), command="ncu --clock-control none ./p"))) == ()


def test_clocks_of_the_same_kernels_are_compared() -> None:
    clocks = [report(Launch("k", 1e6, {"smsp__cycles_elapsed.avg.per_second": hz})) for hz in (1.98e9, 1.1e9, 1.9e9)]
    (slow,) = caveats(*sides(clocks[0], clocks[1]))
    assert slow.is_grave
    assert slow.text.startswith("the SMs ran at 1.98 GHz in the baseline and 1.10 GHz in the other")
    (warm,) = caveats(*sides(clocks[0], clocks[2]))
    assert not warm.is_grave
    said = [diff_verdict(*sides(clocks[0], other)) for other in clocks[1:]]
    assert [one.cautions for one in said] == [(), (warm,)]
    assert slow.text in said[0].cannot
    assert said[1].cannot == ""


def test_other_sections_other_sizes_and_other_tools_are_said() -> None:
    collected = report(Launch("k"), sections=("SpeedOfLight",)), report(Launch("k"), sections=("Occupancy",))
    (sections,) = caveats(*sides(*collected))
    assert (
        sections.text == "other sections were collected: SpeedOfLight only in the baseline; Occupancy only in the other"
    )
    (sizes,) = caveats(*sides(report(Launch("k")), report(Launch("k", grid=(1, 1, 1)))))
    assert sizes.text == "k ran with another grid or block, 100 % of the time: the same work?"
    timeline = replace(report(Launch("k"), counted=False), origin=Origin("nsys-sqlite", gpu="NVIDIA H100"))
    assert "Nsight Compute runs each kernel alone" in grave(report(Launch("k")), timeline)
    assert "no kernel is in both" in grave(report(Launch("a"), Launch("b")), report(Launch("c"), Launch("d")))


def with_issues(trace: Trace, *issues: Issue) -> Trace:
    return replace(trace, issues=issues)


@pytest.mark.parametrize(
    ("issue", "missing"),
    [
        (Issue(Severity.ERROR, "any-cut", "the file ends early"), "the file ends early"),
        (Issue(Severity.WARNING, "nsys-kernel-times", "kernel rows were left out", 9), "9 kernel rows were left out"),
        (Issue(Severity.WARNING, "rank-absent", "no file is of rank 3"), "no file is of rank 3"),
        (Issue(Severity.WARNING, "nsys-diagnostic", "Not all CUDA events might have been collected."), ""),
        (Issue(Severity.INFO, "kineto-mended", "quotes were read all the same", 9), ""),
    ],
)
def test_what_is_lost_of_a_file_leaves_no_verdict(issue: Issue, missing: str) -> None:
    """What the profiler says of its own capture, and what was mended, costs no part of the file."""
    for both in (
        (slow := report(Launch("k", 9e6)), with_issues(report(Launch("k", 1e6)), issue)),
        (with_issues(slow, issue), report(Launch("k", 1e6))),
    ):
        verdict = diff_verdict(*sides(*both))
        if missing:
            assert f"is damaged: {missing}. Compared are the rules" in verdict.cannot
            assert (verdict.outcome, verdict.said) == (Outcome.UNKNOWN, "no verdict on whether B is faster than A")
        else:
            assert (verdict.outcome, verdict.cannot) == (Outcome.FASTER, "")


def test_a_row_of_many_that_is_left_out_is_no_damage() -> None:
    few, many = (Issue(Severity.WARNING, "kineto-times", "events left out", number) for number in (1, 9))
    steps = stepped(*[(100.0, 20.0, 30.0)] * 40)
    assert caveats(*sides(steps, with_issues(stepped(*[(100.0, 20.0, 30.0)] * 40), few))) == ()
    (caveat,) = caveats(*sides(steps, with_issues(stepped(*[(100.0, 20.0, 30.0)] * 40), many)))
    assert caveat.text == "the other is damaged: 9 events left out"


# -- why --------------------------------------------------------------------------------------------------------------


def test_what_counters_say_of_a_kernel_that_changed() -> None:
    counters = {COMPUTE: 20.0, MEMORY: 30.0, DRAM: 30.0, OCCUPANCY: 48.0, **stall_ratios(long_scoreboard=9, wait=1)}
    others = {COMPUTE: 21.0, MEMORY: 85.0, DRAM: 85.0, OCCUPANCY: 92.0, **stall_ratios(long_scoreboard=2, wait=1)}
    before, after = sides(report(Launch("k", 9e4, counters)), report(Launch("k", 3e4, others)))
    (change,) = kernel_changes(before, after)
    said = facts_said(why(before, after, change))
    assert said.startswith("bound latency → memory; occupancy 48 % → 92 %")
    assert "memory busy 30 % → 85 %" in said
    assert "compute busy" not in said
    assert "stall long_scoreboard 9.00 cycles → 2.00 cycles (×0.22)" in said


@pytest.mark.parametrize(("value", "said"), [(4e-4, "0.0004 cycles"), (3.9e-4, "hardly any"), (0.0, "0 cycles")])
def test_what_is_hardly_there_beside_the_other_has_no_number(value: float, said: str) -> None:
    assert fact_said(FactChange("stall wait", value, 4.0, "cycles")) == f"stall wait {said} → 4.00 cycles"
    assert fact_said(FactChange("stall wait", 4.0, value, "cycles")) == f"stall wait 4.00 cycles → {said}"


def test_counters_of_several_launches_tell_their_noise() -> None:
    def launches(*percents: float) -> Trace:
        return report(*(Launch("k", 9e4, {OCCUPANCY: one}) for one in percents))

    def said(mine: Trace, theirs: Trace) -> str:
        both = sides(mine, theirs)
        return facts_said(why(*both, kernel_changes(*both)[0]))

    assert said(launches(40, 41, 42, 41), launches(49, 50, 51, 50)) == "occupancy 41 % → 50 %"
    assert said(launches(20, 60, 40, 44), launches(30, 70, 50, 50)) == "", "they spread by more than they differ"
    assert said(launches(41), launches(50)) == "occupancy 41 % → 50 %"
    assert said(launches(41), launches(20, 80, 50, 50)) == "", "one launch is taken to spread as the others do"


def test_findings_that_came_and_went() -> None:
    counters = {COMPUTE: 20.0, MEMORY: 90.0, DRAM: 90.0}
    busy, idle = report(Launch("k", 9e4, counters)), report(Launch("k", 9e4, {COMPUTE: 20.0, MEMORY: 20.0, DRAM: 20.0}))
    change = findings_change(*sides(busy, idle))
    assert [one.rule for one in change.went] == ["kernel-memory-roof"]
    assert not [one.rule for one in change.came if one.rule == "kernel-memory-roof"]
    back = findings_change(*sides(idle, busy))
    assert [one.rule for one in back.came] == ["kernel-memory-roof"]


def test_what_the_other_could_not_judge_is_neither_gone_nor_new() -> None:
    busy = report(Launch("k", 9e4, {COMPUTE: 20.0, MEMORY: 90.0, DRAM: 90.0}), sections=("SpeedOfLight",))
    poor = report(Launch("k", 9e4, {OCCUPANCY: 80.0}), sections=("Occupancy",))
    for name, both in (("B", sides(busy, poor)), ("A", sides(poor, busy))):
        change = findings_change(*both)
        assert (change.went, change.came) == ((), ())
        (one,) = change.unjudged
        assert (one.report, one.why, one.finding.rule) == (name, "not collected: SpeedOfLight", "kernel-memory-roof")
        (said,) = [one for one in diff_sections(*both) if one.title == "Findings that came or went"]
        assert said.said[0].startswith(f"not judged in {name} (not collected: SpeedOfLight): kernel-memory-roof: k: at")


def test_a_kernel_that_is_gone_takes_its_finding_along() -> None:
    """The other report tells nothing of it, and nothing is lacking there."""
    busy = Launch("k", 9e4, {COMPUTE: 20.0, MEMORY: 90.0, DRAM: 90.0})
    other = Launch("other", 9e4, {OCCUPANCY: 80.0})
    change = findings_change(*sides(report(busy, other), report(other)))
    assert [one.rule for one in change.went] == ["kernel-memory-roof"]
    assert change.unjudged == ()


def test_calls_that_were_not_traced_cannot_be_found_fault_with() -> None:
    whole = stepped(*[(20.0, 10.0, 100.0)] * 20)
    kernels = replace(whole, spans={SpanKind.KERNEL: whole.spans[SpanKind.KERNEL]})
    change = findings_change(*sides(whole, kernels))
    assert change.went == ()
    assert {one.finding.rule for one in change.unjudged} >= {"sync-stalls"}
    assert {one.why for one in change.unjudged} == {"not collected: CUDA launches, CUDA calls and NVTX ranges"}


def test_a_finding_about_more_or_fewer_kernels_grew_or_shrank() -> None:
    def at_roof(*percents: float) -> Trace:
        named = zip("abcd", percents, strict=True)
        return report(*(Launch(name, 9e4, {COMPUTE: 20.0, MEMORY: one, DRAM: one}) for name, one in named))

    two, three, others = at_roof(90, 90, 20, 20), at_roof(90, 90, 90, 20), at_roof(90, 20, 90, 20)
    for both, said in (
        ((two, three), "grew: kernel-memory-roof: 2 → 3 kernels"),
        ((three, two), "shrank: kernel-memory-roof: 3 → 2 kernels"),
        ((two, others), "moved: kernel-memory-roof: 2 → 2 kernels"),
    ):
        (section,) = [one for one in diff_sections(*sides(*both)) if one.title == "Findings that came or went"]
        assert [one for one in section.said if "kernel-memory-roof" in one] == [said]


def test_of_how_they_were_made_only_what_differs_is_said() -> None:
    facts = {"command": "ncu --set full ./a -n 5", "CUDA": "12.1", "captured": "1", "only": "x"}
    traces = [
        replace(report(Launch("k")), origin=Origin("ncu-rep", facts=one, tool_version="2024.1"))
        for one in (facts, {**facts, "command": "ncu --set full ./a -n 9", "captured": "2", "other": "y"})
    ]
    (fact,) = setup_changes(*sides(traces[0], traces[1]))
    assert fact.what == "command"


def test_stacks_compare_by_shares() -> None:
    def stacks(*weights: float) -> Trace:
        named = zip(("wait", "run"), weights, strict=True)
        return Trace(Origin("folded"), stacks=tuple(Stack(("main", name), weight, "samples") for name, weight in named))

    verdict = diff_verdict(*sides(stacks(30, 10), stacks(100, 100)))
    assert verdict.said == "in B the shares of functions are +25.0 points run, -25.0 points wait"
    assert diff_verdict(*sides(stacks(30, 10), stacks(60, 20))).outcome is Outcome.SAME
    (table,) = [one.table for one in diff_sections(*sides(stacks(30, 10), stacks(100, 100))) if "Stacks" in one.title]
    assert table is not None
    assert [tuple(table.cells(i)) for i in range(len(table))] == [
        (25.0, 0.25, 0.5, "run"),
        (-25.0, 0.75, 0.5, "wait"),
    ]


# -- properties -------------------------------------------------------------------------------------------------------


def random_traces(folder: Path) -> Sequence[tuple[Trace, Trace]]:
    reports = [(random_report(seed), random_report(seed + 50)) for seed in range(5)]
    captures: list[Capture] = [random_capture(seed) for seed in range(4)]
    written = []
    for i, capture in enumerate(captures):
        (folder / str(i)).mkdir()
        written.append(capture.trace(folder / str(i)))
    return [*reports, *zip(written[::2], written[1::2], strict=True)]


def test_a_report_does_not_differ_from_itself_and_the_difference_turns_with_the_reports(tmp_path: Path) -> None:
    for before, after in random_traces(tmp_path):
        for one in (before, after):
            same = diff_verdict(*sides(one, one))
            assert same.outcome is Outcome.SAME
            assert (same.cannot, same.cautions) == ("", ())
            assert not any(change.has_other_calls or change.is_changed for change in kernel_changes(*sides(one, one)))
        there, back = headline(*sides(before, after)), headline(*sides(after, before))
        if there is None or back is None:
            assert there is back
            continue
        assert (there.before_ns, there.after_ns) == pytest.approx((back.after_ns, back.before_ns))
        assert there.noise.ns == pytest.approx(back.noise.ns)
        assert math.fsum(one.ns for one in there.parts) == pytest.approx(there.change_ns, abs=1e-3)
        changes = kernel_changes(*sides(before, after)), kernel_changes(*sides(after, before))
        assert sorted(one.total_ns for one in changes[0]) == pytest.approx(sorted(-one.total_ns for one in changes[1]))


def test_all_that_is_said_of_random_reports_can_be_said(tmp_path: Path) -> None:
    for before, after in random_traces(tmp_path):
        for one in (sides(before, after), sides(after, before)):
            titles = [section.title for section in diff_sections(*one)]
            assert titles[0].startswith(("What the difference", "Kernels"))
            assert len(set(titles)) == len(titles)


def held(size: float) -> Trace:
    kernels = [Made(COMPUTE_STREAM, GEMM, 10, 20, 1)]
    calls = [Made(THREAD, "cudaMalloc", 0, 2, 7), Made(THREAD, "cudaFree", 90, 92, 8)]
    calls += [Made(THREAD, "cudaStreamSynchronize", 30, 80)] if size > 1000 else []
    memory = [Made(ids.gpu_process(GPU, 100), "device memory", 1, 91, 7, bytes=size)]
    launches = [Made(THREAD, "cudaLaunchKernel", 5, 6, 1)]
    return trace_of({"kernel": kernels, "call": calls, "launch": launches, "allocation": memory}, end=100)


def test_memory_idle_time_and_calls_of_captures_without_steps() -> None:
    both = sides(held(512), held(2048))
    (peak,) = memory_changes(*both)
    assert (peak.before, peak.after, peak.unit) == (512, 2048, "bytes")
    idle = {one.title: (one.before, one.after) for one in idle_changes(*both)}
    assert math.fsum(before for before, _ in idle.values()) == pytest.approx(0.9)
    calls = api_changes(*both)
    assert not isinstance(calls, Unknown)
    assert [one.name for one in calls if one.is_notable] == ["cudaStreamSynchronize"]
    assert (calls[0].before, calls[0].after, calls[0].after_ns) == (0, 1, 50_000)
    sections = {section.title.partition(" ")[0]: section for section in diff_sections(*both)}
    assert "512 B → 2.00 KiB (×4)" in sections["Memory"].said[0]


def test_memory_and_idle_time_are_compared_where_both_captures_have_them() -> None:
    working = [Made(COMPUTE_STREAM, GEMM, 1000, 1060, 1), Made(COMPUTE_STREAM, GEMM, 1080, 1100, 2)]
    idle = trace_of({"kernel": working}, start=1000, end=1100)
    busy = trace_of({"kernel": [Made(COMPUTE_STREAM, GEMM, 1000, 1100, 1)]}, start=1000, end=1100)
    (change,) = idle_changes(*sides(idle, busy))
    assert (round(change.before, 9), change.after) == (0.2, 0.0)
    (change,) = idle_changes(*sides(busy, idle))
    assert (change.before, round(change.after, 9)) == (0.0, 0.2)
    without = trace_of({"call": [Made(THREAD, "cudaMalloc", 0, 2)]}, end=100)
    assert idle_changes(*sides(idle, without)) == idle_changes(*sides(without, idle)) == ()
    assert memory_changes(*sides(held(512), idle)) == memory_changes(*sides(idle, held(512))) == ()


def test_a_ladder_of_kernels_holds_each_beside_the_baseline_and_the_best() -> None:
    trace = report(*[Launch("slow", 4e4)] * 3, *[Launch("fast", 1e4)] * 3, Launch("untimed", math.nan))
    for baseline, speeds in ((0, [1.0, 4.0]), (1, [0.25, 1.0])):
        slow, fast, untimed = ladder_of_kernels(trace, baseline)
        assert [(one.name, one.ns, one.speed, one.of_best) for one in (slow, fast)] == [
            ("slow", 4e4, speeds[0], 0.25),
            ("fast", 1e4, speeds[1], 1.0),
        ]
        assert [one.is_beyond_noise for one in (slow, fast)] == [speed != 1 for speed in speeds]
        assert math.isnan(untimed.speed)
        assert not untimed.is_beyond_noise
    assert all(math.isnan(one.speed) for one in ladder_of_kernels(trace, 2)), "the baseline has no time"


def rungs_of_flops(*fma: float) -> tuple[Rung, ...]:
    """Kernels of 10 µs each, with so many fused multiply-adds a cycle at 1 GHz."""
    launches = [Launch(f"k{i}", 1e4, metrics={**DRAM_COUNTERS, **fp32_counters(each)}) for i, each in enumerate(fma)]
    return ladder_of_kernels(report(*launches))


@pytest.mark.parametrize(
    ("fma", "is_other"), [(500.0, False), (1000.0, False), (1001.0, True), (250.0, False), (249.0, True), (0.0, True)]
)
def test_a_kernel_of_other_work_is_not_compared(fma: float, *, is_other: bool) -> None:
    baseline, other = rungs_of_flops(500.0, fma)
    assert baseline.flop == pytest.approx(500 * 2 * 1e4)
    assert baseline.other_work is None
    assert (other.other_work is not None) == math.isnan(other.speed) == math.isnan(other.of_best) == is_other
    assert not (is_other and other.is_beyond_noise)


def test_kernels_without_floating_point_work_are_compared_with_each_other_alone() -> None:
    copy, other_copy, gemm = rungs_of_flops(0.0, 0.0, 500.0)
    assert (copy.other_work, other_copy.other_work, other_copy.speed) == (None, None, 1.0)
    assert str(gemm.other_work) == "other work than the baseline: 10.0 MFLOP a call, not 0 FLOP"


def test_the_table_of_a_ladder_says_whose_work_is_another() -> None:
    section = ladder_section(rungs_of_flops(500.0, 520.0, 5.0))
    assert section.said[0] == "not compared with the baseline, as they do other work, by FLOP a call: k2 (100 kFLOP)"
    assert section.table is not None
    rows = [section.table.cells(row) for row in range(3)]
    places = {column.key: i for i, column in enumerate(section.table.columns)}
    assert [row[places["time"]] for row in rows] == [1e4] * 3
    assert [isinstance(row[places["speed"]], Unknown) for row in rows] == [False, False, True]


def test_where_no_work_is_counted_it_is_said() -> None:
    section = ladder_section(ladder_of_kernels(report(Launch("a", 1e4), Launch("b", 2e4))))
    assert any(said.startswith("where FLOP a call is not known") for said in section.said)
