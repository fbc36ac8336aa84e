"""What a few short windows say of calls that are not counted all the time.

Windows tell how many calls a process makes per second of work, and its work is known all the time: its CPU time, less
what it spins in waits for the GPU. So a rate follows the server at once, and it does not matter how much of the CPU the
server happened to get while a window was open. Probes slow a program down while they count: what they cost is taken
off the work in a window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence

WINDOWS = 12
"""So many windows make a ratio."""
STOPPED_S = 0.1
"""After windows of so much work without a call there are none, whatever windows before them counted. It is longer than
a step of a decoding server, which may launch at its beginning alone."""
_LEAST_WORK = 0.05
"""Of the CPU time in a window: the rest is not put down to probes and waits, whatever they are said to cost."""


def work_ns(cpu_ns: float, spun_ns: float, spent_ns: float = 0.0) -> float:
    """What of some CPU time was work: without waits that spin, and without probes.

    >>> work_ns(10.0, 2.0, 3.0), work_ns(10.0, 8.0, 8.0)
    (5.0, 0.5)
    """
    return max(_LEAST_WORK * cpu_ns, cpu_ns - spun_ns - spent_ns)


class Estimate:
    """Calls per second of work, by what was counted (a function, a thread), from the last windows."""

    def __init__(self) -> None:
        self._windows: deque[tuple[float, Mapping[Hashable, Sequence[float]]]] = deque(maxlen=WINDOWS)
        self._quiet_s = 0.0
        """Work in the last windows, which counted no call."""

    def add(self, work_s: float, counts: Mapping[Hashable, Sequence[float]]) -> None:
        """Take a window into account: sums of each kind in it. What it counted nothing of may be left out."""
        if work_s <= 0:  # the process slept: that tells nothing
            return
        self._windows.append((work_s, counts))
        self._quiet_s = 0.0 if counts else self._quiet_s + work_s
        if self._quiet_s >= STOPPED_S:
            self._windows.clear()

    def forget(self) -> None:
        """What comes next is to be told by new windows alone."""
        self._windows.clear()

    def per_work_s(self) -> dict[Hashable, list[float]]:
        """Sums per second of work."""
        work_s = sum(one for one, _ in self._windows)
        sums: dict[Hashable, list[float]] = {}
        for _, counts in self._windows:
            for key, several in counts.items():
                known = sums.get(key) or [0.0] * len(several)
                sums[key] = [a + b / work_s for a, b in zip(known, several)]
        return sums
