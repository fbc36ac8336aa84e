"""Reads the threads of the server's processes: of very many the busiest each time, and the rest by turns."""

from __future__ import annotations

import heapq
import os
import resource
from typing import TYPE_CHECKING

from llmtop import ids, procfs, whats
from llmtop.collectors.proc_threads import Thread
from llmtop.model import NS_PER_S, Missing, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from llmtop.collectors.base import Clock
    from llmtop.collectors.proc_poll import KnownProcess, ProcPoll

MANY_THREADS = 500
"""Reading these at each poll costs 7 ms. Of more, the busiest are read at each poll, and the rest by turns; and those
that have not run have no rows of their own, beyond this many."""
CLOSE_LOOKS = 200
"""Threads that are read at each poll, those that did most; the others take turns."""
TURN_THREADS = 500
"""How many of the rest are read in a second: 12 us each, of which the kernel takes half."""
STILL_NS, REST_NS = 4 * NS_PER_S, 1_900_000_000
"""A thread that has not run for so long is read every two seconds: most of a server sleep
for good. Its clocks go on by themselves, so that nothing is lost but the moment at which it woke."""
FORGET_NS = 600 * NS_PER_S
"""A thread that has not run for as long as the history goes back loses its row where there are very many."""
MOST_FILES = 512
"""Files of threads that are kept open, and a quarter of what the process may open: usually 1024."""
_PLACES = 61
"""A turn has so many, over which threads are spread by their numbers."""


class ThreadReader:
    """Keeps files of threads open, and knows which are due.

    Args:
        clock: Where time is read.
        proc: The folder of processes.
    """

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._files = procfs.KeptFiles(min(MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))

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
        count = sum(process.thread_count for process in processes)
        turn = _Turn(self._clock(), count, max(1, len(processes)))
        if turn.is_crowd:
            active = [one.activity_ns for process in processes for one in process.threads.values() if one.activity_ns]
            if len(active) > CLOSE_LOOKS:
                turn.least_ns = heapq.nlargest(CLOSE_LOOKS, active)[-1]
        for process in processes:
            self._read_threads_of(process, news, turn, begun)
        if turn.is_crowd:
            untold = sum(not one.is_told for process in processes for one in process.threads.values())
            others = f"the others every {turn.length_ns / NS_PER_S:.0f} s"
            unlisted = f"; {untold} that have not run are not listed" if untold else ""
            reason = f"of {count} threads the busiest are read at each poll, {others}{unlisted}"
            news.missing.append(Missing(whats.IDLE_THREADS, Unknown(reason)))

    def _read_threads_of(self, process: KnownProcess, news: ProcPoll, turn: _Turn, begun: range | None) -> None:
        """Read the threads that are due, and all that are new."""
        task = procfs.open_folder(f"{self._proc}/{process.pid}/task")
        if task is None:
            return  # it has just ended: the next poll says so
        threads = process.threads
        try:
            if not _are_known(process, task, begun):
                self._renew(process, procfs.threads(process.pid, self._proc), news)
            told = sum(one.is_told for one in threads.values()) if turn.is_crowd else 0
            due = [one for one in threads.values() if one.due_ns <= turn.now_ns or one.activity_ns >= turn.least_ns]
            for thread in due:
                was_told, is_new = thread.is_told, not thread.sampled_ns
                if not self._read_thread(thread, task, process, news, turn, turn.has_room(told)):
                    if is_new:
                        del threads[thread.tid]
                    continue
                told += thread.is_told - was_told
                thread.due_ns = turn.next_ns(thread)
        finally:
            os.close(task)

    def _renew(self, process: KnownProcess, tids: Collection[int], news: ProcPoll) -> None:
        """Take up the threads that are new, and drop those that have ended."""
        for tid in tids:
            if tid not in process.threads:
                process.threads[tid] = Thread(ids.thread(process.pid, tid), process.pid, tid, files=self._files)
        for tid in process.threads.keys() - set(tids):
            ended = process.threads.pop(tid)
            ended.close()
            news.gone.append(ended.id)

    def _read_thread(
        self, thread: Thread, task: int, process: KnownProcess, news: ProcPoll, turn: _Turn, has_room: bool
    ) -> bool:
        """One thread; False when it has ended meanwhile or the kernel has no clocks."""
        is_new = not thread.sampled_ns
        thread.is_told |= is_new and (has_room or thread.tid == process.pid)
        before = thread.sampled_ns, thread.run_ns, thread.wait_ns
        if not thread.read_clocks(task):
            return False
        now = self._clock()
        if not thread.is_told:
            if is_new or not thread.has_run:
                thread.note(now)
                return True
            thread.is_told = True
            news.readings += thread.begin(*before)
        elif turn.is_crowd and not has_room and now - thread.ran_ns >= FORGET_NS and thread.tid != process.pid:
            thread.forget()
            thread.note(now)
            news.gone.append(thread.id)
            return True
        thread.look(task, process.access)
        thread.count()
        news.readings += thread.switched(task, now)
        if (track := thread.news(process.role)) is not None:
            news.tracks[track.id] = track
        news.readings += thread.readings(now)
        return True


class _Turn:
    """Which threads one poll reads.

    Attributes:
        least_ns: What a thread did since it was read last, to be read at each poll.
        length_ns: From one reading of a thread that does less to the next.
    """

    def __init__(self, now_ns: int, threads: int, processes: int) -> None:
        self.now_ns = now_ns
        self.is_crowd = threads > MANY_THREADS
        self.least_ns = 1
        self.length_ns = max(0, threads - CLOSE_LOOKS) * NS_PER_S // TURN_THREADS if self.is_crowd else 0
        self._most_told = MANY_THREADS // processes

    def has_room(self, told: int) -> bool:
        """Whether a process with so many rows may have one more for a thread that has not run."""
        return not self.is_crowd or told < self._most_told

    def next_ns(self, thread: Thread) -> int:
        """When a thread that was read now is due again: at its own place in a turn, whatever it was read for now."""
        if self.length_ns:
            place_ns = self.length_ns * (thread.tid % _PLACES) // _PLACES
            return self.now_ns + self.length_ns - (self.now_ns - place_ns) % self.length_ns
        return self.now_ns + (REST_NS if self.now_ns - thread.ran_ns >= STILL_NS else 0)


def _are_known(process: KnownProcess, task: int, begun: range | None) -> bool:
    """Whether its threads are those that are known: as many, and none of those that have begun anywhere is its own.

    A list of them would cost more than to read those that run.
    """
    if begun is None or len(process.threads) != process.thread_count:
        return False
    return not any(procfs.is_in(str(tid), task) for tid in begun)
