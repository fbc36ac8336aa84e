"""What a sleep is about, by the system call and the state that a probe saw it in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from llmtop import procfs
from llmtop.collectors.thread_causes import cause_of_call
from llmtop.collectors.tracing.wire import IN_SYNC, NO_CALL
from llmtop.vocabulary import ThreadCause

FileOf: TypeAlias = Callable[[int, int], "str | None"]
"""What a file descriptor of a process points to: (pid, descriptor)."""
_UNINTERRUPTIBLE, _STOPPED = 2, (4, 8)
"""States of those who sleep, as sched_switch reports them (`STATES` in helper/sleeps.py)."""


def file_of(pid: int, descriptor: int) -> str | None:
    """As `procfs.file_behind` has it."""
    return procfs.file_behind(pid, descriptor)


def cause_of_sleep(pid: int, call: int, state: int, descriptor: int, file_of: FileOf = file_of) -> ThreadCause:
    """The call first, then the state it sleeps in. Where neither was looked at, it is UNSEEN: no cause is made up."""
    if state & ~IN_SYNC in _STOPPED:
        return ThreadCause.STOPPED
    if state & IN_SYNC:
        return ThreadCause.CUDA_SYNC
    if call != NO_CALL:
        found = cause_of_call(call, lambda: file_of(pid, descriptor))
        if found is not None:
            return found
    if state == _UNINTERRUPTIBLE:
        return ThreadCause.UNINTERRUPTIBLE
    return ThreadCause.OTHER if call != NO_CALL else ThreadCause.UNSEEN
