"""The real bpftrace on programs that know the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtop.collectors import children
from llmtop.collectors.bpftrace import runner
from llmtop.collectors.bpftrace.collector import PROGRAM, BpftraceCollector, why_not
from llmtop.collectors.ebpf.process import HelperProcess, running_helpers
from llmtop.collectors.tracers import CHOICE, Tracer, TracerCollector
from llmtop.model import Reading, Target, TargetProcess, Trace
from tests.collectors.ebpf.probes import Probes, eventually
from tests.workloads.noise import measured_again
from tests.workloads.programs import Workload

NANOSLEEP, CLOCK_NANOSLEEP, FUTEX, READV = 35, 230, 202, 19
FIVE_POINTS = 0.05
X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are x86-64's")
pytestmark = pytest.mark.usefixtures("real_bpftrace")


@pytest.fixture
def real_bpftrace(probes_allowed: None) -> None:
    why = why_not()
    if why is not None:
        pytest.skip(f"needs bpftrace and the right to use it: {why}")


@contextmanager
def looking(*pids: int, options: Iterable[str] = ()) -> Iterator[Probes]:
    """The helper on processes, attached. The budget is out of reach unless `options` say otherwise."""
    helper = HelperProcess([*map(str, pids), "--interval", "0.2", "--budget", "100", *options], program=PROGRAM)
    probes = Probes(helper)
    try:
        probes.until(lambda report: report["kind"] == "ready")
        yield probes
    finally:
        helper.close()


def children_of(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", f"{pid}"], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def target(pid: int) -> Target:
    return Target(pid, pid, "process", "a program", (TargetProcess(pid, "", "a program"),))


def test_counts_are_exact_over_threads_and_children(workload: Path) -> None:
    with Workload(workload, "count") as program, looking(program.pid) as probes:
        program.start()
        child = program.account()["child"]
        probes.until(lambda _: probes.calls(child).get("getsid", [0])[0] == 321)
        probes.next()
        calls = probes.calls(program.pid)
    assert {name: calls[name][:2] for name in ("getppid", "pread64", "getpgid")} == {
        "getppid": [12345, 0],
        "pread64": [1000, 0],
        "getpgid": [4000, 0],  # by four threads that have ended since
    }
    assert calls["close"][1] == 777  # of a file that never was
    spins = [calls[name] for name in ("sched_yield", "epoll_wait (no wait)", "ppoll (no wait)")]
    assert spins == [[5000, 0, 0, {}], [600, 0, 0, {}], [500, 0, 0, {}]]
    assert calls["epoll_wait"][0] == 3
    assert calls["epoll_wait"][2] >= 3 * 1_000_000
    assert child in probes.all("born")


@X86_64
@pytest.mark.parametrize(
    ("mode", "calls", "function"),
    [
        ("nanosleep", (NANOSLEEP, CLOCK_NANOSLEEP), "sleep_here"),
        ("futex", (FUTEX,), "wait_for_turn"),
        ("pipe", (READV,), ""),
    ],
)
@measured_again
def test_sleep_agrees_with_the_programs_own_account(
    workload: Path, mode: str, calls: tuple[int, ...], function: str
) -> None:
    with Workload(workload, mode) as program, looking(program.pid, options=["--stacks"]) as probes:
        program.start()
        account = program.account()
        probes.until(lambda report: report.get("stacks"))
        probes.next()
        slept = probes.slept(program.pid, program.pid)
        stacks = [entry for entry in probes.all("stacks") if entry[1] == program.pid and entry[2] in calls]
    truth = account["in_wait"] / account["wall"]
    assert sum(slept.get(call, 0) for call in calls) / account["wall"] == pytest.approx(truth, abs=FIVE_POINTS)
    weights = {tuple(frames): ns for *_, frames, ns in stacks}
    assert sum(weights.values()) / account["wall"] == pytest.approx(truth, abs=FIVE_POINTS)
    if function:
        assert max(ns for frames, ns in weights.items() if function in frames) > 0.9 * sum(weights.values())


@measured_again
def test_what_runs_is_named(workload: Path) -> None:
    with Workload(workload, "spin") as program, looking(program.pid, options=["--stacks"]) as probes:
        program.start()
        account = program.account()
        probes.until(lambda report: report.get("running"))
        running = probes.all("running")
    spun = sum(ns for _, tid, frames, ns in running if tid == program.pid and "spin_here" in frames)
    assert spun / account["wall"] == pytest.approx(account["cpu"] / account["wall"], abs=0.15)


@measured_again
def test_one_that_slept_before_is_seen(workload: Path) -> None:
    with Workload(workload, "spin") as program, looking(program.pid, options=["--stacks"]) as probes:
        probes.until(lambda report: len(report.get("stacks", ())) > 0)
        (stack,) = probes.all("stacks")
        probes.next()
        slept = sum(probes.slept(program.pid, program.pid).values())
    assert any(frame.endswith("_[k]") for frame in stack[5])
    looked = probes.said[-1]["observed"]["scheduler"]
    assert slept / looked == pytest.approx(1, abs=0.1)


@measured_again
def test_cuda_calls_are_counted_by_thread(cuda_program: Path) -> None:
    with Workload(cuda_program, "asleep", "1") as program, looking(program.pid) as probes:
        program.start()
        account = program.account()
        probes.next()
        functions = {entry[1]: entry[2:] for entry in probes.all("functions")}
        in_libraries = [entry for entry in probes.all("in_libraries") if entry[1] == program.pid][-1]
        waits = [entry for entry in probes.all("waits") if entry[1] == program.pid and entry[3] & 0x100]
    assert sum(functions[name][0] for name in ("cuLaunchKernel", "cuGraphLaunch")) == account["launches"]
    assert in_libraries[2] == account["launches"]
    assert in_libraries[3] / account["wall"] == pytest.approx(account["in_sync"] / account["wall"], abs=FIVE_POINTS)
    assert waits[-1][5] / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=FIVE_POINTS)


@measured_again
def test_what_the_runtime_calls_counts_once(cuda_program: Path) -> None:
    with Workload(cuda_program, "runtime", "1") as program, looking(program.pid) as probes:
        program.start()
        account = program.account()
        probes.next()
        in_libraries = [entry for entry in probes.all("in_libraries") if entry[1] == program.pid][-1]
        functions = {entry[1]: entry[2] for entry in probes.all("functions")}
    assert in_libraries[2] == account["launches"]
    assert in_libraries[3] / account["wall"] == pytest.approx(account["in_sync"] / account["wall"], abs=FIVE_POINTS)
    assert functions["cudaLaunchKernel"] == functions["cuLaunchKernel"] > 0


def test_names_of_one_process_are_not_given_to_another(workload: Path) -> None:
    with (
        Workload(workload, "futex", "20") as one,
        Workload(workload, "futex", "20") as other,
        looking(one.pid, other.pid, options=["--stacks"]) as probes,
    ):
        one.start()
        other.start()
        probes.until(lambda report: {entry[0] for entry in report.get("stacks", ())} == {one.pid, other.pid})
        is_missing = "functions in stacks" in probes.said[-1]["missing"]
        stacks = [entry for entry in probes.all("stacks") if entry[2] == FUTEX]
    for pid in (one.pid, other.pid):
        named = {"wait_for_turn" in entry[5] for entry in stacks if entry[0] == pid and len(entry[5]) > 8}
        assert named <= {not is_missing}, "all or none"
    assert is_missing == any("[workload]" in entry[5] for entry in stacks)


def test_over_budget_less_is_looked_at_and_counts_go_on(workload: Path) -> None:
    options = ["--budget", "0.0005"]
    with Workload(workload, "pipe", "8") as program, looking(program.pid, options=options) as probes:
        program.start()
        first = probes.until(lambda report: report["kind"] == "sample" and report.get("calls"))
        shed = probes.until(lambda report: report["kind"] == "sample" and report["shed"])
        after = probes.until(lambda report: report["kind"] == "sample" and report["child"] != first["child"])
        probes.next()
        assert "system calls" in shed["shed"]
        seen = [entry[5] for entry in probes.all("waits") if entry[1] == program.pid and entry[2] == READV]
        assert not os.path.exists(f"/proc/{first['child']}")  # noqa: PTH110
    assert seen == sorted(seen)
    assert after["observed"]["scheduler"] >= first["observed"]["scheduler"]


@pytest.mark.parametrize("victim", ["llmtop", "helper"])
def test_nothing_is_left_after_a_kill(workload: Path, victim: str) -> None:
    code = (
        "import sys, select\n"
        "from llmtop.collectors.bpftrace.collector import PROGRAM\n"
        "from llmtop.collectors.ebpf.process import HelperProcess, running_helpers\n"
        "helper = HelperProcess([sys.argv[1], '--interval', '0.2'], program=PROGRAM)\n"
        "kinds = []\n"
        "while 'ready' not in kinds:\n"
        "    select.select([helper], [], [])\n"
        "    kinds += [report['kind'] for report in helper.reports()]\n"
        "print(running_helpers()[0], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with (
        Workload(workload, "spin") as program,
        subprocess.Popen(
            [sys.executable, "-c", code, f"{program.pid}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as llmtop,
    ):
        assert llmtop.stdout is not None
        helper = int(llmtop.stdout.readline())
        (child,) = children_of(helper)
        os.kill(llmtop.pid if victim == "llmtop" else helper, signal.SIGKILL)
        assert eventually(lambda: not is_running(child))
        assert eventually(lambda: not is_running(helper))
        llmtop.kill()


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@measured_again
def test_the_collector_gives_readings_and_stacks(workload: Path) -> None:
    with (
        Workload(workload, "nanosleep", "3") as program,
        BpftraceCollector(target(program.pid), interval_s=0.2, budget=100) as collector,
    ):
        first = collector.poll()
        assert [str(one.why) for one in first.missing] == ["the probes are being compiled (wait a second)"]
        traces: list[Trace] = []

        def poll() -> Trace:
            traces.append(collector.poll())
            return traces[-1]

        assert eventually(lambda: poll().readings)
        assert children.running()
        program.start()
        account = program.account()
        before_ns = time.monotonic_ns()
        assert eventually(lambda: any(reading.t_ns > before_ns for reading in poll().readings))
        assert eventually(lambda: any("sleep_here" in stack.frames for stack in poll().stacks))
    assert (children.running(), running_helpers()) == ((), ())
    readings = [reading for trace in traces for reading in trace.readings]
    assert {reading.source for reading in readings} == {"bpftrace"}
    slept = last(readings, f"thread:{program.pid}/{program.pid}", "thread.blocked|nanosleep")
    assert slept / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=FIVE_POINTS)
    calls = last(readings, f"process:{program.pid}", "syscall.count|clock_nanosleep")
    assert calls == pytest.approx(account["rounds"], abs=1)  # one begins as the time is over


def last(readings: list[Reading], track: str, name: str) -> float:
    value = [reading.value for reading in readings if (reading.track, reading.metric.name) == (track, name)][-1]
    assert value is not None
    return value


def test_it_stands_in_for_a_bcc_that_is_broken(workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmtop.collectors import tracers
    from llmtop.collectors.ebpf import process

    broken = "import json; print(json.dumps({'kind': 'unavailable', 'reason': 'no bcc', 'remedy': 'install it'}))"
    monkeypatch.setattr(process, "PROBES", (sys.executable, "-I", "-c", broken))
    chain: tuple[Tracer, ...] = tracers.TRACERS[:2]
    with (
        Workload(workload, "nanosleep", "20") as program,
        TracerCollector(target(program.pid), tracers=chain) as collector,
    ):
        program.start()
        traces: list[Trace] = []

        def poll() -> list[str]:
            traces.append(collector.poll())
            return [reading.metric.name for reading in traces[-1].readings]

        assert eventually(lambda: "syscall.count|clock_nanosleep" in poll())
    assert collector.tracer == ""
    assert [issue.message for trace in traces for issue in trace.issues if issue.code == "tracer-fallback"] == [
        "bpftrace looks into the kernel in place of bcc (no bcc)"
    ]
    said = {one.what: str(one.why) for one in traces[-1].missing}
    assert said["tracer"] == "bpftrace looks in place of bcc (no bcc) (install it)"


def test_snapshot_looks_through_it(workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "bpftrace")
    with Workload(workload, "futex", "30") as program:
        program.start()
        command = [sys.executable, "-m", "llmtop", "snapshot", "--attach", f"{program.pid}", "--json", "--seconds", "8"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    calls = {call["name"]: call for call in said["syscalls"]}
    # What others do on a busy machine may be more than the budget allows to look at: then that is said.
    if "ebpf.shed" not in {one["what"] for one in said["missing"]}:
        assert calls["futex"]["count"] > 100
        assert calls["futex"]["total_ns"] > 0
    assert {thread["tid"] for thread in said["threads"]} >= {program.pid}
    assert not [one for one in said["missing"] if one["what"] in ("syscalls", "ebpf")]


def test_a_program_that_bpftrace_refuses_says_why() -> None:
    path = runner.find()
    assert path is not None
    run = runner.Bpftrace(path, "BEGIN { @x = nonsense(); }", 64)
    assert eventually(lambda: run.records() or run.is_at_end)
    run.end()
    assert "nonsense" in run.last_words()
