"""The way into the explorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.errors import FilesError, print_message
from llmtop.notes import digest_of, noted
from llmtop.parsers.registry import load
from llmtop.parsers.source_files import with_sources
from llmtop.tui.loading import Loading, start_loading, start_loading_run
from llmtop.tui.turns import take_short_turns

if TYPE_CHECKING:
    from llmtop.model import Trace

IMMEDIATE_S = 0.1
"""A report that is read (or refused) within this time never shows as being read."""


def explore(paths: Sequence[Path], is_one_run: bool | None = None, source_folders: Sequence[Path] = ()) -> int:
    """Show reports until the user leaves; the exit code. Those that cannot be read are told once the screen is gone.

    Args:
        paths: Files and folders.
        is_one_run: Whether the files are ranks of one run; None where their content is to tell.
        source_folders: Where source files may be that a report names and does not hold.

    Raises:
        FilesError: None of them can be read.
    """
    take_short_turns()
    loadings = _started(paths, is_one_run, partial(_read, source_folders))
    # Imported only now: reading goes on meanwhile, and unpacking does not hold the interpreter's lock.
    from llmtop.tui.app import run_app
    from llmtop.tui.screens.explore_screen import ExploreApp

    wait([loading.future for loading in loadings], timeout=IMMEDIATE_S)
    _refuse_if_hopeless(loadings)
    code = run_app(ExploreApp(loadings))
    _refuse_if_hopeless(loadings)
    for failure in _failures(loadings):
        print_message(failure)
    return code


def _read(source_folders: Sequence[Path], path: Path) -> Trace:
    return noted(with_sources(load(path), source_folders), digest_of(path))


def _started(paths: Sequence[Path], is_one_run: bool | None, read: Callable[[Path], Trace] = load) -> Sequence[Loading]:
    """What is being read; a single file is, before anything else of llmtop is imported."""
    if len(paths) == 1 and not paths[0].is_dir():
        return start_loading(paths, read)
    if is_one_run is not False:
        return start_loading_run(paths, read, is_forced=is_one_run is True)
    from llmtop.runs import files_of

    return start_loading(files_of(paths), read)


def _refuse_if_hopeless(loadings: Sequence[Loading]) -> None:
    failures = _failures(loadings)
    if len(failures) == sum(loading.is_shown for loading in loadings):
        raise FilesError(failures)


def _failures(loadings: Sequence[Loading]) -> list[str]:
    return [loading.failure for loading in loadings if loading.is_shown and loading.error is not None]
