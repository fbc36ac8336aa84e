"""Ids that are used again, and crowds that come and go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmtop import ids, procfs
from llmtop.collectors import proc as proc_module
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.proc_threads import Thread, ThreadAccess
from llmtop.model import Severity, Target, TargetProcess, Trace
from tests.collectors.processes import eventually, python
from tests.collectors.tracing.probes import needs_unshare

ROOT = Path(__file__).resolve().parents[2]


def target(pid: int) -> Target:
    return Target(pid, pid, "process", "a server", (TargetProcess(pid, "main", "python"),))


REUSE = """
import os, signal, time
from pathlib import Path
from tests.collectors.test_proc_identity import target
from llmtop.collectors.proc import ProcCollector
from llmtop.whats import What

def spawn():
    pid = os.fork()
    if not pid:
        signal.pause()
    return pid

first = spawn()
collector = ProcCollector(target(first))
assert any(reading.track == f"process:{first}" for reading in collector.poll().readings)
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)
tick = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10_000_000 + 1
while time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10_000_000 <= tick:
    pass  # processes that start in one tick of the clock start at one time, as far as /proc tells
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
second = spawn()
assert second == first, (first, second)
traces = [collector.poll() for _ in range(3)]
os.kill(second, signal.SIGKILL)
print([mark.text for trace in traces for mark in trace.marks])
print([r for trace in traces for r in trace.readings if r.track.startswith(("process", "thread"))])
print(traces[-1].why_missing(What("proc")).reason)
"""


def test_a_process_with_the_pid_of_another_is_not_taken_for_it() -> None:
    own = ("--pid", "--fork", "--mount-proc")
    needs_unshare(*own)
    program = ["unshare", *own, sys.executable, "-c", REUSE]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    marks, readings, why = done.stdout.splitlines()
    assert "(pid 2) exited" in marks
    assert readings == "[]"
    assert why == "a server (pid 2) has exited"


def test_a_thread_with_the_id_of_another_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"7/schedstat": b"900 80 9", "7/stat": b"7 (old) R 1", "7/wchan": b"0"}
    monkeypatch.setattr(procfs, "read_bytes", lambda path, dir_fd=None: files.get(str(path)))
    thread = Thread(ids.thread(1, 7), 1, 7)
    for _ in range(3):
        thread.read_clocks(0)
        thread.look(0, ThreadAccess(1))
        thread.count()
    assert (thread.name, thread.samples) == ("old", 3)

    files |= {"7/schedstat": b"10 2 1", "7/stat": b"7 (new) R 1"}
    thread.read_clocks(0)
    thread.look(0, ThreadAccess(1))
    thread.count()

    assert (thread.name, thread.samples, thread.run_ns) == ("new", 1, 10)


FORKER = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
children = []
for _ in range(200):
    pid = os.fork()
    if not pid:
        time.sleep(1000)
    children.append(pid)
print("forked", flush=True)
sys.stdin.readline()
for pid in children:
    os.kill(pid, 9)
for pid in children:
    os.waitpid(pid, 0)
print("ended", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def forked() -> Iterator[tuple[ProcCollector, Callable[[], Trace]]]:
    """A collector that has seen two hundred children come, and what ends them and looks again."""
    with python(FORKER) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        with ProcCollector(target(program.pid)) as collector:
            collector.poll()
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "forked\n"

            def end() -> Trace:
                assert program.stdin is not None
                assert program.stdout is not None
                program.stdin.write("\n")
                program.stdin.flush()
                assert program.stdout.readline() == "ended\n"
                return collector.poll()

            yield collector, end


def test_two_hundred_workers_are_one_mark_when_they_come_and_one_when_they_go(
    forked: tuple[ProcCollector, Callable[[], Trace]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc_module, "BRIEF_NS", 0)
    collector, end = forked
    came, went = collector.poll(), end()

    assert [mark.text for mark in came.marks] == ["200 processes started"]
    assert {mark.severity for mark in went.marks} == {Severity.WARNING}
    assert [mark.text for mark in went.marks] == ["200 processes exited: killed by SIGKILL"]
    assert len([track for track in went.gone if track.startswith("process:")]) == 200


def test_helpers_that_come_and_go_at_once_are_told_of_together(
    forked: tuple[ProcCollector, Callable[[], Trace]],
) -> None:
    collector, end = forked
    came, went = collector.poll(), end()

    assert not came.marks
    [mark] = went.marks
    assert mark.text == "200 short-lived helpers came and went: python ×200"
    assert mark.severity is Severity.INFO
    assert not [id for id in went.tracks if id.startswith("ended:")], "only parts of the server are remembered"


EXEC = """
import os, sys, threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "1000"])
"""


def test_a_process_that_becomes_another_program_keeps_only_what_it_still_has() -> None:
    with python(EXEC) as program:
        assert program.stdin is not None
        collector = ProcCollector(target(program.pid))
        assert len([track for track in collector.poll().tracks if track.startswith("thread:")]) == 4
        program.stdin.write("\n")
        program.stdin.flush()
        eventually(lambda: procfs.name(program.pid) == "sleep", "the other program")
        trace = collector.poll()

    assert len(trace.gone) == 3
    assert not trace.marks, "it has not exited"
    assert trace.tracks[ids.thread(program.pid, program.pid)].name == "sleep"
