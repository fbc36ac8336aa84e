"""Conditions on kernels: how they are read, what they choose, and what is said of those that cannot be asked."""

from __future__ import annotations

import pytest

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.conditions import (
    Comparison,
    ConditionError,
    Holds,
    Junction,
    condition_of,
    holds,
    looks_like_condition,
)
from llmtop.analysis.kernels.nvtx_ranges import in_range
from llmtop.analysis.kernels.only_where import only_where
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA, OCCUPANCY, TIMELINE, Launch
from tests.kernel_traces import report as made

A, B, C = (Comparison(name, "=", "1") for name in "abc")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a = 1", A),
        ("a=1 and b = 1 or c = 1", Junction("or", (Junction("and", (A, B)), C))),
        ("a = 1 and (b = 1 OR c = 1)", Junction("and", (A, Junction("or", (B, C))))),
        ("not a = 1 and b = 1", Junction("and", (Junction("not", (A,)), B))),
        ("not (a = 1)", Junction("not", (A,))),
        ('"L1 hit" >= 5 %', Comparison("L1 hit", ">=", "5%")),
        ('name !~ "and or"', Comparison("name", "!~", "and or", is_text=True)),
    ],
)
def test_and_binds_closer_than_or_and_not_closest(text: str, condition: object) -> None:
    assert condition_of(text) == condition


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the condition ends where a name is expected"),
        ("occ", 'the condition ends where an operator after "occ" is expected'),
        ("occ >", 'the condition ends where a value after ">" is expected'),
        ("(occ > 5", 'the condition ends where ")" is expected'),
        ("occ > 5 name ~ x", '"name": here is "and", "or" or the end expected'),
        ("> 5", '">" stands where a name is expected'),
        ('name ~ "x', '"\\"x" cannot be read'),
        ("occ ! 5", '"!'),
    ],
)
def test_what_is_written_wrongly_is_said_in_one_line_with_an_example(text: str, said: str) -> None:
    with pytest.raises(ConditionError) as found:
        condition_of(text)
    assert str(found.value).startswith(said.replace('\\"', '"'))
    assert "as in: duration > 100us" in str(found.value)


@pytest.mark.parametrize(
    ("a", "b", "both", "either", "opposite"),
    [
        (True, True, True, True, False),
        (True, False, False, True, False),
        (False, False, False, False, True),
        (True, None, None, True, False),
        (False, None, False, None, True),
        (None, None, None, None, None),
    ],
)
def test_what_is_not_known_decides_nothing(a: Holds, b: Holds, both: Holds, either: Holds, opposite: Holds) -> None:
    told = {"a": a, "b": b}
    texts = ("a = 1 and b = 1", "a = 1 or b = 1", "not a = 1")
    assert [holds(condition_of(text), lambda one: told[one.name]) for text in texts] == [both, either, opposite]


@pytest.mark.parametrize(
    ("text", "cell", "unit", "answer"),
    [
        ("x > 100us", 100_001.0, "ns", True),
        ("x > 100us", 100_000.0, "ns", False),
        ("x <= 1ms", 1e6, "ns", True),
        ("x >= 50%", 50.0, "%", True),
        ("x >= 50", 0.5, "ratio", True),
        ("x < 1KiB", 1023, "bytes", True),
        ("x < 1kB", 1023, "bytes", False),
        ("x = 2 GB/s", 2e9, "bytes/s", True),
        ("x > 1.5GHz", 1.6e9, "Hz", True),
        ("x != 3k", 3000, "1", False),
        ("x > -1", 0, "", True),
        ("x ~ GEM", "sgemm", "", True),
        ("x = gemm", "sgemm", "", False),
        ("x != gemm", "sgemm", "", True),
        ("x !~ gemm", "sgemm", "", False),
        ("x > 1", Unknown("not collected"), "%", None),
        ("x ~ a", None, "", None),
        ("x > 1", float("nan"), "%", None),
    ],
)
def test_values_are_compared_in_what_their_units_measure(text: str, cell: float, unit: str, answer: Holds) -> None:
    condition = condition_of(text)
    assert isinstance(condition, Comparison)
    assert condition.holds(cell, unit) is answer


@pytest.mark.parametrize(
    ("text", "cell", "unit", "said"),
    [
        ("mean > 5", 1.0, "ns", "mean needs a unit, as in mean > 5us"),
        ("mean > 5GB", 1.0, "ns", "mean is no bytes, as 5GB is; it may be in ns, us, µs, ms, s"),
        ("occ > 5MB", 1.0, "%", "occ is no bytes, as 5MB is; it may be in %"),
        ("occ > 5x", 1.0, "%", "5x: no such unit; it may be in %"),
        ("calls > 5us", 1, "1", "calls is no time, as 5us is; it has none"),
        ("occ ~ 5", 1.0, "%", 'occ is a number: "~ 5" cannot be asked of it'),
        ("name > 5", "x", "", "name is a text, and no text is > another: use ~ or ="),
    ],
)
def test_what_cannot_be_compared_says_how_to(text: str, cell: float, unit: str, said: str) -> None:
    condition = condition_of(text)
    assert isinstance(condition, Comparison)
    with pytest.raises(ConditionError) as found:
        condition.holds(cell, unit)
    assert str(found.value) == said


def chosen(trace: Trace, text: str, grouping: Grouping = Grouping.SHAPE) -> list[str]:
    rows = kernel_table(trace, grouping).filtered(text)
    assert rows.refused is None
    return [rows.kernels.short_name(rows.launch(i)) for i in range(len(rows))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("duration > 1ms and name ~ sgemm", ["sgemm_naive", "sgemm_coalesced", "sgemm_smem"]),
        ("DRAM% > 50", ["stream_copy"]),
        ('"L1 hit" > 50', ["sgemm_naive", "sgemm_coalesced"]),
        ("stall ~ mio_throttle", ["sgemm_smem", "smem_conflict"]),
        ("block = 256", ["stream_copy"]),
        ("threads < 1024", ["stream_copy"]),
        ("sm__inst_executed.avg.per_cycle_active > 1", ["sgemm_coalesced", "sgemm_smem"]),
        ("gpu__time_duration.sum > 30ms", ["sgemm_naive"]),
        ('name ~ "const float *, const float *, float *" and time < 5', ["sgemm_smem"]),
        ("name !~ sgemm", ["smem_conflict", "stream_copy"]),
    ],
)
def test_columns_metrics_and_names_choose_kernels(text: str, names: list[str]) -> None:
    assert chosen(load(LADDER), text) == names


def test_ranges_are_those_of_any_launch_of_the_row() -> None:
    trace = load(LLAMA)
    assert len(chosen(trace, "nvtx ~ decode")) == len(kernel_table(trace, Grouping.SHAPE))
    assert chosen(trace, "nvtx ~ prefill") == []
    assert chosen(trace, "range ~ decode and name ~ nvjet", Grouping.NAME) != []


def test_what_is_not_known_chooses_nothing_and_its_opposite_neither() -> None:
    trace = made(Launch("k"))
    assert chosen(trace, "occ > 50") == chosen(trace, "not (occ > 50)") == []
    assert chosen(trace, "occ > 50 or name = k") == ["k"]


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("durations > 1ms", "duration"),
        ("dramm% > 1", "dram%"),
        ("sm__inst_executed.avg.per_cycle_activ > 1", "sm__inst_executed.avg.per_cycle_active"),
    ],
)
def test_a_name_that_there_is_not_is_answered_with_the_nearest(text: str, nearest: str) -> None:
    rows = kernel_table(load(LADDER), Grouping.SHAPE).filtered(text)
    assert len(rows) == 0
    why = rows.why_none()
    assert why is not None
    assert why.reason == f"no column and no metric is called {text.split()[0]}; the nearest is {nearest}"


def test_pieces_of_names_are_still_looked_for() -> None:
    trace = made(Launch("gemm<4, float>"), Launch("scale"))
    assert [looks_like_condition(text) for text in ("gemm<4", "x=1", "occ >", "f > g")] == [False, False, False, True]
    assert chosen(trace, "gemm<4") == ["gemm<4, float>"]


def test_the_parts_of_a_report_keep_their_place_in_the_capture() -> None:
    """A command for a launch counts all that come before it, those that are not chosen too."""
    launches = [Launch("f", ns=1e3, grid=(1, 1, 1)), Launch("f", ns=9e3, grid=(2, 1, 1)), Launch("g", ns=9e3)]
    trace = made(*launches, command="ncu ./a")
    part = only_where(trace, "duration > 5us and name = f")
    assert isinstance(part, Trace)
    assert len(kernels_of(part).table) == 1
    assert profiling.of_launch(part, 0, ["X"]) == profiling.of_launch(trace, 1, ["X"])
    assert "--launch-skip 1 " in profiling.of_launch(part, 0, ["X"])
    twice = only_where(part, "blocks = 2")
    assert isinstance(twice, Trace)
    assert "--launch-skip 1 " in profiling.of_launch(twice, 0, ["X"])


def test_no_kernel_is_said() -> None:
    assert only_where(load(LADDER), "dram% > 200") == Unknown("there is no kernel for which dram% > 200")


def test_what_no_kernel_has_is_said_with_what_brings_it() -> None:
    """That none is above and that none is below would both be made up."""
    for text in ("dram% > 3", "dram% < 300", "not (dram% > 3)"):
        why = only_where(load(TIMELINE), text)
        assert isinstance(why, Unknown)
        assert why.reason == "dram% is not known of any of the kernels: a timeline has no counters"
        assert why.remedy.startswith("ncu --profile-from-start off --kernel-name nvjet_")
    both = only_where(load(TIMELINE), "occ < 50 and dram% > 1")
    assert isinstance(both, Unknown)
    assert both.reason.startswith("occ and dram% are not known of any of the kernels: ")
    assert "there is no kernel for which" in str(only_where(load(TIMELINE), "dram% > 3 and calls > 1000000"))


def test_of_how_many_kernels_it_is_not_known_is_said() -> None:
    trace = made(Launch("k", metrics={OCCUPANCY: 40.0}), Launch("l"), Launch("m"))
    of_two = "occ is not known of 2 of 3 kernels: occupancy not collected (add --section Occupancy)"
    assert only_where(trace, "occ > 50") == Unknown(
        f"there is no kernel for which occ > 50; {of_two.partition(' (')[0]}", "add --section Occupancy"
    )
    some = only_where(trace, "occ < 50")
    assert isinstance(some, Trace)
    assert in_range(some) == f"only kernels for which occ < 50; {of_two}"
    rows = kernel_table(trace, Grouping.SHAPE).filtered("occ > 50")
    assert str(rows.why_none()) == of_two.replace("kernels", "rows")


def test_a_metric_that_was_counted_of_some_kernels_is_not_known_of_others() -> None:
    trace = made(Launch("k", metrics={"sm__x.avg": 4.0}), Launch("l"))
    why = only_where(trace, "sm__x.avg > 9")
    assert str(why) == (
        "there is no kernel for which sm__x.avg > 9; sm__x.avg is not known of 1 of 2 kernels: it was not counted "
        "(add --metrics sm__x.avg)"
    )


def test_a_timeline_has_no_metrics_to_name() -> None:
    why = only_where(load(TIMELINE), "sm__inst > 1")
    assert isinstance(why, Unknown)
    assert why.reason.startswith("a timeline has no counters, and no column is called sm__inst; the nearest is ")
