"""The columns and values that the baseline adds to a table of kernels."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.table import Grouping, kernel_table
from llmtop.analysis.pages.diff.beside_baseline import baseline_columns, launch_beside
from llmtop.model import Trace, Unknown
from tests.kernel_traces import COMPUTE, MEMORY, Launch, report

SLOW = {COMPUTE: 20.0, MEMORY: 30.0}


FAST = {COMPUTE: 20.0, MEMORY: 85.0}


def before() -> Trace:
    return report(Launch("mul", 9e4, SLOW), Launch("add", 1e4, SLOW), Launch("gone", 5e4, SLOW))


def after() -> Trace:
    return report(Launch("mul", 3e4, FAST), Launch("add", 1e4, SLOW), Launch("fresh", 2e4, SLOW))


def cells(trace: Trace, baseline: Trace, grouping: Grouping) -> dict[object, list[object]]:
    table = kernel_table(trace, grouping)
    fields = baseline_columns(trace, baseline)
    return {
        table.cells(i)[0]: [field.cell(table.kernels, table.rows[i]) for field in fields] for i in range(len(table))
    }


def test_a_row_has_by_how_much_its_calls_take_longer_whatever_it_stands_for() -> None:
    found = cells(after(), before(), Grouping.SHAPE)
    assert found["mul"] == [pytest.approx(-200 / 3), 9e4, "faster"]
    assert found["add"] == [0.0, 1e4, "same"]
    assert isinstance(found["fresh"][0], Unknown)
    assert found["fresh"][2] == "new"


def test_on_another_gpu_no_row_is_faster() -> None:
    found = cells(report(Launch("mul", 3e4, FAST), Launch("add", 1e4), gpu="NVIDIA A100"), before(), Grouping.SHAPE)
    assert [row[2] for row in found.values()] == ["not comparable"] * 2
    (column,) = [
        field.column
        for field in baseline_columns(report(Launch("mul"), gpu="A"), before())
        if field.column.key == "says"
    ]
    assert column.width == len("not comparable")


def test_of_calls_of_several_sizes_each_is_held_to_its_own() -> None:
    sizes = [Launch("k", 10e3, grid=(1, 1, 1)), Launch("k", 30e3, grid=(2, 1, 1)), Launch("k", 30e3, grid=(2, 1, 1))]
    others = [Launch("k", 20e3, grid=(1, 1, 1)), Launch("k", 20e3, grid=(1, 1, 1)), Launch("k", 30e3, grid=(2, 1, 1))]
    # Two small ones and a large one take 20 + 20 + 30 here, and 10 + 10 + 30 there.
    found = cells(report(*others), report(*sizes), Grouping.NAME)
    assert found["k"] == [pytest.approx(40.0), pytest.approx(50e3 / 3), "mixed"]


def test_the_columns_sort_and_stand_behind_the_duration() -> None:
    table = kernel_table(after(), Grouping.SHAPE)
    table = type(table)(table.kernels, table.grouping, table.rows, more=baseline_columns(after(), before()))
    keys = [column.key for column in table.columns]
    assert keys[keys.index("duration") + 1 :][:3] == ["change", "baseline", "says"]
    assert [table.sorted_by("change", descending=False).cells(i)[0] for i in range(3)] == ["mul", "add", "fresh"]


def test_what_differs_in_a_launch() -> None:
    beside = launch_beside(after(), 0, before())
    assert beside.launch == 0
    assert beside.said.startswith("a call takes 90.0 µs there and is 67 % shorter here (-60.0 µs, beyond the noise")
    assert "bound latency → memory" in beside.said
    assert launch_beside(after(), 2, before()).launch is None
