"""Between two launches the thread that feeds the GPU is not on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.rules import idle
from llmtop.analysis.timeline.causes import Cause
from llmtop.vocabulary import OffCpu

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "host-descheduled"
summary = "The GPU idles while the launching thread is off its CPU."
source = idle.SOURCE

_RUNNABLE = (
    "the launching thread waits for a CPU",
    "give it a core of its own (taskset, cpuset), or fewer threads beside it (OMP_NUM_THREADS); in a container raise "
    "its CPU limit",
)
_BLOCKED = (
    "the launching thread is blocked in the kernel, in no call that was traced",
    "a page fault, or a system call that goes around the C library; llmtop --attach tells which while it runs",
)
_EITHER = (
    "the launching thread is off its CPU, in no call that was traced",
    "either others take its CPU (give it a core: taskset, a higher CPU limit), or it is blocked in a page fault or a "
    "system call that goes around the C library; llmtop --attach tells which while it runs",
)

_OFF_CPU = {OffCpu.RUNNABLE.value: _RUNNABLE, OffCpu.BLOCKED.value: _BLOCKED, OffCpu.UNINTERRUPTIBLE.value: _BLOCKED}


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, with what took it off, as far as the capture tells."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.DESCHEDULED)
    if lost is not None:
        state = lost.together[0].name
        message, action = _OFF_CPU.get(state, _EITHER)
        yield idle.finding(trace, lost, rule=id, message=message, action=action)
