"""Checks that run in a process of their own."""

from __future__ import annotations

import multiprocessing
import traceback
import warnings
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

LIMIT_S = 100


def in_a_child(check: Callable[[], None]) -> None:
    """Run a check in a fork. NVIDIA's reader keeps every report in memory until its process ends."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(check, theirs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns where pytest has other threads
        child.start()
    theirs.close()
    try:
        failure = ours.recv() if ours.poll(LIMIT_S) else f"no answer in {LIMIT_S} s"
    except EOFError:
        failure = "the child ended without an answer"
    finally:
        child.kill()
        child.join()
        child.close()
        ours.close()
    if failure:
        pytest.fail(failure, pytrace=False)


def _run(check: Callable[[], None], answer: Connection) -> None:
    try:
        check()
    except BaseException:
        answer.send(traceback.format_exc())
    else:
        answer.send("")
