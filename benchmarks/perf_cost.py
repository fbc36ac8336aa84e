"""What each kind of perf look costs the program that is looked at, and what a round of looks costs llmtop.

Usage: sudo python benchmarks/perf_cost.py [ROUNDS [WORKLOAD ...]], of round, call and switch

The workloads are those of ebpf_overhead.py: a system call, and a round trip between two threads (two switches, two
wake-ups, four calls), over and over on one CPU. The program's own CPU time per operation is compared with and without
perf at work on it, cases by turns; the best batch of all rounds counts. The numbers in perf/budget.py of the tracers
come from here. Needs root, perf and gcc.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.perf.collector import PROGRAM
from llmtop.collectors.tracing.perf.events import PerfEvents
from llmtop.collectors.tracing.perf.run import PerfProgram, Recording
from llmtop.collectors.tracing.perf.threads import ServerThreads, ThreadTable
from llmtop.model import Unknown
from tests.collectors.perf_waits import wait_plainly

HERE = Path(__file__).resolve().parent
BATCHES = {"call": 300, "switch": 50}
CASES = ("nothing", "scheduler", "scheduler, of another process", "stacks of sleeps", "on-CPU stacks", "system calls")


def options_of(case: str, pid: int, program: PerfProgram) -> list[str]:
    """What the helper would tell perf."""
    server = ServerThreads([os.getpid()] if "another" in case else [pid])
    server.renew()
    if "another" in case:
        server.family = ThreadTable({os.getpid(): os.getpid()})  # without its child, the workload
    server.measure()
    events = PerfEvents(program, server, wait_plainly)
    part = "scheduler" if case.startswith("scheduler") else "syscalls" if case == "system calls" else "samples"
    return events.options(part, sleeps=case == "stacks of sleeps")


@contextmanager
def watched(case: str, pid: int, program: PerfProgram) -> Iterator[None]:
    """With perf at work all the time; what it records is thrown away."""
    if case == "nothing":
        yield
        return
    options = [*options_of(case, pid, program), "-o", "/dev/null"]
    with closing(Recording(program.path, options)) as recording:
        recording.tell("disable", wait_plainly)
        recording.tell("enable", wait_plainly)
        yield


def measure(binary: Path, workload: str, case: str, program: PerfProgram) -> tuple[float, float]:
    """The best and the median batch, in ns per operation."""
    argv = ["chrt", "-f", "10", str(binary), workload, str(BATCHES[workload])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with watched(case, process.pid, program):
            process.stdin.write("go\n")
            process.stdin.flush()
            best, _, median, _ = (float(word) for word in process.stdout.readline().split())
    return best, median


def compare(binary: Path, workload: str, rounds: int, program: PerfProgram) -> None:
    """Print one table."""
    results: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            results[case].append(measure(binary, workload, case, program))
    base = min(best for best, _ in results["nothing"])
    print(f"\n{workload}: ns of CPU time per operation, best batch of {rounds} rounds")
    print(f"{'':<34}{'ns':>9}{'ratio':>8}{'added':>9}{'median':>9}")
    for case in CASES:
        best = min(one for one, _ in results[case])
        median = statistics.median(one for _, one in results[case])
        print(f"{case:<34}{best:9.0f}{best / base:8.2f}{best - base:+9.0f}{median:9.0f}")


def round_cost(rounds: int) -> None:
    """Print what llmtop itself pays for one round of 0.8 s looks at a program that sleeps and works by turns."""
    code = "import time\nwhile True:\n    sum(range(20000)); time.sleep(0.002)"
    with subprocess.Popen([sys.executable, "-c", code]) as target:
        try:
            for _ in range(rounds):
                argv = [*PROGRAM, str(target.pid), "--once", "0.8", "--stacks"]
                start = time.monotonic()
                with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
                    assert helper.stdout is not None
                    last = helper.stdout.readlines()[-1]
                    spent = own_ns(helper.pid)
                children = int(last.partition(b'"children_ns":')[2].partition(b",")[0]) / 1e9
                took = time.monotonic() - start
                print(f"a round: {took:.1f} s, of which perf's CPU {children:.2f} s{spent}")
        finally:
            target.kill()


def own_ns(pid: int) -> str:
    """The helper's own CPU time, while it is a zombie still."""
    fields = system.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return f", the helper's {(int(fields[11]) + int(fields[12])) / 100:.2f} s" if fields else ""


def main() -> None:
    """Build the workload and compare."""
    program = perf_run.find()
    if isinstance(program, Unknown):
        raise SystemExit(str(program))
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = sys.argv[2:] or ["round", *BATCHES]
    system.see_tracepoints()
    if "round" in chosen:
        round_cost(rounds)
    with tempfile.TemporaryDirectory() as folder:
        binary, empty, library = Path(folder) / "overhead", Path(folder) / "empty.c", Path(folder) / "libempty.so"
        empty.write_text("int cuLaunchKernel(void) { return 1; }\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, empty], check=True)
        source = [HERE / "ebpf_overhead.c", library]
        subprocess.run(["gcc", "-O2", "-pthread", "-o", binary, *source, f"-Wl,-rpath,{folder}"], check=True)
        for workload in [name for name in BATCHES if name in chosen]:
            compare(binary, workload, rounds, program)


if __name__ == "__main__":
    main()
