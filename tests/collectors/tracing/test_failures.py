"""What may go wrong with the server, the helper and the kernel: one clear line each, and no loss elsewhere."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.collectors import children
from llmtop.collectors.tracing import helped
from llmtop.collectors.tracing.helped import MOST_EARLY_ENDS
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import MarkKind, Unknown, UnknownKind
from tests.collectors.tracing.collecting import (
    Clock,
    Watch,
    change_programs,
    damaged_helper,
    missing,
    refused,
    replace_in,
    with_room,
)
from tests.collectors.tracing.probes import eventually, probing
from tests.workloads.programs import Workload, target_of

pytestmark = pytest.mark.usefixtures("kernel_probes")


# The server


def test_a_server_that_exits_is_one_line_and_needs_no_helper(workload: Path) -> None:
    with (
        Workload(workload, "spin") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        watch = Watch(collector)
        watch.until_ready()
        os.kill(program.pid, signal.SIGKILL)
        trace = watch.until(lambda trace: "ebpf" in missing(trace))
        assert missing(trace) == {"ebpf": "the server's processes have ended (start it again: llmtop follows)"}
        assert children.running() == ()
        assert collector.unavailable is None, "another tracer would have nothing to see either"
        assert missing(watch.poll()) == missing(trace)


def test_a_server_that_is_gone_before_the_helper_starts_is_the_same_line(workload: Path) -> None:
    with Workload(workload, "spin") as program:
        collector = EbpfCollector(target_of(program.pid))
    with collector:
        assert missing(collector.poll()) == {
            "ebpf": "the server's processes have ended (start it again: llmtop follows)"
        }


def test_a_server_that_becomes_another_program_has_its_new_libraries_probed(cuda_program: Path) -> None:
    """As a wrapper does that prepares the environment and then runs the server in its own place."""
    wrapper = 'echo ready; read go; exec "$0" plain 0'
    with (
        Workload("sh", "-c", wrapper, cuda_program) as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        watch = Watch(collector)
        watch.until_ready()
        program.start()
        assert program._line() == "ready", "the second program's"
        watch.until(lambda trace: trace.marks)
        program.start()
        track = ids.process(program.pid)
        watch.until(lambda _: watch.values(track, "library.count|cuGraphLaunch"))
    (mark,) = watch.marks
    assert (mark.kind, mark.track) == ("exec", track)
    assert mark.text == f"cuda_user (pid {program.pid}) runs as another program now"


def test_programs_that_a_server_starts_are_no_change_of_it() -> None:
    """An engine that compiles starts a hundred compilers: each of them is a fork that becomes another program."""
    starter = 'echo ready; while read go; do for i in 1 2 3 4 5; do /bin/true; done; sleep 0.3; echo "done"; done'
    with (
        Workload("sh", "-c", starter) as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        watch = Watch(collector)
        watch.until_ready()
        program.start()
        assert program._line() == "done"
        watch.until(lambda _: watch.values(ids.process(program.pid), "syscall.count|write"))
    assert not [mark for mark in watch.marks if mark.kind is MarkKind.EXEC]


CROWD = """
import os, sys
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(200):
        if not os.fork():
            for _ in range(3):
                os.getsid(0)
            os._exit(0)
    for _ in range(200):
        os.wait()
    print("done", flush=True)
"""


def test_two_hundred_workers_that_come_and_go_at_once_are_all_counted_and_forgotten() -> None:
    with Workload(sys.executable, "-c", CROWD) as program, probing(program.pid) as probes:
        for _ in range(2):
            program.start()
            assert program._line() == "done"
            probes.next()
        probes.next()
        names = {number: name for report in probes.said for number, name in report.get("names", {}).items()}
        counts = {e[0]: e[2] for e in probes.all("calls") if names[str(e[1])] == "getsid" and e[0] != program.pid}
        gone = set(probes.all("gone"))
        last = probes.next()
    assert list(counts.values()) == [3] * 400
    assert gone >= set(counts), "what is never said to be gone fills memory for good"
    assert (last["lost"], last["born"], last["calls"]) == (0, [], [])


REUSE = """
import os, select, signal, sys, time
from pathlib import Path
from tests.collectors.tracing.probes import probing

def spawn():
    pid = os.fork()
    if not pid:
        while True:
            for _ in range(100):
                os.getsid(0)
            time.sleep(0.001)
    return pid

first = spawn()
with probing(first, options=["--interval", "0.2"]) as probes:
    probes.until(lambda _: probes.calls(first))
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
    second = spawn()
    assert second == first, (first, second)
    probes.until(lambda report: first in report.get("gone", ()))
    before = len(probes.said)
    for _ in range(2):
        probes.next()
    print([entry for report in probes.said[before:] for entry in report["calls"] + report["waits"]])
    os.kill(second, signal.SIGKILL)  # now, for it holds the helper's input open
"""


def test_a_process_with_the_pid_of_another_is_not_taken_for_it() -> None:
    from tests.collectors.tracing.test_namespaces import inside

    assert inside(REUSE) == "[]"


# The helper


def test_a_helper_that_dies_is_said_and_no_counter_jumps_back(workload: Path) -> None:
    clock = Clock()
    with (
        Workload(workload, "nanosleep", "0") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100, clock=clock) as collector,
    ):
        watch = Watch(collector)
        program.start()
        process, thread = ids.process(program.pid), ids.thread(program.pid, program.pid)
        series = (
            (process, "syscall.count|clock_nanosleep"),
            (process, "syscall.latency|clock_nanosleep|inf"),
            (process, "syscall.observed"),
            (process, "process.run_queue_latency|inf"),
            (thread, "thread.blocked|nanosleep"),
        )
        watch.until(lambda _: all(len(watch.values(*one)) >= 5 for one in series))
        os.kill(children.running()[0], signal.SIGKILL)
        trace = watch.until(lambda trace: "ebpf" in missing(trace))
        assert missing(trace)["ebpf"] == (
            "the probes' process ended: it was ended by SIGKILL (it is started again in 30 seconds)"
        )
        assert collector.unavailable is None
        clock.forward(31)
        watch.until_ready()
        lengths = {one: len(watch.values(*one)) for one in series}
        watch.until(lambda _: all(len(watch.values(*one)) >= lengths[one] + 5 for one in series))
    for one in series:
        values = watch.values(*one)
        assert values.count(None) == 1, "the time without probes is a gap"
        counts = [value for value in values if value is not None]
        assert counts == sorted(counts), one
    assert [mark.kind for mark in watch.marks] == [MarkKind.PROBES_ENDED, MarkKind.PROBES_BACK]
    assert watch.marks[0].text == "it was ended by SIGKILL; it is started again in 30 seconds"


def test_a_helper_that_hangs_is_said_and_replaced(workload: Path) -> None:
    clock = Clock()
    with (
        Workload(workload, "spin") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100, clock=clock) as collector,
    ):
        watch = Watch(collector)
        watch.until_ready()
        (helper,) = children.running()
        os.kill(helper, signal.SIGSTOP)
        watch.poll()
        clock.forward(31)
        trace = watch.until(lambda trace: "ebpf" in missing(trace))
        assert missing(trace)["ebpf"] == (
            "the probes' process ended: it did not answer for 30 s and was ended (it is started again in 30 seconds)"
        )
        assert not Path(f"/proc/{helper}").exists()
        clock.forward(31)
        watch.until_ready()
    assert [mark.kind for mark in watch.marks] == [MarkKind.PROBES_ENDED, MarkKind.PROBES_BACK]


def test_a_helper_that_always_dies_early_is_given_up(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = damaged_helper(tmp_path, monkeypatch)
    (copy / "helper" / "__main__.py").write_text("raise SystemExit('\\x1b[31mno luck')\n")
    clock = Clock()
    with Workload(workload, "spin") as program, EbpfCollector(target_of(program.pid), clock=clock) as collector:
        watch = Watch(collector)
        for _ in range(MOST_EARLY_ENDS):
            assert collector.unavailable is None
            watch.until(lambda trace: "ended" in missing(trace)["ebpf"])
            clock.forward(31)
        assert collector.unavailable == Unknown(
            "the probes' process ended: ␛[31mno luck", "llmtop doctor tries it anew", UnknownKind.PASSING
        )
        watch.poll()
    assert len(watch.marks) == MOST_EARLY_ENDS
    assert children.running() == ()


def test_a_helper_that_crashes_is_given_up_at_once(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = damaged_helper(tmp_path, monkeypatch)
    (copy / "helper" / "__main__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with Workload(workload, "spin") as program, EbpfCollector(target_of(program.pid)) as collector:
        watch = Watch(collector)
        watch.until(lambda _: collector.unavailable)
    assert collector.unavailable is not None
    assert collector.unavailable.reason == "the probes' process ended: it was ended by SIGSEGV"


# the kernel


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda copy: change_programs(copy, "calls", refused("on_return")),
            "the kernel refuses on_return: R0 !read_ok",
        ),
        (  # it loads, but there is nothing to attach it to
            lambda copy: replace_in(
                copy / "helper" / "calls.py", '("sys_exit", "on_return")', '("no_such_event", "on_return")'
            ),
            "the raw tracepoint no_such_event cannot be used: ",
        ),
    ],
    ids=["not loaded", "not attached"],
)
def test_a_program_that_the_kernel_refuses_costs_only_its_part(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], reason: str
) -> None:
    change(damaged_helper(tmp_path, monkeypatch))
    with (
        Workload(workload, "nanosleep", "0") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as one,
    ):
        watch = Watch(one)
        program.start()
        watch.until(lambda _: watch.values(ids.thread(program.pid, program.pid), "thread.blocked|nanosleep"))
        trace = watch.until_ready()
    assert set(missing(trace)) == {"syscalls"}
    assert missing(trace)["syscalls"].startswith(reason)
    assert "\n" not in missing(trace)["syscalls"]
    assert not watch.values(ids.process(program.pid), "syscall.count|clock_nanosleep")


def test_a_full_table_is_said(workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_programs(damaged_helper(tmp_path, monkeypatch), "calls", with_room("calls", 4))
    with (
        Workload(workload, "count") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        watch = Watch(collector)
        watch.until_ready()
        program.start()
        watch.until(lambda _: "ebpf-lost" in watch.issues)
    assert watch.issues["ebpf-lost"] == "events found no room in the probes' tables: counts are too low"


def test_a_slow_start_is_waited_for_and_then_not(workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helped, "START_NS", 60_000_000_000)
    clock = Clock()
    with Workload(workload, "spin") as program, EbpfCollector(target_of(program.pid), clock=clock) as collector:
        (helper,) = children.running()
        os.kill(helper, signal.SIGSTOP)
        clock.forward(59)
        assert missing(collector.poll()) == {"ebpf": "the probes attach, for 59 s (wait a second)"}
        clock.forward(2)
        assert "it did not answer for 60 s" in missing(collector.poll())["ebpf"]
        assert eventually(lambda: not Path(f"/proc/{helper}").exists())
