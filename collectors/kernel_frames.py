"""Frames of the kernel in stacks that a tracer has taken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEDULER = re.compile(r"__schedule(?:\.\w+)*_\[k\]\Z")
"""Where a thread leaves its CPU, as the compiler may have split it: what it calls then is the tracer that looks."""


def without_tracer(frames: Sequence[str]) -> Sequence[str]:
    """A sleeping thread's frames, root first, up to the scheduler's entry.

    Below that stand the tracepoint and the program that took the stack, which are no part of what the thread does.

    >>> without_tracer(("poll", "schedule_[k]", "__schedule_[k]", "__traceiter_sched_switch_[k]", "bpf_prog_1f_[k]"))
    ('poll', 'schedule_[k]', '__schedule_[k]')
    >>> without_tracer(("__schedule", "work")), without_tracer(())
    (('__schedule', 'work'), ())
    """
    ends = next((i for i, frame in enumerate(frames) if _SCHEDULER.match(frame)), len(frames))
    return frames[: ends + 1]
