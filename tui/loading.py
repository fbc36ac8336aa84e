"""Reports read on a thread. Imports no Textual: reading starts while that is still being imported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.parsers.registry import load
from llmtop.text import clean
from llmtop.units import binary_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Loading:
    """A report that is being read on a thread."""

    path: Path
    future: Future[Trace]
    progress: ReadingProgress = field(default_factory=ReadingProgress)

    @property
    def error(self) -> BaseException | None:
        """Why it could not be read, once that is known."""
        return self.future.exception() if self.future.done() else None

    @property
    def trace(self) -> Trace | None:
        """What was read, once it is."""
        return self.future.result() if self.future.done() and self.error is None else None

    @property
    def failure(self) -> str:
        """Why it could not be read, in a sentence."""
        if isinstance(self.error, FileError):
            return str(self.error)
        kind = type(self.error).__name__
        return f"{self.path}: reading failed: {kind}: {clean(str(self.error))}; please report this"

    @property
    def size(self) -> str:
        """The size of the file, as far as it can be told."""
        try:
            return binary_bytes(self.path.stat().st_size)
        except OSError:
            return "size unknown"


def start_loading(paths: Sequence[Path], read: Callable[[Path], Trace] = load) -> tuple[Loading, ...]:
    """Read reports one after the other on a daemon thread, so that leaving never waits for a large one."""
    loadings = tuple(Loading(path, Future()) for path in paths)
    threading.Thread(target=_load_all, args=(loadings, read), name="llmtop loading", daemon=True).start()
    return loadings


def _load_all(loadings: Sequence[Loading], read: Callable[[Path], Trace]) -> None:
    for loading in loadings:
        CURRENT.set(loading.progress)
        try:
            trace = read(loading.path)
        except Exception as error:  # the border of the thread: the tab shows it
            loading.future.set_exception(error)
        else:
            loading.future.set_result(trace)
