"""Runs of bpftrace's helper with a bpftrace that is made up: what each is asked for, and when another one is begun."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from llmtop.collectors.tracing.bpftrace import helper as helper_module
from llmtop.collectors.tracing.bpftrace import libraries as libraries_module
from llmtop.collectors.tracing.bpftrace import runner
from llmtop.collectors.tracing.bpftrace.helper import BpftraceHelper
from llmtop.collectors.tracing.bpftrace.output import Record, parse
from llmtop.collectors.tracing.bpftrace.script import STATE_SHIFT, Function, RunPlan
from llmtop.collectors.tracing.helper import protocol, system
from llmtop.collectors.tracing.helper.functions import LAUNCHES, NUMBERS, SYNCHRONISING
from llmtop.collectors.tracing.helper.protocol import StoppedError
from llmtop.collectors.tracing.helper.system import UnavailableError

PID, TID = 4_300_001, 4_300_002
S, MS = 1_000_000_000, 1_000_000
READ = 0
LAUNCH, SYNC = "cuLaunchKernel", "cuStreamSynchronize"


class Run:
    """As `runner.Bpftrace`: it says what the machine has for it, a chunk at a time."""

    machine: Machine

    def __init__(self, path: str, text: str, keys: int, *, named: bool) -> None:
        self.machine.started.append((text, keys, named))
        self.chunks = self.machine.runs.pop(0) if self.machine.runs else []
        self.refuses = self.chunks == ["refuse"]
        self.has_ended = False
        self.pid = 1000 + len(self.machine.started)

    def fileno(self) -> int:
        return self.pid

    @property
    def is_at_end(self) -> bool:
        return self.refuses or self.has_ended

    def records(self) -> list[Record]:
        return [] if self.refuses or not self.chunks else self.chunks.pop(0)

    def end(self) -> list[Record]:
        self.machine.ended.append(self.pid)
        return [] if self.refuses else [record for chunk in self.chunks for record in chunk]

    def last_words(self) -> str:
        return "ERROR: no such probe"

    def how_it_ended(self) -> str:
        return "bpftrace ended"


class Machine:
    """Time, processes, switches, and what each run of bpftrace says."""

    def __init__(self) -> None:
        self.now_ns = 100 * S
        self.alive = {PID: "77"}
        self.switches = 0
        self.runs: list[Any] = []
        self.started: list[tuple[str, int, bool]] = []
        self.ended: list[int] = []
        self.waits: list[tuple[list[int], float | None]] = []

    def monotonic(self) -> float:
        return self.now_ns / S

    def monotonic_ns(self) -> int:
        return self.now_ns


class Line(protocol.Link):
    def __init__(self, machine: Machine, waits: int) -> None:
        self.said: list[Any] = []
        self._machine, self._left = machine, waits

    def say(self, report: Any) -> None:
        self.said.append(json.loads(json.dumps(report)))

    def wait(self, descriptors: Sequence[int] = (), seconds: float | None = None) -> list[int]:
        self._machine.waits.append((list(descriptors), seconds))
        self._machine.now_ns += S
        self._left -= 1
        if self._left < 0:
            raise StoppedError
        return list(descriptors)

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [one for one in self.said if one["kind"] == "sample"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    monkeypatch.setattr(Run, "machine", one, raising=False)
    monkeypatch.setattr(helper_module, "time", one)
    monkeypatch.setattr(helper_module, "Bpftrace", Run)
    monkeypatch.setattr(helper_module, "_context_switches", lambda: one.switches)
    monkeypatch.setattr(helper_module, "script", lambda plan: told(plan))
    monkeypatch.setattr(runner, "version", lambda path: (0, 17))
    monkeypatch.setattr(system, "start_time", lambda pid: one.alive.get(pid, ""))
    monkeypatch.setattr(system, "is_process", lambda pid: pid in one.alive)
    monkeypatch.setattr(system, "threads", lambda pid: [TID])
    monkeypatch.setattr(system, "thread_state", lambda pid, tid: "R")
    monkeypatch.setattr(system, "kernel_stack", lambda pid, tid: ["do_wait_[k]"] if pid == PID else [])
    monkeypatch.setattr(libraries_module, "mapped_libraries", lambda pid: {})
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    return one


def told(plan: RunPlan) -> str:
    """A plan in a line."""
    functions = ",".join(one.symbol for one in plan.functions)
    parts = (
        plan.pids,
        plan.calls,
        plan.scheduler,
        plan.stack_every,
        plan.samples,
        functions,
        plan.interval_ms,
        plan.named,
    )
    return " ".join(map(str, parts))


def look(t_ns: int, **maps: Mapping[str, Any]) -> list[Record]:
    kinds = {name: "hist" if name in ("latency", "queue", "library") else "map" for name in maps}
    said = [{"type": kinds[name], "data": {f"@{name}": content}} for name, content in maps.items()]
    lines = [{"type": "printf", "data": f"begin {t_ns}\n"}, *said, {"type": "printf", "data": "end\n"}]
    return [record for one in lines if (record := parse(json.dumps(one).encode())) is not None]


def bucket(slot: int, count: int) -> dict[str, int]:
    return {"min": 1 << slot - 1, "max": (1 << slot) - 1, "count": count}


def made(machine: Machine, waits: int, **others: Any) -> tuple[BpftraceHelper, Line]:
    line = Line(machine, waits)
    options = {"pids": [PID, 999], "interval": 0.5, "budget": 1.0, "stacks": True, "light": False, **others}
    return BpftraceHelper(argparse.Namespace(**options), "/usr/bin/bpftrace", line), line


def run(machine: Machine, waits: int, **others: Any) -> Line:
    one, line = made(machine, waits, **others)
    one.start()
    with pytest.raises(StoppedError):
        one.run()
    return line


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ({}, f"({PID},) timed True 4 True  500 True"),
        ({"stacks": False}, f"({PID},) timed True 0 False  500 True"),
        ({"light": True}, f"({PID},) counted True 0 False  500 True"),
        ({"interval": 0.0001, "stacks": False}, f"({PID},) timed True 0 False  1 True"),
    ],
)
def test_what_a_run_is_asked_for(machine: Machine, options: dict[str, Any], plan: str) -> None:
    machine.runs = [[look(100 * S)]]
    run(machine, 1, **options)
    assert machine.started == [(plan, 32768, True)]


def test_the_first_look_is_the_proof_that_it_has_attached(machine: Machine) -> None:
    """Until then it is said each second that it attaches; what it counted in the first look counts too."""
    calls = {"latency": {f"{PID},{READ}": [bucket(3, 2)]}}
    machine.runs = [[[], [], look(110 * S, **calls), look(111 * S, **calls)]]
    line = run(machine, 4)
    assert [one["kind"] for one in line.said] == ["attaching", "sample", "sample"]
    first, second = line.samples
    assert (first["t"], first["elapsed"], first["calls"]) == (110 * S, 100 * MS, [[PID, READ, 2, 0, 0, {"3": 2}]])
    assert first["observed"] == {"calls": 100 * MS, "timed": 100 * MS, "scheduler": 100 * MS}
    assert (second["elapsed"], second["calls"], second["child"]) == (S, [], 1001)
    assert machine.waits[:4] == [([1001], 1.0), ([1001], 1.0), ([1001], 1.0), ([1001], None)]


def test_one_that_never_attaches_is_given_up_after_a_minute(machine: Machine) -> None:
    one, line = made(machine, 1000)
    with pytest.raises(UnavailableError, match="bpftrace cannot attach its probes: ERROR: no such probe"):
        one.start()
    assert machine.ended == [1001, 1002, 1003, 1004, 1005]
    assert len(machine.waits) == 5 * 60
    assert len(line.said) == 5 * 59


def test_what_it_refuses_is_given_up_and_the_rest_is_looked_at(machine: Machine) -> None:
    machine.runs = [["refuse"], ["refuse"], [look(100 * S)]]
    line = run(machine, 1)
    plans = [plan for plan, *_ in machine.started]
    assert plans == [
        f"({PID},) timed True {every} {samples}  500 True" for every, samples in ((4, True), (4, False), (0, False))
    ]
    (report,) = line.samples
    why = ["bpftrace refuses: ERROR: no such probe", ""]
    assert report["missing"].pop("rounds of GPU work")[0].startswith("bpftrace hands out sums"), "it never has them"
    assert report["missing"] == {"samples": why, "stacks": why}
    assert machine.ended == [1001, 1002]


def test_what_others_switch_costs_them(machine: Machine) -> None:
    """Of the machine's switches those of the server are taken off; the rest may cost others as much on each CPU."""
    one, _ = made(machine, 1)
    loads: list[Any] = []
    judge: Callable[..., bool] = one._governor.judge
    one._governor.judge = lambda load, elapsed_s: loads.append((load, elapsed_s)) or judge(load, elapsed_s)  # type: ignore[method-assign, func-returns-value]
    machine.runs = [[look(100 * S)]]
    one.start()
    machine.switches = 1000
    one._report(
        look_of(102 * S, queue={f"{PID}": [bucket(3, 300)]}, latency={f"{PID},0": [bucket(1, 50)]}, foreign_calls=30)
    )
    load, elapsed_s = loads[-1]
    assert elapsed_s == pytest.approx(2.1, rel=0.01)
    assert load.switches == pytest.approx(300 / elapsed_s)
    assert load.foreign_switches == pytest.approx(700 / elapsed_s)
    assert (load.calls, load.foreign_calls) == (pytest.approx(50 / elapsed_s), pytest.approx(30 / elapsed_s))


def look_of(t_ns: int, **maps: Any) -> Any:
    from llmtop.collectors.tracing.bpftrace.output import Looks

    looks = Looks()
    return [found for record in look(t_ns, **maps) if (found := looks.take(record)) is not None][-1]


def test_a_map_that_is_nearly_full_is_worth_a_new_start_a_minute_later(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_module, "_LEAST_KEYS", 16)
    monkeypatch.setattr(helper_module, "_MOST_KEYS", 20)
    full = {"time": {f"{PID},{call}": 1 for call in range(19)}}
    machine.runs = [[look(100 * S), *[look((101 + i) * S, **full) for i in range(70)]], [look(300 * S)]]
    line = run(machine, 75, stacks=False)
    assert len(machine.started) == 2
    before = [one for one in line.samples if one["t"] < 300 * S]
    assert len(before) == 71, "what it had said by its end is told"
    assert machine.waits.index(([1002], 1.0)) == 61
    assert {one["lost"] for one in line.samples} == {0}


def test_one_that_ends_by_itself_ends_the_helper(machine: Machine) -> None:
    machine.runs = [[look(100 * S)]]
    one, _ = made(machine, 5)
    one.start()
    assert one._run is not None
    one._run.has_ended = True  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match="bpftrace ended"):
        one.run()
    one.close()
    assert machine.ended == [1001]


def mapped(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    monkeypatch.setattr(libraries_module, "mapped_libraries", lambda pid: {"/lib/libcuda.so.1": names})
    monkeypatch.setattr("llmtop.collectors.tracing.helper.elf.exported", lambda path, names: dict.fromkeys(names, 16))
    monkeypatch.setattr("llmtop.collectors.tracing.helper.libraries.starts_gently", lambda path, place: place == 16)
    of_file = SimpleNamespace(stat=lambda path: SimpleNamespace(st_dev=1, st_ino=2))
    monkeypatch.setattr("llmtop.collectors.tracing.helper.libraries.os", of_file)


def test_functions_of_a_mapped_library_are_looked_at(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped(monkeypatch, (LAUNCH, SYNC))
    one, _ = made(machine, 0)
    path = f"/proc/{PID}/root/lib/libcuda.so.1"
    assert one._plan.functions == tuple(
        Function(path, name, NUMBERS[name], name in LAUNCHES, name in SYNCHRONISING, (1, 2)) for name in (LAUNCH, SYNC)
    )
    assert {function.path for function in one._plan.functions} == {path}
    careful, _ = made(machine, 0, budget=0.01)
    assert [one.symbol for one in careful._plan.functions] == [SYNC]
    assert list(careful._libraries.notes) == [LAUNCH]
    light, _ = made(machine, 0, light=True)
    assert light._plan.functions == ()


def test_libraries_are_looked_for_at_every_fifth_look(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def libraries(pid: int) -> dict[str, tuple[str, ...]]:
        asked.append(len(line.samples))
        return {}

    monkeypatch.setattr(libraries_module, "mapped_libraries", lambda pid: {})
    machine.runs = [[look((100 + i) * S) for i in range(12)]]
    one, line = made(machine, 12)
    monkeypatch.setattr(libraries_module, "mapped_libraries", libraries)
    one.start()
    with pytest.raises(StoppedError):
        one.run()
    assert asked == [4, 9]


def test_sums_go_on_over_a_new_start(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next bpftrace counts from 0: calls, waits, queues, and what is counted in libraries."""
    mapped(monkeypatch, (LAUNCH,))
    launch, asleep = f"{PID},{NUMBERS[LAUNCH]}", f"{PID},{TID},{READ | 1 << STATE_SHIFT}"

    def counted(times: int) -> dict[str, Any]:
        return {
            "latency": {f"{PID},{READ}": [bucket(3, times)]},
            "library": {launch: [bucket(4, times)]},
            "library_ns": {launch: 100 * times},
            "slept": {asleep: times * MS},
            "queue": {f"{PID}": [bucket(2, times)]},
        }

    machine.runs = [
        [look(100 * S), *[look((101 + i) * S, **counted(7)) for i in range(3)]],
        [look(200 * S), look(201 * S, **counted(2)), look(202 * S, **counted(3))],
    ]
    one, line = made(machine, 9)
    is_worn = iter([False, False, True])
    one._is_worn = lambda: next(is_worn, False)  # type: ignore[method-assign]
    one.start()
    with pytest.raises(StoppedError):
        one.run()
    assert len(machine.started) == 2
    told = [
        (report["calls"], [row[1:4] for row in report["functions"]], report["waits"], report["queue"])
        for report in line.samples
        if report["calls"]
    ]
    assert told == [
        (
            [[PID, READ, times, 0, 0, {"3": times}]],
            [[LAUNCH, times, 100 * times]],
            [[PID, TID, READ, 1, 0, times * MS]],
            [[PID, {"2": times}]],
        )
        for times in (7, 9, 10)
    ]


def test_the_helper_is_not_begun_where_it_could_not_tell(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    options = argparse.Namespace(pids=[PID], interval=0.5, budget=1.0, stacks=False, light=False)
    monkeypatch.setattr(runner, "find", lambda: None)
    with pytest.raises(UnavailableError, match="bpftrace is not installed") as raised:
        helper_module._look(options, Line(machine, 1))
    assert raised.value.remedy == runner.INSTALL
    monkeypatch.setattr(runner, "find", lambda: "/usr/bin/bpftrace")
    monkeypatch.setattr(system, "pid_namespace", lambda: (4, 9))
    with pytest.raises(UnavailableError, match="bpftrace is told the machine's own PIDs"):
        helper_module._look(options, Line(machine, 1))
    monkeypatch.setattr(system, "pid_namespace", lambda: None)
    monkeypatch.setattr(system, "other_tracers", list)
    monkeypatch.setattr(system, "see_tracepoints", lambda: None)
    machine.runs = [[look(100 * S)]]
    line = Line(machine, 1)
    with pytest.raises(StoppedError):
        helper_module._look(options, line)
    assert [one["kind"] for one in line.said] == ["ready", "sample"]
    assert machine.ended == [1001], "it is ended with the helper"


def switches(text: str) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llmtop.procfs.read_text", lambda path: text if path == "/proc/stat" else None)
        yield helper_module._context_switches()


@pytest.mark.parametrize(("text", "number"), [("cpu 1 2\nctxt 4711\nbtime 9\n", 4711), ("cpu 1 2\n", 0), ("", 0)])
def test_switches_of_the_whole_machine(text: str, number: int) -> None:
    assert list(switches(text)) == [number]
