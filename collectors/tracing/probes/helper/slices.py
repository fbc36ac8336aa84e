"""When threads are followed on and off the CPU, where that costs too much to be done all the time.

In slices of the time, each paid for out of the budget before the next one begins: by what the kernel says that the
programs ran for, and by what it takes this helper to ask /proc who sleeps at the beginning. So however often a server
switches, what its threads sleep in is known for a part of the time.
"""

from __future__ import annotations

import random
from collections import deque

from ...helper.budget import Account, affordable_s

SHORTEST_S, LONGEST_S = 0.005, 0.5
"""The lengths of a slice of time in which everything is probed."""
COST_NS = 8e6
"""What a slice may cost the server, as far as the ones before can tell."""
FIRST_S = 0.02
"""As long as nothing is known of what they cost."""
GAP_S = 0.5
"""Between two slices, on the mean: by chance half as much more or less, so as to go with no timer of the server's."""
HELPER_NS = 3e6
"""What slices may cost this helper a second: of 270 threads they come every second, of two thousand every ten."""
_TOLD_OF_S = 10.0
"""How far back it is told which share of the time was looked at."""


class Slices:
    """Which part of the time is looked at.

    Args:
        budget_ns: What the programs may cost in a second.
        now_s: The time; here and below, in seconds of any clock.
    """

    def __init__(self, budget_ns: float, now_s: float) -> None:
        self._server, self._helper = Account(budget_ns), Account(HELPER_NS)
        self._due_s = now_s
        self._cost_per_s = COST_NS / FIRST_S
        self._looked: deque[tuple[float, float]] = deque()
        """End and length of the last ones."""
        self.since_s = now_s

    @property
    def length_s(self) -> float:
        """How long the next one is to be."""
        return max(SHORTEST_S, affordable_s(self._cost_per_s, COST_NS, LONGEST_S))

    def is_due(self, now_s: float) -> bool:
        """Whether one may begin."""
        return now_s >= self._due_s and self._server.is_paid(now_s) and self._helper.is_paid(now_s)

    def close(self, now_s: float, length_s: float, ns: float, helper_ns: float) -> None:
        """Note one that was so long, and what it has cost the server and this helper."""
        self._cost_per_s = max(1.0, ns / length_s)
        self._server.spend(ns, now_s)
        self._helper.spend(helper_ns, now_s)
        self._due_s = now_s + GAP_S * random.uniform(0.5, 1.5)
        self._looked.append((now_s, length_s))

    def share(self, now_s: float) -> float:
        """The part of the last seconds that was looked at."""
        while self._looked and self._looked[0][0] <= now_s - _TOLD_OF_S:
            self._looked.popleft()
        passed_s = min(_TOLD_OF_S, now_s - self.since_s)
        return sum(length_s for _, length_s in self._looked) / passed_s if passed_s > 0 else 0.0
