"""Threads that sleep, as /proc has them at one moment: what they sleep in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeAlias

from ...helper import system
from ...helper.sleeps import STATES
from ...wire import NO_CALL

_LONGEST = 256
_MOST_OPEN = 512
"""Files that are kept open, because a look at an open one costs a fifth; of more threads they are opened each time."""

Sleeper: TypeAlias = "tuple[int, int, int, int]"
"""Thread, state, system call, and that call's first argument."""


class Sleepers:
    """Looks at the threads of processes, again and again."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, int]] = {}
        """Descriptors by process and thread."""

    def of(self, tgid: int) -> Iterator[Sleeper]:
        """The threads of a process that sleep now; none when it is gone."""
        alive, known = system.threads(tgid), self._open.setdefault(tgid, {})
        for tid in known.keys() - set(alive):
            os.close(known.pop(tid))
        for tid in alive:
            told = self._told(tgid, tid, known).split(maxsplit=2)
            if len(told) < 2:  # gone, running, or not ours to see
                continue
            if told[0] != b"-1":
                yield tid, STATES["S"], int(told[0]), int(told[1], 16) & 0xFFFFFFFF
            elif state := STATES.get(system.thread_state(tgid, tid)):  # in no call: it may be stopped, or read a page
                yield tid, state, NO_CALL, 0

    def forget(self, tgid: int) -> None:
        """A process has ended."""
        for descriptor in self._open.pop(tgid, {}).values():
            os.close(descriptor)

    def _told(self, tgid: int, tid: int, known: dict[int, int]) -> bytes:
        """/proc/PID/task/TID/syscall; empty where it cannot be had."""
        try:
            if tid in known:
                return os.pread(known[tid], _LONGEST, 0)
            if sum(map(len, self._open.values())) >= _MOST_OPEN:
                return system.read_bytes(f"/proc/{tgid}/task/{tid}/syscall")
            known[tid] = os.open(f"/proc/{tgid}/task/{tid}/syscall", os.O_RDONLY)
            return os.pread(known[tid], _LONGEST, 0)
        except OSError:
            return b""
