"""The installed perf on programs that keep account of themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.counters import upper_bound
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.perf.collector import PROGRAM
from llmtop.collectors.tracing.process import HelperProcess
from llmtop.model import Unknown
from tests.collectors.tracing.probes import Probes
from tests.workloads.noise import a_cpu_for_the_first, first_myself, measured_again, put_first, put_on
from tests.workloads.programs import Account, Workload

DEADLINE_S = 60.0
POINTS = 0.05
NOBODY = 65534


def why_not_real() -> str:
    """Why the real perf cannot be tried as root here; empty when it can."""
    found = perf_run.find()
    if isinstance(found, Unknown):
        return str(found)
    if os.geteuid() != 0:
        return "needs root: the scheduler's events are for root"
    if system.pid_namespace() is not None:
        return "in a PID namespace perf's scheduler events are not used"
    tried = subprocess.run([found.path, "stat", "-e", "cpu-clock", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "this container may not use perf events"


pytestmark = pytest.mark.usefixtures("real_perf")


@pytest.fixture(scope="module")
def real_perf() -> None:
    if why := why_not_real():
        pytest.skip(why)


class Look(Probes):
    """perf's helper that looks once."""

    deadline_s = 60.0

    def __init__(self, pid: int, seconds: float, *options: str) -> None:
        super().__init__(HelperProcess([str(pid), "--once", f"{seconds}", *options], program=PROGRAM))

    def begun(self) -> None:
        """Wait until it looks."""
        self.until(lambda report: report["kind"] == "looking")

    def of_calls(self) -> dict[str, Any]:
        """What it saw of system calls."""
        return self.until(lambda report: report["kind"] == "sample" and "calls" in report)


@pytest.fixture
def look() -> Iterator[Callable[..., Look]]:
    """Make looks that end with the test."""
    made: list[Look] = []

    def make(pid: int, seconds: float, *options: str) -> Look:
        made.append(Look(pid, seconds, *options))
        return made[-1]

    yield make
    for one in made:
        one.helper.close()


def compared(program: Workload, look: Look) -> tuple[dict[str, Any], Account, Account]:
    """One look at a program that works, and its own account before and after, of the very same time."""
    with first_myself(priority=3):
        look.begun()
        before = program.ask()
        look.until(lambda report: report["kind"] == "looked")
        after = program.ask()
    return look.until(lambda report: report["kind"] == "sample"), before, after


@pytest.fixture
def busy_cpu(workload: Path) -> Iterator[int]:
    """A CPU with something else to do all the time: some kernels give perf no events of one that was idle."""
    with a_cpu_for_the_first() as cpu, Workload(workload, "spin", "0") as program:
        put_on([program.pid], [cpu])
        program.start()
        yield cpu


@contextmanager
def first_on(cpu: int, *command: str | Path) -> Iterator[Workload]:
    """A program that works on one CPU and never waits for it."""
    with Workload(*command) as program:
        put_on([program.pid], [cpu])
        put_first([program.pid], priority=1)
        program.start()
        program.ask()
        yield program


def assert_sleeps(report: dict[str, Any], before: Account, after: Account, cause: str) -> None:
    truth, tid = after.shares(before)["worker"], after.threads["worker"]["tid"]
    assert share_blocked(report, tid, cause) == pytest.approx(truth.waited, abs=POINTS)
    assert share_blocked(report, tid) == pytest.approx(truth.waited, abs=POINTS)


def idle_seconds(cpu: int) -> float:
    """For how long a CPU has been idle since the start, by the kernel's account."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{cpu} "))
    return sum(map(int, line.split()[4:6])) / os.sysconf("SC_CLK_TCK")


def share_blocked(report: dict[str, Any], tid: int, cause: str = "") -> float:
    assert "blocked" in report, "perf did not see all switches"
    ns = sum(entry[3] for entry in report["blocked"] if entry[1] == tid and cause in ("", entry[2]))
    return float(ns / report["elapsed"])


@measured_again
def test_sleeps_that_leave_a_cpu_idle_are_true_or_not_told(look: Callable[..., Look], workload: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    with first_on(cpu, workload, "nanosleep", "0") as program:
        idle_s, since_s = idle_seconds(cpu), time.monotonic()
        report, before, after = compared(program, look(program.pid, 1.0))
        left_idle = (idle_seconds(cpu) - idle_s) / (time.monotonic() - since_s)
    if left_idle < after.shares(before)["worker"].waited - 2 * POINTS:
        pytest.skip("other programs ran on the CPU that this one leaves idle")
    if "blocked" in report:
        assert_sleeps(report, before, after, "nanosleep")


@measured_again
def test_waits_in_the_run_queue_are_what_the_program_says(look: Callable[..., Look], workload: Path) -> None:
    with Workload(workload, "starve", "0", "3") as program:
        program.start()
        program.ask()
        report, before, after = compared(program, look(program.pid, 1.0))
    truth = sum(one.queued for one in after.shares(before).values())
    slots = {int(slot): count for _, slots in report["queue"] for slot, count in slots.items()}
    least = sum(count * upper_bound(slot) / 2 for slot, count in slots.items() if slot) / report["elapsed"]
    most = sum(count * upper_bound(slot) for slot, count in slots.items()) / report["elapsed"]
    assert least - 3 * POINTS <= truth <= most + 3 * POINTS


@measured_again
def test_sleeps_are_what_the_program_says_and_stacks_name_the_function(
    look: Callable[..., Look], workload: Path, busy_cpu: int
) -> None:
    with first_on(busy_cpu, workload, "nanosleep", "0") as program:
        report, before, after = compared(program, look(program.pid, 1.0, "--stacks"))
        tid = after.threads["worker"]["tid"]
    assert_sleeps(report, before, after, "nanosleep")
    truth = after.shares(before)["worker"]
    running = sum(ns for _, at, frames, ns in report["running"] if at == tid and "spin_here" in frames)
    asleep = sum(ns for _, at, _, frames, ns in report["asleep"] if at == tid and "sleep_here" in frames)
    assert running / report["elapsed"] == pytest.approx(truth.on_cpu, abs=POINTS)
    assert asleep / report["elapsed"] == pytest.approx(truth.waited, abs=POINTS)
    stacks = [(ns, frames) for _, at, _, frames, ns in report["asleep"] if at == tid and "sleep_here" in frames]
    _, frames = max(stacks)  # where others want its CPU, it is put off elsewhere in the call too, briefly
    assert frames.index("sleep_here") < frames.index("do_nanosleep_[k]")


CALLS = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
for _ in range(2000): os.getppid()
for _ in range(100):
    try: os.close(99)
    except OSError: pass
print("done", flush=True)
sys.stdin.readline()
"""


def test_system_calls_are_all_counted_and_tracefs_is_mounted_for_the_helper_alone(look: Callable[..., Look]) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    with Workload(sys.executable, "-c", CALLS) as program:
        put_first([program.pid], priority=1)  # or it might not be done when the look is over
        seen = look(program.pid, 0.4)
        seen.until(lambda report: report.get("calls") is True)
        program.start()
        report = seen.of_calls()
    assert Path("/proc/self/mounts").read_text() == mounts
    names = {int(number): name for number, name in report["names"].items()}
    calls = {names[number]: (count, errors, ns) for _, number, count, errors, ns, _ in report["calls"]}
    assert report["lost"] == 0
    assert calls["getppid"][:2] == (2000, 0)
    assert calls["close"][:2] == (100, 100)
    assert 0 < calls["getppid"][2] < report["elapsed"]


def test_nothing_is_left_when_the_helper_is_killed(look: Callable[..., Look], workload: Path) -> None:
    with Workload(workload, "nanosleep", "0") as program:
        program.start()
        program.ask()
        one = look(program.pid, 30.0, "--stacks")
        one.begun()
        helper = one.helper.process
        children = {int(path.name) for path in Path("/proc").glob("[0-9]*") if parent_of(path) == helper.pid}
        assert len(children) == 2
        helper.kill()
        helper.wait()
        deadline = time.monotonic() + DEADLINE_S
        while any(system.start_time(pid) for pid in children):
            assert time.monotonic() < deadline, "perf outlived its helper"
            time.sleep(0.02)


def parent_of(path: Path) -> int:
    fields = system.read(f"{path}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


UNPRIVILEGED = """
import subprocess, sys, time
from llmtop.collectors.tracing.perf.collector import PerfCollector
from llmtop.model import Target
busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(100))"])
try:
    with PerfCollector(Target(busy.pid, busy.pid, "process", "", ())) as collector:
        deadline = time.monotonic() + 30
        stacks, trace = (), None
        while not stacks and time.monotonic() < deadline:
            trace = collector.poll()
            stacks = trace.stacks
            time.sleep(0.05)
        print(sorted({stack.state for stack in stacks}))
        print(any(frame.endswith("_[k]") for stack in stacks for frame in stack.frames))
        print([what for what in ("thread.blocked", "stacks of the kernel") if trace.why_missing(what)])
finally:
    busy.kill()
"""


def test_an_ordinary_user_has_stacks_of_his_own_processes(tmp_path: Path) -> None:
    level = perf_run.paranoia()
    if level is None or level > 2:
        pytest.skip(f"perf_event_paranoid is {level}: ordinary users may not use perf")
    python, setpriv = "/usr/bin/python3", shutil.which("setpriv")
    if setpriv is None or not Path(python).exists():
        pytest.skip("needs setpriv and /usr/bin/python3 to be another user")
    root = Path(__file__).resolve().parents[2]
    drop = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-B", "-c"]
    tried = subprocess.run(
        [*drop, "import sys; assert sys.version_info >= (3, 11); import llmtop.model"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip("another user cannot read this checkout, or has an older Python")
    done = subprocess.run([*drop, UNPRIVILEGED], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["['on-cpu']", "False", "['thread.blocked', 'stacks of the kernel']"], (
        done.stderr
    )
