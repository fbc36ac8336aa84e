"""When library calls are counted: all the time where that is cheap, in short windows where it is not.

How often a server launches kernels is only known by counting, and counting 100,000 launches a second takes a tenth of
a core, or all of it where each probe is stepped through. So nothing is counted on trust: the first look at a process is
a window of 5 ms, no window is longer than what it may cost, and none opens before all that was spent so far is paid for
out of the budget. A kind of call is counted all the time once windows have shown that it fits, the dearest of them too,
and goes back to windows as soon as it does not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping

from ...helper.budget import FITS, NO_LIMIT_NS, Account, Rests, affordable_s
from ...helper.functions import EACH_OF_ITS_OWN, GRAPH, KINDS, OTHER, QUERY, WAIT

SHORTEST_S, LONGEST_S = 0.005, 0.05
"""The lengths of a window in which all calls of libraries are counted."""
LONGEST_STEP_S = 0.1
"""A window may be as long as this until it has held a whole step of the server, where none did before."""
WINDOW_NS = 1e7
"""What a window may cost, as far as the ones before can tell."""
FIRST_GAP_S, LONGEST_GAP_S, QUIET_GAP_S = 0.25, 1.0, 4.0
"""Between two windows: short at first, so that what fits is soon counted in full; budgets make them longer. The last
one where windows see no call at all, so that processes that do call get more of the budget."""
REMEMBERED = 8
"""So many windows tell whether a kind fits: a server that launches now and then is not judged by a quiet moment."""
REST_S, LONGEST_REST_S = 30.0, 1800.0
"""After a kind of call has cost too much, it is counted in windows alone for so long, and twice as long each time."""
_GRAPHS_FIT = 0.9
"""Of the budget, in place of FITS: they are few, and tell where a step begins and whether a prompt is in it."""


def lost(costs: Mapping[int, Mapping[str, float]], budget_ns: float) -> Mapping[int, Collection[str]]:
    """Which kinds of call of which processes have to go: what does not fit beside what is worth more.

    Of the same kind the last process's: ranks of one server do the same steps, and one that is seen whole tells more
    than all of them in part.

    >>> lost({1: {"wait": 2.0, "launch": 9.0, "graph": 0.5}, 2: {"wait": 2.0}}, 3.0)
    {2: ['wait'], 1: ['launch']}

    Args:
        costs: In ns per second, by process and kind.
        budget_ns: What all of them may cost in a second.
    """
    each = [(kind, ns, place, pid) for place, (pid, kinds) in enumerate(costs.items()) for kind, ns in kinds.items()]
    left_ns, found = budget_ns, dict[int, list[str]]()
    for kind, ns, _, pid in sorted(each, key=lambda one: (*_worth(one[0], one[1]), one[2])):
        if ns <= left_ns:
            left_ns -= ns
        else:
            found.setdefault(pid, []).append(kind)
    return found


def _worth(kind: str, ns: float) -> tuple[int, float]:
    """What is worth most comes first: by kind, and of those that each tell something of its own the cheapest."""
    if kind in EACH_OF_ITS_OWN:
        return KINDS.index(QUERY), ns
    return KINDS.index(kind), 0.0


class Sampling:
    """Which kinds of library call of one process have probes all the time, and when the others are counted next.

    Args:
        account: Shared by all processes.
        now_s: The time; here and below, in seconds of any clock.
    """

    def __init__(self, account: Account, now_s: float) -> None:
        self._account = account
        self.steady: frozenset[str] = frozenset(KINDS if account.budget_ns >= NO_LIMIT_NS else ())
        self.share = 1.0
        """Of the time, how much the sampled kinds were last counted in."""
        self.windows = 0
        """How many have closed."""
        self.due_s = now_s
        """When the next window may open; of several processes that of the earliest one does."""
        self._gap_s = FIRST_GAP_S
        self._closed_s = now_s
        self._costs: deque[Mapping[str, float]] = deque(maxlen=REMEMBERED)
        """What each kind would cost in ns per second, by the last windows."""
        self.rates: Mapping[str, float] = {}
        """The same by the last look at them."""
        self._rests = Rests(REST_S, LONGEST_REST_S)

    def is_due(self, now_s: float) -> bool:
        """Whether a window may open."""
        return len(self.steady) < len(KINDS) and now_s >= self.due_s and self._account.is_paid(now_s)

    @property
    def window_s(self) -> float:
        """How long the next window may be: by what the dearest one of the last would have cost in a second."""
        dearest = max((sum(costs.values()) for costs in self._costs), default=math.inf)
        return max(SHORTEST_S, affordable_s(dearest, WINDOW_NS, LONGEST_S))

    @property
    def steady_rates(self) -> dict[str, float]:
        """What the kinds with probes all the time cost, by the last look, in ns per second."""
        return {kind: ns for kind, ns in self.rates.items() if kind in self.steady}

    def close(
        self,
        rates: Mapping[str, float],
        calls: Mapping[str, int],
        now_s: float,
        counted_s: float,
        others_ns: float = 0.0,
    ) -> bool:
        """A window has closed; whether other kinds are counted all the time from now on.

        Args:
            rates: What each kind would cost, in ns per second.
            calls: How many of each kind were seen.
            now_s: The time.
            counted_s: How long it was open.
            others_ns: What is spent on other processes in a second.
        """
        self.windows += 1
        self._costs.append(rates)
        self.rates = rates
        # The first one may have begun with the process: it stands for the time until the second.
        least_s = counted_s + self._gap_s if self.windows == 1 else counted_s
        self.share = counted_s / max(least_s, now_s - self._closed_s)
        self._closed_s = now_s
        dearest = {kind: max(costs.get(kind, 0.0) for costs in self._costs) for kind in KINDS}
        self.due_s = now_s + self._gap_s
        self._gap_s = min(2 * self._gap_s, LONGEST_GAP_S if any(calls.values()) else QUIET_GAP_S)
        steady = set(self.steady)
        self._rests.over(now_s)
        for kind in sorted(set(KINDS) - steady, key=lambda kind: (*_worth(kind, dearest[kind]), kind)):
            spent = others_ns + sum(dearest[one] for one in {*steady, kind})
            # Of what was not called nothing is known; but copies and the like are rare where no window has seen any,
            # and graphs are launched to launch seldom, as garbage is collected: who does much of it is soon judged.
            is_rare = kind == OTHER and self.windows >= REMEMBERED
            is_told = kind == WAIT or kind in EACH_OF_ITS_OWN or calls.get(kind, 0) > 0 or is_rare
            fits = _GRAPHS_FIT if kind == GRAPH else FITS
            if spent <= fits * self._account.budget_ns and is_told and kind not in self._rests:
                steady.add(kind)
        changed, self.steady = steady != self.steady, frozenset(steady)
        return changed

    def give_up(self, kinds: Collection[str], now_s: float) -> None:
        """Some kinds with probes all the time have come to cost too much: they are counted in windows again."""
        self.steady -= set(kinds)
        for kind in kinds:
            self._rests.begin(kind, now_s)
            self._closed_s, self.due_s = now_s, now_s
