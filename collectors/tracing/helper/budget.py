"""The one budget: what was spent, what is given up where it costs too much and for how long, how long a look may be.

Whatever looks is held to it: windows of library calls and slices of the scheduler (probes), looks (perf), and the
ladder of efforts (governor.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

FITS = 0.7
"""Of the budget: more is looked at where it will cost less than this, as far as that can be told beforehand."""
NO_LIMIT_NS = 1e9
"""A budget of a core per second is none: nothing needs to be tried first."""
OWN_NS = 9e6
"""A second, of a helper's own time: a tenth below the hundredth of a core that is promised (docs/benchmarks.md)."""
_STARTING_S = 5.0
"""What libraries and symbols cost once is not charged."""


class Account:
    """What has been spent, and when it will be paid for.

    Args:
        budget_ns: What may be spent in a second.
    """

    def __init__(self, budget_ns: float) -> None:
        self.budget_ns = budget_ns
        self._paid_s = float("-inf")

    def spend(self, ns: float, now_s: float) -> None:
        """Note a cost."""
        self._paid_s = max(self._paid_s, now_s) + ns / self.budget_ns

    def is_paid(self, now_s: float) -> bool:
        """Whether the budget has paid for all that was spent."""
        return now_s >= self._paid_s


class ReportTimes:
    """When a helper reports: each interval, or later where its own time would else be more than its part of a core.

    Args:
        first_s: From now to the first report.
        interval_s: From each to the next; twice as long at most.
        spent_ns: Its processor time so far.
        clock: Seconds.
    """

    def __init__(
        self,
        first_s: float,
        interval_s: float,
        spent_ns: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._interval_s, self._spent_ns, self._clock = interval_s, spent_ns, clock
        self._account = Account(OWN_NS)
        self._due_s = clock() + first_s
        self._charged_from_s = self._due_s + _STARTING_S
        self._last_ns = spent_ns()

    def is_due(self) -> bool:
        """Whether to report now."""
        now = self._clock()
        return now >= self._due_s and (self._account.is_paid(now) or now >= self._due_s + self._interval_s)

    def reported(self) -> None:
        """Note a report, and what was spent since the last one."""
        now, spent = self._clock(), self._spent_ns()
        if now >= self._charged_from_s:
            self._account.spend(spent - self._last_ns, now)
        self._last_ns = spent
        self._due_s += self._interval_s * (1 + (now - self._due_s) // self._interval_s)


def given_up(costs: Mapping[str, float], order: Iterable[str], budget_ns: float) -> Iterator[str]:
    """What has to go, one after the other, until the rest fits.

    Args:
        costs: In ns per second, by what is looked at.
        order: Which of them goes first; what costs nothing here is passed over.
        budget_ns: What all may cost in a second.

    >>> list(given_up({"a": 3.0, "b": 2.0, "c": 1.0}, "cab", 3.0))
    ['c', 'a']
    """
    left = dict(costs)
    for one in order:
        if sum(left.values()) <= budget_ns:
            return
        if left.pop(one, None) is not None:
            yield one


def longer_rest_s(rest_s: float, first_s: float, longest_s: float) -> float:
    """How long the next rest is: twice as long as the last one, because each try costs.

    >>> [longer_rest_s(rest_s, 30.0, 100.0) for rest_s in (0.0, 30.0, 60.0)]
    [30.0, 60.0, 100.0]
    """
    return max(first_s, min(2 * rest_s, longest_s))


class Rests:
    """For how long what has cost too much is not looked at; each time it does, twice as long.

    Args:
        first_s: The first time.
        longest_s: From then on no longer.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._length_s: dict[str, float] = {}
        """The last one of each."""
        self._until_s: dict[str, float] = {}

    def __contains__(self, what: str) -> bool:
        """Whether it rests, and nobody has asked since whether that is over."""
        return what in self._until_s

    def begin(self, what: str, now_s: float) -> float:
        """Let it rest from now on; for how long."""
        rest_s = longer_rest_s(self._length_s.get(what, 0.0), self._first_s, self._longest_s)
        self._length_s[what] = rest_s
        self._until_s[what] = now_s + rest_s
        return rest_s

    def over(self, now_s: float) -> list[str]:
        """What has rested: each is told once."""
        found = [what for what, until_s in self._until_s.items() if until_s <= now_s]
        for what in found:
            del self._until_s[what]
        return found


def affordable_s(per_second: float, most: float, longest_s: float) -> float:
    """How long something may be looked at that costs, or says, so much in a second, and may so much in all.

    >>> affordable_s(1e6, 5e5, 10.0), affordable_s(1.0, 5e5, 10.0), affordable_s(0.0, 5e5, 10.0)
    (0.5, 10.0, 10.0)
    """
    return min(longest_s, most / per_second) if per_second > 0 else longest_s
