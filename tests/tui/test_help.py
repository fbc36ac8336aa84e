"""The list of keys: whole at 80 columns, with those of the panes that have not the focus."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from textual.widget import Widget

from llmtop.parsers.registry import load
from llmtop.tui.key_names import key_name
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.recorded import all_views
from llmtop.tui.panes.view import LAST_DIGIT, Context
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import HelpPane, HelpScreen, active_keys, columns_here, keys_elsewhere
from llmtop.tui.textual_private import bindings_of
from tests.kernel_traces import LADDER, TIMELINE
from tests.live_traces import TARGET
from tests.tui.live_app import fixed_app, running
from tests.tui.test_explore import read, settle
from tests.tui.test_faults import a_live_app

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from llmtop.model import Trace
    from llmtop.tui.screens.explore_screen import ExploreScreen
    from llmtop.tui.screens.live import LiveApp

CALLED = {
    "Open the command palette": "All commands, to search by name",
    "Quit the app and return to the command prompt.": "Leave",
}
"""What Textual binds itself, in our words."""
OF_TIMELINE = "From a launch, a range or an operator to its kernel; back"


def words_of(app: LiveApp) -> str:
    return " ".join(app.screen_text().replace("│", " ").split())


async def told(pilot: Pilot[Any]) -> dict[str, str]:
    """What the help that `?` opens says of each key, as it is drawn: of one of several panes what is said first."""
    await pilot.press("question_mark")
    await pilot.pause()
    found: dict[str, str] = {}
    keys: list[str] = []
    for text in pilot.app.screen.query_one(HelpPane).text_lines():
        new = re.fullmatch(r" *(\S+(?: \S+)*)  (\S.*?) *", text)
        if new:
            keys = [key for key in new[1].split() if key not in found]
            found |= dict.fromkeys(keys, new[2])
        elif text.strip():
            found |= {key: f"{found[key]} {text.strip()}" for key in keys}
        else:
            keys = []
    await pilot.press("escape")
    await pilot.pause()
    return found


def bound(app: Any) -> dict[str, str]:
    """What the keys do that the nodes around the focus bind and have a use for now, the nearest first."""
    found: dict[str, str] = {}
    for is_urgent in (True, False):
        for node in app.screen.focused.ancestors_with_self:
            for one in bindings_of(node):
                is_of_use = one.tooltip and one.priority == is_urgent and not one.key.startswith("super+")
                name, _, parameters = one.action.rpartition(".")[2].removesuffix(")").partition("(")
                if is_of_use and node.check_action(name, tuple(parameters)):
                    found.setdefault(key_name(one.key), CALLED.get(one.tooltip, one.tooltip))
    return found


def program_wide(app: Any) -> set[str]:
    """The keys that the program itself has a text for."""
    return {key_name(one.key) for one in bindings_of(app) if one.tooltip}


async def test_every_key_of_the_views_of_files_is_listed(files: tuple[Trace, ...]) -> None:
    left = set(all_views())
    for trace in files:
        if not (kinds := [kind for kind in left if kind.why_not(trace) is None]):
            continue
        left.difference_update(kinds)
        app = ExploreApp([read(trace)])
        async with app.run_test(size=(80, 24)) as pilot:
            await settle(pilot)
            screen: ExploreScreen = app.screen  # type: ignore[assignment]
            for kind in kinds:
                screen.show_view(kind)
                await settle(pilot)
                expected, own = bound(app), program_wide(app)
                assert len(expected) > len(own), f"{kind.title} has keys of its own"
                assert own <= expected.keys()
                listed = await told(pilot)
                assert {key: listed.get(key) for key in expected} == expected, kind.title
                assert (OF_TIMELINE in listed.values()) is (kind.title == "Timeline")
    assert not left


async def test_every_key_of_a_live_view_is_listed() -> None:
    app = a_live_app()
    async with running(app, (80, 24)) as pilot:
        for number in (place.number for _, _, place in LIVE_VIEWS if place.exists(Context(TARGET))):
            app.live.action_pane(number)
            await pilot.pause()
            for _ in ("beside", "zoomed"):
                expected, own = bound(app), program_wide(app)
                assert len(expected) > len(own)
                assert own <= expected.keys()
                listed = await told(pilot)
                assert {key: listed.get(key) for key in expected} == expected, number
                app.live.action_zoom()
                await pilot.pause()
            await pilot.press("escape", "escape")


async def test_what_is_not_on_the_screen_is_not_listed() -> None:
    live = fixed_app()
    async with running(live, (80, 24)) as pilot:
        assert "5 Stall flame" not in live.screen_text()
        assert {"3 GPU", "6 CPU-GPU"} == dict(keys_elsewhere(live.screen)).keys()
        live.live.action_zoom()
        await pilot.pause()
        assert keys_elsewhere(live.screen) == []
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(80, 24)) as pilot:
        for digit in "213":
            await settle(pilot)
            await pilot.press(digit)
        await settle(pilot)
        assert keys_elsewhere(app.screen) == [], "neither the timeline, nor the histograms, nor the details below a row"


async def test_keys_of_the_focused_pane_come_first_and_only_once() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        freeze = ("x", "Hold the flame alone, or let it go on")
        assert freeze in dict(keys_elsewhere(app.screen))["5 Stall flame"]
        await pilot.press("5")
        assert freeze in active_keys(app.screen)
        assert "5 Stall flame" not in dict(keys_elsewhere(app.screen))
        assert ("p", "Pin the GPU to the top, and into roofline and lanes") in dict(keys_elsewhere(app.screen))["3 GPU"]


async def test_a_table_beside_the_focus_has_its_keys_listed() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        sort = ("< >", "Sort by the column left or right")
        assert sort in dict(keys_elsewhere(app.screen))["Metrics by section"]
        await pilot.press("tab")
        assert "Metrics by section" not in dict(keys_elsewhere(app.screen))
        assert sort in active_keys(app.screen)


async def test_columns_of_the_table_on_the_screen_are_explained() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 70)) as pilot:
        app.live.refresh_trace()
        await pilot.pause()
        assert columns_here(app.screen) == []
        await pilot.press("4", "z")
        await pilot.pause()
        told = dict(columns_here(app.screen))["Columns"]
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
        digits = " ".join(str(number) for number in range(1, LAST_DIGIT + 1))
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
