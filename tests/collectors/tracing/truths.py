"""What every tracer whose helper looks all the time must see: the same as the programs say of themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from llmtop import ids
from llmtop.collectors import children
from llmtop.collectors.tracing.probes.collector import PROGRAM, EbpfCollector
from tests.collectors.tracing.collecting import Watch, missing
from tests.collectors.tracing.probes import Probes
from tests.workloads.programs import Workload, started, target_of

Looking: TypeAlias = Callable[..., AbstractContextManager[Probes]]
"""`probing`, or the same with another tracer."""
FIVE_POINTS = 0.05
NANOSLEEP, CLOCK_NANOSLEEP, FUTEX, READ, READV = 35, 230, 202, 0, 19
"""Numbers of system calls on x86-64."""
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Seen:
    """What a helper has seen of a program that kept account of itself."""

    pid: int
    account: dict[str, Any]
    probes: Probes

    def truth(self, what: str) -> float:
        """The program's own account, as a share of the time."""
        return float(self.account[what] / self.account["wall"])

    def share(self, ns: float) -> float:
        """A time as such a share."""
        return float(ns / self.account["wall"])

    def slept(self, *calls: int) -> float:
        """The share of the time that its main thread slept in some system calls."""
        slept = self.probes.slept(self.pid, self.pid)
        return self.share(sum(slept.get(call, 0) for call in calls))


def seen(
    look: Looking,
    *argv: str | Path,
    options: tuple[str, ...] = (),
    before: Callable[[dict[str, Any]], object] | None = None,
    after: Callable[[dict[str, Any]], object] | None = None,
) -> Seen:
    """Look at a program from before it works until a look that began when it had told what it did.

    Args:
        look: How.
        argv: The program.
        options: The helper's.
        before: A report to wait for before it works.
        after: A report to wait for once it has worked.
    """
    with Workload(*argv) as program, look(program.pid, options=options) as probes:
        if before:
            probes.until(before)
        program.start()
        account = program.account()
        if after:
            probes.until(after)
        probes.next()
    return Seen(program.pid, account, probes)


def counts_are_exact(workload: Path, look: Looking) -> None:
    """Over threads and children; calls that spin are counted, and not timed."""
    with Workload(workload, "count") as program, look(program.pid) as probes:
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


def is_watched_from_start_to_end(
    make: type[EbpfCollector],
    workload: Path,
    seconds: str,
    *,
    interval_s: float,
    meanwhile: Callable[[], object] = bool,
) -> tuple[dict[str, Any], Watch]:
    """A collector of a program that sleeps in nanosleep: the program's account with the calls seen, and what was told.

    Args:
        make: The collector's class.
        workload: The programs.
        seconds: How long the program works.
        interval_s: The helper's.
        meanwhile: Called when there are readings.
    """
    with (
        Workload(workload, "nanosleep", seconds) as program,
        make(target_of(program.pid), interval_s=interval_s, budget=100) as collector,
    ):
        watch = Watch(collector)
        assert missing(watch.last) == {"ebpf": "the probes attach (wait a second)"}
        assert len(children.running()) == 1
        watch.until(lambda trace: trace.readings)
        meanwhile()
        program.start()
        account = program.account()
        before_ns = time.monotonic_ns()
        watch.until(lambda trace: any(reading.t_ns > before_ns for reading in trace.readings))
        watch.until(lambda trace: any("sleep_here" in stack.frames for stack in trace.stacks))
    assert children.running() == ()
    assert {reading.source for reading in watch.readings} == {make.source}
    slept = watch.value(ids.thread(program.pid, program.pid), "thread.blocked|nanosleep")
    assert slept / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=FIVE_POINTS)
    return {**account, "calls": watch.value(ids.process(program.pid), "syscall.count|clock_nanosleep")}, watch


OWNER = """
import select, sys
from llmtop.collectors.tracing.process import HelperProcess
helper = HelperProcess([sys.argv[2], "--interval", "0.2"], sudo=sys.argv[1] == "sudo", program=tuple(sys.argv[3:]))
while not (ready := [report for report in helper.reports() if report["kind"] == "ready"]):
    select.select([helper], [], [])
print(ready[0]["pid"], flush=True)
sys.stdin.read()
"""


@contextmanager
def owned(
    pid: int, program: tuple[str, ...] = PROGRAM, *, sudo: bool = False
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process other than this one that has started a helper, which is ready; both, to be killed."""
    command = [sys.executable, "-c", OWNER, "sudo" if sudo else "", f"{pid}", *program]
    with started(command, stdin=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        yield owner, int(owner.stdout.readline())
