"""Measuring on a machine that others use too."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Look = TypeVar("Look")
TRIES = 3


class Looks(Generic[Look]):
    """A measurement that many tests share, repeated for those that find it spoilt: see `measured_again`.

    Args:
        look: Measures, for so many times as long as usual: what spoils one at its ends weighs less in a long one.
    """

    def __init__(self, look: Callable[[int], Look]) -> None:
        self._look = look
        self._seen: list[Look | AssertionError] = []

    def __getitem__(self, number: int) -> Look:
        while len(self._seen) <= number:
            self._seen.append(self._look_at(1 + 2 * len(self._seen)))
        seen = self._seen[number]
        if isinstance(seen, AssertionError):
            raise seen
        return seen

    def _look_at(self, times: int) -> Look | AssertionError:
        """A look that came to nothing is one too: the next is another."""
        try:
            return self._look(times)
        except AssertionError as error:
            return error


def measured_again(test: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """A test that compares two clocks' accounts of the same time may look up to three times.

    The two are never read in the same instant; what else runs on the machine between the readings spoils one look.
    What is wrong in llmtop spoils all three. Each look has a `tmp_path` of its own, and the next one of any `Looks`.
    """

    @functools.wraps(test)
    def look(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        folder = kwargs.get("tmp_path")
        shared = {name: value for name, value in kwargs.items() if isinstance(value, Looks)}
        for number in range(TRIES):
            if isinstance(folder, Path):
                kwargs["tmp_path"] = folder / f"try {number}"
                (folder / f"try {number}").mkdir()
            try:
                kwargs.update({name: looks[number] for name, looks in shared.items()})
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
def no_others_first() -> Iterator[None]:
    """Meanwhile no other test has programs that come before all else and want a whole CPU."""
    with (Path(tempfile.gettempdir()) / "llmtop-tests-cpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def a_cpu_for_the_first() -> Iterator[int]:
    """The last CPU, for such a program."""
    with no_others_first():
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
