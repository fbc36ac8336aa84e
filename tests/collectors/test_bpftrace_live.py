"""The real bpftrace on programs that know the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmtop.collectors import children
from llmtop.collectors.tracing.bpftrace import runner
from llmtop.collectors.tracing.bpftrace.collector import PROGRAM, BpftraceCollector, why_not
from llmtop.collectors.tracing.collector import Tracer, TracerCollector
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.syscall_numbers import TRAPS
from llmtop.collectors.tracing.switches import CHOICE
from llmtop.model import Trace
from tests.collectors.tracing.probes import Probes, eventually, probing
from tests.collectors.tracing.truths import (
    CLOCK_NANOSLEEP,
    FIVE_POINTS,
    FUTEX,
    NANOSLEEP,
    READV,
    counts_are_exact,
    is_watched_from_start_to_end,
    owned,
    seen,
)
from tests.workloads.noise import measured_again
from tests.workloads.programs import Workload, target_of

X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are x86-64's")
pytestmark = pytest.mark.usefixtures("real_bpftrace")


@pytest.fixture
def real_bpftrace(probes_allowed: None) -> None:
    why = why_not()
    if why is not None:
        pytest.skip(f"needs bpftrace and the right to use it: {why}")


def looking(*pids: int, options: Iterable[str] = ()) -> AbstractContextManager[Probes]:
    """Like `probing`, by bpftrace."""
    return probing(*pids, options=("--interval", "0.2", *options), program=PROGRAM)


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def test_counts_are_exact_over_threads_and_children(workload: Path) -> None:
    counts_are_exact(workload, looking)


@X86_64
def test_the_first_call_of_a_kind_is_counted_though_two_cpus_make_it_at_once(workload: Path) -> None:
    """Newer releases of bpftrace lose all but one of what is first added to an entry."""
    looked = seen(looking, workload, "rush")
    calls = looked.probes.calls(looked.pid)
    counts = {number: calls.get(f"syscall_{number}", [0, 0])[:2] for number in range(600, 900)}
    assert {number: told for number, told in counts.items() if told != [2, 2]} == {}


def has_stacks(report: dict[str, Any]) -> bool:
    return bool(report.get("stacks"))


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
    looked = seen(looking, workload, mode, options=("--stacks",), after=has_stacks)
    stacks = [entry for entry in looked.probes.all("stacks") if entry[1] == looked.pid and entry[2] in calls]
    assert looked.slept(*calls) == pytest.approx(looked.truth("in_wait"), abs=FIVE_POINTS)
    weights = {tuple(frames): ns for *_, frames, ns in stacks}
    assert looked.share(sum(weights.values())) == pytest.approx(looked.truth("in_wait"), abs=FIVE_POINTS)
    if function:
        assert max(ns for frames, ns in weights.items() if function in frames) > 0.9 * sum(weights.values())


@measured_again
def test_what_runs_is_named(workload: Path) -> None:
    looked = seen(looking, workload, "spin", options=("--stacks",), after=lambda report: report.get("running"))
    running = looked.probes.all("running")
    spun = sum(ns for _, tid, frames, ns in running if tid == looked.pid and "spin_here" in frames)
    assert looked.share(spun) == pytest.approx(looked.truth("cpu"), abs=0.15)


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
    looked = seen(looking, cuda_program, "asleep", "1")
    functions = {entry[1]: entry[2:] for entry in looked.probes.all("functions")}
    in_libraries = [entry for entry in looked.probes.all("in_libraries") if entry[1] == looked.pid][-1]
    waits = [entry for entry in looked.probes.all("waits") if entry[1] == looked.pid and entry[3] & 0x100]
    launches = looked.account["launches"]
    assert sum(functions[name][0] for name in ("cuLaunchKernel", "cuGraphLaunch")) == launches
    assert in_libraries[2] == launches
    assert looked.share(in_libraries[3]) == pytest.approx(looked.truth("in_sync"), abs=FIVE_POINTS)
    assert looked.share(waits[-1][5]) == pytest.approx(looked.truth("in_wait"), abs=FIVE_POINTS)
    calls = {entry[1] for entry in looked.probes.all("calls")}
    assert calls
    assert not calls & set(TRAPS["x86_64"].values()), "what the probes do is no system call of the program's"


@measured_again
@pytest.mark.parametrize("mode", ["polling", "polling runtime"])
def test_asking_until_the_gpu_has_finished_is_a_wait_for_it(cuda_program: Path, mode: str) -> None:
    with Workload(cuda_program, mode, "60", "100") as program, looking(program.pid) as probes:
        probes.next()
        program.start()
        truth = program.account()["threads"]["worker"]
        probes.next()
    in_libraries = [entry for entry in probes.all("in_libraries") if entry[1] == program.pid][-1]
    functions = {entry[1]: entry[2:4] for entry in probes.all("functions")}
    assert truth["in_sync"] - truth["queued"] < 1.05 * in_libraries[3] < 1.1 * truth["in_sync"]
    count, ns = functions["cudaEventQuery" if mode == "polling runtime" else "cuEventQuery"]
    assert 200 <= count <= 250
    assert ns == pytest.approx(truth["in_sync"], rel=0.05)


def test_who_looks_now_and_then_whether_the_gpu_has_finished_does_not_wait_for_it(cuda_program: Path) -> None:
    looked = seen(looking, cuda_program, "looking", "60", "50")
    functions = {entry[1]: entry[2:4] for entry in looked.probes.all("functions")}
    assert functions["cuEventQuery"][0] == 250
    in_libraries = [entry for entry in looked.probes.all("in_libraries") if entry[1] == looked.pid][-1]
    assert in_libraries[3] == pytest.approx(functions["cuStreamSynchronize"][1], rel=0.01)


@measured_again
def test_what_the_runtime_calls_counts_once(cuda_program: Path) -> None:
    looked = seen(looking, cuda_program, "runtime", "1")
    in_libraries = [entry for entry in looked.probes.all("in_libraries") if entry[1] == looked.pid][-1]
    functions = {entry[1]: entry[2] for entry in looked.probes.all("functions")}
    assert in_libraries[2] == looked.account["launches"]
    assert looked.share(in_libraries[3]) == pytest.approx(looked.truth("in_sync"), abs=FIVE_POINTS)
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
        slept = [entry[5] for entry in probes.all("waits") if entry[1] == program.pid and entry[2] == READV]
        assert not os.path.exists(f"/proc/{first['child']}")  # noqa: PTH110
    assert slept == sorted(slept)
    assert after["observed"]["scheduler"] >= first["observed"]["scheduler"]


@pytest.mark.parametrize("victim", ["llmtop", "helper"])
def test_nothing_is_left_after_a_kill(workload: Path, victim: str) -> None:
    with Workload(workload, "spin") as program, owned(program.pid, PROGRAM) as (owner, helper):
        (child,) = children_of(helper)
        os.kill(owner.pid if victim == "llmtop" else helper, signal.SIGKILL)
        assert eventually(lambda: not system.start_time(child))
        assert eventually(lambda: not system.start_time(helper))


@measured_again
def test_the_collector_gives_readings_and_stacks(workload: Path) -> None:
    running: list[tuple[int, ...]] = []
    account, _ = is_watched_from_start_to_end(
        BpftraceCollector, workload, "3", interval_s=0.2, meanwhile=lambda: running.append(children.running())
    )
    assert len(running[0]) == 2, "the helper, and bpftrace itself"
    assert children.running() == ()
    assert account["calls"] == pytest.approx(account["rounds"], abs=1)  # one begins as the time is over


def test_it_stands_in_for_a_bcc_that_is_broken(workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmtop.collectors.tracing import collector as tracers
    from llmtop.collectors.tracing.bcc.collector import EbpfCollector

    broken = "import json; print(json.dumps({'kind': 'unavailable', 'reason': 'no bcc', 'remedy': 'install it'}))"
    monkeypatch.setattr(EbpfCollector, "program", (sys.executable, "-I", "-c", broken))
    chain: tuple[Tracer, ...] = tracers.TRACERS[:2]
    with (
        Workload(workload, "nanosleep", "20") as program,
        TracerCollector(target_of(program.pid), tracers=chain) as collector,
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
    said = {str(one.what): str(one.why) for one in traces[-1].missing}
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
