"""Rounds of perf's helper on recorded events: what it looks at, for how long, and what it reports of that.

Its recordings hold what the events of each look say, and time goes by while it waits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from llmtop import procfs
from llmtop.collectors.tracing.helper import protocol, system
from llmtop.collectors.tracing.perf import events as events_module
from llmtop.collectors.tracing.perf import helper as helper_module
from llmtop.collectors.tracing.perf import recording as looks_module
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.perf import threads as threads_module
from llmtop.collectors.tracing.perf.helper import PerfHelper
from llmtop.collectors.tracing.perf.perf_text import CallRow, PerfSample, StackFrame, ThreadCalls
from llmtop.collectors.tracing.perf.run import PerfError, PerfProgram
from llmtop.collectors.tracing.perf.sched import SWITCH
from llmtop.model import Unknown

PID, TID, OTHER = 4_300_001, 4_300_002, 4_300_009
S, MS = 1_000_000_000, 1_000_000
BEGAN = 100 * S
KERNEL = 1 << 63


class Machine:
    """A server of two threads of one process, its clock, and what each of perf's recordings will hold."""

    def __init__(self) -> None:
        self.now_ns = BEGAN
        self.threads = {PID: PID, TID: PID}
        self.states = {PID: "R", TID: "S"}
        self.ran: dict[int, int] = dict.fromkeys(self.threads, 0)
        self.rate = 0.0
        """Switches a second, of TID."""
        self.asked: list[list[str]] = []
        self.told: list[tuple[str, str]] = []
        self.samples: list[PerfSample] = []
        """With times from the beginning of the look."""
        self.stacks: list[PerfSample] = []
        self.calls: list[ThreadCalls] = []
        self.refuses: dict[str, PerfError] = {}
        self.fails: dict[str, PerfError] = {}
        self.lost = 0
        self.children_s = 0.5

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wait(self, descriptors: Sequence[int] = (), seconds: float | None = None) -> list[int]:
        self.now_ns += round((seconds or 0.0) * S)
        self.ran[TID] += round(self.rate * (seconds or 0.0))
        return list(descriptors)

    def counts(self, family: Any) -> dict[int, tuple[int, int]]:
        return {tid: (times * 1000, times) for tid, times in self.ran.items() if tid in self.threads}


class Recorded:
    """As `run.Recording`."""

    machine: Machine

    def __init__(self, path: str, options: Sequence[str]) -> None:
        assert path == "/usr/bin/perf"
        text = " ".join(options)
        self.kind = "syscalls" if "raw_syscalls" in text else "samples" if "cpu-clock" in text else "scheduler"
        self.machine.asked.append(list(options))
        self.began = 0
        self.lost = 0

    def tell(self, command: str, wait: Any) -> None:
        self.machine.told.append((self.kind, command))
        if self.kind in self.machine.refuses and command == "disable":
            raise self.machine.refuses[self.kind]
        self.began = self.machine.now_ns

    def stop(self) -> None:
        self.machine.told.append((self.kind, "stop"))

    def samples(self, wait: Any) -> Iterator[PerfSample]:
        self._read()
        found = self.machine.samples if self.kind == "scheduler" else self.machine.stacks
        return (replace(one, time_ns=self.began + one.time_ns) for one in found)

    def calls(self, wait: Any) -> tuple[ThreadCalls, ...]:
        self._read()
        return tuple(self.machine.calls)

    def _read(self) -> None:
        self.lost = self.machine.lost
        if self.kind in self.machine.fails:
            raise self.machine.fails[self.kind]

    def close(self) -> None:
        self.machine.told.append((self.kind, "close"))


class Line(protocol.Link):
    def __init__(self, machine: Machine) -> None:
        self.said: list[Any] = []
        self._machine = machine

    def say(self, report: Any) -> None:
        self.said.append(json.loads(json.dumps(report)))

    def wait(self, descriptors: Sequence[int] = (), seconds: float | None = None) -> list[int]:
        return self._machine.wait(descriptors, seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    for module in (helper_module, looks_module, threads_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=one.monotonic_ns))
    monkeypatch.setattr(Recorded, "machine", one, raising=False)
    monkeypatch.setattr(events_module, "Recording", Recorded)
    monkeypatch.setattr(system, "pid_namespace", lambda: None)
    monkeypatch.setattr(system, "start_time", lambda pid: "77" if pid in one.threads.values() else "")
    monkeypatch.setattr(system, "threads", lambda pid: [tid for tid, of in one.threads.items() if of == pid])
    monkeypatch.setattr(system, "thread_state", lambda pid, tid: one.states.get(tid, ""))
    monkeypatch.setattr(system, "kernel_stack", lambda pid, tid: ["do_wait_[k]"] if tid == TID else [])
    monkeypatch.setattr(procfs, "family", lambda: SimpleNamespace(descendants=lambda *pids: ()))
    monkeypatch.setattr(threads_module, "schedstats", one.counts)
    monkeypatch.setattr(procfs, "read_text", lambda path: "futex_wait_queue\n" if path.endswith("/wchan") else None)
    usage = SimpleNamespace(
        RUSAGE_CHILDREN=-1, getrusage=lambda who: SimpleNamespace(ru_utime=one.children_s, ru_stime=0.25 * -who)
    )
    monkeypatch.setattr(helper_module, "resource", usage)
    return one


def helper(machine: Machine, **others: Any) -> tuple[PerfHelper, Line]:
    line = Line(machine)
    options = {"pids": [PID], "interval": 8.0, "budget": 0.01, "stacks": True, **others}
    return PerfHelper(argparse.Namespace(**options), PerfProgram("/usr/bin/perf", (6, 1)), line), line


def switched(t_ns: int, prev: int, state: str, following: int, sleeps_in: str = "") -> PerfSample:
    payload = (
        f"prev_comm=a prev_pid={prev} prev_prio=120 prev_state={state} ==> "
        f"next_comm=b next_pid={following} next_prio=120"
    )
    frames = tuple(StackFrame(KERNEL, name, "") for name in ("__schedule", "schedule", sleeps_in) if sleeps_in)
    return PerfSample("a", prev, prev, t_ns, SWITCH, 0, payload, frames)


def woken(t_ns: int, waker: int, tid: int) -> PerfSample:
    return PerfSample("a", waker, waker, t_ns, "sched:sched_wakeup", 0, f"comm=b pid={tid} prio=120 target_cpu=000", ())


def ran(t_ns: int, tid: int, *names: str) -> PerfSample:
    frames = tuple(StackFrame(16, name, "/opt/x") for name in names)
    return PerfSample("a", tid, tid, t_ns, "cpu-clock/freq=199/", 5 * MS, "", frames)


SLEEP = (
    switched(10 * MS, PID, "S", OTHER, "pipe_read"),
    woken(40 * MS, OTHER, PID),
    switched(40 * MS + 300, OTHER, "S", PID),
)


def test_a_round_looks_at_threads_and_then_at_calls(machine: Machine) -> None:
    machine.samples = list(SLEEP)
    machine.stacks = [ran(5 * MS, PID, "work", "main"), ran(50 * MS, PID, "work", "main"), ran(60 * MS, 77, "other")]
    machine.calls = [ThreadCalls(PID, (CallRow("read", 3, 1, 30),)), ThreadCalls(77, (CallRow("read", 1, 1, 1),))]
    one, line = helper(machine)
    threads, calls = one.round()
    assert [one["kind"] for one in line.said] == ["looking", "looked", "looking", "looked"]
    assert [one.get("calls") for one in line.said] == [False, None, True, None]
    assert (threads["t"], threads["elapsed"], calls["t"], calls["elapsed"]) == (
        BEGAN + 100 * MS, 100 * MS, BEGAN + 200 * MS, 100 * MS
    )  # fmt: skip
    assert threads["observed"] == {"calls": 0, "timed": 0, "scheduler": 100 * MS}
    assert calls["observed"] == {"calls": 100 * MS, "timed": 100 * MS, "scheduler": 100 * MS}
    assert (threads["hits"], calls["hits"]) == ({"switch": 2}, {"switch": 2, "call": 3})
    assert threads["blocked"] == [(PID, PID, "pipe", 30 * MS), (PID, TID, "futex", 100 * MS)]
    assert threads["queue"] == [(PID, {1: 1})]
    assert threads["wakes"] == [(PID, PID, OTHER, 1)]
    assert threads["running"] == [(PID, PID, ("main", "work"), 10 * MS)]
    assert threads["asleep"] == [(PID, TID, "futex", ("do_wait_[k]",), 100 * MS)], "perf sees no stack of who sleeps on"
    assert (calls["calls"], calls["names"]) == ([(PID, 0, 3, 1, 30, {})], {0: "read"})
    assert (threads["gone"], threads["ended"]) == ([], [])
    assert (threads["lost"], threads["shed"], threads["children_ns"]) == (0, "", 750 * MS)
    kinds = ("scheduler", "samples")
    begun = [
        *((one, "disable") for one in kinds),
        *((one, "enable") for one in kinds),
        *((one, "stop") for one in kinds),
    ]
    assert machine.told[:6] == begun
    assert machine.told[6:] == [
        ("samples", "close"), ("scheduler", "close"),
        ("syscalls", "disable"), ("syscalls", "enable"), ("syscalls", "stop"), ("syscalls", "close"),
    ]  # fmt: skip


def test_what_perf_is_asked_for(machine: Machine) -> None:
    one, _ = helper(machine)
    list(one.round())
    scheduler, samples, calls = machine.asked
    ids = "({0}>=4300001&&{0}<=4300002)"
    both = "||".join(ids.format(field) for field in ("prev_pid", "next_pid"))
    graph = "call-graph=fp,max-stack=16"
    assert scheduler == [
        "-a", "-m", "256", "--kernel-callchains", "--synth=no",
        f"-esched:sched_switch/{graph}/", "--filter", both,
        f"-esched:sched_wakeup/{graph}/", "--filter", ids.format("pid"),
        f"-esched:sched_wakeup_new/{graph}/", "--filter", ids.format("pid"),
    ]  # fmt: skip
    whom = ["-m", "512", "-p", f"{PID}"]
    switches = ["--switch-events", "-e", "sched:sched_switch"]
    assert samples == ["-T", "--per-thread", "-g", *whom, "-e", "cpu-clock/freq=199/", *switches]
    events = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"]
    assert calls == ["-T", "--per-thread", "--synth=no", *whom, *events]


def test_each_round_is_as_long_as_the_load_of_the_last_one_allows(machine: Machine) -> None:
    """Of a hundredth of a core each half has 40 ms in 8 s: a switch costs 5 us, with its stack 15, a call 0.9."""
    one, _ = helper(machine)
    machine.calls = [ThreadCalls(PID, (CallRow("read", 500, 0, 1),))]
    list(one.round())
    machine.rate = 1000.0
    machine.wait(seconds=7.8)
    machine.rate = 0.0
    second = list(one.round())
    per_s = 7800 / 7.9  # in the 7.9 s since the threads were last counted
    assert second[0]["elapsed"] == pytest.approx(0.8 * S, rel=0.01)
    assert second[1]["elapsed"] == pytest.approx(0.8 * S, rel=0.01)
    assert second[0]["missing"]["perf.sampled"][0] == "perf looks 0.8 s of every 8 s"
    assert per_s * 15_000 * 0.8 < 40 * MS


def test_what_costs_too_much_is_looked_at_less_and_that_is_said(machine: Machine) -> None:
    one, _ = helper(machine)
    list(one.round())
    machine.rate = 60_000.0
    machine.wait(seconds=8.0)
    machine.rate = 0.0
    machine.calls = [ThreadCalls(PID, (CallRow("read", 10_000, 0, 1),))]
    threads, calls = one.round()
    rate = 480_000 / 8.2
    assert threads["elapsed"] == pytest.approx(40 * MS / (9_000 * rate) * S, rel=0.01), "no stacks of sleeps: 9 us each"
    assert calls["elapsed"] == pytest.approx(40 * MS / (4_000 * rate) * S, rel=0.01)
    assert threads["asleep"] == []
    parts = ("no stacks of sleeps", "scheduler 0.076 s of every 8 s", "system calls 0.17 s of every 8 s")
    assert threads["shed"] == calls["shed"] == ", ".join(parts)
    assert "sched:sched_switch" not in machine.asked[-2], "the samples are of what runs alone"


def test_calls_that_cost_too_much_rest_for_eight_rounds(machine: Machine) -> None:
    one, _ = helper(machine)
    machine.calls = [ThreadCalls(PID, (CallRow("read", 1_000_000, 0, 1),))]
    rounds = [list(one.round()) for _ in range(12)]
    assert [len(reports) for reports in rounds] == [2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1]
    assert rounds[1][0]["shed"] == "system calls off"
    assert rounds[9][0]["shed"] == "", "it is tried again"
    assert rounds[9][1]["elapsed"] == 100 * MS


def test_without_a_look_at_the_scheduler_stacks_are_of_what_runs(machine: Machine) -> None:
    machine.refuses["scheduler"] = PerfError(Unknown("no tracepoints", "root"), lasting=True)
    machine.stacks = [ran(5 * MS, PID, "work", "main")]
    one, _ = helper(machine)
    first, _ = one.round()
    assert "blocked" not in first
    assert first["missing"]["scheduler"] == ("no tracepoints", "root")
    assert first["running"] == [(PID, PID, ("main", "work"), 5 * MS)]
    machine.rate = 5_000.0
    machine.wait(seconds=8.0)
    machine.rate = 0.0
    second, _ = one.round()
    assert second["elapsed"] == 800 * MS, "as long as what runs alone allows"
    assert second["missing"]["perf.sampled"][0] == "perf looks 0.8 s of every 8 s"
    assert machine.told.count(("scheduler", "disable")) == 1
    assert one.unavailable is None


def test_what_perf_cannot_tell_is_said_in_every_report(machine: Machine) -> None:
    machine.calls = [ThreadCalls(PID, (CallRow("read", 1, None, 1),))]
    one, _ = helper(machine)
    threads, calls = one.round()
    by_probes = "use eBPF probes (llmtop doctor says what they need here)"
    sampled = ("perf looks 0.1 s of every 8 s", by_probes)
    always = {
        "syscall.latency": (
            "perf adds call times up and keeps no distribution",
            by_probes,
        ),
        "library calls": ("perf does not look at CUDA calls", by_probes),
        "process.gil_waits": (
            "perf does not tell how a wait ended",
            by_probes,
        ),
        "perf.sampled": sampled,
    }
    assert threads["missing"] == always
    errors = ("this perf counts no errors of system calls", "a newer perf does: sudo apt upgrade")
    assert calls["missing"] == {**always, "syscall.errors": errors}


@pytest.mark.parametrize("reading_ms", [(0, 0), (40, 0), (40, 80), (0, 400)])
def test_counts_that_take_a_while_to_read_are_of_the_middle_of_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, reading_ms: tuple[int, int]
) -> None:
    """Between the two counts is more time than in the look, and are more switches: of a thousand a second."""
    machine.rate, count, times = 1000.0, machine.counts, iter(reading_ms)

    def slowly(family: Any) -> dict[int, tuple[int, int]]:
        half_s = next(times) / 2000
        machine.wait(seconds=half_s)
        found = count(family)
        machine.wait(seconds=half_s)
        return found

    one, line = helper(machine)
    one._renew()
    monkeypatch.setattr(threads_module, "schedstats", slowly)
    with looks_module.looked(one._events, one._server.family, line, ["scheduler"], 0.1) as look:
        assert look.end - look.start == 100 * MS + reading_ms[0] * MS
        assert look._expected == pytest.approx(1000.0 * (look.end - look.start) / S)


def test_stacks_are_taken_only_where_they_are_wanted(machine: Machine) -> None:
    machine.samples = list(SLEEP)
    one, _ = helper(machine, stacks=False)
    threads, _ = one.round()
    assert (threads["running"], threads["asleep"], threads["shed"]) == ([], [], "")
    assert [kind for kind, said in machine.told if said == "enable"] == ["scheduler", "syscalls"]


def test_a_server_that_has_ended_is_told_gone_without_a_look(machine: Machine) -> None:
    one, line = helper(machine)
    list(one.round())
    before = len(line.said)
    machine.threads.clear()
    (report,) = one.round()
    assert (report["gone"], sorted(report["ended"])) == ([PID], [(PID, PID), (PID, TID)])
    assert (report["t"], report["elapsed"], len(line.said)) == (machine.now_ns, 1, before)
    (report,) = one.round()
    assert (report["gone"], report["ended"]) == ([], [])


def test_a_thread_that_has_ended_is_forgotten(machine: Machine) -> None:
    one, _ = helper(machine)
    threads, _ = one.round()
    assert [row.tid for row in threads["blocked"]] == [TID]
    del machine.threads[TID]
    threads, _ = one.round()
    assert (threads["gone"], threads["ended"], threads["blocked"]) == ([], [(PID, TID)], [])


def test_losses_of_all_records_add_up(machine: Machine) -> None:
    machine.lost = 3
    one, _ = helper(machine)
    assert [report["lost"] for report in (*one.round(), *one.round())] == [6, 9, 15, 18]


def test_a_record_that_cannot_be_read_costs_only_its_part(machine: Machine) -> None:
    machine.fails["syscalls"] = PerfError(Unknown("perf trace takes too long"), lasting=False)
    machine.fails["scheduler"] = PerfError(Unknown("perf script failed"), lasting=True)
    one, _ = helper(machine)
    for _ in range(3):
        threads, calls = one.round()
    assert "calls" not in calls
    assert calls["missing"]["syscalls"] == ("perf trace takes too long", "")
    assert calls["missing"]["scheduler"] == ("perf script failed", "")
    assert calls["observed"] == {"calls": 0, "timed": 0, "scheduler": 0}
    assert threads["running"] == []


def test_where_nothing_works_there_is_a_reason(machine: Machine) -> None:
    why = Unknown("perf is for root only", "sudo")
    machine.refuses = dict.fromkeys(("scheduler", "samples", "syscalls"), PerfError(why, lasting=True))
    one, _ = helper(machine)
    list(one.round())
    assert one.unavailable == why
    assert len(list(one.round())) == 1, "calls are given up"


def test_one_look_at_everything_may_cost_what_it_does(machine: Machine) -> None:
    machine.samples, machine.stacks = list(SLEEP), [switched(10 * MS, PID, "S", OTHER, "pipe_read")]
    one, line = helper(machine, budget=0.0001)
    threads, calls = one.look_once(2.5)
    assert (threads["elapsed"], calls["elapsed"]) == (2500 * MS, 2500 * MS)
    assert threads["missing"]["perf.sampled"][0] == "perf looks 2.5 s of every 8 s"
    assert len(line.said) == 4
    asleep = {(row.tid, row.cause): row.ns for row in threads["asleep"]}
    assert asleep == {(PID, "pipe"): 30 * MS, (TID, "futex"): 2500 * MS}


def test_the_helper_is_ready_with_its_first_report(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds begin at once, after a second, and then after each interval."""
    monkeypatch.setattr(perf_run, "find", lambda: PerfProgram("/usr/bin/perf", (6, 1)))
    monkeypatch.setattr(system, "see_tracepoints", lambda: None)
    pauses: list[float] = []

    def ticks(link: Line, *given: float) -> Iterator[None]:
        pauses.extend(given)
        yield from [None, None]

    monkeypatch.setattr(Line, "ticks", ticks)
    line = Line(machine)
    options = argparse.Namespace(pids=[PID], interval=8.0, budget=0.01, stacks=False, once=0.0)
    helper_module._look(options, line)
    assert pauses == [0.0, 1.0, 8.0]
    said = [one["kind"] for one in line.said if not one["kind"].startswith("look")]
    assert said == ["ready", "sample", "sample", "sample", "sample"]
    (ready,) = (one for one in line.said if one["kind"] == "ready")
    assert (ready["perf"], ready["pid"] > 0) == ("/usr/bin/perf", True)
    line.said.clear()
    options.once = 0.3
    helper_module._look(options, line)
    assert [one["elapsed"] for one in line.said if one["kind"] == "sample"] == [300 * MS, 300 * MS]
    monkeypatch.setattr(perf_run, "find", lambda: Unknown("perf is not installed", "apt"))
    with pytest.raises(system.UnavailableError, match="perf is not installed"):
        helper_module._look(options, line)


def test_a_helper_that_can_see_nothing_ends_with_the_reason(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    why = Unknown("perf is for root only", "sudo")
    machine.refuses = dict.fromkeys(("scheduler", "samples", "syscalls"), PerfError(why, lasting=True))
    monkeypatch.setattr(perf_run, "find", lambda: PerfProgram("/usr/bin/perf", (6, 1)))
    monkeypatch.setattr(system, "see_tracepoints", lambda: None)
    monkeypatch.setattr(Line, "ticks", lambda link, *given: iter([None] * 3))
    line = Line(machine)
    options = argparse.Namespace(pids=[PID], interval=8.0, budget=0.01, stacks=True, once=0.0)
    with pytest.raises(system.UnavailableError, match="perf is for root only") as raised:
        helper_module._look(options, line)
    assert raised.value.remedy == "sudo"
    assert [one["kind"] for one in line.said if not one["kind"].startswith("look")] == ["ready", "sample"]
