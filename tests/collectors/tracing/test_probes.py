"""Real probes on programs that know the truth."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.governor import NS_PER_HIT
from llmtop.collectors.tracing.helper.syscall_numbers import TRAPS
from llmtop.collectors.tracing.probes.collector import PROGRAM
from tests.collectors.tracing.collecting import a_copy, change_programs, refused, replace_in, with_room
from tests.collectors.tracing.probes import Probes, eventually, needs_unshare, owned, probing, programs_in_kernel
from tests.workloads.noise import Looks, measured_again, starting_first
from tests.workloads.programs import Workload

pytestmark = pytest.mark.usefixtures("kernel_probes")
X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are x86-64's")


FUTEX, READ = 202, 0
"""Numbers of system calls on x86-64."""


@dataclass(frozen=True)
class Seen:
    """What a helper has seen of a program that kept account of itself."""

    pid: int
    account: dict[str, Any]
    probes: Probes


def seen(
    *argv: str | Path,
    before: Callable[[dict[str, Any]], object] | None = None,
    program: tuple[str, ...] = PROGRAM,
) -> Seen:
    """Look at a program from before it works until a look that began when it had told what it did.

    Args:
        argv: The program.
        before: A report to wait for before it works.
        program: The helper's.
    """
    with Workload(*argv) as workload, probing(workload.pid, program=program) as probes:
        if before:
            probes.until(before)
        workload.start()
        account = workload.account()
        probes.next()
    return Seen(workload.pid, account, probes)


def test_counts_are_exact_over_threads_and_children(workload: Path) -> None:
    """Over threads and children; calls that spin are counted, and not timed."""
    with Workload(workload, "count") as program, probing(program.pid) as probes:
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
@pytest.mark.parametrize("lacking", ["", "_TELLS_STATE = (6, 0)"], ids=["raw tracepoints", "plain tracepoints"])
@measured_again
def test_time_off_the_cpu_agrees_with_the_programs_own(workload: Path, tmp_path: Path, lacking: str) -> None:
    """Kernels before 6.0 have plain tracepoints alone, with their fields at places of their own."""
    copy, its_helper = a_copy(tmp_path)
    if lacking:
        replace_in(copy / "helper" / "scheduler.py", lacking, f"{lacking.partition('=')[0]}= (99, 0)")
    looked = seen(workload, "futex", program=its_helper)
    slept, account = looked.probes.slept(looked.pid, looked.pid)[FUTEX], looked.account
    assert slept / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=0.05)


@X86_64
@measured_again
def test_a_thread_that_never_wakes_is_seen_sleeping(workload: Path) -> None:
    """It went to sleep before there was a probe, so no probe will tell."""
    with Workload(workload, "spin") as program, probing(program.pid, options=["--stacks"]) as probes:
        first, last = probes.next(), probes.next()
    assert [entry[:3] for entry in last["stacks"]] == [[program.pid, program.pid, READ]]
    (slept_first,), (slept_last,) = ([entry[5] for entry in report["waits"]] for report in (first, last))
    assert slept_last - slept_first == pytest.approx(last["t"] - first["t"], rel=0.01)


@dataclass(frozen=True)
class CudaSeen:
    """What one helper has seen of several programs, each with the library; they worked one after another."""

    seen: dict[str, Seen]
    polls: Counter[str]
    """Hits of the probes while "polling" worked."""

    def functions(self, mode: str) -> dict[str, list[Any]]:
        """The newest [count, ns, slots] of each function that a program called."""
        one = self.seen[mode]
        return {entry[1]: entry[2:] for entry in one.probes.all("functions") if entry[0] == one.pid}


def in_libraries(one: Seen) -> list[int]:
    """The newest [launches, ns of synchronisation] of a program's first thread."""
    launches, ns = [entry[2:4] for entry in one.probes.all("in_libraries") if entry[1] == one.pid][-1]
    return [launches, ns]


def assert_runtime_counts_once(functions: dict[str, list[Any]], one: Seen) -> None:
    """The runtime's calls contain the driver's."""
    assert functions["cudaLaunchKernel"][0] == functions["cuLaunchKernel"][0] == 400
    launches, sync_ns = in_libraries(one)
    assert launches == one.account["launches"] == 450
    assert sync_ns == pytest.approx(one.account["in_sync"], rel=0.02)


@pytest.fixture(scope="module")
def cuda_looks(kernel_probes: None, cuda_program: Path) -> Looks[CudaSeen]:
    """To attach probes to libraries and to take them away again takes a kernel a second each."""
    rounds = {"runtime": "50", "looking": "50", "polling": "100"}

    def look(_: int) -> CudaSeen:
        with ExitStack() as stack:
            programs = {
                mode: stack.enter_context(Workload(cuda_program, mode, "60", count)) for mode, count in rounds.items()
            }
            pids = [program.pid for program in programs.values()]
            probes = stack.enter_context(probing(*pids))
            probes.until(lambda report: report.get("probed") == 8 * len(pids))
            seen, hits = {}, [Counter[str]()]
            for mode, program in programs.items():
                program.start()
                seen[mode] = Seen(program.pid, program.account(), probes)
                hits.append(Counter(probes.next()["hits"]))
        return CudaSeen(seen, hits[-1] - hits[-2])

    return Looks(look)


@measured_again
def test_calls_into_libraries_are_counted_and_timed(cuda_looks: CudaSeen) -> None:
    functions, looked = cuda_looks.functions("runtime"), cuda_looks.seen["runtime"]
    assert_runtime_counts_once(functions, looked)
    assert {name: entry[0] for name, entry in functions.items() if not name.startswith("cuda")} == {
        "cuLaunchKernel": 400,
        "cuGraphLaunch": 50,
        "cuStreamSynchronize": 50,
    }
    assert functions["cuStreamSynchronize"][1] >= 50 * 2_000_000
    assert functions["cuLaunchKernel"][1] >= 400 * 2_000
    assert sum(functions["cuLaunchKernel"][2].values()) == 400
    calls = {entry[1] for entry in looked.probes.all("calls") if entry[0] == looked.pid}
    assert calls
    assert not calls & set(TRAPS["x86_64"].values()), "what the probes do is no system call of the program's"


@pytest.mark.parametrize(
    "lacking",
    [("_TAKES_MANY = (6, 10)",), ("_TAKES_MANY = (6, 10)", "_TELLS_COOKIES = (5, 15)")],
    ids=["single", "one program each"],
)
@measured_again
def test_calls_by_thread_count_once_however_the_probes_are_held(
    cuda_program: Path, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    """Older kernels have only single probes, and the oldest no cookies."""
    copy, its_helper = a_copy(tmp_path)
    for line in lacking:
        replace_in(copy / "helper" / "uprobes.py", line, f"{line.partition('=')[0]}= (99, 0)")
    looked = seen(
        cuda_program, "runtime", "60", "50", before=lambda report: report.get("probed") == 8, program=its_helper
    )
    assert_runtime_counts_once({entry[1]: entry[2:] for entry in looked.probes.all("functions")}, looked)


@measured_again
def test_asking_until_the_gpu_has_finished_is_a_wait_for_it(cuda_looks: CudaSeen) -> None:
    """Thousands of answers a round count as two calls, of which the last is as long as the wait."""
    truth = cuda_looks.seen["polling"].account["threads"]["worker"]
    _, sync_ns = in_libraries(cuda_looks.seen["polling"])
    assert truth["in_sync"] - truth["queued"] < 1.05 * sync_ns < 1.1 * truth["in_sync"], "who polls can lose the CPU"
    count, ns, _ = cuda_looks.functions("polling")["cuEventQuery"]
    assert 200 <= count <= 250
    assert ns == pytest.approx(truth["in_sync"], rel=0.05)
    assert cuda_looks.polls["poll"] > 20 * 1000
    assert cuda_looks.polls["library"] < 5000, "which is what the budget is charged"


@measured_again
def test_who_looks_now_and_then_whether_the_gpu_has_finished_does_not_wait_for_it(cuda_looks: CudaSeen) -> None:
    functions, looked = cuda_looks.functions("looking"), cuda_looks.seen["looking"]
    assert functions["cuEventQuery"][0] == 250
    _, sync_ns = in_libraries(looked)
    assert sync_ns == functions["cuStreamSynchronize"][1]
    rounds = [entry for entry in looked.probes.all("gpu_rounds") if entry[0] == looked.pid]
    assert len(rounds) == 49, "no look ends a round"


HOT = """
import os, sys, threading
to, back = os.pipe(), os.pipe()
def partner():
    while os.read(to[0], 1):
        os.write(back[1], b"x")
threading.Thread(target=partner, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
while True:
    os.write(to[1], b"x"), os.read(back[0], 1)
"""
"""Two threads that hand each other the turn: it does nothing but system calls and switches."""


@measured_again
def test_what_is_hot_when_llmtop_comes_is_let_go_of_before_it_has_cost_much() -> None:
    """A budget of 1 % of a core, and a program of which full probes would take a third."""
    with Workload(sys.executable, "-c", HOT) as program:
        program.start()
        options = ["--budget", "0.01", "--stacks"]
        with starting_first(priority=2), probing(program.pid, options=options) as probes:
            settled = probes.until(lambda report: "scheduler in slices" in report.get("shed", ""))
            later = [probes.next() for _ in range(10)][-1]
    hits = settled["hits"]
    cost_s = sum(hits[name] * NS_PER_HIT[name] for name in ("call", "switch", "stack", "sample")) / 1e9
    assert cost_s < 0.1, "of which the first look, a twentieth of a second, may take a third"
    looked_ns = later["observed"]["scheduler"] - settled["observed"]["scheduler"]
    assert 0 < looked_ns < 0.3 * (later["t"] - settled["t"])


def test_light_probes_count_calls_and_follow_threads(workload: Path) -> None:
    with Workload(workload, "nanosleep") as program, probing(program.pid, options=["--light"]) as probes:
        program.start()
        program.account()
        report = probes.next()
    assert probes.slept(program.pid, program.pid)
    count, errors, ns, slots = probes.calls(program.pid)["clock_nanosleep"]
    assert (count > 10, errors, ns, slots) == (True, 0, 0, {})
    assert (report["probed"], report["running"], report["shed"], report["missing"]) == (0, [], "", {})


def test_two_thousand_threads_find_room(workload: Path) -> None:
    """Each of them sleeps and makes calls."""
    with Workload(workload, "crowd", "0", "2000") as program:
        program.start()
        assert eventually(lambda: len(list(Path(f"/proc/{program.pid}/task").iterdir())) >= 2000)
        with probing(program.pid, options=["--stacks"]) as probes:
            probes.until(lambda _: len({entry[1] for entry in probes.all("waits")}) >= 2000)
            probes.until(lambda _: any("doze_for_ever" in entry[5] for entry in probes.all("stacks")))
    assert probes.said[-1]["lost"] == 0


def test_tables_that_are_full_are_told(workload: Path, tmp_path: Path) -> None:
    copy, its_helper = a_copy(tmp_path)
    for name, table in (("calls", "calls"), ("calls", "spins"), ("scheduler", "waits")):
        change_programs(copy, name, with_room(table, 1))
    with Workload(workload, "count") as program, probing(program.pid, program=its_helper) as probes:
        program.start()
        program.account()
        assert probes.next()["lost"] > 0


def test_a_process_that_becomes_another_program_is_still_counted(workload: Path) -> None:
    with Workload(workload, "exec") as program, probing(program.pid, options=["--stacks"]) as probes:
        program.start()
        assert program._line() == "ready"  # the second program's
        program.start()
        program.account()
        probes.next()
        assert probes.calls(program.pid)["getppid"][0] == 12345


def test_a_process_that_ends_is_reported_once(workload: Path) -> None:
    with Workload(workload, "spin") as program, probing(program.pid) as probes:
        probes.next()
        os.kill(program.pid, signal.SIGKILL)
        gone = probes.until(lambda report: report.get("gone"))
        assert gone["gone"] == [program.pid]
        assert probes.next()["gone"] == []


def test_other_users_of_the_same_tracepoint_still_get_its_events(workload: Path) -> None:
    """A program that returns 0 on a plain tracepoint takes the event from everybody else."""
    for tool in ("perf", "unshare", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} to count events beside the probes")
    needs_unshare("--mount")
    script = "mount -t tracefs none /sys/kernel/tracing; exec perf stat -x, -e sched:sched_switch -p $0 sleep 0.5"
    with Workload(workload, "nanosleep") as program, probing(program.pid) as probes:
        probes.next()
        program.start()
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, str(program.pid)], capture_output=True, text=True, check=False
        )
    counted = re.search(r"^(\d+),,sched:sched_switch", done.stderr, re.MULTILINE)
    assert counted, done.stderr
    # A program that returns 0 leaves none. How many there are is the kernel's matter: some give perf a part of them.
    assert int(counted.group(1)) > 0


def test_probes_end_with_the_helper_and_nothing_of_the_machine_is_changed(workload: Path) -> None:
    mounts = Path("/proc/mounts").read_text()
    with Workload(workload, "spin") as program, probing(program.pid) as probes:
        pid = probes.helper.process.pid
        assert programs_in_kernel(pid) >= 7
        assert Path("/proc/mounts").read_text() == mounts
        probes.helper.close()
        assert not Path(f"/proc/{pid}").exists()
    assert Path("/proc/mounts").read_text() == mounts


def test_probes_end_when_their_owner_is_killed(workload: Path) -> None:
    """Nobody gets to say goodbye."""
    with Workload(workload, "spin") as program, owned(program.pid) as (owner, helper):
        assert programs_in_kernel(helper) >= 7
        owner.kill()
        assert eventually(lambda: not system.start_time(helper))
        assert programs_in_kernel(helper) == 0


def test_others_with_probes_are_told_of(workload: Path) -> None:
    with Workload(workload, "spin") as program, probing(program.pid) as first, probing(program.pid) as second:
        others = {pid for pid, _, _ in second.said[0]["others"]}
    assert first.helper.process.pid in others


def test_a_library_program_that_the_kernel_refuses_costs_only_itself(cuda_program: Path, tmp_path: Path) -> None:
    copy, its_helper = a_copy(tmp_path)
    change_programs(copy, "library", refused("enter_any"))
    with Workload(cuda_program, "plain") as program, probing(program.pid, program=its_helper) as probes:
        missing = probes.until(lambda report: "library calls" in report.get("missing", ()))["missing"]
        assert missing["library calls"][0] == "the kernel refuses enter_any: R0 !read_ok"
        assert probes.next()["functions"] == []
