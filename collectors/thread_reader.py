"""Reads the threads of the server's processes: of very many the busiest each time, and the rest by turns."""

from __future__ import annotations

import heapq
import math
import os
import resource
from typing import TYPE_CHECKING

from llmtop import ids, procfs, whats
from llmtop.collectors.proc_threads import Thread
from llmtop.model import Missing, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from llmtop.collectors.base import Clock
    from llmtop.collectors.proc_poll import KnownProcess, ProcPoll

MANY_THREADS = 500
"""Reading these at each poll costs 7 ms. Beyond this many, the busiest are read, and the rest by turns."""
CLOSE_LOOKS = 200
"""Threads that are read at each poll, those that did most; the others take turns."""
TURN_THREADS = 300
"""How many of the rest are read at one poll."""
MOST_FILES = 512
"""Files of threads that are kept open, and a quarter of what the process may open: usually 1024."""


class ThreadReader:
    """Keeps files of threads open, and knows whose turn it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files = procfs.KeptFiles(min(MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._turn = 0

    def close(self) -> None:
        """Close what is kept open."""
        self._files.close()

    def read(self, processes: Collection[KnownProcess], news: ProcPoll, begun: range | None = None) -> None:
        """Read all threads; of very many those that were busy when last read, and a part of the others by turns.

        Their clocks go on by themselves: what is read later is as exact, over a longer time.

        Args:
            processes: Whose threads.
            news: Takes what is found.
            begun: As `Births.begun`.
        """
        least, turns, now = 0, 1, self._clock()
        threads = [thread for process in processes for thread in process.threads.values()]
        if len(threads) > MANY_THREADS:
            least = max(1, heapq.nlargest(CLOSE_LOOKS, (thread.activity_ns for thread in threads))[-1])
            turns = max(1, math.ceil((len(threads) - CLOSE_LOOKS) / TURN_THREADS))
            reason = f"of {len(threads)} threads the busiest are read at each poll, the others once in {turns} polls"
            news.missing.append(Missing(whats.IDLE_THREADS, Unknown(reason)))
        self._turn = (self._turn + 1) % turns

        def is_due(one: Thread) -> bool:
            return not one.rests(now) and (one.activity_ns >= least or one.tid % turns == self._turn)

        for process in processes:
            self._read_threads_of(process, news, is_due, begun)

    def _read_threads_of(
        self, process: KnownProcess, news: ProcPoll, is_due: Callable[[Thread], bool], begun: range | None
    ) -> None:
        """Read the threads that are due, and all that are new."""
        task = procfs.open_folder(f"/proc/{process.pid}/task")
        if task is None:
            return  # it has just ended: the next poll says so
        try:
            tids = tuple(process.threads) if _are_known(process, task, begun) else procfs.threads(process.pid)
            for tid in tids:
                thread = process.threads.get(tid)
                if thread is None:
                    thread = Thread(ids.thread(process.pid, tid), process.pid, tid, files=self._files)
                elif not is_due(thread):
                    continue
                if self._read_thread(thread, task, process, news):
                    process.threads[tid] = thread
        finally:
            os.close(task)
        for tid in process.threads.keys() - set(tids):
            ended = process.threads.pop(tid)
            ended.close()
            news.gone.append(ended.id)

    def _read_thread(self, thread: Thread, task: int, process: KnownProcess, news: ProcPoll) -> bool:
        """One thread; False when it has ended meanwhile or the kernel has no clocks."""
        if not thread.read_clocks(task):
            return False
        now = self._clock()
        thread.look(task, process.access)
        thread.count()
        news.readings += thread.switched(task, now)
        if (track := thread.news(process.role)) is not None:
            news.tracks[track.id] = track
        news.readings += thread.readings(now)
        return True


def _are_known(process: KnownProcess, task: int, begun: range | None) -> bool:
    """Whether its threads are those that are known: as many, and none of those that have begun anywhere is its own.

    A list of them would cost more than to read those that run.
    """
    if begun is None or len(process.threads) != process.thread_count:
        return False
    return not any(procfs.is_in(str(tid), task) for tid in begun)
