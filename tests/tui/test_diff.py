"""Two files beside each other in the explorer: the baseline key, delta columns, both values, the view Diff."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.pages.diff.page import diff_view
from llmtop.errors import FileError
from llmtop.model import Unknown
from llmtop.tui.render.diff import diff_lines
from llmtop.tui.render.look import Look
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from llmtop.tui.screens.kernel import metrics_table
from tests.analysis.test_diff_baseline import after, before
from tests.kernel_traces import COMPUTE, MEMORY, Launch, report
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    pass


def test_a_metric_stands_beside_the_baselines() -> None:
    kernels = after().kernels
    assert kernels is not None
    table = metrics_table(kernels.details, 0, {MEMORY: 34.0})
    rows = {table.cells(i)[0]: table.cells(i) for i in range(len(table))}
    assert [column.key for column in table.columns][:4] == ["label", "value", "change", "baseline"]
    assert rows[MEMORY][2] == pytest.approx(150.0)
    assert isinstance(rows[COMPUTE][2], Unknown)
    assert len(metrics_table(kernels.details, 0).columns) == len(table.columns) - 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_lines_fit_and_begin_with_the_verdict(width: int) -> None:
    view = diff_view(after(), "after.ncu-rep", before(), "before.ncu-rep")
    lines = diff_lines(view, width, Look())
    assert {strip.cell_length for strip in lines} == {width}
    text = "\n".join(strip.text.rstrip() for strip in lines)
    assert text.startswith("B is 2.5 times as fast over all")
    assert "A is before.ncu-rep, the baseline" in text
    assert "-60.0 µs  mul" in text


# -- on the screen ----------------------------------------------------------------------------------------------------


async def test_one_key_compares_the_second_file_with_the_first() -> None:
    app = ExploreApp([read(before(), "before.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "Diff" not in app.screen_text().splitlines()[1]
        await pilot.press("v")
        await settle(pilot)
        lines = app.screen_text().splitlines()
        assert "= before.ncu-rep [after.ncu-rep]" in lines[0]
        assert "[Diff]" in lines[1]
        assert "B is 2.5 times as fast over all kernels: 150 µs → 60.0 µs (-90.0 µs)" in lines[3]
        assert "bound latency → memory" in app.screen_text()
        await pilot.press("1")
        await settle(pilot)
        assert "a call" in app.screen_text().splitlines()[3]
        assert any("mul" in line and "-66.7 %" in line and "90.0 µs" in line for line in app.screen_text().splitlines())


async def test_details_show_both_values() -> None:
    app = ExploreApp([read(before(), "before.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("v")
        await settle(pilot)
        await pilot.press("1")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        text = app.screen_text()
        assert "before.ncu-rep: a call takes 90.0 µs there" in text
        assert any("gpu__compute_memory" in line and "+183 %" in line and " 30 " in line for line in text.splitlines())


async def test_the_baseline_is_marked_turned_and_taken_back() -> None:
    app = ExploreApp([read(before(), "before.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("right_square_bracket", "B")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ExploreScreen)
        assert screen.baseline is screen.loadings[1]
        assert "a call" not in app.screen_text(), "a file is not compared with itself"
        await pilot.press("left_square_bracket")
        await settle(pilot)
        assert "+200 %" in app.screen_text()
        await pilot.press("right_square_bracket", "B", "left_square_bracket")
        await settle(pilot)
        assert screen.baseline is None
        assert "+200 %" not in app.screen_text()
        assert "Diff" not in app.screen_text().splitlines()[1]


async def test_a_file_alone_has_nothing_to_be_compared_with() -> None:
    app = ExploreApp([read(before(), "before.ncu-rep")])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "v diff" not in app.screen_text().splitlines()[-1]
        await pilot.press("B", "v")
        await settle(pilot)
        assert isinstance(app.screen, ExploreScreen)
        assert app.screen.baseline is None


async def test_the_keys_are_listed() -> None:
    app = ExploreApp([read(before(), "before.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 60)) as pilot:
        await settle(pilot)
        assert "v diff" in app.screen_text().splitlines()[-1]
        await pilot.press("question_mark")
        await settle(pilot)
        assert "What differs from the baseline" in app.screen_text()
        assert "Compare the other files with this one" in app.screen_text()


async def test_a_file_that_is_not_read_is_no_baseline() -> None:
    app = ExploreApp([read(None, "slow.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("B")
        await settle(pilot)
        assert isinstance(app.screen, ExploreScreen)
        assert app.screen.baseline is None
        assert "still being read" in app.screen_text()


async def test_of_a_file_that_failed_it_is_not_said_that_it_is_being_read() -> None:
    app = ExploreApp([read(FileError("bad.ncu-rep is cut"), "bad.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        assert isinstance(app.screen, ExploreScreen)
        assert app.screen.loadings[app.screen.active].path.name == "after.ncu-rep", "the first that can be read"
        await pilot.press("v")
        await settle(pilot)
        assert "bad.ncu-rep could not be read: nothing is" in app.screen_text()
        assert "still being read" not in app.screen_text()
        assert app.screen.loadings[app.screen.active].path.name == "after.ncu-rep"


async def test_a_file_that_has_nothing_in_common_says_so() -> None:
    empty = report(Launch("a", math.nan))
    app = ExploreApp([read(empty, "empty.ncu-rep"), read(after(), "after.ncu-rep")])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("v")
        await settle(pilot)
        assert "not comparable in time: no kernel is in both" in app.screen_text()
        assert "no verdict on whether B is faster than A" in app.screen_text()
