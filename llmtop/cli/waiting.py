"""What a command waits for: a report, with how far it has been read on a line that goes; or somebody to end it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.text import clean

_LOOK_S = 0.25
_TO_START_AND_CLEAR = "\r\x1b[K"


@contextmanager
def telling_progress(stream: TextIO | None) -> Iterator[None]:
    """Tell on a terminal what is done meanwhile, where that takes long; on anything else nothing."""
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    progress, ended = ReadingProgress(stopped_by="Ctrl+C"), threading.Event()
    token = CURRENT.set(progress)
    thread = threading.Thread(target=_tell, args=(progress, ended, stream), name="llmtop progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        CURRENT.reset(token)
        ended.set()
        thread.join()


def _tell(progress: ReadingProgress, ended: threading.Event, stream: TextIO) -> None:
    said = ""
    while not ended.wait(_LOOK_S):
        if progress.text != said:
            said = progress.text
            width = shutil.get_terminal_size().columns - 1
            stream.write(f"{_TO_START_AND_CLEAR}{clean(said)[:width]}")
            stream.flush()
    if said:
        stream.write(_TO_START_AND_CLEAR)
        stream.flush()


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """What is set when somebody ends the program: with Ctrl+C, by a service manager, or by closing its terminal."""
    is_over = threading.Event()
    with handling((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), lambda *_: is_over.set()):
        yield is_over


@contextmanager
def handling(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call a function for these signals meanwhile; afterwards they do what they did before."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
