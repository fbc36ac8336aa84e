"""What each kind of probe costs the program it looks at, beside other tracers.

Usage: sudo python benchmarks/ebpf_overhead.py [ROUNDS [WORKLOAD ...]], of call, yield, switch, library and collectors

The workload does one thing over and over on one CPU: a system call, a context switch (two of them and four calls per
operation: a ping-pong over pipes), a call into a stand-in libcuda. Its own CPU time per operation is compared with and
without the tracer, cases by turns, and the best batch of all rounds counts: other programs only ever add to it. Needs
root and gcc; strace and perf are shown where they are installed.

"collectors" compares llmtop's collectors as they are, each with stacks and without a budget, for some seconds a case
and by the mean: the one by perf looks now and then. They are attached once they have said something, and detached
once their process has ended.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLLECTORS_FOLDER = HERE.parent / "collectors"
ATTACH_S = 60.0
OPERATIONS = 2000
"""In a batch."""
BATCHES = {"call": 400, "yield": 300, "switch": 60, "library": 60}
IN_TRACEFS = ["unshare", "-m", "sh", "-c", 'mount -t tracefs none /sys/kernel/tracing 2>/dev/null; exec "$@"', "sh"]
"""perf needs tracefs: it gets a mount of their own where the machine has none."""

PART = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tracing.probes.helper import calls, lifecycle, library, programs, scheduler
from tracing.helper import symbols, system
pid, what = int(sys.argv[2]), sys.argv[3]
system.see_tracepoints()
start = time.monotonic()
sources = programs.Programs()
by_registers = scheduler.source()
sources.ask(lifecycle.SOURCE, calls.SOURCE, by_registers)
life = lifecycle.Lifecycle(sources.wait(lifecycle.SOURCE))
life.add(1 if "others" in what else pid)
if "calls" in what:
    part = calls.SystemCallProbes(sources.wait(calls.SOURCE))
    part.set_mode("counted" if "counted" in what else "timed")
if "scheduler" in what:
    part = scheduler.SchedulerProbes(sources.wait(by_registers), symbols.Symbols(), by_registers)
    part.set_on(True)
    every = [word for word in what.split() if word.isdigit()]
    part.set_stacks(int(every[0]) if every else 0, 0)
if "library" in what:
    part = library.Library(sources, 1e18, lambda: life.hits_of("library"))
    while not part.probed:
        part.tick([pid])
        time.sleep(0.1)
print("attached", round(time.monotonic() - start, 3), flush=True)
sys.stdin.read()
"""

COLLECTOR = """
import select, sys
from importlib import import_module
sys.path.insert(0, sys.argv[1])
from llmtop.model import Target, TargetProcess
module, name, pid = sys.argv[2], sys.argv[3], int(sys.argv[4])
options = {} if name == "ProcCollector" else {"budget": 100.0}
target = Target(pid, pid, "process", "a workload", (TargetProcess(pid, "", ""),))
with getattr(import_module(module), name)(target, **options) as collector:
    has_said = False
    while not select.select([0], [], [], collector.period_s)[0]:
        if collector.poll().readings and not has_said:
            has_said = True
            print("attached", flush=True)
"""
COLLECTORS = (
    ("/proc", "llmtop.collectors.proc", "ProcCollector"),
    ("eBPF", "llmtop.collectors.tracing.probes.collector", "EbpfCollector"),
    ("perf", "llmtop.collectors.tracing.perf.collector", "PerfCollector"),
)
COLLECTOR_S = 5.0
"""How long a collector is looked at: longer than perf's collector rests between two looks."""


@dataclass(frozen=True)
class Case:
    """A tracer on a workload. `fraction` of the batches is enough for the slow ones."""

    name: str
    command: tuple[str, ...]
    attached: str = ""
    fraction: float = 1.0


def part(name: str, what: str) -> Case:
    """Some of llmtop's own probes."""
    return Case(name, ("/usr/bin/python3", "-I", "-c", PART, str(COLLECTORS_FOLDER), "PID", what), "attached")


def collectors() -> list[Case]:
    """The collectors, each in a process of its own."""
    start = (sys.executable, "-c", COLLECTOR, str(HERE.parent))
    found = [Case(f"llmtop: {name}", (*start, module, made, "PID"), "attached") for name, module, made in COLLECTORS]
    return [Case("nothing", ()), *found]


def cases(workload: str, library: Path) -> list[Case]:
    """What is compared on a workload."""
    if workload == "library":
        return [Case("nothing", ()), part("llmtop: library calls", "library")]
    common = [
        Case("nothing", ()),
        part("llmtop: calls counted", "calls counted"),
        part("llmtop: calls timed", "calls"),
        part("llmtop: calls timed, of another process", "calls others"),
        part("llmtop: calls counted, of another process", "calls counted others"),
        part("llmtop: scheduler", "scheduler"),
        part("llmtop: scheduler, of another process", "scheduler others"),
        part("llmtop: scheduler and every 16th stack", "scheduler 16"),
        part("llmtop: scheduler and all stacks", "scheduler 1"),
        part("llmtop: everything", "calls scheduler 1"),
    ]
    return common + [case for case in _others() if shutil.which(case.name.split()[0].rstrip(","))]


def _others() -> list[Case]:
    return [
        Case("perf trace -s", (*IN_TRACEFS, "perf", "trace", "-s", "-p", "PID", "-o", "/dev/null"), "", 0.05),
        Case("strace -c -f", ("strace", "-c", "-f", "-o", "/dev/null", "-p", "PID"), "attached", 0.02),
    ]


@contextmanager
def traced(case: Case, pid: int, times: dict[str, list[float]]) -> Iterator[None]:
    """The tracer at work; how long it takes to attach and to go away is added to `times`."""
    if not case.command:
        yield
        return
    command = [word.replace("PID", str(pid)) if "PID" in word else word for word in case.command]
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        tracer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        _wait_for(output.fileno(), case.attached, tracer)
        times.setdefault("start", []).append(time.monotonic() - start)
        try:
            yield
        finally:
            start = time.monotonic()
            assert tracer.stdin is not None
            tracer.stdin.close()
            if not case.name.startswith("llmtop"):
                tracer.terminate()
            tracer.wait()
            times.setdefault("stop", []).append(time.monotonic() - start)


def _wait_for(descriptor: int, word: str, tracer: subprocess.Popen[bytes]) -> None:
    """Wait until the tracer says it is attached; those that say nothing get two seconds."""
    deadline = time.monotonic() + (ATTACH_S if word else 2.0)
    while time.monotonic() < deadline:
        if word and word.encode() in os.pread(descriptor, 1 << 16, 0):
            if word == "Attaching":  # said before it is done
                time.sleep(1.5)
            return
        if tracer.poll() is not None:
            raise SystemExit(f"a tracer ended: {os.pread(descriptor, 2000, 0).decode()}")
        time.sleep(0.02)
    if word:
        raise SystemExit("a tracer did not attach")


def measure(
    program: Path, workload: str, case: Case, batches: int, times: dict[str, list[float]]
) -> tuple[float, float, float]:
    """The best and the median batch and the mean of all, in ns per operation."""
    mine = ["chrt", "-f", "10"] if shutil.which("chrt") else []
    argv = [*mine, str(program), workload, str(max(5, int(batches * case.fraction))), str(OPERATIONS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with traced(case, process.pid, times):
            process.stdin.write("go\n")
            process.stdin.flush()
            best, _, median, mean = (float(word) for word in process.stdout.readline().split())
    return best, median, mean


def compare(program: Path, workload: str, rounds: int, batches: int) -> None:
    """Print one table."""
    todo = cases(workload, program.with_name("libcuda.so.1"))
    results: dict[str, list[tuple[float, float, float]]] = {case.name: [] for case in todo}
    times: dict[str, dict[str, list[float]]] = {case.name: {} for case in todo}
    for _ in range(rounds):
        for case in todo:
            results[case.name].append(measure(program, workload, case, batches, times[case.name]))
    base = min(best for best, _, _ in results["nothing"])
    print(f"\n{workload}: ns of CPU time per operation, best batch of {rounds} rounds")
    print(f"{'':<42}{'ns':>9}{'ratio':>8}{'added':>9}{'median':>9}{'start s':>9}{'stop s':>8}")
    for case in todo:
        best = min(one for one, _, _ in results[case.name])
        median = statistics.median(one for _, one, _ in results[case.name])
        clocks = "".join(f"{statistics.median(spent):9.2f}" for spent in times[case.name].values())
        print(f"{case.name:<42}{best:9.0f}{best / base:8.2f}{best - base:+9.0f}{median:9.0f}{clocks}")


def compare_collectors(program: Path, workload: str, rounds: int) -> None:
    """Print one table of llmtop's collectors."""
    todo = collectors()
    times: dict[str, dict[str, list[float]]] = {case.name: {} for case in todo}
    best, _, _ = measure(program, workload, todo[0], 50, times["nothing"])
    batches = int(COLLECTOR_S * 1e9 / (best * OPERATIONS))
    means: dict[str, list[float]] = {case.name: [] for case in todo}
    for _ in range(rounds):
        for case in todo:
            means[case.name].append(measure(program, workload, case, batches, times[case.name])[2])
    base = min(means["nothing"])
    print(f"\n{workload}: ns of CPU time per operation, mean of {COLLECTOR_S:.0f} s, the best of {rounds} rounds")
    print(f"{'':<24}{'ns':>9}{'ratio':>8}{'added':>9}{'start s':>9}{'stop s':>8}")
    for case in todo:
        mean = min(means[case.name])
        clocks = "".join(f"{statistics.median(spent):9.2f}" for spent in times[case.name].values())
        print(f"{case.name:<24}{mean:9.0f}{mean / base:8.2f}{mean - base:+9.0f}{clocks}")


def main() -> None:
    """Build the workload and compare."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = sys.argv[2:] or [*BATCHES, "collectors"]
    with tempfile.TemporaryDirectory() as folder:
        library, program = Path(folder) / "libcuda.so.1", Path(folder) / "ebpf_overhead"
        empty = Path(folder) / "empty.c"
        empty.write_text(
            "__attribute__((noipa)) int nothing(void) { return 0; }\n"
            "int cuLaunchKernel(void) { return nothing() + 1; }\n"
        )
        # A function that begins like real ones do, by keeping the frame pointer: that is what the kernel need not step.
        flags = ["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, empty], check=True)
        source = [str(HERE / "ebpf_overhead.c"), str(library)]
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, *source, f"-Wl,-rpath,{folder}"], check=True)
        for workload in chosen:
            if workload == "collectors":
                for one in ("call", "yield", "switch"):
                    compare_collectors(program, one, rounds)
            else:
                compare(program, workload, rounds, BATCHES[workload])


if __name__ == "__main__":
    main()
