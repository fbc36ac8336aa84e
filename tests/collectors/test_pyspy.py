"""The Python collector: on demand, in turns, within its budget."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors import children, pyspy
from llmtop.collectors.pyspy import OWNED, PySpyCollector
from llmtop.collectors.pyspy_dump import Dump, PythonThread, find_program
from llmtop.model import NS_PER_S, Target, TargetProcess, Trace, Unknown, What
from llmtop.remedies import install
from tests.workloads.programs import HERE, Workload

ME = os.getpid()
MS = 1_000_000
DENIED = Unknown("py-spy may not read it", "sudo llmtop")


def target_of(*pids: int) -> Target:
    return Target(pids[0], pids[0], "process", "python", tuple(TargetProcess(pid, "", "python") for pid in pids))


class Clock:
    def __init__(self) -> None:
        self.now = 100 * NS_PER_S

    def __call__(self) -> int:
        return self.now


class Looks:
    """Stands for py-spy: says what the test wants, and remembers who was looked at."""

    def __init__(self, *threads: PythonThread, cpu_ns: int = 0) -> None:
        self.answer: tuple[PythonThread, ...] | Unknown = threads
        self.cpu_ns = cpu_ns
        self.pids: list[int] = []

    def __call__(self, program: Path, pid: int) -> Dump:
        self.pids.append(pid)
        return Dump(self.answer, self.cpu_ns)


RUNNING = PythonThread(11, True, True, ("main (a.py:1)", "compute (a.py:5)"))
WAITING = PythonThread(12, False, False, ("main (a.py:1)", "wait_for_lock (a.py:9)"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def child() -> Iterator[int]:
    """Another process that is there."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        yield cat.pid
        assert cat.stdin is not None
        cat.stdin.close()


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find_program", lambda: Path("/usr/bin/py-spy"))


def collector(clock: Clock, looks: Looks, *pids: int) -> PySpyCollector:
    made = PySpyCollector(
        target_of(*(pids or (ME,))),
        budget=0.01,
        clock=clock,
        inspect=looks,
        is_python=lambda pid: pid in (pids or (ME,)),
    )
    made.ask(whats.PYTHON_FRAMES, True)
    return made.__enter__()


def after(clock: Clock, made: PySpyCollector, seconds: float) -> Trace:
    clock.now += int(seconds * NS_PER_S)
    return made.poll()


def why(trace: Trace, what: str = "pyspy") -> str:
    found = trace.why_missing(What(what))
    assert found is not None
    return str(found)


def test_nothing_is_looked_at_until_it_is_wanted(clock: Clock) -> None:
    looks = Looks(RUNNING)
    made = PySpyCollector(target_of(ME), clock=clock, inspect=looks, is_python=lambda pid: pid == ME)
    with made:
        on_demand = "Python frames are taken on demand only (p in the stall flame, or llmtop snapshot --python)"
        assert why(made.poll()) == on_demand
        made.ask(What("something else"), True)
        made.poll()
        assert looks.pids == []
        assert made.rests_until_ns > clock() + 3600 * NS_PER_S
        made.ask(whats.PYTHON_FRAMES, True)
        assert made.rests_until_ns <= clock()
        assert made.poll().stacks
        made.ask(whats.PYTHON_FRAMES, False)
        resting = after(clock, made, 1)
        assert resting.stacks == ()
        assert {reading.value for reading in resting.readings} == {None}
        assert after(clock, made, 1).readings == ()
        assert looks.pids == [ME]


def test_stacks_count_how_often_they_were_seen_in_the_window(clock: Clock) -> None:
    looks = Looks(RUNNING, WAITING)
    made = collector(clock, looks)
    for _ in range(5):
        trace = after(clock, made, 1)
    track = ids.thread(ME, 11)
    stacks = {(stack.track, stack.state): stack for stack in trace.stacks}
    assert made.poll().stacks == (), "there is nothing new"
    seen = stacks[track, "python running"]
    assert (seen.weight, seen.unit, seen.frames) == (5, "samples", RUNNING.frames)
    assert stacks[ids.thread(ME, 12), "python waiting"].weight == 5
    looks.answer = (WAITING,)
    trace = after(clock, made, 28)
    assert sum(stack.weight for stack in trace.stacks if stack.state == "python running") == 3
    trace = after(clock, made, 29)
    assert {stack.state for stack in trace.stacks} == {"python waiting"}


def test_owners_of_the_gil_are_counted_by_thread(clock: Clock) -> None:
    made = collector(clock, Looks(RUNNING, WAITING))
    first, second = after(clock, made, 1), after(clock, made, 1)
    samples, owner = v.THREAD_GIL_SAMPLES.name, OWNED.name
    for trace, looks in ((first, 1), (second, 2)):
        values = [
            (reading.track.rpartition("/")[2], reading.metric.name, reading.value)
            for reading in trace.readings
            if reading.value
        ]
        assert values == [("11", samples, looks), ("11", owner, looks), ("12", samples, looks)]
    assert {reading.value for reading in first.readings if reading.metric is OWNED and "/12" in reading.track} == {0}


def test_looks_are_paid_for_before_the_next_and_processes_take_turns(clock: Clock, child: int) -> None:
    looks = Looks(RUNNING, cpu_ns=20 * MS)
    made = collector(clock, looks, ME, child)
    before = children.spent_ns()
    for _ in range(40):
        after(clock, made, 0.25)
    # 20 ms at 1 % of a core is a look every two seconds; the collector's own time makes it a little less.
    assert 3 <= len(looks.pids) <= 5
    assert set(looks.pids) == {ME, child}
    assert all(one != other for one, other in zip(looks.pids, looks.pids[1:], strict=False))
    assert children.spent_ns() - before == len(looks.pids) * 20 * MS


def test_a_process_that_fails_is_tried_less_and_less_often(clock: Clock, child: int) -> None:
    looks = Looks()
    looks.answer = DENIED
    made = collector(clock, looks)
    trace = after(clock, made, 1)
    assert why(trace) == str(DENIED)
    for _ in range(60):
        after(clock, made, 1)
    assert len(looks.pids) == 5  # after 0, 2, 6, 14, 30 s
    looks.answer = (RUNNING,)
    assert after(clock, made, 60).why_missing(What("pyspy")) is None


def test_one_process_of_several_costs_only_itself(clock: Clock, child: int) -> None:
    made = PySpyCollector(
        target_of(ME, child),
        clock=clock,
        inspect=lambda program, pid: Dump(DENIED if pid == child else (RUNNING,), 0),
        is_python=lambda pid: pid in (ME, child),
    )
    made.ask(whats.PYTHON_FRAMES, True)
    with made:
        for _ in range(4):
            trace = after(clock, made, 1)
    assert trace.why_missing(What("pyspy")) is None
    assert why(trace, f"process:{child}/python frames") == str(DENIED)


def test_a_process_that_ended_meanwhile_is_forgotten(clock: Clock) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    looks = Looks()
    looks.answer = DENIED
    made = collector(clock, looks, ME)
    made._interpreters[ended.pid] = pyspy._Interpreter(ended.pid)
    made._relist_ns = clock.now + 10 * NS_PER_S
    assert "no process of the server runs Python" in why(made.poll())


def test_without_python_it_says_so(clock: Clock) -> None:
    made = PySpyCollector(target_of(ME), clock=clock, inspect=Looks(), is_python=lambda pid: False)
    made.ask(whats.PYTHON_FRAMES, True)
    with made:
        assert "no process of the server runs Python" in why(made.poll())


def test_without_py_spy_it_says_how_to_get_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find_program", lambda: None)
    assert install("py-spy") in str(PySpyCollector(target_of(ME)).missing())


def test_threads_of_a_container_get_the_ids_that_are_seen_outside(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = {ME: 1, 5011: 11, 5012: 12}
    monkeypatch.setattr(procfs, "innermost_pid", inner.get)
    monkeypatch.setattr(procfs, "threads", lambda pid: [5011, 5012])
    trace = collector(clock, Looks(RUNNING, WAITING)).poll()
    assert {stack.track for stack in trace.stacks} == {f"thread:{ME}/5011", f"thread:{ME}/5012"}


def test_this_test_runs_python_and_cat_does_not(child: int) -> None:
    assert pyspy.runs_python(ME)
    assert not pyspy.runs_python(child)


def test_real_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find_program", find_program)
    if find_program() is None:
        pytest.skip("py-spy is not installed")
    with Workload(sys.executable, HERE / "known_functions.py") as workload:
        made = PySpyCollector(target_of(workload.pid), budget=1.0)
        made.ask(whats.PYTHON_FRAMES, True)
        deadline = time.monotonic() + 60
        expected = {"compute": {"python running"}, "wait_for_lock": {"python waiting"}}
        states: dict[str, set[str]] = {}
        with made:
            while not all(expected[name] <= states.get(name, set()) for name in expected):
                if time.monotonic() > deadline:
                    break
                trace = made.poll()
                for stack in trace.stacks:
                    states.setdefault(stack.frames[-1].split(" ")[0], set()).add(stack.state)
        if not states:
            pytest.skip(f"py-spy does not work here: {trace.why_missing(What('pyspy'))}")
        assert {name: states[name] & expected[name] for name in expected} == expected


def test_one_process_is_looked_at_twice_a_second_at_most(clock: Clock) -> None:
    """Also where looks cost next to nothing: more of them would say the same."""
    looks = Looks(RUNNING, cpu_ns=0)
    made = PySpyCollector(target_of(ME), budget=1e6, clock=clock, inspect=looks, is_python=lambda pid: pid == ME)
    made.ask(whats.PYTHON_FRAMES, True)
    with made:
        for _ in range(40):
            after(clock, made, 0.125)
    assert len(looks.pids) == 10, "in 5 s"


def test_a_process_that_did_not_run_python_is_asked_again_in_a_minute(clock: Clock, child: int) -> None:
    """A shell may become an interpreter, by exec; to ask is to read its maps."""
    asked: list[tuple[float, int]] = []

    def is_python(pid: int) -> bool:
        asked.append(((clock.now - start) / NS_PER_S, pid))
        return False

    start = clock.now
    made = PySpyCollector(target_of(ME, child), clock=clock, inspect=Looks(), is_python=is_python)
    made.ask(whats.PYTHON_FRAMES, True)
    with made:
        for _ in range(130):
            after(clock, made, 1.0)
    assert {pid for _, pid in asked} == {ME, child}
    assert [at for at, pid in asked if pid == child] == [1.0, 61.0, 121.0]
