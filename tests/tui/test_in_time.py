"""From a row to its place in the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.analysis.kernels.in_time import launch_stretch
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.idle_view import IdleView
from llmtop.analysis.timeline.longest import longest_gaps
from llmtop.model import IdleTime, Stretch, Unknown
from llmtop.parsers.registry import load
from llmtop.tui.panes.idle import IdlePane
from llmtop.tui.panes.timeline import TimelinePane
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import active_keys
from tests.analysis.test_longest_gaps import with_gaps
from tests.kernel_traces import LADDER, TIMELINE
from tests.tui.test_explore import read, settle

IN_TIME = "t", "Its place in the timeline"

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from llmtop.analysis.timeline.explore import TimelineCursor


async def gone(pilot: Pilot[Any], *keys: str) -> TimelineCursor:
    """Where the timeline is after keys that lead to it."""
    for key in keys:
        await pilot.press(key)
        await settle(pilot)
    await settle(pilot)
    text: str = pilot.app.screen_text()  # type: ignore[attr-defined]
    assert "[2 Timeline]" in text
    cursor = pilot.app.screen.query_one(TimelinePane).cursor
    assert cursor is not None
    return cursor


async def test_a_kernel_is_shown_where_it_ran_and_begins_when_its_details_say() -> None:
    trace = load(TIMELINE)
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert IN_TIME in active_keys(app.screen)
        cursor = await gone(pilot, "t")
        launch = 89
        when = launch_stretch(trace, launch)
        assert isinstance(when, Stretch)
        assert cursor.span() == cursor.timeline.code("kernel", launch)
        assert cursor.window.start_ns < when.start_ns < when.end_ns < cursor.window.end_ns
        assert cursor.window.length_ns < 3 * (when.end_ns - when.start_ns)
        assert cursor.marks == ()
        assert "took 599 µs at 7.07 ms" in app.screen_text()
        await pilot.press("1", "enter")
        await settle(pilot)
        assert "launch 90 of" in app.screen_text()
        assert "began 7.07 ms into the capture" in app.screen_text()
        cursor = await gone(pilot, "n", "t")
        assert cursor.span() == cursor.timeline.code("kernel", launch + 1)


async def test_a_step_is_marked_at_both_ends_and_of_several_ranges_the_first_begin_is_shown() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        cursor = await gone(pilot, "3", "down", "t")
        since, until = (mark - cursor.timeline.start_ns for mark in cursor.marks)
        assert (since // 10**5, (until - since) // 10**6) == (242, 118)
        assert cursor.window.start_ns < cursor.marks[0] < cursor.marks[1] < cursor.window.end_ns
        window = cursor.window
        cursor = await gone(pilot, "3", "b", "t")
        assert cursor.marks == ()
        assert cursor.t_ns - cursor.timeline.start_ns == since
        assert cursor.window == window


async def test_an_idle_row_and_a_finding_about_it_go_to_the_longest_gap_which_says_when_it_began() -> None:
    trace = load(TIMELINE)
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("7")
        await settle(pilot)
        await pilot.press("down")
        await settle(pilot)
        assert "the most in one 37.7 ms, which began 93.7 ms into the capture" in app.screen_text()
        cursor = await gone(pilot, "t")
        assert cursor.t_ns == sum(cursor.marks) // 2
        assert "between the marks 39.7 ms  GPU 0 stream 7 at work 0 %" in app.screen_text()
        assert "nothing to do for 39.7 ms: host code decode 37.7 ms" in app.screen_text()
        marks = cursor.marks
        await gone(pilot, "escape", "5", "t")
        assert cursor.marks == marks, "own code is the finding that is worth most"
        await pilot.press("7")
        await settle(pilot)
        await pilot.press("home", "t")
        await settle(pilot)
        assert "[7 Idle]" in app.screen_text()
        assert "this is the time at work, and no gap" in app.screen_text()


def test_a_row_of_several_gpus_goes_to_the_longest_gap_of_all(tmp_path: Path) -> None:
    trace = with_gaps(tmp_path)
    first, second = idle_account(trace).gpus
    gaps = longest_gaps(trace)
    part = max(second.parts, key=lambda one: one.longest_ns)
    label = (part.cause, part.name)
    rows = IdlePane()
    view = rows.view(trace)
    assert isinstance(view, IdleView)
    assert rows.when(view, trace, ("2 GPUs", *label)) == gaps.of([first.gpu, second.gpu], [label])
    assert rows.when(view, trace, ("GPU 0", *label)) == gaps.about(IdleTime(first.gpu, (label,)))


async def test_what_has_no_timeline_has_no_key_for_it() -> None:
    report = load(LADDER)
    assert isinstance(launch_stretch(report, 0), Unknown)
    assert isinstance(launch_stretch(report, 10**6), Unknown)
    app = ExploreApp([read(report)])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert IN_TIME not in active_keys(app.screen)
        await pilot.press("enter")
        await settle(pilot)
        assert "began" not in app.screen_text()
        assert IN_TIME not in active_keys(app.screen)
