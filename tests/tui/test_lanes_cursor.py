"""The cursor of the lanes: it reads an instant, the other panes jump there, and it stays while time goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.pages.lanes import lanes_view
from llmtop.model import NS_PER_S
from llmtop.tui.panes import time_axis
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.render.axis import Axis, nearest_mark
from llmtop.tui.render.lanes import draw_lanes, lanes_axis
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import START_NS, Scene, live_trace
from tests.tui.live_app import fixed_app, press, running, session_of

LOOK = Look()
PLAIN = Look(ASCII)
STEADY = Scene(is_moving=False)


@pytest.fixture(autouse=True)
def _still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_axis, "_clock", lambda *_: " 12:00:00")


def lanes_of(app: LiveApp) -> LanesPane:
    return app.live.panes.of_kind(LanesPane)


def axis_of(app: LiveApp) -> Axis:
    axis = lanes_of(app).axis(lanes_of(app).size.width)
    assert axis is not None
    return axis


def column(app: LiveApp) -> int | None:
    at_ns = lanes_of(app).at_ns
    return None if at_ns is None else axis_of(app).column_of(at_ns)


def line_of(app: LiveApp, start: str) -> str:
    return next(line.strip("│╭╰") for line in app.screen_text().splitlines() if line.strip("│").startswith(start))


# -- the axis ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**13), st.integers(1, 10**12), st.integers(1, 300))
def test_a_column_and_its_moment_belong_together(end_ns: int, window_ns: int, columns: int) -> None:
    axis = Axis.over(end_ns - window_ns, end_ns, 0, columns)
    assert axis.end_ns >= end_ns
    for i in (0, columns // 2, columns - 1):
        assert axis.column_of(axis.time_of(i)) == i
    assert axis.column_of(axis.end_ns) is None
    assert axis.column_of(axis.start_ns - 1) is None


def test_the_line_of_the_axis_names_the_mark_nearest_to_the_cursor() -> None:
    view = lanes_view(live_trace(STEADY, 80))
    cursor = START_NS + 40 * NS_PER_S
    assert nearest_mark(view.marks, cursor) == view.marks[0]
    rows = [strip.text.rstrip() for strip in draw_lanes(view, 60, 8, PLAIN, cursor_ns=cursor)]
    assert rows[-1] == "-10 s preemption                     ^    |              now"


def test_every_lane_is_read_at_the_cursor() -> None:
    view = lanes_view(live_trace(Scene(), 80))
    waiting = dict(next(lane for lane in view.lanes if lane.title == "waiting").samples)
    cursor = START_NS + 40 * NS_PER_S
    rows = [strip.text for strip in draw_lanes(view, 60, 8, PLAIN, cursor_ns=cursor + NS_PER_S // 2)]
    assert f"{waiting[cursor]:.0f}" == rows[4][13:24].strip()
    assert rows[4][13:24] != [strip.text for strip in draw_lanes(view, 60, 8, PLAIN)][4][13:24]


def test_before_the_first_sample_nothing_is_read() -> None:
    view = lanes_view(live_trace(STEADY, 20))
    rows = [strip.text for strip in draw_lanes(view, 60, 8, PLAIN, cursor_ns=START_NS - 9 * NS_PER_S)]
    assert {row[13:24].strip() for row in rows[:-1]} == {"-"}
    assert all("|" in row[25:] for row in rows)


def test_a_dash_has_its_reason_where_there_is_room_for_it() -> None:
    view = lanes_view(live_trace(STEADY, 20))
    first, *others = [lane for lane in view.lanes if lane.why_not is None]
    gone = replace(first, samples=(*first.samples[:-1], (first.samples[-1][0], None)))
    view = replace(view, lanes=(gone, *others))
    said = f"{first.title:<13}- the source had no value at this moment"
    assert said in [strip.text.rstrip() for strip in draw_lanes(view, 80, 40, PLAIN)]
    rows = [strip.text.rstrip() for strip in draw_lanes(view, 80, len(view.lanes) + 1, PLAIN)]
    assert said not in rows
    assert sum(row.startswith(first.title) for row in rows) == 1, "values come before reasons"


def test_the_cursor_is_told_without_colour_by_its_style() -> None:
    view = lanes_view(live_trace(STEADY, 80))
    axis = lanes_axis(view, 60)
    strip = draw_lanes(view, 60, 8, LOOK, cursor_ns=axis.time_of(10))[0]
    cell = strip.crop(axis.left + 10, axis.left + 11)
    assert [segment.style for segment in cell] == [LOOK.style("cursor")]


# -- keys --------------------------------------------------------------------------------------------------------


async def test_arrows_move_by_a_cell_and_all_panes_follow() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        last = axis_of(app).columns - 1
        await press(pilot, "left")
        assert column(app) == last - 1
        await press(pilot, "left", "left", "right", "H")
        assert column(app) == last - 12
        at_ns = app.live.time.at_ns
        assert at_ns == lanes_of(app).at_ns
        assert app.live._shown is not None
        assert app.live._shown.end_ns == at_ns
        ago = (session_of(app).now.end_ns - (at_ns or 0)) / NS_PER_S
        assert f"{ago:.0f} s ago" in app.screen_text().splitlines()[0]
        assert f"◀ {ago:.1f} s ago 12:00:00" in app.screen_text()
        await press(pilot, "escape")
        assert column(app) is None
        assert "ago" not in app.screen_text()


async def test_borders_say_of_how_long_the_numbers_of_one_label_are() -> None:
    """Tokens a second and the engine's CPU stand in two panes: as the mean of 10 s, and as the newest look has them."""
    app = fixed_app()
    async with running(app, (160, 50), keys="6") as pilot:
        assert "one axis, values of the newest look" in app.screen_text()
        assert "rates of 10 s, avg / p99 of 60 s" in app.screen_text()
        await press(pilot, "left")
        assert "values of the newest look" not in app.screen_text()


async def test_the_cursor_stands_at_a_moment_and_not_in_a_column() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        await press(pilot, "H", "H")
        at_ns, before = lanes_of(app).at_ns, column(app)
        session_of(app).now = live_trace(ticks=100)
        app.live.refresh_trace()
        await pilot.pause()
        assert lanes_of(app).at_ns == at_ns
        assert before is not None
        assert (column(app) or 0) < before


async def test_between_two_frames_of_the_lanes_the_cursor_and_the_window_move_at_once() -> None:
    app = fixed_app(ticks=400)
    async with running(app, keys="6") as pilot:
        drawn = lanes_of(app)._trace
        now = session_of(app).now
        session_of(app).now = replace(now, end_ns=now.end_ns + NS_PER_S // 2)
        app.live.refresh_trace()
        assert lanes_of(app)._trace is drawn
        assert "◀" in await press(pilot, "left")
        assert lanes_of(app)._trace is session_of(app).now, "in the past all panes show one moment"
        assert "last 5 min" in await press(pilot, "minus")
        assert lanes_of(app)._trace is session_of(app).now


async def test_home_end_and_the_window_that_follows_the_cursor() -> None:
    app = fixed_app(ticks=300)
    async with running(app, keys="6") as pilot:
        trace = session_of(app).now
        await press(pilot, "home")
        assert app.live.time.at_ns == trace.start_ns
        assert column(app) == 0 or axis_of(app).start_ns <= trace.start_ns
        assert column(app) is not None
        assert "-4." in line_of(app, " ") or "min" in app.screen_text()
        await press(pilot, "left")
        assert app.live.time.at_ns == trace.start_ns
        await press(pilot, "end")
        assert app.live.time.at_ns is None
        assert "now" in app.screen_text()


async def test_right_past_the_newest_moment_is_now() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        await press(pilot, "left", "L")
        assert app.live.time.at_ns is None


async def test_minus_shows_more_time_and_plus_less() -> None:
    app = fixed_app(ticks=400)
    async with running(app, keys="6") as pilot:
        assert "last 60 s" in app.screen_text()
        await press(pilot, "minus")
        assert "last 5 min" in app.screen_text()
        await press(pilot, "minus", "minus", "minus")
        assert "last 10 min" in app.screen_text()
        assert app.live.time.window_ns == 600 * NS_PER_S
        await press(pilot, "plus", "plus", "plus")
        assert "last 60 s" in app.screen_text()


async def test_a_click_sets_the_cursor() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        axis = axis_of(app)
        await pilot.click(LanesPane, offset=(1 + axis.left + 20, 2))
        await pilot.pause()
        assert column(app) == 20
        await pilot.click(LanesPane, offset=(3, 2))
        await pilot.pause()
        assert column(app) == 20


async def test_enter_opens_the_event_of_the_mark_and_enter_again_goes_there() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        await press(pilot, "left", "enter")
        assert app.live.events.display
        rows = app.live.events.table.rows
        assert rows is not None
        assert rows.key(app.live.events.table.cursor)[0] == START_NS + 30 * NS_PER_S  # type: ignore[index]
        await press(pilot, "enter")
        assert app.live.time.at_ns == START_NS + 30 * NS_PER_S
        assert lanes_of(app).has_focus


async def test_elsewhere_arrows_go_by_five_seconds() -> None:
    app = fixed_app()
    async with running(app, keys="6") as pilot:
        await press(pilot, "2", "left")
        assert app.live.time.at_ns == session_of(app).now.end_ns - 5 * NS_PER_S
        assert lanes_of(app).at_ns == app.live.time.at_ns


async def test_the_cursor_works_on_small_and_ascii_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_ASCII", "1")
    app = fixed_app()
    async with running(app, (40, 12), keys="6") as pilot:
        await press(pilot, "left", "H")
        assert "s ago" in app.screen_text()
        assert not {character for character in app.screen_text() if not character.isascii()} - {"°", "µ"}
