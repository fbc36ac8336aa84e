"""How far the reading of a file is, told to whoever waits for it; and whether anybody still does."""

from __future__ import annotations

from contextvars import ContextVar
from threading import Event
from typing import TYPE_CHECKING

from llmtop.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path


class ReadingProgress:
    """Of one file: written by the thread that reads it, read by the one that draws.

    Attributes:
        text: What is done and how far that is: "nsys exports it, 42 %"; empty while there is nothing to tell.
        stopped_by: The key with which the user stops it.
    """

    def __init__(self, stopped_by: str = "Esc") -> None:
        self.text = ""
        self.stopped_by = stopped_by
        self._stopped = Event()

    def stop(self) -> None:
        """Ask the reader to give up: whoever tells of progress looks whether it is asked to."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Rest so long, or until nobody waits any more; whether that is so."""
        return self._stopped.wait(seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether nobody waits any more."""
        return self._stopped.is_set()


CURRENT: ContextVar[ReadingProgress] = ContextVar("llmtop_reading")
"""Of the file that this thread reads; none where nobody looks."""


def current() -> ReadingProgress:
    """Where to tell how far the reading is, and to look whether it is to go on."""
    return CURRENT.get(None) or ReadingProgress()


def tell(path: Path, doing: str, done: int, of: int) -> None:
    """Tell how far the work on a file is, so that it can be stopped too.

    Raises:
        FileError: Nobody waits for it any more.
    """
    now = current()
    if now.is_stopped:
        raise FileError(f"{path}: {doing} it was stopped")
    share = f"{100 * done // max(1, of)} %, {now.stopped_by} stops it"
    now.text = share if doing == "reading" else f"{doing}, {share}"
