"""Stacks as they stood at an earlier moment."""

from __future__ import annotations

from llmtop import ids
from llmtop.analysis.series.readings import as_of
from llmtop.model import NS_PER_S, Origin, Stack, StackWindow, Trace, What


def stack(name: str) -> tuple[Stack, ...]:
    return (Stack((name,), 1.0, "ns", "futex", ids.thread(7, 7)),)


PAST = tuple(StackWindow(t * NS_PER_S, stack(f"at {t}")) for t in (10, 20, 30))
TRACE = Trace(Origin("live"), end_ns=40 * NS_PER_S, stacks=stack("now"), stacks_end_ns=38 * NS_PER_S, past_stacks=PAST)


def leaf(trace: Trace) -> str:
    return trace.stacks[0].frames[0]


def test_the_last_ones_before_the_moment_are_taken() -> None:
    then = as_of(TRACE, 29 * NS_PER_S)
    assert (leaf(then), then.stacks_end_ns, len(then.past_stacks)) == ("at 20", 20 * NS_PER_S, 2)
    assert leaf(as_of(TRACE, 30 * NS_PER_S)) == "at 30"
    assert leaf(as_of(TRACE, 39 * NS_PER_S)) == "now"
    assert as_of(TRACE, 40 * NS_PER_S) is TRACE


def test_of_a_moment_without_stacks_it_says_so() -> None:
    then = as_of(TRACE, 5 * NS_PER_S)
    assert then.stacks == ()
    why = then.why_missing(What("stacks"))
    assert why is not None
    assert why.reason == "no stacks are kept from that moment"


def test_stacks_without_a_time_are_of_every_moment() -> None:
    trace = Trace(Origin("perf"), end_ns=40, stacks=stack("all"))
    assert leaf(as_of(trace, 7)) == "all"
