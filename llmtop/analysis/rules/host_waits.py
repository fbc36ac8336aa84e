"""Between two launches the thread that feeds the GPU waits in the operating system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause, OsWait, os_wait
from llmtop.analysis.timeline.file_waits import NOT_TRACED_AFTER

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "host-waits"
summary = "The GPU idles while the launching thread waits in the operating system."
source = idle.SOURCE

_HANDED = "or hands its work over late; fewer hand-overs from thread to thread for each step"
_SAID: Mapping[OsWait, tuple[str, str | Words]] = {
    OsWait.SLEEP: (
        "the launching thread sleeps",
        "take the sleep out of the loop that feeds the GPU: wait for the event or the queue it polls for instead",
    ),
    OsWait.THREAD: (
        "the launching thread waits for another thread or process",
        Words(
            pytorch=f"see what that one does meanwhile: it holds the GIL or a lock, {_HANDED}",
            other=f"see what that one does meanwhile: it holds a lock, {_HANDED}",
        ),
    ),
    OsWait.FILES: (
        "the launching thread reads or writes files, pipes or sockets",
        "read ahead and write behind on another thread, and log less in the loop that feeds the GPU",
    ),
    OsWait.MEMORY: (
        "the launching thread maps and unmaps memory",
        "reuse buffers: large ones that are freed go back to the system (see MALLOC_MMAP_THRESHOLD_)",
    ),
    OsWait.OTHER: (
        "the launching thread is in calls of the operating system",
        "see in the timeline what each call is for, and take it out of the loop that feeds the GPU",
    ),
}


def check(trace: Trace) -> Iterator[Finding]:
    """A finding for each kind of wait."""
    for kind, (message, action) in _SAID.items():
        lost = idle.stake(trace, lambda part, kind=kind: part.cause is Cause.OS and os_wait(part.name) is kind)  # type: ignore[misc]
        if lost is not None:
            said = action if isinstance(action, str) else action.of(trace)
            calls = dict.fromkeys(part.name.removeprefix(NOT_TRACED_AFTER) for part in lost.together)
            told = f"{message} ({', '.join(islice(calls, 2))})"
            yield idle.finding(trace, lost, rule=id, message=told, action=said, general=_inferred(lost))


def _inferred(lost: idle.Stake) -> Iterator[str]:
    if any(part.name.startswith(NOT_TRACED_AFTER) for part in lost.together):
        yield "off its CPU between two calls on files, with no other call there: taken as a wait for them"
