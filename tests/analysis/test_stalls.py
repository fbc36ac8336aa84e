"""Warp stalls: two families of names, what is no stall, and what limits the trust in shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from llmtop.analysis.kernels.stalls import PALETTE, REASONS, UNNAMED, Stalls, kernel_stalls, stall_bar, stall_tree
from llmtop.analysis.timeline.causes import PALETTE as IDLE_PALETTE
from llmtop.analysis.timeline.causes import Cause
from llmtop.model import Unknown, Value
from tests.kernel_traces import STALL, stall_ratios


def stalls(values: Mapping[str, Value]) -> Stalls:
    result = kernel_stalls(values)
    assert isinstance(result, Stalls)
    return result


ratios = stall_ratios


def samples(suffix: str = "", **by_reason: int) -> dict[str, Value]:
    reasons = {**dict.fromkeys(REASONS, 0), **by_reason}
    return {f"smsp__pcsamp_warps_issue_stalled_{reason}{suffix}": value for reason, value in reasons.items()}


def test_every_reason_has_a_colour_and_a_shade_of_its_own() -> None:
    """So has one that nobody has named yet; of each of eight colours the strongest shades are taken first."""
    looks = sorted([*PALETTE.values(), UNNAMED])
    shades = {colour: [shade for one, shade in looks if one == colour] for colour, _ in looks}
    assert list(shades) == list(range(1, 9))
    assert all(taken == [1, 2, 3][: len(taken)] for taken in shades.values())


def test_issuing_is_no_stall() -> None:
    found = stalls(ratios(selected=1.0, long_scoreboard=6.0, wait=2.0))
    assert found.shares == (("long_scoreboard", 0.75), ("wait", 0.25))
    assert found.unit == "cycles per issued instruction"


def test_being_ready_is_not_the_top_stall() -> None:
    assert stalls(ratios(not_selected=9.0, wait=3.0)).top == ("wait", 0.25)
    assert stalls(ratios(not_selected=9.0)).top == ("not_selected", 1.0)


def test_sampled_reasons_carry_the_names_of_counted_ones() -> None:
    found = stalls(samples(no_instructions=600, warpgroup_arrive=1800, selected=10_000))
    assert found.shares == (("gmma", 0.75), ("no_instruction", 0.25))
    assert found.unit == "samples"


def test_samples_without_an_issue_are_preferred_and_not_mixed_with_all() -> None:
    found = stalls(samples(wait=5000, barrier=5000) | samples("_not_issued", wait=3000, barrier=1000))
    assert found.shares == (("wait", 0.75), ("barrier", 0.25))


def test_counted_stalls_are_preferred_over_samples() -> None:
    assert stalls(ratios(wait=1.0) | samples(barrier=9000)).values == (("wait", 1.0),)


def test_few_or_dropped_samples_are_said() -> None:
    found = stalls(samples(wait=90) | {"smsp__pcsamp_dropped_bytes": 4096})
    assert found.notes == ("the sampling buffer overflowed: shares miss part of the kernel", "only 90 samples")
    assert stalls(samples(wait=90_000)).notes == ()


@pytest.mark.parametrize(("rate", "starved"), [(0.79, True), (0.8, False), (None, None)])
def test_stalls_matter_where_schedulers_starve(rate: float | None, starved: bool | None) -> None:
    issue = {} if rate is None else {"smsp__issue_active.avg.per_cycle_active": rate}
    assert stalls({**ratios(wait=1.0), **issue}).starved is starved


@pytest.mark.parametrize("values", [{}, ratios(), {STALL.format("wait"): "n/a"}])
def test_no_stalls_name_the_section(values: dict[str, Value]) -> None:
    assert kernel_stalls(values) == Unknown("warp stalls not collected", "add --section WarpStateStats")


LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"


def test_reasons_of_a_newer_chip_do_not_vanish_from_the_shares() -> None:
    newer = ratios(selected=1.0, wait=4.0, utcmma_throttle=5.0)
    assert stalls({**newer, LATENCY: 10.0}).values == (("utcmma_throttle", 5.0), ("wait", 4.0))


@pytest.mark.parametrize("total", [4.8, 5.02, 5.2, 9.0])
def test_what_the_reasons_lack_of_the_total_is_no_reason(total: float) -> None:
    assert stalls({**ratios(selected=1.0, wait=4.0), LATENCY: total}).values == (("wait", 4.0),)


@pytest.mark.parametrize("name", [STALL, "smsp__average_warp_latency_issue_stalled_{}.ratio"])
def test_a_few_reasons_have_no_shares(name: str) -> None:
    values: dict[str, Value] = {name.format("dispatch_stall"): 8.0}
    assert kernel_stalls(values) == Unknown(
        "1 of about 18 stall reasons collected: no shares", "add --section WarpStateStats"
    )
    assert stalls(values | samples(wait=5000)).top == ("wait", 1.0), "another family has them all"


def test_the_tree_weighs_reasons_by_time_both_ways() -> None:
    one = stall_bar("one", 0, 0.75, stalls(ratios(wait=1.0, barrier=1.0)))
    two = stall_bar("two", 1, 0.2, stalls(ratios(wait=4.0)))
    unmeasured = stall_bar("three", 2, 0.05, Unknown("not collected"))
    tree = stall_tree((one, two, unmeasured))
    assert [(node.name, node.total) for node in tree.root.children] == [("one", 75.0), ("two", pytest.approx(20.0))]
    turned = stall_tree((one, two, unmeasured), reason_first=True)
    assert [node.name for node in turned.root.children] == ["wait", "barrier"]
    assert [node.total for node in turned.root.children] == pytest.approx([57.5, 37.5])
    assert tree.root.total == pytest.approx(95.0), "what was not measured has no width"


def test_an_empty_tree_says_why() -> None:
    assert stall_tree((stall_bar("k", 0, 1.0, Unknown("not collected", "ncu")),)).why_not == Unknown(
        "not collected", "ncu"
    )
    assert stall_tree(()).why_not == Unknown("no kernels")


REASONS_BY_KIND = (
    "long_scoreboard lg_throttle tex_throttle",
    "short_scoreboard mio_throttle",
    "barrier membar sleeping",
    "math_pipe_throttle wait",
    "no_instruction imc_miss branch_resolving",
    "gmma dispatch_stall",
    "drain misc",
    "not_selected",
)
"""Global memory, the SM's own memories, each other, arithmetic, instructions, other units, the end, no wait at all."""
CAUSES_BY_KIND = (
    (Cause.SYNC, Cause.COPY, Cause.ALLOCATION),
    (Cause.LAUNCH, Cause.SLOW_LAUNCH, Cause.LATENCY),
    (Cause.OWN_CODE, Cause.CALL),
    (Cause.OS, Cause.DESCHEDULED, Cause.MIGRATION),
    (Cause.GRAPH, Cause.TURNAROUND, Cause.QUEUED),
    (Cause.LOADING, Cause.GRAPH_BUILD, Cause.PROFILER),
    (Cause.NO_WORK, Cause.UNKNOWN),
)
"""Calls that wait, launches, the program, the system, the GPU's side, what is done once, and nobody's."""


@pytest.mark.parametrize(
    ("palette", "kinds"),
    [(PALETTE, [kind.split() for kind in REASONS_BY_KIND]), (IDLE_PALETTE, CAUSES_BY_KIND)],
    ids=["stalls", "idle time"],
)
def test_what_is_alike_has_shades_of_one_of_eight_colours(
    palette: Mapping[object, tuple[int, int]], kinds: Sequence[Sequence[object]]
) -> None:
    assert palette.keys() == {one for kind in kinds for one in kind}
    colours = [{palette[one][0] for one in kind} for kind in kinds]
    assert all(len(of_kind) == 1 and of_kind <= set(range(1, 9)) for of_kind in colours)
    assert len(set().union(*colours)) == len(kinds), "another kind has another colour"
    for kind in kinds:
        shades = [palette[one][1] for one in kind]
        assert shades[0] == 1
        assert shades == sorted(set(shades))
        assert max(shades) <= 3
