"""perf's collector with a stand-in for perf, where all that perf says is known."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing.helped import RETRY_NS
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.perf import collector as perf
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.perf.collector import PerfCollector
from llmtop.model import Missing, Trace, TrackId, Unknown, What
from tests.collectors import stand_in_perf
from tests.workloads.programs import started, target_of

DEADLINE_S = 30.0
PARANOID = """\
Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is 4:
  -1: Allow use of (almost) all events by all users
      Ignore mlock limit after perf_event_mlock_kb without CAP_IPC_LOCK
"""
SUMMARY = """
 Summary of events:

 sleep ({tid}), 20 events, 50.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   read                   8      1     3.500     0.000     3.038     3.753      0.46%
   evil\x1bname           1      0     0.001     0.001     0.001     0.001      0.00%
"""
SCHEDULER = """\
 {tid}/{tid}  @0.020: sched:sched_switch: prev_comm=a b prev_pid={tid} prev_prio=120 prev_state=S \
==> next_comm=x next_pid=0 next_prio=120
\tffffffff821f7f58 __schedule ([kernel.kallsyms])
\tffffffff821f88c3 schedule ([kernel.kallsyms])
\tffffffff816c5e06 futex_wait_queue ([kernel.kallsyms])

 999999/999999  @0.050: sched:sched_wakeup: comm=a b pid={tid} prio=120 target_cpu=001
\tffffffff813a8255 ttwu_do_activate ([kernel.kallsyms])

 0/0  @0.052: sched:sched_switch: prev_comm=x prev_pid=0 prev_prio=120 prev_state=R \
==> next_comm=a b next_pid={tid} next_prio=120
\tffffffff821f7f58 __schedule ([kernel.kallsyms])

"""
SAMPLES = """\
 {tid}/{tid}  @0.020: sched:sched_switch: prev_comm=a b prev_pid={tid} prev_prio=120 prev_state=S \
==> next_comm=x next_pid=0 next_prio=120
\tffffffff821f88c3 schedule ([kernel.kallsyms])
\tffffffff816c5e06 futex_wait_queue ([kernel.kallsyms])
\t          cf439 wait_for_turn (/opt/x)
\t          cf430 main (/opt/x)

 {tid}/{tid}  @0.021: PERF_RECORD_SWITCH OUT
 {tid}/{tid}  @0.052: PERF_RECORD_SWITCH IN
 {tid}/{tid}  @0.060:    5025125 cpu-clock/freq=199/:
\t          cf4aa work<int>(a, b) (/opt/x)
\t          cf430 main (/opt/x)

"""

needs_machine_pids = pytest.mark.skipif(
    os.stat("/proc/self/ns/pid").st_ino != system._FIRST_PID_NAMESPACE,  # noqa: PTH116  # as the code under test has it
    reason="in a PID namespace perf's scheduler events are not used",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in prints."""
    stand_in_perf.install(tmp_path)
    monkeypatch.setenv("STAND_IN_PERF", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process to look at."""
    with started(["sleep", "600"]) as process:
        yield process.pid


def until(collector: PerfCollector, done: Callable[[list[Trace]], object]) -> list[Trace]:
    """Poll until enough has been told."""
    deadline = time.monotonic() + DEADLINE_S
    traces: list[Trace] = []
    while not done(traces):
        assert time.monotonic() < deadline, traces[-1:]
        helper = collector._helper
        select.select([helper] if helper else [], [], [], 0.05)
        traces.append(collector.poll())
    return traces


def values(traces: list[Trace]) -> dict[tuple[TrackId, str], list[float | None]]:
    found: dict[tuple[TrackId, str], list[float | None]] = {}
    for trace in traces:
        for reading in trace.readings:
            assert reading.source == "perf"
            found.setdefault((reading.track, reading.metric.name), []).append(reading.value)
    return found


def has_read(*names: str) -> Callable[[list[Trace]], bool]:
    def done(traces: list[Trace]) -> bool:
        told = {reading.metric.name.partition("|")[0] for trace in traces for reading in trace.readings}
        return set(names) <= told

    return done


def why(traces: list[Trace], what: str) -> Unknown | None:
    return traces[-1].why_missing(What(what))


def write(folder: Path, pid: int, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text.replace("{tid}", str(pid)))


@needs_machine_pids
def test_readings_and_stacks_are_those_of_the_probes(folder: Path, sleeper: int) -> None:
    write(folder, sleeper, scheduler=SCHEDULER, samples=SAMPLES, trace=SUMMARY)
    with PerfCollector(target_of(sleeper)) as collector:
        traces = until(collector, has_read(v.SYSCALL_COUNT.name, v.THREAD_BLOCKED.name))
    told = values(traces)
    process, thread = ids.process(sleeper), ids.thread(sleeper, sleeper)
    before, blocked = told[thread, "thread.blocked|futex"][:2]
    assert before == 0
    assert blocked == pytest.approx(30e6, rel=0.01)
    assert told[thread, "thread.wakes|999999"][:2] == [0, 1]
    assert told[process, "process.run_queue_latency|inf"][:2] == [0, 1]
    assert told[process, "process.run_queue_latency|2.09715e+06"][-1] == 1
    looked = told[process, "scheduler.observed"][1]
    assert looked is not None
    assert looked >= 100e6
    assert told[process, "syscall.count|read"] == [0, 8]
    assert told[process, "syscall.errors|read"] == [0, 1]
    assert told[process, "syscall.time|read"] == [0, 3.5e6]
    assert (process, "syscall.count|evil␛name") in told
    assert told[process, "syscall.timed"] == told[process, "syscall.observed"]
    stacks = {(stack.state, stack.frames): stack for trace in traces for stack in trace.stacks}
    running = stacks["on-cpu", ("main", "work<int>(a, b)")]
    assert (running.weight, running.unit, running.track) == (5025125, "ns", thread)
    asleep = stacks["futex", ("main", "wait_for_turn", "futex_wait_queue_[k]", "schedule_[k]")]
    assert asleep.weight == pytest.approx(30e6, rel=0.01)


def test_what_perf_cannot_tell_is_said(folder: Path, sleeper: int) -> None:
    write(folder, sleeper, trace=SUMMARY)
    with PerfCollector(target_of(sleeper)) as collector:
        traces = until(collector, has_read(v.SYSCALL_COUNT.name))
    assert why(traces, "syscall.latency") == Unknown(
        "perf adds call times up and keeps no distribution", "use eBPF probes (llmtop doctor says what they need here)"
    )
    assert why(traces, "library calls") is not None
    sampled = why(traces, "perf.sampled")
    assert sampled is not None
    assert sampled.reason == "perf looks 0.1 s of every 8 s"
    assert not any(reading.metric.name.startswith("syscall.latency") for trace in traces for reading in trace.readings)


def test_stacks_are_left_when_nobody_looks(folder: Path, sleeper: int) -> None:
    write(folder, sleeper, samples=SAMPLES, trace=SUMMARY)
    with PerfCollector(target_of(sleeper), stacks=False) as collector:
        until(collector, has_read(v.SYSCALL_COUNT.name))
    assert "cpu-clock" not in (folder / "calls").read_text()


def test_user_is_told_when_perf_is_not_allowed(folder: Path, sleeper: int) -> None:
    write(folder, sleeper, record_err=PARANOID)
    with PerfCollector(target_of(sleeper)) as collector:
        traces = until(collector, lambda _: collector.unavailable)
        assert collector.unavailable is not None
        assert traces[-1].missing[0] == Missing(What("perf"), collector.unavailable)
        assert collector.poll().missing == traces[-1].missing
        assert not values(traces)


def test_one_part_that_fails_costs_only_itself(folder: Path, sleeper: int) -> None:
    write(
        folder,
        sleeper,
        scheduler_err="event syntax error: 'sched:sched_switch'\n \\___ unknown tracepoint\n",
        trace=SUMMARY,
    )
    with PerfCollector(target_of(sleeper)) as collector:
        traces = until(collector, has_read(v.SYSCALL_COUNT.name))
        assert collector.unavailable is None
    assert why(traces, "thread.blocked") is not None
    assert why(traces, "syscalls") is None


@pytest.fixture
def restless() -> Iterator[int]:
    """A process that comes to a CPU a thousand times a second."""
    with started([sys.executable, "-c", "import time\nwhile True: time.sleep(0.0005)"]) as process:
        yield process.pid


@needs_machine_pids
def test_events_that_another_tracer_takes_away_are_no_zeros(folder: Path, restless: int) -> None:
    write(folder, restless)
    with PerfCollector(target_of(restless), interval_s=1.0) as collector:
        traces = until(collector, lambda traces: traces and why(traces, "syscalls"))
    for what in ("syscalls", "thread.blocked"):
        reason = why(traces, what)
        assert reason is not None
        assert re.match(r"perf got no events though the server's threads switched \d+ times", reason.reason)
    assert not [name for track, name in values(traces) if track != "self" and name != "scheduler.observed"]


@needs_machine_pids
def test_events_that_are_kept_from_perf_in_part_are_no_short_sleeps(folder: Path, restless: int) -> None:
    write(folder, restless, scheduler=SCHEDULER)
    with PerfCollector(target_of(restless), interval_s=1.0) as collector:
        traces = until(collector, lambda traces: traces and why(traces, "thread.blocked"))
    reason = why(traces, "thread.blocked")
    assert reason is not None
    assert re.match(r"perf saw 1 of \d\d+ times that the server's threads came to a CPU: another", reason.reason)
    assert not [name for _, name in values(traces) if name.startswith(v.THREAD_BLOCKED.name)]


def test_a_target_that_ends_is_told_gone(folder: Path) -> None:
    with started(["sleep", "600"]) as process:
        write(folder, process.pid, trace=SUMMARY)
        with PerfCollector(target_of(process.pid), interval_s=0.2) as collector:
            until(collector, has_read(v.SYSCALL_COUNT.name))
            process.kill()
            process.wait()
            traces = until(collector, lambda traces: traces and traces[-1].gone)
    pid = process.pid
    assert traces[-1].gone == (ids.thread(pid, pid), ids.process(pid))


def test_a_helper_that_dies_is_started_again(folder: Path, sleeper: int) -> None:
    now = [0]
    write(folder, sleeper, trace=SUMMARY)
    with PerfCollector(target_of(sleeper), clock=lambda: now[0]) as collector:
        before = until(collector, has_read(v.SYSCALL_COUNT.name))
        assert collector._helper is not None
        os.kill(collector._helper.process.pid, signal.SIGKILL)
        traces = until(collector, lambda traces: traces and why(traces, "perf"))
        assert (
            str(why(traces, "perf"))
            == "perf's helper ended: it was ended by SIGKILL (it is started again in 30 seconds)"
        )
        assert collector.unavailable is None
        now[0] = RETRY_NS + 1
        read = (ids.process(sleeper), "syscall.count|read")
        after = until(collector, lambda traces: 16 in values(traces).get(read, ()))
    assert values(before + traces + after)[read] == [0, 8, None, 8, 16], "a gap, and then it goes on"


def test_a_helper_that_hangs_is_ended(folder: Path, sleeper: int) -> None:
    now = [0]
    write(folder, sleeper, trace=SUMMARY)
    with PerfCollector(target_of(sleeper), clock=lambda: now[0]) as collector:
        until(collector, has_read(v.SYSCALL_COUNT.name))
        assert collector._helper is not None
        os.kill(collector._helper.process.pid, signal.SIGSTOP)
        collector.poll()
        now[0] = PerfCollector.hung_ns + 1
        traces = until(collector, lambda traces: traces and why(traces, "perf"))
    said = "perf's helper ended: it did not answer for 60 s and was ended (it is started again in 30 seconds)"
    assert str(why(traces, "perf")) == said


def test_nothing_is_left_when_llmtop_is_killed(folder: Path, sleeper: int) -> None:
    write(folder, sleeper, trace=SUMMARY)
    code = (
        "import time; from llmtop.collectors.tracing.perf.collector import PerfCollector\n"
        "from llmtop.model import Target\n"
        f"c = PerfCollector(Target({sleeper}, {sleeper}, 'process', '', ()), interval_s=100.0).__enter__()\n"
        "while not c.poll().readings: time.sleep(0.02)\n"
        "print(c._helper.process.pid, flush=True); time.sleep(600)"
    )
    with started([sys.executable, "-c", code]) as llmtop:
        assert llmtop.stdout is not None
        helper = int(llmtop.stdout.readline())
        before = stand_ins(folder)
    deadline = time.monotonic() + DEADLINE_S
    while system.start_time(helper) or stand_ins(folder):
        assert time.monotonic() < deadline, (helper, before, stand_ins(folder))
        time.sleep(0.02)


def stand_ins(folder: Path) -> list[int]:
    """Stand-ins that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder / "perf") in words:
            found.append(int(path.parent.name))
    return found


def test_leaving_ends_the_helper(folder: Path, sleeper: int) -> None:
    with PerfCollector(target_of(sleeper)) as collector:
        until(
            collector, lambda traces: "record" in (folder / "calls").read_text() if (folder / "calls").exists() else 0
        )
        assert collector._helper is not None
        helper = collector._helper.process.pid
    assert not Path(f"/proc/{helper}").exists()
    assert not stand_ins(folder)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "WARNING: perf not found for kernel 5.15.0-91\n\n  You may need to install",
            "perf is not installed for kernel 5.15.0-91",
        ),
        ("segfault", "perf does not start: segfault"),
    ],
)
def test_wrappers_without_a_perf(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str) -> None:
    write(folder, 0, version_err=said)
    monkeypatch.setattr(perf_run, "_OTHERS", str(folder / "nowhere"))
    why = perf.why_not()
    assert why is not None
    assert why.reason == reason
    assert "sudo apt install linux-perf" in why.remedy


def test_no_perf_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(perf_run, "_OTHERS", str(tmp_path))
    why = perf.why_not()
    assert why is not None
    assert why.reason == "perf is not installed"


NO_PERF = Unknown("perf is not installed", "sudo apt install linux-perf")


@pytest.mark.parametrize(
    ("program", "level", "user", "says"),
    [
        (NO_PERF, 2, 0, NO_PERF),
        (
            perf_run.PerfProgram("perf", (6, 1)), None, 0,
            Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed"),
        ),
        (perf_run.PerfProgram("perf", (6, 1)), 4, 0, "system calls, scheduler and stacks, a tenth of the time"),
        (
            perf_run.PerfProgram("perf", (6, 1)), 2, 1000,
            "on-CPU stacks of your own processes, without the kernel's functions",
        ),
        (perf_run.PerfProgram("perf", (6, 1)), 3, 1000, "perf is for root only (perf_event_paranoid 3)"),
    ],
)  # fmt: skip
def test_what_perf_can_look_at_is_told_before_it_is_tried(
    monkeypatch: pytest.MonkeyPatch,
    program: perf_run.PerfProgram | Unknown,
    level: int | None,
    user: int,
    says: str | Unknown,
) -> None:
    monkeypatch.setattr(perf_run, "find", lambda: program)
    monkeypatch.setattr(perf_run, "paranoia", lambda: level)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    (check,) = perf.checks()
    assert check.what == "perf looks"
    if isinstance(says, str) and isinstance(check.state, Unknown):
        assert check.state.reason == says
        assert "perf_event_paranoid=2" in check.state.remedy
    else:
        assert check.state == says
    assert (perf.why_not() is None) is (level is not None and program is not NO_PERF)


def test_a_wrapper_for_another_kernel_is_passed_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 0, version_err="WARNING: perf not found for kernel 5.15.0-91")
    for version in ("5.4.0-9", "5.15.0-10"):
        tools = folder / f"linux-tools-{version}"
        tools.mkdir()
        (tools / "perf").write_text(f"#!/bin/sh\necho perf version {version}\n")
        (tools / "perf").chmod(0o755)
    monkeypatch.setattr(perf_run, "_OTHERS", str(folder))
    found = perf_run.find()
    assert isinstance(found, perf_run.PerfProgram)
    assert found.path.endswith("linux-tools-5.15.0-10/perf")
    assert found.without_maps == ()


@pytest.mark.parametrize(
    ("said", "root", "reason", "remedy"),
    [
        (PARANOID, False, "perf is for root only (perf_event_paranoid 4)", "sudo sysctl kernel.perf_event_paranoid=2"),
        (PARANOID.replace("is 4", "is 2"), False, "perf may not look at this (perf_event_paranoid 2)", "cap_perfmon"),
        (PARANOID, True, "this container's root may not use perf events", "docker run --privileged"),
        ("Error:\tNo permissions to read /sys/kernel/tracing/events/raw_syscalls/sys_(enter|exit)\nHint: Try", False,
         "the kernel's tracepoints are for root", "mode=755 /sys/kernel/tracing"),
        ("Error: Unable to find debugfs/tracefs\nHint:\tWas your kernel compiled with debugfs", True,
         "tracefs is not there", "mount -t tracefs"),
        ("The sys_perf_event_open() syscall returned with 38 (Function not implemented)", False,
         "this kernel or container has no perf events", "docker run"),
        ("Permission error mapping pages.\nConsider increasing /proc/sys/kernel/perf_event_mlock_kb,", False,
         "perf may lock no more memory", "perf_event_mlock_kb"),
        ("  Error: unknown option `control'\n\n Usage: perf record", False, "this perf is too old", "perf 5.10"),
        ("kernel is locked down: Lockdown: perf: use of tracefs is restricted", True,
         "the kernel is locked down against perf", "lockdown"),
        ("\x1b[31mstrange", True, "perf record failed: ␛[31mstrange", ""),
        ("", True, "perf record failed: it gave no reason", ""),
    ],
)  # fmt: skip
def test_reasons(said: str, root: bool, reason: str, remedy: str) -> None:
    why = perf_run.explain(said, "perf record", root=root)
    assert why.reason == reason
    assert remedy in why.remedy
