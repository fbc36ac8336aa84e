"""Frames and looks come as often as the processor time that llmtop may take allows, whatever machine and server."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

OWN_BUDGET = 0.036
"""Of one core, for the program without its helpers: it runs beside a server that may need every core. A tenth below
the 4 % that are promised (docs/benchmarks.md), as windows of half a minute differ by half of that.
"""
MOST_APART_S = 1.0
"""What has failed is on the screen within two seconds: a poll later at most, and so long after it."""
_LOOKED_BACK = 20
"""Frames, of which the mean counts: some cost thrice the others, and keys that were pressed meanwhile cost time too."""
_MOST_STRETCH = 3.0
"""Means over ten seconds that are five seconds old are still means of the same time, half of it."""
_MOST_LOOK_STRETCH = 1.8
"""A number that is two intervals old shows its age: those that are looked for as often as is allowed show none."""
_LEAST_LOOKED = 5
"""The first frames load what the others use."""


class CpuClocks(NamedTuple):
    """Seconds on the clock, and of processor time: of the whole program, and of the thread that draws."""

    at: float
    program: float
    drawing: float


class _FrameCost(NamedTuple):
    """From one frame to the next.

    Attributes:
        drawing: Seconds that drawing took.
        others: The other threads' share of a core.
        unstretched: What that would have been, had they looked each interval.
    """

    drawing: float
    others: float
    unstretched: float


def spent() -> CpuClocks:
    """Until now; in the thread that draws."""
    return CpuClocks(time.monotonic(), time.process_time(), time.thread_time())


class FramePace:
    """How far apart frames are: an interval, or as much more as keeps them and the collectors within the budget.

    Args:
        spent: The clocks.
    """

    def __init__(self, spent: Callable[[], CpuClocks] = spent) -> None:
        self._spent = spent
        self._last: CpuClocks | None = None
        self._frames: deque[_FrameCost] = deque(maxlen=_LOOKED_BACK)

    def drawn(self, look_stretch: float = 1.0) -> None:
        """Note that a frame was drawn, while collectors looked each `look_stretch` intervals."""
        now, last = self._spent(), self._last
        self._last = now
        if last is not None and now.at > last.at:
            drawing = now.drawing - last.drawing
            others = (now.program - last.program - drawing) / (now.at - last.at)
            self._frames.append(_FrameCost(drawing, others, others * look_stretch))

    def apart_s(self, interval_s: float) -> float:
        """Seconds from one frame to the next: at least the interval, and beyond it at most `MOST_APART_S`."""
        return max(interval_s, min(MOST_APART_S, self._needed_s()))

    def stretch(self, interval_s: float) -> float:
        """How many intervals frames had to be apart, were there no limit to it: in halves, at most `_MOST_STRETCH`."""
        if interval_s >= MOST_APART_S:
            return 1.0
        return max(1.0, round(2 * min(_MOST_STRETCH, self._needed_s() / interval_s)) / 2)

    def look_stretch(self, interval_s: float) -> float:
        """How many intervals apart collectors have to look for the slowest frames to fit beside them; in tenths."""
        most = min(_MOST_LOOK_STRETCH, MOST_APART_S / interval_s)
        if most <= 1 or len(self._frames) < _LEAST_LOOKED:
            return 1.0
        left = OWN_BUDGET - statistics.fmean(frame.drawing for frame in self._frames) / MOST_APART_S
        needed = statistics.fmean(frame.unstretched for frame in self._frames) / left if left > 0 else most
        return max(1.0, math.ceil(10 * min(most, needed)) / 10)

    def _needed_s(self) -> float:
        """How far apart frames have to be for the budget."""
        if len(self._frames) < _LEAST_LOOKED:
            return 0.0
        left = OWN_BUDGET - statistics.fmean(frame.others for frame in self._frames)
        return statistics.fmean(frame.drawing for frame in self._frames) / left if left > 0 else math.inf
