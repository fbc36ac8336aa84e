"""Runs an app against a terminal in memory: what is really written, and what a terminal makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyte
from textual.drivers.headless_driver import HeadlessDriver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import App
    from textual.pilot import Pilot


class RecordingDriver(HeadlessDriver):
    """Takes what the app writes; `written` is shared by the class, as Textual makes the instance."""

    written: list[str] = []  # noqa: RUF012 - one app at a time

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        type(self).written.append(data)


class TerminalInMemory:
    """What the app wrote, and the screen that a terminal shows of it."""

    def __init__(self, width: int, height: int) -> None:
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.Stream(self._screen)
        self._fed = 0

    def mark(self) -> int:
        """A point in the output, for `bytes_since`."""
        return len(RecordingDriver.written)

    def bytes_since(self, mark: int) -> int:
        """Bytes written since a mark."""
        return sum(len(data.encode()) for data in RecordingDriver.written[mark:])

    @property
    def lines(self) -> list[str]:
        """What the terminal shows now."""
        self._stream.feed("".join(RecordingDriver.written[self._fed :]))
        self._fed = len(RecordingDriver.written)
        return list(self._screen.display)


async def on_terminal(
    app: App[Any], size: tuple[int, int], drive: Callable[[Pilot[Any], TerminalInMemory], Awaitable[None]]
) -> None:
    """Run `app` on a terminal in memory, `drive` it, and end it."""
    RecordingDriver.written.clear()
    app.driver_class = RecordingDriver
    terminal = TerminalInMemory(*size)

    async def pilot_it(pilot: Pilot[Any]) -> None:
        await drive(pilot, terminal)
        app.exit()

    await app.run_async(size=size, auto_pilot=pilot_it)
