"""When a process ended, to the millisecond: the kernel wakes who waits on its pidfd.

Polls see an end up to a period late, and two ends within one period without their order. Which came first tells a
server that ends its engine from one that loses it. The thread that waits here costs nothing until something ends.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.collectors.base import Clock


class EndTimes:
    """Notes when the processes behind pidfds end. Used by one thread, beside its own."""

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self._poll = select.epoll()
        self._leave = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._leave, select.EPOLLIN)
        self._ends: dict[int, int] = {}
        """By pidfd, in ns of the clock."""
        self._thread = threading.Thread(target=self._wait, name="end times", daemon=True)
        self._thread.start()

    def watch(self, pidfd: int) -> None:
        """Note when its process ends; at once, of one that has ended already."""
        self._poll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)

    def forget(self, pidfd: int) -> None:
        """Before it is closed: its number may come again."""
        self._poll.unregister(pidfd)
        self._ends.pop(pidfd, None)

    def of(self, pidfd: int) -> int | None:
        """When its process ended, in ns of the clock; None while it runs."""
        return self._ends.get(pidfd)

    def close(self) -> None:
        """Let the thread end."""
        os.eventfd_write(self._leave, 1)
        self._thread.join()
        self._poll.close()
        os.close(self._leave)

    def _wait(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._leave:
                    return
                self._ends[fd] = self._clock()
