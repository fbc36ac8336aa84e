"""Looking for a text in a text, as in `less`: a session, the diagnosis, help, details, what reasons mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.segment import Segment
from textual import events
from textual.strip import Strip

from llmtop.parsers.registry import load
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.render.look import Look
from llmtop.tui.render.search import FoundPart, marked, places_of
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.kernel import LaunchPane
from tests.kernel_traces import LADDER
from tests.tui.live_app import fixed_app, press, running
from tests.tui.report_traces import report
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from llmtop.tui.app import LlmtopApp


def pane_of(app: LlmtopApp) -> LinesPane[Any]:
    assert isinstance(app.focused, LinesPane)
    return app.focused


def shown(app: LlmtopApp) -> str:
    """What stands in the upper border, after the title."""
    return next(line for line in app.screen_text().splitlines() if "/" in line).strip("╭╮─ ")


async def session(pilot: Pilot[Any]) -> LlmtopApp:
    app: LlmtopApp = pilot.app  # type: ignore[assignment]
    await settle(pilot)
    await pilot.press("6")
    await settle(pilot)
    return app


def test_a_text_is_found_whatever_its_case_and_where_its_line_was_broken() -> None:
    lines = ["The GPU waits", "    for the host; the gpu", "waits"]
    assert places_of("gpu  waits", lines) == ((FoundPart(0, 4, 13),), (FoundPart(1, 22, 25), FoundPart(2, 0, 5)))
    assert places_of("waits for", lines) == ((FoundPart(0, 8, 13), FoundPart(1, 4, 7)),)
    assert places_of("a.b*", ["a+b", "(A.B*)"]) == ((FoundPart(1, 1, 5),),), "no pattern: the text itself"
    assert places_of(" ", lines) == places_of("nowhere", lines) == ()


def test_a_marked_line_keeps_its_text_and_its_width() -> None:
    look = Look()
    strip = Strip([Segment("内核 waits", look.style("text")), Segment("  x", look.style("dim"))])
    found = marked(strip, [(FoundPart(0, 1, 2), "cursor"), (FoundPart(0, 3, 8), "selected")], look)
    assert (found.text, found.cell_length) == (strip.text, strip.cell_length)
    roles = {segment.text: segment.style for segment in found}
    assert (roles["核"], roles["waits"], roles["  x"]) == tuple(map(look.style, ("cursor", "selected", "dim")))


async def test_places_in_the_session_are_gone_to_and_marked_in_turn() -> None:
    async with ExploreApp([read(report())]).run_test(size=(80, 14), notifications=True) as pilot:
        app = await session(pilot)
        assert " n N " not in app.screen_text(), "no key for a search that is none"
        await press(pilot, "slash", *"NOT COLLECTED")
        assert shown(app).startswith("6 Session  /NOT COLLECTED_ 1 of ")
        count = int(shown(app).split("of ")[1])
        assert count > 2
        text = await press(pilot, "enter")
        assert " n N " in text
        assert "not collected" in text
        began_at = pane_of(app).at
        assert began_at > 0, "the first place was below the screen"
        for number in (*range(2, count + 1), 1):
            await press(pilot, "n")
            assert shown(app) == f"6 Session  /NOT COLLECTED {number} of {count}"
        assert pane_of(app).at <= began_at, "after the last one comes the first"
        await press(pilot, "N")
        assert shown(app) == f"6 Session  /NOT COLLECTED {count} of {count}"
        at = pane_of(app).at
        text = await press(pilot, "escape")
        assert "/NOT COLLECTED" not in text
        assert pane_of(app).at == at, "it stays there"
        await press(pilot, "n")
        assert [notice.message for notice in app._notifications] == [
            "\n".join(
                f"n works in {view}: The next or the last place of the text"
                for view in (
                    *("6 Session", "Instruction mix", "PM samples"),
                    *("Section tables", "Speed of light", "Warps"),
                )
            )
        ]


async def test_a_search_that_is_given_up_goes_back_to_where_it_began() -> None:
    async with ExploreApp([read(report())]).run_test(size=(80, 14), notifications=True) as pilot:
        app = await session(pilot)
        await press(pilot, "down", "slash", *"osrt")
        assert pane_of(app).at > 1
        assert "/osr_ 1 of" in await press(pilot, "backspace")
        assert "/osr" not in await press(pilot, "escape")
        assert pane_of(app).at == 1
        assert "/qqq not found" in await press(pilot, "slash", *"qqq", "enter")
        assert pane_of(app).at == 1
        assert "[6 Session]" in app.screen_text(), "q and the digits were text"


async def test_a_search_begins_at_the_line_on_the_screen() -> None:
    async with ExploreApp([read(report())]).run_test(size=(80, 14), notifications=True) as pilot:
        app = await session(pilot)
        await press(pilot, "end")
        at = pane_of(app).at
        await press(pilot, "slash", *"collected")
        number, count = shown(app).split("/collected_ ")[1].split(" of ")
        assert int(number) > 1
        assert int(number) <= int(count)
        assert pane_of(app).at >= at - 1


@pytest.mark.parametrize("keys", ["d", "question_mark", "4 z enter"])
async def test_keys_that_come_faster_than_they_are_handled_are_text(keys: str) -> None:
    app = fixed_app()
    async with running(app, (80, 24), keys=keys.split()) as pilot:
        for key, letter in (("slash", "/"), ("q", "q"), ("d", "d")):
            app.post_message(events.Key(key, letter))
        await pilot.pause()
        assert pane_of(app).search == "qd"
        assert "/qd_ not found" in app.screen_text()
        assert len(app._notifications) == 0


async def test_the_diagnosis_is_searched_and_goes_on_with_it() -> None:
    app = fixed_app()
    async with running(app, (80, 24), keys=["d", "slash", *"preemption", "enter"]) as pilot:
        head = app.screen_text().splitlines()[0]
        assert "live 1 Hz  /preemption 1 of " in head
        assert "lines 1 to 21 of " in app.screen_text()
        app.live.refresh_trace()
        assert "/preemption 2 of " in await press(pilot, "n")
        assert "/preemption" not in await press(pilot, "escape")
        assert "1 Roofline" in await press(pilot, "escape"), "the second one leaves"


async def test_help_and_the_details_of_a_thread_are_searched() -> None:
    app = fixed_app()
    async with running(app, (80, 24), keys=["question_mark", "slash", *"pin the gpu", "enter"]) as pilot:
        text = app.screen_text()
        assert "Keys  /pin the gpu 1 of 1" in text
        assert "Pin the GPU to the top" in text, "it was below the screen's edge"
        await press(pilot, "escape", "escape", "4", "z", "enter")
        assert "/run queue 1 of " in await press(pilot, "slash", *"run queue", "enter")


async def test_what_reasons_mean_is_searched() -> None:
    async with ExploreApp([read(load(LADDER))]).run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "2", "m")
        await settle(pilot)
        assert "What stall reasons mean  /barrier 1 of " in await press(pilot, "slash", *"barrier", "enter")


async def test_in_the_details_of_a_kernel_the_same_keys_find_a_metric_and_the_next_launch() -> None:
    async with ExploreApp([read(load(LADDER))]).run_test(size=(120, 40), notifications=True) as pilot:
        app: LlmtopApp = pilot.app  # type: ignore[assignment]
        await settle(pilot)
        await press(pilot, "enter")
        await settle(pilot)
        assert isinstance(app.focused, LaunchPane)
        before = app.screen_text()
        await press(pilot, "n")
        await settle(pilot)
        assert app.screen_text() != before
        text = await press(pilot, "slash", *"dram")
        assert "filter" not in text.splitlines()[0]
        assert not isinstance(app.focused, LaunchPane), "the field of the filter has the keys"
