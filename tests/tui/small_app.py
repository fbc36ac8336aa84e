"""A small program over `LlmtopApp`, for tests in a real terminal.

python -m tests.tui.small_app [crash|file|pane|flood|stop|hang LIBRARY]
"""

from __future__ import annotations

import ctypes
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from llmtop.tui.terminal import guard

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


def main(what: str) -> int:
    """Show one pane; crash as told."""
    why = guard()
    if why is not None:
        sys.stderr.write(f"llmtop: {why}\n")
        return 1
    from llmtop.errors import FileError
    from llmtop.model import Origin, Trace
    from llmtop.tui import driver
    from llmtop.tui.app import LlmtopApp, run_app
    from llmtop.tui.guardian import Guardian
    from llmtop.tui.panes.base import Pane
    from llmtop.tui.render.lines import line

    class Small(Pane[str]):
        number = 1
        title = "Small"

        def view(self, trace: Trace) -> str:
            return f"ready {trace.end_ns} 内核 12 µs █"

        def draw(self, view: str, width: int, height: int, look: Look) -> list[Strip]:
            if what == "pane":
                raise ValueError("in the pane")
            return [line([(view, "good")], width, look)]

    class SmallApp(LlmtopApp):
        def compose(self) -> ComposeResult:
            yield Small()

        def on_mount(self) -> None:
            self.query_one(Small).show(Trace(Origin("live"), end_ns=7))
            self.frames = 0
            self.set_interval(0.02, self.frame)

        def frame(self) -> None:
            if what == "flood" and self._driver is not None:
                # Changes nothing, and fills every queue on the way within a second or two once nobody reads. No faster:
                # what reads it in the tests is slow, and must keep up on a busy machine.
                self._driver.write("\x1b[m" * 1_000)
            if self.gate.is_open:
                self.frames += 1
                self.query_one(Small).show(Trace(Origin("live"), end_ns=self.frames))
                self.frame_drawn(is_sent=False)

        def key_x(self) -> None:
            if what == "crash":
                raise ValueError("on purpose\x1b[2J\nsecond line")
            if what == "stop":
                writer = self._driver._writer_thread  # type: ignore[union-attr]  # of Textual's driver on Linux
                with writer._queue.mutex:  # as while it writes
                    signal.raise_signal(signal.SIGTSTP)
            if what == "hang":
                ctypes.CDLL(sys.argv[2])  # with the lock of Python held too
            if what == "file":
                raise FileError("report.ncu-rep is truncated; copy it again")

    if what == "file":
        driver._LONGEST_STAY_S = 30.0  # type: ignore[misc]  # for the answers of a slow link on a busy machine
    if what == "hang":
        setattr(driver, "Guardian", partial(Guardian, patience_s=0.2))  # noqa: B010  # a name, not a type
    return run_app(SmallApp())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
