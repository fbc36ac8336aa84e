"""Frames come as often as the processor time that the live screen may take allows, whatever machine and server."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

OWN_BUDGET = 0.038
"""Of one core, for the program without its helpers: it runs beside a server that may need every core. A twentieth below
the 4 % that are promised (docs/benchmarks.md), as windows of half a minute differ by that.
"""
MOST_APART_S = 1.0
"""What has failed is on the screen within two seconds: a poll later at most, and so long after it."""
_LOOKED_BACK = 20
"""Frames, of which the mean counts: some cost thrice the others, and keys that were pressed meanwhile cost time too."""
_MOST_STRETCH = 3.0
"""Means over ten seconds that are five seconds old are still means of the same time, half of it."""
_LEAST_LOOKED = 5
"""The first frames load what the others use."""


class CpuClocks(NamedTuple):
    """Seconds on the clock, and of processor time: of the whole program, and of the thread that draws."""

    at: float
    program: float
    drawing: float


class _FrameCost(NamedTuple):
    """From one frame to the next: seconds that drawing took, and the other threads' share of a core."""

    drawing: float
    others: float


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

    def drawn(self) -> None:
        """Note that a frame was drawn."""
        now, last = self._spent(), self._last
        self._last = now
        if last is not None and now.at > last.at:
            drawing = now.drawing - last.drawing
            self._frames.append(_FrameCost(drawing, (now.program - last.program - drawing) / (now.at - last.at)))

    def apart_s(self, interval_s: float) -> float:
        """Seconds from one frame to the next: at least the interval, and beyond it at most `MOST_APART_S`."""
        return max(interval_s, min(MOST_APART_S, self._needed_s()))

    def stretch(self, interval_s: float) -> float:
        """How many intervals frames had to be apart, were there no limit to it: in halves, at most `_MOST_STRETCH`."""
        if interval_s >= MOST_APART_S:
            return 1.0
        return max(1.0, round(2 * min(_MOST_STRETCH, self._needed_s() / interval_s)) / 2)

    def _needed_s(self) -> float:
        """How far apart frames have to be for the budget."""
        if len(self._frames) < _LEAST_LOOKED:
            return 0.0
        left = OWN_BUDGET - statistics.fmean(frame.others for frame in self._frames)
        return statistics.fmean(frame.drawing for frame in self._frames) / left if left > 0 else math.inf
