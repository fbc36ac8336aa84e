"""The live screen as pictures, at three sizes, with fixed data."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from llmtop.tui.panes import time_axis
from tests.live_traces import NOTHING, Scene, live_trace, probed
from tests.tui.live_app import fixed_app, session_of


async def draw(pilot: Pilot[Any]) -> None:
    pilot.app.live.refresh_trace()  # type: ignore[attr-defined]
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
def test_live_screen(snap_compare: Any, size: tuple[int, int]) -> None:
    assert snap_compare(fixed_app(), terminal_size=size, run_before=draw)


def test_live_screen_of_eight_gpus(snap_compare: Any) -> None:
    assert snap_compare(fixed_app(Scene(gpus=8)), terminal_size=(120, 40), run_before=draw)


def test_live_screen_that_knows_nothing(snap_compare: Any) -> None:
    assert snap_compare(fixed_app(NOTHING), terminal_size=(120, 40), run_before=draw)


def test_the_cursor_of_the_lanes(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_axis, "_clock", lambda *_: " 12:00:00")

    async def move(pilot: Pilot[Any]) -> None:
        await draw(pilot)
        await pilot.press("6", "H", "H")

    assert snap_compare(fixed_app(), terminal_size=(80, 24), run_before=move)


def test_heatmap_of_the_run_queue(snap_compare: Any) -> None:
    app = fixed_app()
    session_of(app).now = probed(live_trace())

    async def open_heatmap(pilot: Pilot[Any]) -> None:
        await draw(pilot)
        await pilot.press("4", "h")

    assert snap_compare(app, terminal_size=(120, 40), run_before=open_heatmap)


def test_diagnosis(snap_compare: Any) -> None:
    async def open_diagnosis(pilot: Pilot[Any]) -> None:
        await draw(pilot)
        await pilot.press("d")

    assert snap_compare(fixed_app(), terminal_size=(80, 24), run_before=open_diagnosis)
