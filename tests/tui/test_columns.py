"""Metrics as columns of the kernel table: chosen by keys, shown, and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input

from llmtop.parsers.registry import load
from llmtop.state import state_folder
from llmtop.tui.panes.kernels import KernelsPane
from llmtop.tui.remembered import MOST_COLUMNS, remember_columns, remembered_columns
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import LADDER, TIMELINE
from tests.tui.quiet import wait_until
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from textual.pilot import Pilot

IPC = "sm__inst_executed.avg.per_cycle_active"


def header(app: ExploreApp) -> str:
    return next(line for line in app.screen_text().splitlines() if "kernel" in line and "time" in line)


async def choose(pilot: Pilot[Any], app: ExploreApp, name: str) -> None:
    """Find a metric and press Enter on it; more than two thousand are filtered beside the screen."""
    await pilot.press("c")
    await settle(pilot)
    await pilot.press("slash")
    assert isinstance(pilot.app.focused, Input)
    pilot.app.focused.value = name
    await pilot.press("enter")
    await wait_until(pilot, lambda: "1/1 filtered" in app.screen_text())
    await pilot.press("enter")
    await settle(pilot)
    await pilot.press("escape", "escape")
    await settle(pilot)


async def test_a_chosen_metric_is_a_column_the_next_time_too() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        assert "inst_exec" not in header(app)
        await choose(pilot, app, IPC)
        assert "sm inst" in header(app)
        assert "1.52 inst/cycle" in app.screen_text()
    assert remembered_columns() == (IPC,)
    again = ExploreApp([read(load(LADDER))])
    async with again.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        assert "sm inst" in header(again)
        await choose(pilot, again, IPC)
        assert "sm inst" not in header(again)
    assert remembered_columns() == ()


async def test_what_a_report_does_not_have_is_no_column_and_stays_chosen() -> None:
    remember_columns(["made__up.sum", IPC])
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        assert "made" not in header(app)
        assert "sm inst" in header(app)
        await pilot.press("c")
        await settle(pilot)
        first, second = (line for line in app.screen_text().splitlines() if "shown " in line)
        assert "made__up.sum" in first
        assert "–" in first
        assert IPC in second
        assert "Executed Ipc Active" in second
    assert remembered_columns() == ("made__up.sum", IPC)


async def test_columns_that_cannot_be_kept_are_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(160, 40), notifications=True) as pilot:
        await settle(pilot)
        await choose(pilot, app, IPC)
        assert "sm inst" in header(app)
        assert any("the columns are not remembered" in notice.message for notice in app._notifications)


async def test_a_timeline_has_no_metrics_to_choose() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        pane = app.screen.query_one(KernelsPane)
        assert pane.check_action("columns", ()) is False


@pytest.mark.parametrize("kept", ["", "[1]", '{"kernel_columns": 3}', "{", "\x00"])
def test_what_nobody_can_read_is_nothing(kept: str) -> None:
    state_folder().mkdir(parents=True)
    (state_folder() / "explorer.json").write_text(kept)
    assert remembered_columns() == ()


def test_names_are_kept_once_clean_and_not_too_many() -> None:
    remember_columns(["a\x1b[31m", *map(str, range(99)), "1"])
    names = remembered_columns()
    assert len(names) == MOST_COLUMNS
    assert "\x1b" not in names[0]
    files = list(state_folder().iterdir())
    assert files == [state_folder() / "explorer.json"]
    assert json.loads(Path(files[0]).read_text())["kernel_columns"][1] == "0"
