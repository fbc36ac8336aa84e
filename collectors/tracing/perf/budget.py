"""How long perf may look at a time, so that what it costs the server stays under the budget."""

from __future__ import annotations

from llmtop.collectors.tracing.helper.budget import affordable_s
from llmtop.frozen import frozen

NS_PER_EVENT = {"switch": 5000.0, "stack": 10_000.0, "armed": 4000.0, "call": 900.0}
"""What one event costs the program that is looked at: measured with benchmarks/perf_cost.py on a 2.5 GHz Xeon.

A switch stands for leaving the CPU, being woken and coming back, with the kernel's part of the stack; "stack" is what
the record of whole stacks adds to it. "armed" is what a switch costs while a record follows single threads (of on-CPU
stacks, of calls): the kernel sets their events anew each time. A call is its entry and its return.
"""
LARGEST_SHARE = 0.1
"""Of the time: perf looks 0.8 s of every 8 s at most, so that its own processes are no load either."""
MOST_EVENTS = 10_000
"""In one look: their text is read in about a third of a second."""
LEAST_S = 0.05
"""A shorter look says little, and starting perf takes longer."""
FIRST_S = 0.1
"""How long to look while nothing is known of the load."""


@frozen
class ThreadLoad:
    """Events per second of the server's threads; None while it is not known."""

    switches: float | None = None
    calls: float | None = None


@frozen
class RoundPlan:
    """For how many seconds of the next round each part looks; 0 is not at all.

    Attributes:
        stacks: Whether stacks of sleeps are taken beside the scheduler's events.
        running_s: For how long stacks of what runs are taken where the scheduler is not looked at.
    """

    scheduler_s: float
    stacks: bool
    calls_s: float
    running_s: float


def plan(load: ThreadLoad, *, budget: float, interval_s: float, stacks: bool) -> RoundPlan:
    """The next round. Each part gets half of the budget; of the scheduler's part, stacks are given up first.

    Args:
        load: What the rounds before have seen.
        budget: Share of one core that looking may cost the server, over the whole interval.
        interval_s: From one round to the next.
        stacks: Whether stacks of sleeps are asked for.

    >>> plan(ThreadLoad(switches=2000.0, calls=5000.0), budget=0.01, interval_s=8.0, stacks=True)
    RoundPlan(scheduler_s=0.8, stacks=True, calls_s=0.8, running_s=0.8)
    >>> plan(ThreadLoad(switches=2000.0, calls=1e6), budget=0.01, interval_s=8.0, stacks=True).calls_s
    0.0
    """
    half_ns = budget / 2 * 1e9 * interval_s
    switches, calls = load.switches, load.calls
    ns = NS_PER_EVENT
    stacked = _seconds(switches, _cost(switches, ns["switch"] + ns["stack"]), half_ns, interval_s)
    bare = _seconds(switches, _cost(switches, ns["switch"] + ns["armed"] * stacks), half_ns, interval_s)
    takes_stacks = stacks and stacked > 0
    return RoundPlan(
        scheduler_s=stacked if takes_stacks else bare,
        stacks=takes_stacks,
        calls_s=_seconds(calls, _cost(calls, ns["call"]) + _cost(switches, ns["armed"]), half_ns, interval_s),
        running_s=_seconds(switches, _cost(switches, ns["armed"]), half_ns, interval_s),
    )


def _cost(per_second: float | None, ns_per_event: float) -> float:
    return (per_second or 0.0) * ns_per_event


def _seconds(per_second: float | None, ns_per_second: float, budget_ns: float, interval_s: float) -> float:
    """How long to look at so many events that cost so much."""
    longest = LARGEST_SHARE * interval_s
    if per_second is None:
        return min(FIRST_S, longest)
    longest = affordable_s(per_second, MOST_EVENTS, affordable_s(ns_per_second, budget_ns, longest))
    return longest if longest >= LEAST_S else 0.0
