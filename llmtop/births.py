"""Which processes are new: of those that have begun since the last look, not of all that there are.

To list /proc takes 1 ms at 175 processes after half a second in which nobody did: the kernel makes an entry for each.
Numbers are given out in order, so a few new ones can be asked for one by one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from llmtop import procfs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

MOST_ASKED = 100
"""New numbers that are asked for one by one; threads have such numbers too."""
LIST_EVERY = 20
"""Of so many looks one lists: a checkpoint that is restored takes numbers out of order."""


class Births:
    """Finds processes that have begun since it last looked.

    Args:
        proc: The folder of processes; where it has those of another namespace than this program's, all are listed.
    """

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._listed: set[int] = set()
        self._newest: int | None = None
        self._looks = 0
        self.begun: range | None = None
        """Numbers that were given out between the last two looks, to processes and threads; None where they are not
        known, or many."""

    def look(self, *, at_all: bool) -> Collection[int]:
        """Numbers of processes that were not there before, or of all; some may have ended, or be numbers of threads."""
        self.begun = self._numbers_since()
        self._looks = 0 if at_all else (self._looks + 1) % LIST_EVERY
        if self._looks and self.begun is not None:
            return self.begun
        known, self._listed = self._listed, set(procfs.pids(self._proc))
        return self._listed if at_all else self._listed - known

    def leaders(self, pids: Iterable[int]) -> list[int]:
        """Those of some numbers that are processes, and no threads of one."""
        return [pid for pid in pids if procfs.thread_group(pid, self._proc) == pid]

    def _numbers_since(self) -> range | None:
        before, self._newest = self._newest, self._last_number()
        if before is None or self._newest is None or not 0 <= self._newest - before <= MOST_ASKED:
            return None
        return range(before + 1, self._newest + 1)

    def _last_number(self) -> int | None:
        """The one that was given out last, to a process or a thread (proc_loadavg(5)); None where it tells nothing."""
        if procfs.read_link(f"{self._proc}/self") != str(os.getpid()):
            return None  # processes of another namespace than ours, whose numbers loadavg tells
        words = (procfs.read_text(f"{self._proc}/loadavg") or "").split()
        return int(words[-1]) if words and words[-1].isdigit() else None


class Descendants:
    """The processes below one, parents first: those of before that are still there, and what has begun among them.

    To ask each thread of a process for its children (`procfs.below`) takes 60 ms with 5,000 threads.

    Args:
        pid: The one.
        proc: As of `Births`.
    """

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._pid, self._proc = pid, proc
        self._births = Births(proc)
        self._known: list[int] | None = None

    def now(self) -> list[int]:
        """Look again."""
        known = frozenset(self._known or ())
        asked = known.union(self._births.look(at_all=self._known is None))
        stats = {pid: stat for pid in asked if (stat := procfs.stat(pid, self._proc)) is not None}
        below = procfs.ProcessTree({pid: stat.parent for pid, stat in stats.items()}).descendants(self._pid)
        leaders = known.union(self._births.leaders(pid for pid in below if pid not in known))
        self._known = [pid for pid in below if pid in leaders]
        return self._known
