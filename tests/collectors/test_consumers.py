"""Who takes the CPUs: a made-up /proc with known numbers, and this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop import vocabulary as v
from llmtop.collectors.consumers import CALM_NS, CROWDED_NS, FIRST_NS, ConsumersCollector
from llmtop.model import NS_PER_S, Metric, Target, TargetProcess, Trace, Unknown
from tests.collectors.processes import eventually

HERTZ = os.sysconf("SC_CLK_TCK")
SERVER = Target(100, 100, "vllm", "vLLM", (TargetProcess(100, "APIServer", "vllm"),))


class Machine:
    """A folder that looks like /proc, and a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0
        (folder / "pressure").mkdir()
        self.cpu()
        self.pressure(0.0)

    def clock(self) -> int:
        return self.now

    def process(
        self,
        pid: int,
        name: str,
        seconds: float,
        *,
        parent: int = 1,
        ended: float = 0.0,
        start: int = 5,
        group: str = "",
    ) -> None:
        ticks, children = int(seconds * HERTZ), int(ended * HERTZ)
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 {ticks - 1} 1 {children - 2} 2 20 0 1 0 {start} 0 0"
        (folder / "stat").write_text(f"{pid} ({name}) {fields}")
        (folder / "cgroup").write_text(f"0::/{group}\n")

    def ends(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()

    def cpu(self, user: float = 0, idle: float = 0, softirq: float = 0, steal: float = 0) -> None:
        parts = (user, 0, 0, idle, 0, 0, softirq, steal)
        line = " ".join(str(int(part * HERTZ)) for part in parts)
        (self.folder / "stat").write_text(f"cpu  {line} 0 0\ncpu0 1 2 3\n")

    def pressure(self, percent: float) -> None:
        (self.folder / "pressure" / "cpu").write_text(f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def collector(machine: Machine) -> ConsumersCollector:
    return ConsumersCollector(SERVER, machine.folder, machine.clock)


def cores(trace: Trace) -> Mapping[str, float | None]:
    found = {one.track: one.value for one in trace.readings if one.metric == v.NEIGHBOUR_CPU}
    return {trace.tracks[track].name: value for track, value in found.items()}


def host(trace: Trace, metric: Metric) -> float | None:
    (value,) = (one.value for one in trace.readings if (one.track, one.metric) == ("host", metric))
    return value


def later(machine: Machine, collector: ConsumersCollector, seconds: float) -> Trace:
    machine.now += int(seconds * NS_PER_S)
    return collector.poll()


def test_the_others_are_named_with_their_cgroup_and_the_server_is_not(
    machine: Machine, collector: ConsumersCollector
) -> None:
    machine.process(100, "vllm", 10.0)
    machine.process(101, "VLLM::EngineCore", 10.0, parent=100)
    machine.process(200, "stress ) ng\x1b[1m", 5.0, group="docker/" + "3f2a91b0c7d1" + 52 * "0")
    machine.process(300, "cron", 1.0)
    assert not collector.poll().readings
    machine.process(100, "vllm", 11.0)
    machine.process(101, "VLLM::EngineCore", 12.0, parent=100)
    machine.process(200, "stress ) ng\x1b[1m", 8.6, group="docker/" + "3f2a91b0c7d1" + 52 * "0")
    trace = later(machine, collector, 2)
    assert (trace.origin.kind, trace.start_ns, trace.end_ns) == ("live", machine.clock(), machine.clock())
    (track,) = trace.tracks.values()
    assert track.id == "neighbour:200"
    path = str(track.facts["cgroup_path"])
    assert dict(track.facts) == {"pid": 200, "cgroup": "docker 3f2a91b0c7d1", "cgroup_path": path}
    assert "3f2a91b0c7d1" in path
    assert "\x1b" not in track.name
    assert list(cores(trace).values()) == [pytest.approx(1.8)]


def test_of_an_interpreter_the_script_is_told_and_no_argument(machine: Machine, collector: ConsumersCollector) -> None:
    machine.process(200, "python3", 0.0)
    (machine.folder / "200" / "cmdline").write_text("python3\0-u\0/srv/train.py\0--api-key=hidden\0")
    collector.poll()
    machine.process(200, "python3", 1.0)
    assert list(cores(later(machine, collector, 1))) == ["python3 train.py"]


def test_one_that_rests_again_is_gone(machine: Machine, collector: ConsumersCollector) -> None:
    machine.process(200, "batch", 0.0)
    collector.poll()
    machine.process(200, "batch", 1.0)
    assert cores(later(machine, collector, 2)) == {"batch": pytest.approx(0.5)}
    trace = later(machine, collector, 20)
    assert not trace.tracks
    assert trace.gone == ("neighbour:200",)


def test_children_that_come_and_go_count_as_their_parents(machine: Machine, collector: ConsumersCollector) -> None:
    """Those that were seen before they ended have been counted already."""
    machine.process(200, "make", 0.0)
    machine.process(201, "cc1", 3.0, parent=200)
    collector.poll()
    machine.ends(201)
    machine.process(200, "make", 0.0, ended=3.0 + 2.0)
    assert cores(later(machine, collector, 2)) == {"make": pytest.approx(1.0)}


def test_the_time_of_ended_grandchildren_is_not_counted_twice(machine: Machine, collector: ConsumersCollector) -> None:
    """A shell and what it ran end within one look: whoever started the shell gets the time of both."""
    machine.process(200, "agent", 0.0)
    machine.process(201, "sh", 1.0, parent=200)
    machine.process(202, "cc1", 100.0, parent=201)
    collector.poll()
    machine.ends(201)
    machine.ends(202)
    machine.process(200, "agent", 0.0, ended=101.0 + 0.5)
    assert cores(later(machine, collector, 1)) == {"agent": pytest.approx(0.5)}


def test_the_time_of_an_orphan_is_not_counted_for_whoever_adopted_it(
    machine: Machine, collector: ConsumersCollector
) -> None:
    """A shell ends without waiting for what it ran, which ends too: its time comes to init."""
    machine.process(1, "init", 0.0, parent=0)
    machine.process(200, "agent", 0.0)
    machine.process(201, "sh", 1.0, parent=200)
    machine.process(202, "cc1", 100.0, parent=201)
    collector.poll()
    machine.ends(201)
    machine.ends(202)
    machine.process(1, "init", 0.0, parent=0, ended=100.0 + 0.5)
    machine.process(200, "agent", 0.0, ended=1.0)
    assert cores(later(machine, collector, 1)) == {"init": pytest.approx(0.5)}


def test_a_pid_that_is_used_again_starts_from_zero(machine: Machine, collector: ConsumersCollector) -> None:
    machine.process(200, "old", 50.0, start=5)
    collector.poll()
    machine.process(200, "new", 0.5, start=9)
    assert cores(later(machine, collector, 1)) == {"new": pytest.approx(0.5)}


def test_what_the_cpus_are_lost_to_beside_processes(machine: Machine, collector: ConsumersCollector) -> None:
    machine.process(200, "batch", 0.0)
    collector.poll()
    machine.process(200, "batch", 1.0)
    machine.cpu(user=6.0, idle=10.0, softirq=2.0, steal=2.0)
    trace = later(machine, collector, 2)
    assert host(trace, v.HOST_STEAL) == pytest.approx(10.0)
    assert host(trace, v.HOST_INTERRUPTS) == pytest.approx(10.0)
    assert host(trace, v.HOST_CPU) == pytest.approx(4.0)
    assert host(trace, v.HOST_CPU_UNSEEN) == pytest.approx(2.5)


@pytest.mark.parametrize(("percent", "wait_ns"), [(0.0, CALM_NS), (30.0, CROWDED_NS)])
def test_it_looks_more_often_when_tasks_queue(
    machine: Machine, collector: ConsumersCollector, percent: float, wait_ns: int
) -> None:
    machine.pressure(percent)
    collector.poll()
    assert not later(machine, collector, FIRST_NS / NS_PER_S - 0.1).readings
    machine.cpu(user=1.0)
    assert later(machine, collector, 0.1).readings
    machine.cpu(user=2.0)
    assert collector.rests_until_ns == machine.clock() + wait_ns
    assert not later(machine, collector, wait_ns / NS_PER_S - 0.1).readings
    assert later(machine, collector, 0.1).readings


def test_a_look_that_takes_long_is_taken_rarely(machine: Machine) -> None:
    """10 ms, which is 0.1 % of a core every 10 s."""
    ticking = iter(range(0, 10**12, 10_000_000))
    collector = ConsumersCollector(SERVER, machine.folder, machine.clock, lambda: next(ticking))
    collector.poll()
    machine.cpu(user=1.0)
    assert not later(machine, collector, 9.9).readings
    assert later(machine, collector, 0.1).readings


def test_without_proc_it_says_so(tmp_path: Path) -> None:
    assert isinstance(ConsumersCollector(SERVER, tmp_path).missing(), Unknown)


def test_a_real_neighbour_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has used 50 ms in a second of a clock that the test holds."""
    now = [0]
    collector = ConsumersCollector(SERVER, clock=lambda: now[0], cpu_clock=lambda: 0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as program:
        try:
            collector.poll()
            before = _ticks(program.pid)
            eventually(lambda: _ticks(program.pid) >= before + 5, "its time")
            now[0] += FIRST_NS
            monkeypatch.setattr(os, "getpid", lambda: 1 << 22)  # descendants of llmtop, as this one is, are its own
            tracks = collector.poll().tracks
        finally:
            program.kill()
    assert f"neighbour:{program.pid}" in tracks


def _ticks(pid: int) -> int:
    stat = procfs.stat(pid)
    assert stat is not None
    return stat.cpu_ticks


def test_what_the_children_of_a_new_process_used_is_its_own(machine: Machine, collector: ConsumersCollector) -> None:
    """A build that has started and run many compilers since the last look, of which none is seen."""
    machine.process(100, "vllm", 1.0)
    machine.cpu(user=100)
    collector.poll()
    machine.process(200, "make", 0.5, ended=8.0, start=77)
    machine.cpu(user=110)
    trace = later(machine, collector, CROWDED_NS / NS_PER_S)
    taken = cores(trace)["make"]
    assert taken == pytest.approx(8.5 / (CROWDED_NS / NS_PER_S), abs=1e-9)


@pytest.mark.parametrize(
    ("load", "is_crowded"),
    [("9.0 9.0 9.0 1/900 77", False), (f"0.1 0.1 0.1 {(os.cpu_count() or 1) + 1}/900 77", True),
     (f"0.1 0.1 0.1 {os.cpu_count() or 1}/900 77", False), (None, False)],
)  # fmt: skip
def test_where_the_kernel_tells_no_pressure_tasks_are_counted(
    machine: Machine, collector: ConsumersCollector, load: str | None, is_crowded: bool
) -> None:
    """The second half of the fourth field are all tasks (proc_loadavg(5)); as many as CPUs wait for none."""
    (machine.folder / "pressure" / "cpu").unlink()
    if load is not None:
        (machine.folder / "loadavg").write_text(f"{load}\n")
    collector.poll()
    later(machine, collector, FIRST_NS / NS_PER_S)
    machine.cpu(user=10, idle=10)
    assert bool(later(machine, collector, CROWDED_NS / NS_PER_S).readings) is is_crowded
