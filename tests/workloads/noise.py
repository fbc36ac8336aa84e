"""Measuring on a machine that others use too."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec

Parameters = ParamSpec("Parameters")
TRIES = 3


def measured_again(test: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """A test that compares two clocks' accounts of the same time may look up to three times.

    The two are never read in the same instant; what else runs on the machine between the readings spoils one look.
    What is wrong in llmtop spoils all three. Each look has a `tmp_path` of its own.
    """

    @functools.wraps(test)
    def look(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        folder = kwargs.get("tmp_path")
        for number in range(TRIES):
            if isinstance(folder, Path):
                kwargs["tmp_path"] = folder / f"try {number}"
                (folder / f"try {number}").mkdir()
            try:
                test(*args, **kwargs)
            except AssertionError:
                if number == TRIES - 1:
                    raise
            else:
                return

    return look


def put_on(pids: Sequence[int], cpus: Sequence[int]) -> None:
    """On these CPUs only, threads to come too; anywhere where there are none."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cpus or os.sched_getaffinity(0))


def put_first(pids: Sequence[int], priority: int) -> None:
    """Before all else on this machine, where that is allowed; threads to come inherit it."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(priority))


@contextlib.contextmanager
def starting_first(priority: int) -> Iterator[None]:
    """What is started within comes before all else on this machine, where that is allowed."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextlib.contextmanager
def a_cpu_for_the_first() -> Iterator[int]:
    """The last CPU, which no other test gives to programs that come before all else meanwhile."""
    with (Path(tempfile.gettempdir()) / "llmtop-tests-cpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield max(os.sched_getaffinity(0))


@contextlib.contextmanager
def first_myself(priority: int) -> Iterator[None]:
    """This thread before all else for a while, where that is allowed; what it starts runs like everybody else's."""
    before, at = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, at)
