"""The flame of a server's threads: where they wait and run, alone or against another moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llmtop import whats
from llmtop.analysis.series.readings import told_why_unseen
from llmtop.analysis.series.recorded import is_recorded, told_of
from llmtop.analysis.threads.flame_diff import diff_trees, moved_points
from llmtop.analysis.threads.flames import FlameView, TreeContent
from llmtop.analysis.threads.shares import WINDOW_NS
from llmtop.analysis.threads.stall_times import timed_stacks
from llmtop.analysis.threads.stall_tree import StallTree, stall_tree, why_no_times
from llmtop.analysis.views import StackTree
from llmtop.model import NS_PER_S, Trace, Unknown
from llmtop.remedies import each_once
from llmtop.vocabulary import STACKS_WINDOW_NS

_LATE_NS = 4 * NS_PER_S
"""Stacks come every two seconds; those that are older than this are of a window that has to be named."""
_NOT_COMPARABLE = Unknown(
    "the two moments cannot be compared: of one there are times, of the other only looks at interpreters", "b"
)
_PYTHON_IN_ONE = Unknown("only one of the two moments has them")
_NO_LOOK = Unknown("no interpreter has been looked at yet")


def stall_flame(
    newest: Trace, wanted: TreeContent, *, frozen: Trace | None = None, baseline: Trace | None = None
) -> FlameView | Unknown:
    """The flame of a trace, or why there is none.

    Args:
        newest: The trace that the rest of the screen shows.
        wanted: What is to be in it.
        frozen: The moment that is held in its place, if any.
        baseline: The moment that it is compared with, if any: widths are then means of both.
    """
    shown = frozen or newest
    tree = stall_tree(shown, wanted)
    lack = _lack(tree, newest, wanted)
    if tree.why_not is not None:
        return _why_empty(newest, tree.why_not, lack if wanted.python else None)
    if baseline is not None:
        return _compared(baseline, shown, newest, wanted)
    said = (wanted.order.value, *notes(tree, shown, newest))
    return FlameView(tree, said, lack, len(wanted.without))


def stacks_alone(trace: Trace) -> Trace:
    """A trace to keep: without the series, which grow."""
    stacks = timed_stacks(trace)
    return replace(trace, stacks=stacks, series={}, spans={}, readings=(), marks=(), past_stacks=())


def _compared(baseline: Trace, shown: Trace, newest: Trace, wanted: TreeContent) -> FlameView | Unknown:
    before, tree = stall_tree(baseline, wanted), stall_tree(shown, wanted)
    if before.unit != tree.unit:
        return _NOT_COMPARABLE
    lack = _lack(tree, newest, wanted)
    if bool(before.looks) != bool(tree.looks):
        # Else every Python frame would seem to be gone, or new.
        native = replace(wanted, python=False)
        before, tree = stall_tree(baseline, native), stall_tree(shown, native)
        lack = ("no Python frames", _PYTHON_IN_ONE)
    said = (wanted.order.value, *_comparison(before, tree), *notes(tree, shown, newest))
    return FlameView(StackTree(diff_trees(before.root, tree.root), "%"), said, lack, len(wanted.without))


def notes(tree: StallTree, shown: Trace, newest: Trace) -> Iterator[str]:
    """What a title says of the moment that is shown, beside the newest, and of how its tree was made."""
    if shown is not newest:
        yield f"frozen {(newest.end_ns - shown.end_ns) / NS_PER_S:.0f} s ago (x)"
    else:
        yield f"last {min(WINDOW_NS, shown.end_ns - shown.start_ns) / NS_PER_S:.0f} s"
    if tree.no_functions is not None:
        yield "states alone"
    elif tree.end_ns and shown.end_ns - tree.end_ns > _LATE_NS:
        yield f"functions of {(shown.end_ns - tree.end_ns) / NS_PER_S:.0f} s earlier"
    if tree.looks:
        yield f"Python estimated from {tree.looks} look{'s' if tree.looks > 1 else ''}"


def _comparison(before: StallTree, now: StallTree) -> Iterator[str]:
    apart_ns = now.end_ns - before.end_ns
    yield f"{moved_points(before.folded, now.folded):.0f} points moved"
    yield f"against {abs(apart_ns) / NS_PER_S:.0f} s {'earlier' if apart_ns >= 0 else 'later'}"
    if abs(apart_ns) < STACKS_WINDOW_NS:
        yield f"windows overlap by {(STACKS_WINDOW_NS - abs(apart_ns)) / NS_PER_S:.0f} s"


def _lack(tree: StallTree, trace: Trace, wanted: TreeContent) -> tuple[str, Unknown] | None:
    """What is not there: times, Python frames although they are wanted, or functions at all."""
    if tree.unit == "samples":
        return "no times, looks alone", why_no_times(trace)
    if wanted.python and not tree.looks:
        return "no Python frames", told_why_unseen(trace, whats.PYTHON_FRAMES) or _NO_LOOK
    return None if tree.no_functions is None or tree.looks else ("no functions", tree.no_functions)


def _why_empty(trace: Trace, why: Unknown, lack: tuple[str, Unknown] | None) -> Unknown:
    """Why there is no stack at all, and that interpreters may be looked at without probes."""
    why = told_of(trace, why)
    if lack is None:
        asked = () if is_recorded(trace) else ("p: Python's functions alone, with py-spy",)
        return Unknown(why.reason, "; or ".join((*filter(None, (why.remedy,)), *asked)))
    remedy = each_once((told_of(trace, lack[1]).remedy, why.remedy), "; ")
    return Unknown(f"{why.reason}; {lack[0]}: {lack[1].reason}", remedy)
