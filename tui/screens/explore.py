"""The way into the explorer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path

from llmtop.errors import FilesError
from llmtop.tui.loading import Loading, start_loading

IMMEDIATE_S = 0.1
"""A report that is read (or refused) within this time never shows as being read."""

_TURN_S = 0.0005
"""How long the thread that reads may keep the interpreter while the screen waits for it: each file that is imported
waits so long, and Python's 5 ms make seconds of that before the first picture."""


def explore(paths: Sequence[Path]) -> int:
    """Show reports until the user leaves; the exit code. Those that cannot be read are told once the screen is gone.

    Raises:
        FilesError: None of them can be read.
    """
    sys.setswitchinterval(_TURN_S)
    loadings = start_loading(paths)
    # Imported only now: reading goes on meanwhile, and unpacking does not hold the interpreter's lock.
    from llmtop.tui.app import run_app
    from llmtop.tui.screens.explore_screen import ExploreApp

    wait([loading.future for loading in loadings], timeout=IMMEDIATE_S)
    _refuse_if_hopeless(loadings)
    code = run_app(ExploreApp(loadings))
    _refuse_if_hopeless(loadings)
    for failure in _failures(loadings):
        sys.stderr.write(f"llmtop: {failure}\n")
    return code


def _refuse_if_hopeless(loadings: Sequence[Loading]) -> None:
    failures = _failures(loadings)
    if len(failures) == len(loadings):
        raise FilesError(failures)


def _failures(loadings: Sequence[Loading]) -> list[str]:
    return [loading.failure for loading in loadings if loading.error is not None]
