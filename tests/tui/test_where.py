"""Conditions in the filter of the kernel table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.parsers.registry import load
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import LADDER
from tests.tui.quiet import wait_until
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from textual.pilot import Pilot


async def typed(pilot: Pilot[Any], app: ExploreApp, keys: list[str], said: str) -> str:
    """The screen after keys, once it says something: each of them starts an order of its own, one after the other."""
    await pilot.press(*keys)
    await settle(pilot)
    await wait_until(pilot, lambda: said in app.screen_text())
    return app.screen_text()


async def test_a_condition_leaves_the_rows_for_which_it_holds_and_says_what_is_wrong_with_it() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        keys = ["slash", *"dram% ", "greater_than_sign", *" 50", "enter"]
        text = await typed(pilot, app, keys, "1 row, 1 launch")
        assert "stream_copy" in text
        assert "sgemm_naive" not in text
        keys = ["slash", *"occu ", "greater_than_sign", *" 50", "enter"]
        await typed(pilot, app, keys, "no column and no metric is called occu; the nearest is occ")
        await typed(pilot, app, ["escape"], "sgemm_naive")
