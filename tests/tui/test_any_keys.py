"""Keys in any order, at any size: nothing fails, and the terminal shows what the screen holds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from llmtop.tui.app import LlmtopApp
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import Scene, live_trace
from tests.tui.live_app import fixed_app, session_of
from tests.tui.quiet import wait_until
from tests.tui.report_traces import report
from tests.tui.terminal_in_memory import TerminalInMemory, on_terminal
from tests.tui.test_explore import read

if TYPE_CHECKING:
    from textual.pilot import Pilot

SIZES = ((120, 40), (80, 24), (60, 16), (40, 12))
PRESSES = 24
KEYS = (
    *"12345678zhedpabcfgnxRHL",
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "shift+tab"),
    *("space", "plus", "minus", "slash", "question_mark", "less_than_sign", "greater_than_sign", "backspace"),
)
"""All but those that leave, and s: how long its message stands depends on the time."""


def is_drawn(terminal: TerminalInMemory, app: LlmtopApp) -> bool:
    """Whether the terminal shows what the screen holds."""
    return [row.rstrip() for row in terminal.lines] == app.screen_text().splitlines()


async def press_any(app: LiveApp | ExploreApp, seed: int) -> None:
    choices = random.Random(seed)
    pressed: list[str] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        for tick in range(PRESSES):
            if isinstance(app, LiveApp):
                session_of(app).now = live_trace(Scene(), 90 + tick // 4)
                app.live.refresh_trace()
            pressed.append(choices.choice(KEYS))
            await pilot.press(pressed[-1])
            await wait_until(pilot, lambda: is_drawn(terminal, app))
            assert app.issues == [], pressed

    await on_terminal(app, SIZES[seed % len(SIZES)], drive)
    assert app.fault is None, (app.fault, pressed)
    assert len(pressed) == PRESSES


async def test_live() -> None:
    await press_any(fixed_app(), 3)


async def test_explore() -> None:
    await press_any(ExploreApp([read(report())]), 1)
