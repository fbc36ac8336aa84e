"""What the probes' helper reports of all parts, and how it follows threads, with the kernel's maps in memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.governor import HERTZ, LIGHT, OUTSIDE_NS, Effort, EventLoad, Governor, in_slices
from llmtop.collectors.tracing.helper.protocol import Link
from llmtop.collectors.tracing.helper.syscall_numbers import WITHOUT_WAIT
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.probes.helper import __main__ as helper_module
from llmtop.collectors.tracing.probes.helper import calls as calls_module
from llmtop.collectors.tracing.probes.helper import following as following_module
from llmtop.collectors.tracing.probes.helper import lifecycle as lifecycle_module
from llmtop.collectors.tracing.probes.helper import samples as samples_module
from llmtop.collectors.tracing.probes.helper import scheduler as scheduler_module
from llmtop.collectors.tracing.probes.helper.__main__ import ProbesHelper
from llmtop.collectors.tracing.probes.helper.following import MEASURE_S, OF_SLICES, SchedulerSlices
from llmtop.collectors.tracing.probes.helper.library import Library
from llmtop.collectors.tracing.probes.helper.lifecycle import Lifecycle
from llmtop.collectors.tracing.probes.helper.programs import HITS, ProgramText
from llmtop.collectors.tracing.probes.helper.scheduler import SchedulerProbes
from tests.collectors.tracing.recorded_maps import RecordedModule, slots

PID, TID = 100, 101
READ, POLL = 0, 7
S, MS = 1_000_000_000, 1_000_000


class Clock:
    """Time that goes by when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 50 * S
        self.thread_ns = 0

    def monotonic(self) -> float:
        return self.now_ns / S

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        return self.thread_ns

    def process_time_ns(self) -> int:
        return self.thread_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    for module in (helper_module, following_module, scheduler_module):
        monkeypatch.setattr(module, "time", one)
    return one


# -- all parts together ------------------------------------------------------------------------------------------


class Programs:
    """As `programs.Programs`: each program has maps of its own."""

    def __init__(self) -> None:
        self.modules: dict[str, RecordedModule] = {}
        self.refused: set[str] = set()

    def module(self, source: ProgramText) -> RecordedModule:
        if source.name in self.refused:
            raise UnavailableError(f"no {source.name}", "another kernel")
        return self.modules.setdefault(source.name, RecordedModule())


class Hits:
    """How often each probe has run, as `kernel.CpuCounters`."""

    counts: dict[str, int]

    def __init__(self, map_: object) -> None:
        Hits.counts = dict.fromkeys(HITS, 0)
        self.places = (*HITS, "stack_ns")

    @classmethod
    def of(cls, map_: object) -> Hits:
        return cls(map_)

    def sum(self, place: int) -> int:
        return Hits.counts.get(self.places[place], 0)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Programs:
    found = Programs()
    monkeypatch.setattr(helper_module, "Programs", lambda: found)
    monkeypatch.setattr(lifecycle_module, "CpuCounters", Hits)
    monkeypatch.setattr(lifecycle_module, "attach_tracepoint", lambda name, program: 0)
    monkeypatch.setattr(scheduler_module, "attach_tracepoint", lambda name, program: 0)
    monkeypatch.setattr(scheduler_module, "place_of_id", lambda: 1256)
    monkeypatch.setattr(scheduler_module, "source", lambda: scheduler_module.BY_FIELDS)
    monkeypatch.setattr(calls_module, "attach_raw_tracepoint", lambda name, program: 0)
    monkeypatch.setattr(samples_module, "attach_timer", lambda kind, hertz, program: [0])
    for module in (scheduler_module, calls_module, samples_module):
        monkeypatch.setattr(module, "close_all", list.clear)
    monkeypatch.setattr(following_module, "RunTime", lambda descriptors: SimpleNamespace(start=int, stop=lambda: None))
    monkeypatch.setattr(system, "start_time", lambda pid: "77" if pid == PID else "")
    monkeypatch.setattr(system, "tells_ids_of", lambda pid: True)
    monkeypatch.setattr(system, "threads", lambda pid: [])
    monkeypatch.setattr("llmtop.collectors.tracing.probes.helper.library_search.mapped_libraries", lambda pid: {})
    return found


def helper(budget: float = 1.0, **others: Any) -> ProbesHelper:
    options = {"budget": budget, "stacks": False, "light": False, **others}
    one = ProbesHelper(argparse.Namespace(**options))
    one.start([PID])
    return one


def test_a_report_has_all_parts(programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "notes", {"cuMemcpy": "refused"})
    one = helper(stacks=True)
    calls, scheduler, samples = (programs.modules[name] for name in ("calls", "scheduler", "samples"))
    calls["calls"].put((PID, READ), (3, 1, 900, 2, *slots(s2=3)))
    calls["spins"].put((TID, POLL | WITHOUT_WAIT), (4, PID))
    scheduler["waits"].put((TID, READ, 1), (2 * MS, 1, PID, 6))
    samples["stacks"].put((1,), (0,) * 127)
    samples["samples"].put((TID, PID, -1, -1), (5,))
    programs.modules["lifecycle"]["ended"].put((TID,), (PID,))
    for name, lost in (("calls", 1), ("scheduler", 2), ("samples", 4)):
        programs.modules[name]["lost"].put((0,), (lost,))
    clock.sleep(0.25)
    told = one.look()
    assert told["unprobed"] == {"cuMemcpy": "refused"}
    assert (told["kind"], told["t"], told["elapsed"]) == ("sample", clock.now_ns, 250 * MS)
    assert told["observed"] == {"calls": 250 * MS, "timed": 250 * MS, "scheduler": 250 * MS}
    assert sorted(told["calls"])[0] == (PID, READ, 3, 1, 900, {2: 3})
    assert sorted(told["names"].values()) == ["poll (no wait)", "read"]
    assert told["waits"] == [(PID, TID, READ, 1, 6, 2 * MS)]
    assert told["running"] == [(PID, TID, (), 5 * (S // HERTZ))]
    assert told["ended"] == [(PID, TID)]
    assert (told["lost"], told["shed"], told["missing"]) == (7, "", {})
    assert (told["functions"], told["in_libraries"], told["library_observed"], told["probed"]) == ([], [], [], 0)
    assert told["settling"] is True, "no library has been looked for yet"
    one.tick()
    clock.sleep(1.0)
    told = one.look()
    assert (told["elapsed"], told["settling"]) == (S, False)
    assert told["observed"]["calls"] == 1250 * MS
    assert one.knows_calls
    assert one.processes == (PID,)


@pytest.mark.parametrize(("part", "program"), [("syscalls", "calls"), ("scheduler", "scheduler")])
def test_a_part_that_the_kernel_refuses_costs_only_itself(
    programs: Programs, clock: Clock, part: str, program: str
) -> None:
    programs.refused = {program}
    one = helper()
    clock.sleep(1.0)
    told = one.look()
    assert told["missing"] == {part: (f"no {program}", "another kernel")}
    assert told["observed"]["scheduler"] == (0 if part == "scheduler" else S)
    assert told["observed"]["calls"] == (0 if part == "syscalls" else S)
    assert one.knows_calls is (part != "scheduler")


def test_two_fifths_of_the_budget_are_the_libraries(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = []

    def library(programs: Any, budget_ns: float, hits: Any) -> Library:
        budgets.append(budget_ns)
        return Library(programs, budget_ns, hits)

    monkeypatch.setattr(helper_module, "Library", library)
    assert helper(0.03)._governor.budget_ns == pytest.approx(0.018 * 1e9)
    assert helper(0.03, light=True)._governor.budget_ns == pytest.approx(0.03 * 1e9)
    assert budgets[0] == pytest.approx(0.012 * 1e9)


def test_costly_calls_are_shed_and_that_is_said(programs: Programs, clock: Clock) -> None:
    one = helper(0.9)
    clock.sleep(1.0)
    one.tick()
    Hits.counts["call"] += 30_000_000
    clock.sleep(1.0)
    one.tick()
    told = one.look()
    assert told["shed"] == "no stacks, system calls off, scheduler on"
    assert told["hits"]["call"] == 30_000_000


def test_a_server_in_a_pid_namespace_within_is_told(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "tells_ids_of", lambda pid: False)
    with pytest.raises(UnavailableError, match="the server runs in a PID namespace inside llmtop's"):
        helper()


class Line(Link):
    """Keeps what is said, and lets as many ticks go by as there are."""

    def __init__(self, clock: Clock, ticks: int) -> None:
        self.said: list[Any] = []
        self._clock, self._ticks = clock, ticks

    def say(self, report: Any) -> None:
        self.said.append(report)

    def ticks(self, *pauses: float) -> Iterator[None]:
        for pause in (*pauses, *[pauses[-1]] * (self._ticks - len(pauses))):
            self._clock.sleep(pause)
            yield


def test_it_says_that_it_looks_and_what_it_sees(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first report comes after a third of a second, the others after the interval."""
    monkeypatch.setattr(system, "other_tracers", list)
    monkeypatch.setattr(system, "see_tracepoints", lambda: None)
    line = Line(clock, 16)
    ticks: list[float] = []
    monkeypatch.setattr(ProbesHelper, "tick", lambda helper: ticks.append(round(clock.now_ns / S - 50, 2)))
    options = {"budget": 1.0, "stacks": False, "light": False, "pids": [PID], "interval": 1.0}
    helper_module._look(argparse.Namespace(**options), line)
    kinds = [one["kind"] for one in line.said]
    assert kinds == ["ready", "sample", "sample", "sample"]
    assert line.said[0]["processes"] == [PID]
    times = [one["t"] / S - 50 for one in line.said[1:]]
    assert times == pytest.approx([0.4, 1.4, 2.4])
    assert ticks[:6] == [0.05, 0.1, 0.2, 0.4, 0.6, 0.8], "what probes have come to cost is looked at between reports"


# -- threads followed for a part of the time ---------------------------------------------------------------------


class Followed:
    """A scheduler's probes, and how often a second they and their programs run while they are attached."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_on = False
        self.programs: dict[str, int] = {}
        self.seeded: list[tuple[int, int]] = []
        self.stacks: list[int] = []
        self.rate = 20_000.0
        self.ns_per_switch = 200.0
        self.stack_ns_per_s = 0.0
        self.on_ns = 0
        self.since = 0
        self.timed_from: int | None = None

    def set_on(self, on: bool) -> None:
        self.on_ns += (self.clock.now_ns - self.since) * self.is_on
        self.is_on, self.since = on, self.clock.now_ns

    def seed(self, pid: int, now: int) -> None:
        self.seeded.append((pid, now))

    def set_stacks(self, every: int, now: int) -> None:
        self.stacks.append(every)

    def passed_ns(self) -> int:
        return self.on_ns + (self.clock.now_ns - self.since) * self.is_on

    def hits_of(self, name: str) -> int:
        return round(self.passed_ns() / S * self.rate) if name == "switch" else 0

    def stack_ns(self) -> int:
        return round(self.passed_ns() / S * self.stack_ns_per_s)

    def start(self) -> None:
        self.timed_from = self.hits_of("switch")

    def stop(self) -> int | None:
        before, self.timed_from = self.timed_from, None
        return None if before is None else round((self.hits_of("switch") - before) * self.ns_per_switch)


@pytest.fixture
def followed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Followed:
    one = Followed(clock)
    monkeypatch.setattr(following_module, "RunTime", lambda descriptors: one)
    return one


def following(followed: Followed, governor: Governor) -> SchedulerSlices:
    return SchedulerSlices(cast("SchedulerProbes", followed), cast("Lifecycle", followed), governor)


def test_following_all_the_time_learns_what_a_switch_costs(followed: Followed, clock: Clock) -> None:
    governor = Governor(0.01, ladder=in_slices(LIGHT))
    one = following(followed, governor)
    one.set_effort(Effort(4), [PID])
    assert (followed.is_on, followed.seeded, followed.stacks) == (True, [(PID, clock.now_ns)], [4])
    assert (one.is_following, one.why_sampled()) == (True, "")
    clock.sleep(1.0)
    load = EventLoad(switches=20_000)
    assert one.load(load, 1.0) == load
    assert governor.cost_of_switches(load) == pytest.approx(20_000 * (OUTSIDE_NS + 200))
    assert followed.timed_from is None, "to be timed all the time would cost"
    clock.sleep(MEASURE_S)
    one.load(load, 1.0)
    assert followed.timed_from is not None
    assert one.observed_ns(clock.now_ns) == round((1 + MEASURE_S) * S)
    one.set_effort(Effort(0, "off", scheduler=False), [PID])
    clock.sleep(5.0)
    assert (one.is_following, one.observed_ns(clock.now_ns)) == (False, round((1 + MEASURE_S) * S))


@pytest.mark.parametrize(("stack_ns_per_s", "ns"), [(0.0, 200.0), (3e6, 50.0), (5e6, 0.0)])
def test_the_stacks_of_switches_are_not_among_their_cost(
    followed: Followed, clock: Clock, stack_ns_per_s: float, ns: float
) -> None:
    """They are taken while the programs are timed, and weighed by themselves."""
    followed.stack_ns_per_s = stack_ns_per_s
    governor = Governor(0.01, ladder=in_slices(LIGHT))
    one = following(followed, governor)
    load = EventLoad(switches=20_000)
    one.set_effort(Effort(4), [PID])
    for _ in range(2):
        clock.sleep(MEASURE_S)
        one.load(load, MEASURE_S)
    assert governor.cost_of_switches(load) == pytest.approx(20_000 * (OUTSIDE_NS + ns))


def test_few_switches_tell_nothing_of_their_cost(followed: Followed, clock: Clock) -> None:
    governor = Governor(0.01, ladder=in_slices(LIGHT))
    one = following(followed, governor)
    before = governor.cost_of_switches(EventLoad(switches=99))
    one.set_effort(Effort(0), [PID])
    clock.sleep(1.0)
    one.load(EventLoad(switches=99), 1.0)
    assert governor.cost_of_switches(EventLoad(switches=99)) == before
    clock.sleep(1.0)
    one.load(EventLoad(switches=100), 1.0)
    assert governor.cost_of_switches(EventLoad(switches=100)) != before * 100 / 99


def test_slices_keep_to_their_share_of_the_budget(followed: Followed, clock: Clock) -> None:
    """Of 80,000 switches a second: 290 ns each would be 23 ms a second, of which the budget has 8."""
    followed.rate = 80_000.0
    governor = Governor(0.01, ladder=in_slices(LIGHT))
    one = following(followed, governor)
    one.set_effort(in_slices(LIGHT)[-1], [PID])
    assert (followed.is_on, one.is_following) == (False, True)
    began = clock.now_ns
    while clock.now_ns < began + 30 * S:
        one.tick([PID])
        clock.sleep(0.05)
    looked = one.observed_ns(clock.now_ns) / (clock.now_ns - began)
    cost_ns = 80_000 * (OUTSIDE_NS + 200)
    assert looked * cost_ns <= 1.05 * OF_SLICES * governor.budget_ns
    assert looked > 0.1
    assert len(followed.seeded) > 10
    told = one.load(EventLoad(calls=3.0), 1.0)
    assert told.calls == 3.0
    assert told.switches == pytest.approx(80_000, rel=0.01)
    assert one.why_sampled().endswith("in slices: at 80,000 switches a second it would cost more than the budget")
    one.set_effort(Effort(0, "off", scheduler=True), [PID])
    assert (followed.is_on, one.why_sampled()) == (True, "")


# -- what comes, goes, and costs ---------------------------------------------------------------------------------------


def test_what_has_ended_is_forgotten_by_every_part(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process, or thread, of the same id begins at nothing; only its own kind is taken for it."""
    alive = {PID: "77", TID: "78"}
    monkeypatch.setattr(system, "start_time", lambda pid: alive.get(pid, ""))
    monkeypatch.setattr(system, "is_process", lambda pid: pid in alive)
    one = helper(stacks=True)
    calls, scheduler, lifecycle = (programs.modules[name] for name in ("calls", "scheduler", "lifecycle"))
    lifecycle["targets"].put((TID,), (0,))
    clock.sleep(1.0)
    assert one.look()["born"] == (TID,)

    def counts() -> None:
        for pid, count in ((PID, 3), (TID, 5)):
            calls["calls"].put((pid, READ), (count, 0, 900, 0, *slots(s2=count)))
            calls["spins"].put((pid, POLL | WITHOUT_WAIT), (count, pid))
            scheduler["waits"].put((pid, READ, 1), (count * MS, 1, pid, 6))
            scheduler["threads"].put(
                (pid,), (0, 0, 0, 0, 0, pid, 0xFFFFFFFF, 0, 0, 0, 0, 0, -1, -1, 0, *slots(s1=count))
            )

    counts()
    clock.sleep(1.0)
    before = one.look()
    assert sorted(row.pid for row in before["calls"] if row.call == READ) == [PID, TID]
    del alive[TID]
    lifecycle["ended"].put((TID,), (TID,))
    clock.sleep(1.0)
    last = one.look()
    assert (last["gone"], last["ended"], one.processes) == ((TID,), [(TID, TID)], (PID,))
    assert {key[0] for name in ("waits", "threads") for key in scheduler[name].rows} == {PID}
    assert {key[0] for name in ("calls", "spins") for key in calls[name].rows} == {PID}
    counts()
    one.look()
    counts()
    clock.sleep(1.0)
    again = one.look()
    assert sorted(row[:3] for row in again["calls"] if row.call == READ) == [(TID, READ, 5)]
    assert (again["gone"], again["renewed"], again["ended"]) == ((), (), [])


def test_a_process_that_is_another_program_has_its_names_and_libraries_looked_up_anew(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = helper(stacks=True)
    forgotten: list[tuple[str, object]] = []
    monkeypatch.setattr(one._symbols, "forget", lambda pid: forgotten.append(("symbols", pid)))
    monkeypatch.setattr(one._symbols, "tick", lambda: forgotten.append(("tick", None)))
    assert one._samples is not None
    assert one._scheduler is not None
    monkeypatch.setattr(one._samples, "forget_names", lambda pids: forgotten.append(("samples", list(pids))))
    monkeypatch.setattr(one._scheduler.scheduler, "forget_names", lambda pid: forgotten.append(("scheduler", pid)))

    def read(now: int, gone: Iterator[int]) -> list[object]:
        forgotten.append(("library", list(gone)))
        return []

    monkeypatch.setattr(one._library, "read", read)
    programs.modules["lifecycle"]["renewed"].put((PID,), (1,))
    clock.sleep(1.0)
    assert one.look()["renewed"] == (PID,)
    told = [("symbols", PID), ("scheduler", PID), ("samples", [PID]), ("library", [PID])]
    assert forgotten == [("tick", None), *told]


@pytest.mark.parametrize(
    ("calls", "elapsed_s", "ticks"), [(1_600_000, 0.2, 4), (3_500_000, 1.0, 7), (6_600_000, 2.0, 6)]
)
def test_the_budget_is_weighed_by_the_time_since_the_last_tick(
    programs: Programs, clock: Clock, calls: int, elapsed_s: float, ticks: int
) -> None:
    """Of a core for calls at 330 ns each; what is over it is shed when it comes to a second's worth."""
    one = helper(5 / 3)
    clock.sleep(1.0)
    one.tick()
    told = []
    while not one._governor.shed:
        Hits.counts["call"] += calls
        clock.sleep(elapsed_s)
        one.tick()
        told.append(one._governor.effort.calls)
    assert len(told) == ticks


def test_what_a_stack_costs_is_learned_of_fifty(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = helper(stacks=True)
    learned: list[tuple[str, float]] = []
    monkeypatch.setattr(one._governor, "learn", lambda kind, ns: learned.append((kind, ns)))
    for stacks, spent_ns in ((49, 490_000), (1, 10_000), (100, 500_000), (20, 1), (30, 99_999)):
        Hits.counts["stack"] += stacks
        Hits.counts["stack_ns"] = Hits.counts.get("stack_ns", 0) + spent_ns
        clock.sleep(0.2)
        one.tick()
    assert learned == [("stack", 10_000), ("stack", 5_000), ("stack", 2_000)]


def test_each_probe_is_attached_to_its_tracepoint_and_goes_with_its_effort(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached: list[tuple[str, object]] = []
    number: dict[str, int] = {}

    def load(module: RecordedModule, function: str, kind: int, expected_attach: int = 0) -> int:
        names = {5: "tracepoint", 7: "timer", 17: "raw"}
        attached.append((f"load {names[kind]}", function))
        return number.setdefault(function, 100 + len(number))

    def attach(name: str, program: int) -> int:
        attached.append((name, next(function for function, at in number.items() if at == program)))
        return 0

    def attach_timer(kind: int, hertz: int, program: int) -> list[int]:
        attached.append((f"{kind} at {hertz}", next(function for function, at in number.items() if at == program)))
        return [0]

    monkeypatch.setattr(RecordedModule, "load", load)
    for module, name in (
        (lifecycle_module, "attach_tracepoint"),
        (scheduler_module, "attach_tracepoint"),
        (calls_module, "attach_raw_tracepoint"),
    ):
        monkeypatch.setattr(module, name, attach)
    monkeypatch.setattr(samples_module, "attach_timer", attach_timer)
    one = helper(stacks=True)
    assert attached == [
        ("load tracepoint", "on_fork"), ("sched:sched_process_fork", "on_fork"),
        ("load tracepoint", "on_exit"), ("sched:sched_process_exit", "on_exit"),
        ("load tracepoint", "on_exec"), ("sched:sched_process_exec", "on_exec"),
        ("load tracepoint", "on_wakeup"), ("load tracepoint", "on_waking"), ("load tracepoint", "on_switch"),
        ("load raw", "on_call"), ("load raw", "on_return"), ("load timer", "on_sample"),
        ("sched:sched_wakeup", "on_wakeup"), ("sched:sched_waking", "on_waking"), ("sched:sched_switch", "on_switch"),
        ("sys_enter", "on_call"), ("sys_exit", "on_return"), (f"0 at {HERTZ}", "on_sample"),
    ]  # fmt: skip
    attached.clear()
    samples = one._samples
    assert samples is not None
    assert samples.is_on
    Hits.counts["call"] += 100_000_000
    clock.sleep(1.0)
    one.tick()
    assert (one._governor.effort.calls, samples.is_on, attached) == ("off", False, [])


def test_threads_followed_in_slices_are_told_as_sampled_until_they_are_not(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = helper()
    assert one._scheduler is not None
    words = ["a fifth of the time", ""]
    monkeypatch.setattr(one._scheduler, "why_sampled", lambda: words.pop(0))
    one.tick()
    longer = "a longer window holds more slices: llmtop snapshot --seconds 30"
    assert one.missing == {"scheduler.sampled": ("a fifth of the time", longer)}
    one.tick()
    assert one.missing == {}


@pytest.mark.parametrize("part", ["scheduler", "syscalls", "samples"])
def test_a_part_that_cannot_be_attached_is_left(
    programs: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(1, "no")

    module, name = {
        "scheduler": (scheduler_module, "attach_tracepoint"),
        "syscalls": (calls_module, "attach_raw_tracepoint"),
        "samples": (samples_module, "attach_timer"),
    }[part]
    monkeypatch.setattr(module, name, refuse)
    one = helper(stacks=True)
    clock.sleep(1.0)
    told = one.look()
    assert list(told["missing"]) == [part]
    assert [one._scheduler is None, one._calls is None, one._samples is None] == [
        part == other for other in ("scheduler", "syscalls", "samples")
    ]
    assert ("calls" in told, "waits" in told) == (part != "syscalls", part != "scheduler")
    assert one.knows_calls is (part != "scheduler")
