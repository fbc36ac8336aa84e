"""Real interpreters, looked at by probes and by py-spy: the flame names their functions in the right state."""

from __future__ import annotations

import sys
import time

import pytest

from llmtop import whats
from llmtop.analysis.threads.flames import Order, TreeContent
from llmtop.analysis.threads.stall_tree import StallTree, stall_tree
from llmtop.analysis.views import StackNode
from llmtop.collectors.pyspy import PySpyCollector
from llmtop.collectors.pyspy_dump import find_program
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import Origin, What
from llmtop.session import Session
from tests.workloads.programs import HERE, Workload, target_of

pytestmark = pytest.mark.usefixtures("kernel_probes")
DEADLINE_S = 60.0
LOOKS = 8
LEAST_NS = 0.8e9


def time_in(node: StackNode, function: str) -> float:
    """The time below the frames of a Python function."""
    if node.kind == "python" and node.name.startswith(f"{function} "):
        return node.total
    return sum(time_in(child, function) for child in node.children)


def flame(program: str, *states: str) -> StallTree:
    """The flame by state of a program, once there is something in each of these states, and enough looks."""
    if find_program() is None:
        pytest.skip("py-spy is not installed")
    with Workload(sys.executable, HERE / program) as workload:
        target = target_of(workload.pid)
        # Of a busy machine's other programs the probes cost too; they must not rest for it here.
        collectors = EbpfCollector(target, budget=1.0), PySpyCollector(target, budget=0.5)
        session = Session(collectors, Origin("live"), interval_s=0.25)
        session.ask(whats.PYTHON_FRAMES, True)
        session.start()
        try:
            return _settled(session, set(states))
        finally:
            session.stop()


def _settled(session: Session, states: set[str]) -> StallTree:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        trace = session.trace()
        tree = stall_tree(trace, TreeContent(Order.BY_STATE))
        found = {child.name for child in tree.root.children if child.total > LEAST_NS}
        if tree.unit == "ns" and tree.looks >= LOOKS and states <= found:
            return tree
        if (why := trace.why_missing(What("pyspy"))) and "may not read" in why.reason:
            pytest.skip(f"py-spy does not work here: {why}")
        time.sleep(0.25)
    pytest.fail(f"not enough stacks within {DEADLINE_S:g} s: {found}, {tree.looks} looks; missing: {trace.missing}")


def test_each_function_stands_under_what_it_does() -> None:
    states = {child.name: child for child in flame("known_functions.py", "futex", "on-cpu").root.children}
    assert time_in(states["on-cpu"], "compute") > 0.95 * states["on-cpu"].total
    assert time_in(states["futex"], "wait_for_lock") > 0.9 * states["futex"].total
    assert time_in(states["on-cpu"], "wait_for_lock") == 0
