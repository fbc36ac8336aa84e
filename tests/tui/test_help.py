"""The list of keys: whole at 80 columns, with those of the panes that have not the focus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widget import Widget

from llmtop.parsers.registry import load
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import HelpScreen, active_keys, columns_here, keys_elsewhere
from tests.kernel_traces import LADDER
from tests.tui.live_app import fixed_app
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from llmtop.tui.screens.live import LiveApp


def words_of(app: LiveApp) -> str:
    return " ".join(app.screen_text().replace("│", " ").split())


async def test_keys_of_the_focused_pane_come_first_and_only_once() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        freeze = ("x", "Hold the flame alone, or let it go on")
        assert freeze in keys_elsewhere(app.screen)["5 Stall flame"]
        await pilot.press("5")
        assert freeze in active_keys(app.screen)
        assert "5 Stall flame" not in keys_elsewhere(app.screen)
        assert ("p", "Pin the GPU to the top, and into roofline and lanes") in keys_elsewhere(app.screen)["3 GPU"]


async def test_a_table_beside_the_focus_has_its_keys_listed() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        sort = ("< >", "Sort by the column left or right")
        assert sort in keys_elsewhere(app.screen)["Metrics by section"]
        await pilot.press("tab")
        assert "Metrics by section" not in keys_elsewhere(app.screen)
        assert sort in active_keys(app.screen)


async def test_columns_of_the_table_on_the_screen_are_explained() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 70)) as pilot:
        app.live.refresh_trace()
        await pilot.pause()
        assert columns_here(app.screen) == {}
        await pilot.press("4", "z")
        await pilot.pause()
        told = columns_here(app.screen)["Columns"]
        assert ("run-q", "Share of the window ready, waiting for a CPU (schedstat)") in told
        await pilot.press("question_mark")
        await pilot.pause()
        assert "run-q Share of the window ready, waiting for a CPU (schedstat)" in words_of(app)


async def test_no_text_is_cut_in_a_narrow_terminal() -> None:
    app = fixed_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        words = words_of(app)
        assert "What happened: faults, clock limits, restarts; Enter goes there" in words
        digits = " ".join(str(number) for number in range(1, len(LIVE_VIEWS) + 1))
        assert f"{digits} Focus a pane by its number" in words
        await pilot.press("end")
        await pilot.pause()
        assert "6 CPU-GPU" in app.screen_text()


async def test_a_screen_that_was_left_keeps_nothing_that_it_drew() -> None:
    app = fixed_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        drawn = [widget._styles_cache._cache for widget in app.screen.walk_children(Widget, with_self=True)]
        assert any(drawn)
        await pilot.press("escape")
        await pilot.pause()
        assert not any(drawn)
