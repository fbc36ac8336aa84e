"""Lines of panes between edges that are kept: the same as Textual makes of them, whatever has changed since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from textual.geometry import Region, Size
from textual.widget import Widget

from llmtop.tui.edges import Edges
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.table import TablePane
from llmtop.tui.textual_private import forget_lines
from tests.live_traces import Scene, live_trace
from tests.tui.live_app import fixed_app, running, session_of

if TYPE_CHECKING:
    from rich.segment import Segment
    from textual.pilot import Pilot

    from llmtop.tui.screens.live import LiveApp

Lines = list[list["Segment"]]


def shown_panes(app: LiveApp) -> list[Pane[Any]]:
    return [one for one in app.live.query("*").results(Pane) if one.is_seen]


def lines_of(pane: Pane[Any]) -> tuple[Lines, Lines]:
    """All lines of a pane's content: from the pane, and from Textual alone."""
    gutter = pane.gutter
    size = pane.outer_size
    crop = Region(0, gutter.top, size.width, size.height - gutter.top - gutter.bottom)
    own = [list(strip) for strip in pane.render_lines(crop)]
    forget_lines(pane)
    return own, [list(strip) for strip in Widget.render_lines(pane, crop)]


async def next_frame(app: LiveApp, pilot: Pilot[Any], scene: Scene, ticks: int) -> None:
    session_of(app).now = live_trace(scene, ticks)
    app.live.refresh_trace()
    await pilot.pause()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that lines were asked of known edges: whether these had them."""
    found: list[bool] = []
    around = Edges.around

    def noted(self: Edges, widget: Widget, crop: Region) -> object:
        lines = around(self, widget, crop)
        found.append(lines is not None)
        return lines

    monkeypatch.setattr(Edges, "around", noted)
    return found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda app: None, id="nothing"),
        pytest.param(lambda app: app.live.action_step_pane(1), id="focus"),
        pytest.param(lambda app: setattr(app, "theme", "textual-light"), id="theme"),
        pytest.param(lambda app: app.live.action_zoom(), id="size"),
    ],
)
async def test_lines_between_kept_edges_are_those_that_textual_makes(change: Any, kept: list[bool]) -> None:
    scene = Scene(gpus=2, is_moving=True)
    app = fixed_app(scene)
    async with running(app) as pilot:
        await next_frame(app, pilot, scene, 91)
        change(app)
        await pilot.pause()
        await next_frame(app, pilot, scene, 95)
        panes = shown_panes(app)
        assert panes
        for pane in panes:
            own, textuals = lines_of(pane)
            assert own == textuals
    assert any(kept)


async def test_a_frame_takes_the_edges_from_the_one_before(kept: list[bool]) -> None:
    scene = Scene(gpus=2, is_moving=True)
    app = fixed_app(scene)
    async with running(app) as pilot:
        await next_frame(app, pilot, scene, 91)
        kept.clear()
        await next_frame(app, pilot, scene, 95)
        assert len(kept) > 4
        assert all(kept)


async def test_lines_that_a_filter_changes_are_textuals_own(monkeypatch: pytest.MonkeyPatch, kept: list[bool]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    scene = Scene(gpus=2, is_moving=True)
    app = fixed_app(scene)
    async with running(app) as pilot:
        await next_frame(app, pilot, scene, 91)
        await next_frame(app, pilot, scene, 95)
        for pane in shown_panes(app):
            own, textuals = lines_of(pane)
            assert own == textuals


async def test_the_tables_of_the_screen_are_all_that_it_has() -> None:
    app = fixed_app()
    async with running(app):
        assert set(app.live._tables) == set(app.live.query(TablePane))


async def test_edges_are_of_one_size_and_one_style() -> None:
    app = fixed_app()
    async with running(app):
        pane = app.live.panes[app.live.where.number]
        assert isinstance(pane, Pane)
        edges = pane._edges
        assert edges is not None
        line = Region(0, edges.rows.start, edges.size.width, 1)
        assert edges.around(pane, line) is not None
        assert replace(edges, size=Size(edges.size.width, edges.size.height + 1)).around(pane, line) is None
        assert edges.around(pane, line._replace(width=line.width - 1)) is None
        assert edges.around(pane, line._replace(y=0)) is None
        pane.notify_style_update()
        assert pane._edges is None
