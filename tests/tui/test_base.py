"""Panes: what is sent, what a fault costs, what is not seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.containers import Container
from textual.content import Content
from textual.dom import DOMNode

from llmtop.model import Origin, Trace, Unknown
from llmtop.tui.app import LlmtopApp
from llmtop.tui.panes.base import STARTING_NS, Pane, changed_spans
from llmtop.tui.render.lines import line
from llmtop.tui.render.look import Look
from tests.tui.terminal_in_memory import TerminalInMemory, on_terminal

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.pilot import Pilot
    from textual.strip import Strip


def trace(n: int) -> Trace:
    return Trace(Origin("live"), end_ns=n)


class NumberPane(Pane[int]):
    number = 1
    title = "Numbers [/b]"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.views = 0

    def view(self, trace: Trace) -> int | Unknown:
        self.views += 1
        return trace.end_ns or Unknown("there is no [number] yet", "wait")

    def subtitle(self, view: int) -> Content:
        return Content(f"[{view}]")

    def draw(self, view: int, width: int, height: int, look: Look) -> list[Strip]:
        if view == 13:
            raise ValueError("unlucky [/b] \x1b[2J")
        return [line([("always the same text, then ", "dim"), (f"{view} 内核", "value")], width, look)] * height


class TwoPanes(LlmtopApp):
    def compose(self) -> ComposeResult:
        yield NumberPane("one")
        yield NumberPane("two")


def panes(app: Any) -> tuple[NumberPane, NumberPane]:
    return app.query_one("#one", NumberPane), app.query_one("#two", NumberPane)


async def test_only_changed_cells_are_sent() -> None:
    sent: dict[str, int] = {}
    shown: list[list[str]] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        for n, name in ((1001, "first"), (1001, "same"), (1002, "one digit")):
            mark = terminal.mark()
            for pane in panes(pilot.app):
                pane.show(trace(n))
            await pilot.pause()
            sent[name] = terminal.bytes_since(mark)
            shown.append(terminal.lines)

    await on_terminal(TwoPanes(), (80, 24), drive)
    assert sent["same"] == 0
    assert 0 < sent["one digit"] < sent["first"] / 2
    assert sum("1001 内核" in row for row in shown[0]) == 20
    assert sum("1002 内核" in row for row in shown[2]) == 20
    assert "1 Numbers [/b]  [1002]" in shown[2][0]


class TextPane(Pane[str]):
    """Draws the lines that it is told."""

    texts: ClassVar[dict[int, str]] = {}

    def view(self, trace: Trace) -> str:
        return self.texts[trace.end_ns]

    def draw(self, view: str, width: int, height: int, look: Look) -> list[Strip]:
        roles = ("dim", "value", "warn")
        return [line([(part, roles[i % 3]) for i, part in enumerate(view.split("|"))], width, look)] * height


class TwoTexts(LlmtopApp):
    CSS = "Screen { layout: horizontal; } TextPane { width: 1fr; height: 100%; }"

    def compose(self) -> ComposeResult:
        yield TextPane(id="one")
        yield TextPane(id="two")


@given(st.lists(st.text("ab |内é█", max_size=40), min_size=2, max_size=6))
@settings(max_examples=25)
def test_after_any_frames_the_terminal_shows_what_was_drawn(texts: list[str]) -> None:
    TextPane.texts = dict(enumerate(texts, 1))

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        for n in TextPane.texts:
            pilot.app.query_one("#one", TextPane).show(trace(n))
            pilot.app.query_one("#two", TextPane).show(trace(len(texts) + 1 - n))
            await pilot.pause()
            app = cast("LlmtopApp", pilot.app)
            assert [row.rstrip() for row in terminal.lines] == app.screen_text().splitlines()

    asyncio.run(on_terminal(TwoTexts(), (70, 6), drive))


def test_a_pane_without_room_may_be_shown_before_it_was_ever_drawn() -> None:
    pane = NumberPane("one")
    pane.on_show()
    assert pane.views == 0


async def test_a_fault_is_one_line_in_its_pane(faults: list[str]) -> None:
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, two = panes(app)
        one.show(trace(13))
        two.show(trace(7))
        await pilot.pause()
        text = app.screen_text()
        assert "this pane failed: ValueError: unlucky [/b] ␛[2J; please" in text
        assert "7 内核" in text
        assert [issue.code for issue in app.issues] == ["pane-numberpane"]
        assert faults.pop().startswith("this pane failed: ValueError: unlucky")
        one.show(trace(14))
        await pilot.pause()
        assert "14 内核" in app.screen_text()


async def test_an_unknown_says_why_and_what_would_change_it() -> None:
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        panes(app)[0].show(trace(0))
        await pilot.pause()
        assert "there is no [number] yet" in app.screen_text()
        assert "wait" in app.screen_text()


async def test_a_hidden_pane_does_no_work_until_it_is_seen() -> None:
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, two = panes(app)
        one.show(trace(1))
        two.display = False
        await pilot.pause()
        for n in (2, 3):
            two.show(trace(n))
            await pilot.pause()
        assert two.views == 0
        two.display = True
        await pilot.pause()
        assert two.views == 1
        assert "3 内核" in app.screen_text()


async def test_a_calm_pane_follows_only_traces_that_are_newer_by_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberPane, "least_ns", 100)
    late = STARTING_NS
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, _ = panes(app)
        shown = []
        for after_ns in (0, 99, 100, 150, 0):  # first, too soon, enough, too soon, back in time
            one.show(trace(late + after_ns))
            await pilot.pause()
            shown.append(one._view)
    assert shown == [late, late, late + 100, late + 100, late]
    assert one.views == 3


@pytest.mark.parametrize(("is_urgent", "views"), [(False, [1, 1, 2]), (True, [1, 2, 3])])
async def test_where_frames_are_dear_a_calm_pane_waits_longer_and_an_urgent_one_does_not(
    monkeypatch: pytest.MonkeyPatch, is_urgent: bool, views: list[int]
) -> None:
    monkeypatch.setattr(NumberPane, "least_ns", 100)
    monkeypatch.setattr(NumberPane, "is_urgent", is_urgent)
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, _ = panes(app)
        one.frame_sync.stretch = 1.5
        counts = []
        for after_ns in (0, 149, 249):
            one.show(trace(STARTING_NS + after_ns))
            await pilot.pause()
            counts.append(one.views)
    assert counts == views


async def test_a_calm_pane_shows_the_moment_at_which_the_screen_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberPane, "least_ns", 100)
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, _ = panes(app)
        held = trace(STARTING_NS + 20)
        one.show(trace(STARTING_NS))
        one.frame_sync.is_still = True
        for _ in range(2):
            one.show(held)
            await pilot.pause()
        assert one._view == STARTING_NS + 20
        assert one.views == 2, "the same one is drawn once"
        one.frame_sync.is_still = False
        one.show(trace(STARTING_NS + 70))
        assert one._view == STARTING_NS + 20


async def test_a_calm_pane_follows_every_trace_at_the_start_and_out_of_the_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look has gauges, the second one rates: they are not to wait for the pane's own pace."""
    monkeypatch.setattr(NumberPane, "least_ns", 2 * STARTING_NS)
    quarter = STARTING_NS // 8
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, _ = panes(app)
        shown = []
        for end_ns in (0, quarter, 2 * quarter, 9 * quarter):  # unknown, first, second; then its own pace
            one.show(trace(end_ns))
            await pilot.pause()
            shown.append(one._view)
    assert isinstance(shown[0], Unknown)
    assert shown[1:] == [quarter, 2 * quarter, 2 * quarter]


async def test_a_resize_fills_the_new_size() -> None:
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        for pane in panes(app):
            pane.show(trace(5))
        await pilot.resize_terminal(90, 30)
        await pilot.pause()
        assert app.screen_text().count("5 内核") == 26


async def test_a_new_theme_is_drawn_in_its_colours() -> None:
    app = TwoPanes()
    async with app.run_test(size=(60, 12)) as pilot:
        one, _ = panes(app)
        one.show(trace(5))
        await pilot.pause()
        before = one.render_line(0)
        app.theme = "textual-light"
        await pilot.pause()
        await pilot.pause()
        assert list(one.render_line(0)) != list(before)
        assert one.render_line(0).text == before.text


def test_the_changed_span_covers_whole_wide_characters() -> None:
    look = Look()
    old, new = (line([("ab", "dim"), (text, "value"), ("cd", "dim")], 12, look) for text in ("内a", "内b"))
    assert changed_spans(old, new) == [(2, 5)]
    assert changed_spans(old, old) == []
    narrow, other = line([("abc", "dim")], 12, look), line([("abd", "dim")], 12, look)
    assert changed_spans(narrow, other) == [(2, 3)]


@pytest.mark.parametrize(("far", "spans"), [(15, [(0, 17)]), (16, [(0, 1), (17, 18)])])
def test_cells_far_apart_are_sent_by_themselves(far: int, spans: list[tuple[int, int]]) -> None:
    old, new = (line([(mark + "-" * far + mark, "value")], far + 9, Look()) for mark in "ab")
    assert changed_spans(old, new) == spans


class NestedApp(LlmtopApp):
    """A pane in a container whose background a class changes."""

    CSS = "#around.-lit { background: #800000; } #around.-lit NumberPane { background: #008000 50%; }"

    def compose(self) -> ComposeResult:
        with Container(id="around"):
            yield NumberPane("inner")


async def test_the_background_that_is_kept_follows_themes_and_classes_above() -> None:
    app = NestedApp()
    async with app.run_test() as pilot:
        pane, around = app.query_one(NumberPane), app.query_one("#around")
        seen = [pane.background_colors]
        for change in (
            lambda: setattr(app, "theme", "textual-light"),
            lambda: around.add_class("-lit"),
            lambda: around.remove_class("-lit"),
        ):
            change()
            await pilot.pause()
            computed = DOMNode.background_colors
            assert isinstance(computed, property)
            assert computed.fget is not None
            assert pane.background_colors == computed.fget(pane)
            seen.append(pane.background_colors)
        assert len(set(seen)) == 3
