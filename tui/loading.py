"""Reports read on a thread. Imports no Textual: reading starts while that is still being imported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.errors import ApartError, FileError
from llmtop.freed import give_back_freed
from llmtop.model import Trace
from llmtop.notes import digest_of, noted
from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.parsers.registry import load
from llmtop.text import clean
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from llmtop.runs import RunFiles


@dataclass(slots=True, eq=False)
class Loading:
    """A report that is being read on a thread.

    Attributes:
        future: What was read; exchanged, by the screen's thread alone, where names and notes change.
        files: How many files it is made of, where they may be ranks of one run.
        whole: What this file may be a rank of.
    """

    path: Path
    future: Future[Trace]
    progress: ReadingProgress = field(default_factory=ReadingProgress)
    files: int = 0
    whole: Loading | None = None

    @property
    def is_shown(self) -> bool:
        """Whether there is a tab for it: for a run, or for its files where they are none."""
        if self.files:
            return self.error is None
        return self.whole is None or self.whole.error is not None

    @property
    def error(self) -> BaseException | None:
        """Why it could not be read, once that is known."""
        return self.future.exception() if self.future.done() else None

    @property
    def trace(self) -> Trace | None:
        """What was read, once it is."""
        return self.future.result() if self.future.done() and self.error is None else None

    def renote(self) -> None:
        """Take what is kept of the report and of its kernels by now."""
        if (trace := self.trace) is not None:
            self.future = Future()
            self.future.set_result(noted(trace, "" if self.files else digest_of(self.path)))

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
        if self.files:
            return f"{self.files} files"
        try:
            return binary_bytes(self.path.stat().st_size)
        except OSError:
            return "size unknown"


def start_loading(paths: Sequence[Path], read: Callable[[Path], Trace] = load) -> tuple[Loading, ...]:
    """Read reports one after the other on a daemon thread, so that leaving never waits for a large one."""
    loadings = tuple(Loading(path, Future()) for path in paths)
    threading.Thread(target=_load_all, args=(loadings, read), name="llmtop loading", daemon=True).start()
    return loadings


def start_loading_run(
    paths: Sequence[Path], read: Callable[[Path], Trace] = load, *, is_forced: bool = False
) -> tuple[Loading, ...]:
    """Read what may be ranks of one run, as `start_loading` does: the run first, then each file.

    Raises:
        FileError: A folder has no timelines.
    """
    from llmtop.runs import RunFiles, files_of, is_folder

    files = files_of(paths)
    if len(files) == 1:
        return start_loading(files, read)
    whole = Loading(paths[0] if len(paths) == 1 else Path(f"{len(files)} files"), Future(), files=len(files))
    own = tuple(Loading(file, Future(), whole=whole) for file in files)
    run = RunFiles(whole.path, is_forced=is_forced, is_choosy=any(map(is_folder, paths)))
    arguments = (run, whole, own, read)
    threading.Thread(target=_load_run, args=arguments, name="llmtop loading", daemon=True).start()
    return whole, *own


def _load_run(run: RunFiles, whole: Loading, own: Sequence[Loading], read: Callable[[Path], Trace]) -> None:
    """Read the files until it is known that they are apart; else join them."""
    results: list[Trace | Exception] = []
    CURRENT.set(whole.progress)
    try:
        for loading in own:
            results.append(_result(loading.path, read))
            run.add(results[-1])
        trace = run.together()
    except Exception as error:  # the border of the thread: the tabs of the files show what each is
        for loading, result in zip(own, results, strict=False):
            _give(loading.future, result)
        whole.future.set_exception(error if isinstance(error, ApartError) else ApartError(str(error)))
        _load_all(own[len(results) :], read)
    else:
        whole.future.set_result(noted(trace))
        for loading in own:
            loading.future.set_exception(ApartError("it is shown with the other ranks"))


def _result(path: Path, read: Callable[[Path], Trace]) -> Trace | Exception:
    try:
        return read(path)
    except Exception as error:  # the border of the thread: the tab shows it
        return error
    finally:
        give_back_freed()


def _give(future: Future[Trace], result: Trace | Exception) -> None:
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _load_all(loadings: Sequence[Loading], read: Callable[[Path], Trace]) -> None:
    for loading in loadings:
        CURRENT.set(loading.progress)
        _give(loading.future, _result(loading.path, read))
