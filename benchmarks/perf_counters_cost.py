"""What counting events of threads costs llmtop and the threads, and what a page fault takes.

Usage: sudo python benchmarks/perf_counters_cost.py [SECONDS]

A program has 160 threads, of which 16 wake a hundred times a second and work for a millisecond. The collector looks at
it twice a second, as it would beside a server: its own CPU time is told as a share of a core. Two threads that wake
each other without end tell what a switch costs with and without counters, by turns; a program that maps and touches
memory and gives it back, what a minor fault takes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from llmtop import procfs
from llmtop.collectors.perf_counters import PerfCountersCollector
from llmtop.model import Target, TargetProcess

CROWD = """
import threading, time
def work():
    while True:
        time.sleep(0.01)
        until = time.thread_time() + 0.001
        while time.thread_time() < until: pass
for i in range(159):
    threading.Thread(target=work if i < 16 else time.sleep, args=() if i < 16 else (1e6,), daemon=True).start()
time.sleep(1e6)
"""
PAIR = """
import os, threading
(a, b), (c, d) = os.pipe(), os.pipe()
def echo():
    while True: os.read(a, 1); os.write(d, b"x"); rounds[0] += 1
rounds = [0]
threading.Thread(target=echo, daemon=True).start()
while True: os.write(b, b"x"); os.read(c, 1)
"""
FAULTS = """
import mmap, resource
before, pages = resource.getrusage(resource.RUSAGE_SELF), 0
while pages < 400_000:
    fresh = mmap.mmap(-1, 4096 * 1000)
    for i in range(1000): fresh[4096 * i] = 1
    fresh.close(); pages += 1000
after = resource.getrusage(resource.RUSAGE_SELF)
print((after.ru_stime - before.ru_stime) / (after.ru_minflt - before.ru_minflt))
"""
ROUNDS = 8


@contextmanager
def program(code: str) -> Iterator[Target]:
    """It runs, and is taken for an engine."""
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        time.sleep(1)
        yield Target(child.pid, child.pid, "x", "x", (TargetProcess(child.pid, "EngineCore", "x"),))
    finally:
        child.kill()
        child.wait()


def own_share(seconds: float) -> tuple[float, int]:
    """Of a core, at two looks a second; and how many readings a look gives."""
    with program(CROWD) as target, PerfCountersCollector(target) as collector:
        collector.poll()
        started_ns, used_ns, told = time.monotonic_ns(), time.thread_time_ns(), 0
        while time.monotonic_ns() - started_ns < seconds * 1e9:
            time.sleep(0.5)
            told = len(collector.poll().readings)
        return (time.thread_time_ns() - used_ns) / (time.monotonic_ns() - started_ns), told


def switches_per_cpu_s(target: Target) -> float:
    """Voluntary switches over its CPU time, in a second."""
    before, after = (_spent(target.pid, wait_s) for wait_s in (0, 1))
    return (after[0] - before[0]) / (after[1] - before[1])


def _spent(pid: int, wait_s: float) -> tuple[int, float]:
    time.sleep(wait_s)
    switches, used_ns = 0, 0
    for tid in procfs.threads(pid):
        status = procfs.read_text(f"/proc/{pid}/task/{tid}/status") or ""
        switches += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        used_ns += int((procfs.read_text(f"/proc/{pid}/task/{tid}/schedstat") or "0").split()[0])
    return switches, used_ns / 1e9


def switch_cost() -> tuple[float, float]:
    """CPU microseconds of a switch without and with counters, medians of rounds by turns."""
    without, counted = [], []
    with program(PAIR) as target:
        for _ in range(ROUNDS):
            without.append(1e6 / switches_per_cpu_s(target))
            with PerfCountersCollector(target) as collector:
                collector.poll()
                counted.append(1e6 / switches_per_cpu_s(target))
    return statistics.median(without), statistics.median(counted)


def main() -> int:
    """Print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    share, told = own_share(seconds)
    print(f"llmtop, 160 threads at 2 Hz: {100 * share:.3f} % of a core, {told} readings in the last look")
    without, counted = switch_cost()
    print(f"a switch of theirs: {without:.2f} us of CPU, with counters {counted:.2f} us")
    fault_s = float(subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout)
    print(f"a minor page fault: {1e6 * fault_s:.2f} us of the kernel's time ({os.uname().machine})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
