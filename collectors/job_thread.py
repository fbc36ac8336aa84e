"""A thread that does what may hang, one job after the other, while others wait no longer than they want to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Job(Generic[_T]):
    """Work that another thread does, because it may hang with the server."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._outcome: list[_T] = []
        self._error: BaseException | None = None
        self._done = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done by then."""
        return self._done.wait(timeout_s)

    @property
    def outcome(self) -> _T:
        """What came of it, once it is done; what it raised is raised here."""
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def run(self) -> None:
        """Do it."""
        try:
            self._outcome.append(self._work())
        except BaseException as error:  # the border of the thread: `outcome` raises it
            self._error = error
        self._done.set()


class JobThread:
    """A thread that does one job after the other: making one for each page costs as much as a tenth of the page.

    It ends when it is told to, and when nobody holds this any more.
    """

    def __init__(self, name: str = "llmtop scrape") -> None:
        self._name = name
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], _T]) -> Job[_T]:
        """Have something done as soon as what was asked for before is."""
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None)
        job = Job(work)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Have the thread end after what it does now."""
        self._jobs.put(None)


def _work(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # and with it the page, before the next is waited for
