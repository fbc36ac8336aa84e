"""Counters of threads: which threads are counted, what is told of them, and why something is not."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import Probes
from llmtop.collectors.perf_counters import MOST, SOFTWARE, PerfCountersCollector
from llmtop.collectors.tracing.helper.kernel import CounterGroup
from llmtop.model import NS_PER_S, Metric, Target, TargetProcess, Trace, Unknown

ENGINE, API = 40, 30
TARGET = Target(
    API, API, "vllm", "vLLM", (TargetProcess(API, "APIServer", "vllm serve"), TargetProcess(ENGINE, "EngineCore", "e"))
)


@dataclass
class Kernel:
    """A machine's threads with what they have run, and what it says to who wants to count them."""

    folder: Path
    now: int = 0
    refuses: dict[str, int] = field(default_factory=dict)
    counts: dict[int, list[int]] = field(default_factory=dict)
    opened: list[tuple[str, int]] = field(default_factory=list)
    closed: list[tuple[str, int]] = field(default_factory=list)

    def runs(self, pid: int, tid: int, run_ns: int) -> None:
        task = self.folder / str(pid) / "task" / str(tid)
        task.mkdir(parents=True, exist_ok=True)
        (task / "schedstat").write_text(f"{run_ns} 0 1\n")

    def ends(self, pid: int, tid: int) -> None:
        task = self.folder / str(pid) / "task" / str(tid)
        (task / "schedstat").unlink()
        task.rmdir()

    def group(self, events: Sequence[tuple[int, int]], tid: int) -> CounterGroup:
        kind = "software" if tuple(events) == tuple(SOFTWARE.values()) else "hardware"
        if kind in self.refuses:
            raise OSError(self.refuses[kind], os.strerror(self.refuses[kind]))
        self.opened.append((kind, tid))
        return _Group(self, kind, tid, len(events))

    def collector(self, probes: Probes = Probes.FULL) -> PerfCountersCollector:
        return PerfCountersCollector(TARGET, probes, self.folder, lambda: self.now, self.group)


class _Group(CounterGroup):
    """Counts what the kernel of the test says."""

    def __init__(self, kernel: Kernel, kind: str, tid: int, size: int) -> None:
        self.kernel, self.kind, self.tid, self.size = kernel, kind, tid, size

    def read(self) -> tuple[int, ...] | None:
        return tuple(self.kernel.counts.get(self.tid, [0] * 8)[: self.size])

    def close(self) -> None:
        self.kernel.closed.append((self.kind, self.tid))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    made.runs(API, API, 5)
    made.runs(ENGINE, ENGINE, 5)
    made.runs(ENGINE, 41, 5)
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/perf_event_paranoid").write_text("2\n")
    return made


def told(trace: Trace) -> dict[tuple[str, str], float | None]:
    return {(one.track, one.metric.name): one.value for one in trace.readings}


def why(trace: Trace, metric: Metric) -> str:
    found = trace.why_missing(whats.metric(metric))
    return "" if found is None else str(found)


def test_first_threads_are_counted_at_once_and_busy_ones_when_they_are_known(kernel: Kernel) -> None:
    kernel.counts = {ENGINE: [7, 1, 2, 0, 0]}
    collector = kernel.collector()
    first = told(collector.poll())
    assert first[ids.thread(ENGINE, ENGINE), v.THREAD_MINOR_FAULTS.name] == 7
    assert first[ids.thread(ENGINE, ENGINE), v.THREAD_MIGRATIONS.name] == 2
    assert {track for track, _ in first} == {ids.thread(API, API), ids.thread(ENGINE, ENGINE)}
    kernel.runs(ENGINE, 41, 5 + NS_PER_S // 2)
    kernel.now = NS_PER_S
    assert ids.thread(ENGINE, 41) in {track for track, _ in told(collector.poll())}


def test_a_thread_that_has_ended_or_rests_is_let_go(kernel: Kernel) -> None:
    collector = kernel.collector()
    collector.poll()
    kernel.runs(ENGINE, 41, NS_PER_S)
    kernel.now = NS_PER_S
    collector.poll()
    assert ("software", 41) in kernel.opened
    kernel.now = 12 * NS_PER_S
    collector.poll()
    assert kernel.closed == [("software", 41), ("hardware", 41)]
    kernel.ends(API, API)
    kernel.now = 23 * NS_PER_S
    collector.poll()
    assert ("software", API) in kernel.closed
    collector.__exit__(None, None, None)
    assert sorted(kernel.opened) == sorted(kernel.closed)


def test_no_more_threads_are_counted_than_files_may_be_open_for(kernel: Kernel) -> None:
    collector = kernel.collector()
    collector.poll()
    for tid in range(100, 200):
        kernel.runs(ENGINE, tid, 0)
    kernel.now = NS_PER_S
    collector.poll()
    for tid in range(100, 200):
        kernel.runs(ENGINE, tid, tid * 10_000_000)
    kernel.now = 11 * NS_PER_S
    collector.poll()
    counted = {tid for kind, tid in kernel.opened if kind == "software"}
    assert len(counted) == MOST
    assert counted == {API, ENGINE, *range(200 - (MOST - 2), 200)}


def test_what_stands_still_is_told_again_after_a_while(kernel: Kernel) -> None:
    collector = kernel.collector()
    assert told(collector.poll())
    for second, is_told in ((1, False), (4, False), (5, True)):
        kernel.now = second * NS_PER_S
        assert bool(told(collector.poll())) is is_told, second
    kernel.counts = {API: [1, 0, 0, 0, 0]}
    kernel.now = 6 * NS_PER_S
    assert {track for track, _ in told(collector.poll())} == {ids.thread(API, API)}


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no counters of the processor (PMU)"),
        (errno.EOPNOTSUPP, "no counters of the processor (PMU)"),
        (errno.EACCES, "perf_event_open: Permission denied (perf_event_paranoid 2)"),
        (errno.EPERM, "perf_event_open: Operation not permitted (perf_event_paranoid 2)"),
        (errno.ENOSYS, "this kernel counts no events"),
        (errno.EMFILE, "as many files open as it may"),
    ],
)
def test_what_is_refused_says_why_and_costs_only_itself(kernel: Kernel, number: int, reason: str) -> None:
    kernel.refuses = {"hardware": number}
    trace = kernel.collector().poll()
    assert reason in why(trace, v.THREAD_CYCLES)
    assert reason in why(trace, v.THREAD_DTLB_MISSES)
    assert why(trace, v.THREAD_MINOR_FAULTS) == ""
    assert {metric for _, metric in told(trace)} == {metric.name for metric in SOFTWARE}


def test_a_right_may_come_later_and_a_processor_does_not(kernel: Kernel) -> None:
    kernel.refuses = {"software": errno.EACCES, "hardware": errno.ENOENT}
    collector = kernel.collector()
    assert not collector.poll().readings
    kernel.refuses = {}
    kernel.now = NS_PER_S
    trace = collector.poll()
    assert why(trace, v.THREAD_MINOR_FAULTS) == ""
    assert "PMU" in why(trace, v.THREAD_CYCLES)
    assert {metric for _, metric in told(trace)} == {metric.name for metric in SOFTWARE}


def test_a_thread_that_ends_meanwhile_is_no_reason(kernel: Kernel) -> None:
    kernel.refuses = {"software": errno.ESRCH, "hardware": errno.ESRCH}
    trace = kernel.collector().poll()
    assert trace.missing == ()
    assert trace.readings == ()


def test_light_probes_leave_the_processor_alone_and_none_all(kernel: Kernel) -> None:
    trace = kernel.collector(Probes.LIGHT).poll()
    assert "--probes light" in why(trace, v.THREAD_CYCLES)
    assert {kind for kind, _ in kernel.opened} == {"software"}
    off = kernel.collector(Probes.OFF).missing()
    assert isinstance(off, Unknown)
    assert "switched off" in off.reason
    assert kernel.collector().missing() is None


PAGES = 4000


def test_the_real_kernel_counts_each_page_that_is_touched() -> None:
    own = Target(os.getpid(), os.getpid(), "x", "x", ())
    track = ids.thread(os.getpid(), os.getpid())
    with PerfCountersCollector(own) as collector:
        before = collector.poll()
        if reason := why(before, v.THREAD_MINOR_FAULTS):
            pytest.skip(reason)
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as fresh:
            fresh.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(PAGES):
                fresh[page * mmap.PAGESIZE] = 1
        after = collector.poll()
    key = (track, v.THREAD_MINOR_FAULTS.name)
    grown = (told(after)[key] or 0) - (told(before)[key] or 0)
    assert PAGES <= grown < PAGES * 1.5
