"""Views that have no digit: one key gets to them, on the live screen and in the explorer; footer and `?` tell it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop.parsers.registry import load
from llmtop.tui.panes.recorded import by_digit, views_of
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import active_keys
from tests.live_traces import Scene, live_trace
from tests.tui.live_app import fixed_app, press, running
from tests.tui.report_traces import report
from tests.tui.test_explore import FOLDED, read, settle

MANY = replace(live_trace(Scene(), 5), kernels=report().kernels)


async def test_views_of_a_file_without_a_digit_are_shown_one_by_one() -> None:
    without = [view.title for view, digit in by_digit(views_of(MANY)).items() if not digit]
    app = ExploreApp([read(MANY), read(MANY)])
    async with app.run_test(size=(160, 30)) as pilot:
        await settle(pilot)
        assert " M more" in app.screen_text().splitlines()[-1]
        assert ("M", f"One by one: {', '.join(without)}") in active_keys(app.screen)
        for key, title in [*(("M", title) for title in [*without, without[0]]), ("v", "Diff")]:
            await pilot.press(key)
            await settle(pilot)
            assert f"[{title}]" in app.screen_text()
        assert ("M", f"One by one: {', '.join([*without, 'Diff'])}") in active_keys(app.screen)


async def test_a_file_whose_views_all_have_digits_says_so() -> None:
    app = ExploreApp([read(load(FOLDED))])
    async with app.run_test(size=(160, 30), notifications=True) as pilot:
        await settle(pilot)
        assert "more" not in app.screen_text().splitlines()[-1]
        assert "M" not in dict(active_keys(app.screen))
        await pilot.press("M")
        await settle(pilot)
        assert [one.message for one in app._notifications] == ["every view here has a digit"]
        assert "[8 Stacks]" in app.screen_text()


async def test_a_live_view_beyond_the_last_digit_is_reached_by_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.tui.screens.live_screen.LAST_DIGIT", 8)
    app = fixed_app()
    async with running(app, (160, 50)) as pilot:
        assert " M more" in app.screen_text().splitlines()[-1]
        assert ("M", "One by one: Series, Engine steps") in active_keys(app.screen)
        assert "─ 9 Series" in await press(pilot, "M")
        assert "─ Engine steps" in await press(pilot, "M")


async def test_a_live_screen_whose_views_all_have_digits_has_no_such_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.tui.screens.live_screen.LAST_DIGIT", 10)
    app = fixed_app()
    async with running(app, (160, 50)):
        assert "M more" not in app.screen_text()
        assert "M" not in dict(active_keys(app.screen))
