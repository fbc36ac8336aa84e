"""Steps that stand out are a finding, with what they have more of and where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

from llmtop.analysis.kernels.breakdown.breakdown import By, breakdown
from llmtop.analysis.kernels.breakdown.breakdown_table import spread_lines
from llmtop.analysis.rules import slow_steps
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.rules.shared_time import with_shared_time
from llmtop.model import Severity, Stretch, Unknown
from tests.analysis.test_steps import GEMM, NCCL, STEPS, launch, server
from tests.nsys_capture import MS, US, Capture

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Finding, Trace

Change: TypeAlias = Callable[[Capture, int, int], int]


def found(trace: Trace) -> list[Finding]:
    return list(slow_steps.check(trace))


def in_step(number: int, change: Change) -> Change:
    """The change in the step of this number alone, from 1 on."""
    return lambda made, step, at: change(made, step, at) if step == number - 1 else at


def sleeps(made: Capture, step: int, at: int) -> int:
    made.os("clock_nanosleep", at, at + 5 * MS)
    return at + 5 * MS


def synchronises(made: Capture, step: int, at: int) -> int:
    made.call("cudaDeviceSynchronize", at - 50 * US, at + 3 * MS)
    return at + 3 * MS


def loads(made: Capture, step: int, at: int) -> int:
    made.call("cuModuleLoadData", at, at + 4 * MS)
    return at + 4 * MS


def works_more(made: Capture, step: int, at: int) -> int:
    for _ in range(20):
        at = launch(made, at, GEMM)
    return at


def works_slower(made: Capture, step: int, at: int) -> int:
    return launch(made, at, GEMM, 3 * MS if step == 6 else 100 * US)


def exchanges(made: Capture, step: int, at: int) -> int:
    return launch(made, at, NCCL, 4 * MS if step == 6 else 2 * MS, stream=9)


@pytest.mark.parametrize(
    ("change", "message", "does", "evidence"),
    [
        (in_step(7, sleeps), "mostly idle: OS call (clock_nanosleep)", "off the launching thread", "+5.00 ms idle"),
        (in_step(7, synchronises), "mostly idle: synchronisation", "look at what synchronises there", "+3.00 ms idle"),
        (in_step(7, loads), "mostly idle: code loaded or compiled (cuModuleLoadData)", "warm up before", "+4.00 ms"),
        (in_step(7, works_more), "mostly GEMM kernels", "it was given more work", "25 kernels, of 5 in the median"),
        (works_slower, "mostly GEMM kernels", "the same kernels ran longer", "+2.90 ms GEMM kernels"),
        (
            exchanges,
            "mostly communication kernels",
            "which rank came late",
            "communication exposed, 2.0 times",
        ),
    ],
    ids=["sleeps", "synchronises", "loads", "works more", "works slower", "exchanges"],
)
def test_what_makes_one_step_slow_is_found(
    tmp_path: Path, change: Change, message: str, does: str, evidence: str
) -> None:
    trace = server(change).trace(tmp_path)
    (finding,) = found(trace)
    assert finding.subject == "step 7"
    assert finding.message.startswith(f"of {STEPS} steps one takes ")
    assert finding.message.endswith(f": {message}") or f": {message} (" in finding.message
    assert does in finding.action
    assert evidence in finding.evidence[0]
    rows = breakdown(trace, By.STEP)
    assert not isinstance(rows, Unknown)
    slow = rows.parts[6]
    assert finding.place == Stretch(slow.start_ns, slow.start_ns + slow.account.wall_ns)
    assert finding.at_stake_ns == slow.account.wall_ns - rows.spreads[0].median_ns


def test_steps_that_are_alike_are_no_finding(tmp_path: Path) -> None:
    assert found(server().trace(tmp_path)) == []


@pytest.mark.parametrize(("longer", "is_found"), [(60 * US, False), (700 * US, True)])
def test_what_is_little_in_all_is_a_finding_only_where_it_stands_out(
    tmp_path: Path, longer: int, *, is_found: bool
) -> None:
    # 560 µs is the median step, 11.2 ms are all of them: 60 µs are half a percent of that, 10.7 % of a step.
    def change(made: Capture, step: int, at: int) -> int:
        made.os("clock_nanosleep", at, at + longer)
        return at + longer if step == 6 else at

    assert bool(found(server(change).trace(tmp_path))) is is_found


def test_slow_steps_that_come_regularly_are_said_to(tmp_path: Path) -> None:
    def change(made: Capture, step: int, at: int) -> int:
        return sleeps(made, step, at) if step % 6 == 5 else at

    (finding,) = found(server(change).trace(tmp_path))
    assert finding.subject == "every 6th step from step 6 on"
    assert finding.message.startswith(
        "of 20 steps 3 are slow, the slowest takes 5.56 ms, 9.9 times the median of 560 µs"
    )
    assert finding.severity is Severity.WARNING


def test_two_lengths_of_steps_are_groups_and_none_is_slow_among_its_own(tmp_path: Path) -> None:
    def change(made: Capture, step: int, at: int) -> int:
        return works_more(made, step, at) if step % 4 == 3 else at

    trace = server(change).trace(tmp_path)
    rows = breakdown(trace, By.STEP)
    assert not isinstance(rows, Unknown)
    assert [one.group.title for one in rows.parts] == ["short", "short", "short", "long"] * 5
    assert list(spread_lines(rows.spreads)) == [
        "15 short steps: median 560 µs, longest 560 µs (15 of the steps from 1 to 19)",
        "5 long steps: median 2.76 ms, longest 2.76 ms (every 4th step from step 4 on); "
        "the median one has +2.00 ms GEMM kernels more than that of the short ones",
    ]
    assert found(trace) == []


def test_ranges_by_turns_are_steps_together_with_medians_of_their_own(tmp_path: Path) -> None:
    def change(made: Capture, step: int, at: int) -> int:
        return works_more(made, step, at) if step % 2 else at

    trace = server(change, lambda step: "backward" if step % 2 else "forward").trace(tmp_path)
    rows = breakdown(trace, By.STEP)
    assert not isinstance(rows, Unknown)
    assert rows.found.startswith('by the NVTX ranges "forward", "backward" by turns, in which 100 %')
    assert [(one.group.title, len(one.steps), one.median_ns) for one in rows.spreads] == [
        ("forward", 10, 560 * US),
        ("backward", 10, 2760 * US),
    ]
    assert found(trace) == []


def test_a_range_that_comes_seldom_is_not_one_of_those_by_turns(tmp_path: Path) -> None:
    trace = server(name=lambda step: "save" if step % 6 == 5 else "train").trace(tmp_path)
    rows = breakdown(trace, By.STEP)
    assert not isinstance(rows, Unknown)
    assert rows.found.startswith('by the NVTX ranges "train", in which 85 %')


def shared(trace: Trace) -> list[str]:
    return [line for one in diagnose(trace).findings for line in one.evidence if "same time" in line]


def test_of_two_findings_on_the_same_time_the_later_one_says_so(tmp_path: Path) -> None:
    # 15 ms of the host's sleep, and what three steps take longer: by a launch or so less.
    def change(made: Capture, step: int, at: int) -> int:
        return sleeps(made, step, at) if step % 6 == 5 else at

    trace = server(change).trace(tmp_path)
    first, second, *_ = diagnose(trace).findings
    assert {first.rule, second.rule} == {"host-waits", "slow-steps"}
    (said,) = shared(trace)
    assert said == "up to 15.0 ms of that is part of the same time as the first finding is about"
    assert second.evidence[-1] == said


def test_of_gaps_that_two_findings_may_be_about_none_is_said_to_be_shared(tmp_path: Path) -> None:
    trace = server(in_step(9, sleeps)).trace(tmp_path)
    waits = next(one for one in diagnose(trace).findings if one.idle)
    steps = replace(found(trace)[0], evidence=())
    assert with_shared_time(trace, [waits, steps])[1].evidence != ()
    assert with_shared_time(trace, [waits, steps, replace(waits, rule="other")])[1].evidence == ()


def test_findings_on_different_times_say_nothing_of_each_other(tmp_path: Path) -> None:
    def change(made: Capture, step: int, at: int) -> int:
        at = works_slower(made, step, at)
        made.os("clock_nanosleep", at, at + 300 * US)  # in all steps alike
        return at + 300 * US

    trace = server(change).trace(tmp_path)
    assert {"host-waits", "slow-steps"} <= {one.rule for one in diagnose(trace).findings}
    assert shared(trace) == []
