"""What a frame renders: lines that have changed, of widgets that are seen; and that all looks as if drawn whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from textual.containers import Container
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from llmtop.tui.app import LlmtopApp
from llmtop.tui.panes.base import DiffedWidget
from llmtop.tui.render.lines import line
from llmtop.tui.render.look import Look
from llmtop.tui.screens.base import FullScreen
from tests.live_traces import Scene, live_trace
from tests.tui.live_app import fixed_app, running, session_of
from tests.tui.terminal_in_memory import TerminalInMemory, on_terminal

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.pilot import Pilot
    from textual.screen import Screen


class Rows(DiffedWidget):
    """Lines of text, one a row."""

    def tell(self, *rows: str) -> None:
        self.send_frame([line([(row, "text")], self.size.width, Look()) for row in rows])


class SideBySide(LlmtopApp):
    """Two widgets beside each other within a container, and one that covers the first column of the first."""

    CSS = """
    #around { layout: horizontal; layers: below above; }
    Rows { width: 1fr; }
    #over { layer: above; width: 3; height: 1; }
    """

    def get_default_screen(self) -> Screen[None]:
        return FullScreen()

    def compose(self) -> ComposeResult:
        with Container(id="around"):
            yield Rows(id="left")
            yield Rows(id="right")
            yield Rows(id="over")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Region]]:
    """Which widgets were asked for which of their cells."""
    found: list[tuple[str, Region]] = []

    def count(kind: type[Widget]) -> None:
        render_lines = kind.render_lines

        def counted(widget: Widget, crop: Region) -> list[Strip]:
            if kind is DiffedWidget or not isinstance(widget, DiffedWidget):  # these may ask Textual in turn
                found.append((widget.id or type(widget).__name__, crop))
            return render_lines(widget, crop)

        monkeypatch.setattr(kind, "render_lines", counted)

    for kind in (Widget, DiffedWidget):
        count(kind)
    return found


async def test_only_the_lines_that_have_changed_are_rendered_and_only_of_the_widget_in_which_they_are(
    asked: list[tuple[str, Region]],
) -> None:
    seen: dict[str, list[tuple[str, Region]]] = {}
    shown: list[str] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        await pilot.pause()
        left, right, over = (pilot.app.query_one(f"#{name}", Rows) for name in ("left", "right", "over"))
        left.tell(*"abcdef")
        right.tell(*"uvwxyz")
        over.tell("###")
        await pilot.pause()
        for name, rows in (("two apart", "ab1de2"), ("same", "ab1de2"), ("covered", "ob1de2")):
            asked.clear()
            left.tell(*rows)
            await pilot.pause()
            seen[name] = list(asked)
        shown.extend(terminal.lines)

    await on_terminal(SideBySide(), (20, 6), drive)
    assert seen["two apart"] == [("left", Region(0, 2, 10, 1)), ("left", Region(0, 5, 10, 1))]
    assert seen["same"] == []
    assert {name for name, _ in seen["covered"]} == {"over"}
    assert [row.rstrip() for row in shown] == [
        "###       u",
        "b         v",
        "1         w",
        "d         x",
        "e         y",
        "2         z",
    ]


@pytest.mark.parametrize("is_sent_at_once", [True, False])
async def test_frame_by_frame_the_terminal_shows_what_the_whole_screen_would(is_sent_at_once: bool) -> None:
    scene = Scene(gpus=2, is_moving=True)
    app = fixed_app(scene)

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        for ticks in range(90, 98):
            session_of(app).now = live_trace(scene, ticks)
            if is_sent_at_once:
                assert app.live.send_frame() or ticks == 90  # the first one is arranged
            else:
                app.live.refresh_trace()
            await pilot.pause()
            assert [row.rstrip() for row in terminal.lines] == app.screen_text().splitlines()

    await on_terminal(app, (120, 40), drive)


async def test_a_frame_that_is_sent_at_once_leaves_nothing_to_do_and_another_one_leaves_it_to_the_panes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(gpus=2, is_moving=True)
    app = fixed_app(scene)
    asked: list[Widget] = []
    check_idle = Widget.check_idle

    def noted(widget: Widget) -> None:
        asked.append(widget)
        check_idle(widget)

    monkeypatch.setattr(Widget, "check_idle", noted)
    async with running(app):
        session_of(app).now = live_trace(scene, 95)
        asked.clear()
        assert app.live.send_frame()
        assert not [one for one in asked if isinstance(one, DiffedWidget)]
        session_of(app).now = live_trace(scene, 99)
        app.live.refresh_trace()
        assert [one for one in asked if isinstance(one, DiffedWidget)]
        app.live.refresh(layout=True)
        asked.clear()
        assert not app.live.send_frame()
        assert set(app.live._parts) <= set(asked)
