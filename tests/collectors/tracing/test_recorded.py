"""What the readers of the probes' maps report of what was counted there: the same as with a kernel, without one."""

from __future__ import annotations

from typing import Any

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.governor import HERTZ
from llmtop.collectors.tracing.helper.symbols import Symbols
from llmtop.collectors.tracing.helper.syscall_numbers import WITHOUT_WAIT, spin_kind
from llmtop.collectors.tracing.probes.helper import lifecycle as lifecycle_module
from llmtop.collectors.tracing.probes.helper import scheduler as scheduler_module
from llmtop.collectors.tracing.probes.helper.calls import SystemCallProbes
from llmtop.collectors.tracing.probes.helper.lifecycle import Changes, Lifecycle
from llmtop.collectors.tracing.probes.helper.programs import HITS
from llmtop.collectors.tracing.probes.helper.samples import Samples
from llmtop.collectors.tracing.probes.helper.scheduler import BY_FIELDS, SchedulerProbes
from tests.collectors.tracing.recorded_maps import RecordedModule, slots

PID, OTHER, TID, WAKER = 100, 200, 101, 7
READ, FUTEX, POLL = 0, 202, 7
S, MS = 1_000_000_000, 1_000_000
RUNS, ASLEEP, PREEMPTED = 0xFFFFFFFF, 1, 0
FRAMES = {0x10: "main", 0x20: "wait", 0x30: "work", 0x90: "schedule_[k]"}


class Named(Symbols):
    """Names for the addresses of a test."""

    def __init__(self) -> None:
        super().__init__()

    def user(self, tgid: int, address: int) -> str:
        return FRAMES[address]

    def kernel(self, address: int) -> str:
        return FRAMES[address]


@pytest.fixture
def module() -> RecordedModule:
    return RecordedModule()


# -- threads off the CPU -----------------------------------------------------------------------------------------


@pytest.fixture
def scheduler(module: RecordedModule, monkeypatch: pytest.MonkeyPatch) -> SchedulerProbes:
    monkeypatch.setattr(scheduler_module, "place_of_id", lambda: 1256)
    monkeypatch.setattr(scheduler_module, "attach_tracepoint", lambda name, program: 0)
    monkeypatch.setattr(scheduler_module, "close_all", list.clear)
    monkeypatch.setattr(system, "kernel_stack", lambda tgid, tid: ["do_wait_[k]"])
    return SchedulerProbes(module.module, Named(), BY_FIELDS)


def thread(
    since: int = 0,
    runnable: int = 0,
    *,
    state: int = ASLEEP,
    call: int = FUTEX,
    descriptor: int = 0,
    stack: tuple[int, int] = (-1, -1),
    epoch: int = 0,
    voluntary: int = 1,
    queued: tuple[int, ...] = slots(),
) -> tuple[int, ...]:
    """A thread of PID, as struct thread of programs/scheduler.c."""
    return (since, runnable, 0, 0, 0, PID, state, call, descriptor, 0, voluntary, 0, *stack, epoch, *queued)


def stack(*addresses: int) -> tuple[int, ...]:
    return (*addresses, *[0] * (127 - len(addresses)))


def test_sleeps_that_are_over_and_those_that_go_on_are_one_sum(
    module: RecordedModule, scheduler: SchedulerProbes
) -> None:
    module["threads"].put((TID,), thread(since=9 * S, descriptor=5))
    module["waits"].put((TID, FUTEX, ASLEEP), (2 * S, 1, PID, 4))
    assert scheduler.read(10 * S, (), ())["waits"] == [(PID, TID, FUTEX, ASLEEP, 5, 3 * S)]
    module["threads"].put((TID,), thread(since=9 * S, runnable=11 * S))
    assert scheduler.read(13 * S, (), ())["waits"] == [(PID, TID, FUTEX, ASLEEP, 0, 4 * S)], "until it was woken"
    module["threads"].put((TID,), thread(state=RUNS))
    module["waits"].put((TID, FUTEX, ASLEEP), (4 * S, 2, PID, 4))
    assert scheduler.read(14 * S, (), ())["waits"] == [], "what is told never shrinks, and is told once"


def test_files_that_are_kept_open_of_a_process_go_with_it(
    scheduler: SchedulerProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    monkeypatch.setattr(scheduler._sleepers_now, "forget", closed.append)
    scheduler.read(S, (), ())
    scheduler.read(2 * S, (), [PID])
    assert closed == [PID]


@pytest.mark.parametrize(
    "value", [thread(since=9 * S, state=RUNS), thread(since=9 * S, state=PREEMPTED), thread(since=0)]
)
def test_who_runs_or_queues_does_not_sleep(
    module: RecordedModule, scheduler: SchedulerProbes, value: tuple[int, ...]
) -> None:
    module["threads"].put((TID,), value)
    assert scheduler.read(10 * S, (), ())["waits"] == []


def test_probes_that_are_taken_off_are_closed(scheduler: SchedulerProbes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds a probe in the kernel is its open file. The switch is the dearest: it comes last and goes first."""
    opened: list[str] = []
    closed: list[int] = []

    def attach(name: str, program: int) -> int:
        opened.append(name)
        return 100 + len(opened)

    def close(held: list[int]) -> None:
        closed.extend(held)
        held.clear()

    monkeypatch.setattr(scheduler_module, "attach_tracepoint", attach)
    monkeypatch.setattr(scheduler_module, "close_all", close)
    for times in (1, 2):
        scheduler.set_on(True)
        scheduler.set_on(False)
        assert sorted(closed) == [101, 102, 103, 104, 105, 106][: 3 * times]
    assert opened[:3] == ["sched:sched_wakeup", "sched:sched_waking", "sched:sched_switch"]


def test_queues_are_summed_by_process_and_outlive_their_threads(
    module: RecordedModule, scheduler: SchedulerProbes
) -> None:
    module["threads"].put((TID,), thread(state=RUNS, queued=slots(s3=2)))
    module["threads"].put((TID + 1,), thread(state=RUNS, queued=slots(s3=1, s5=4)))
    assert scheduler.read(S, (), ())["queue"] == [(PID, {3: 3, 5: 4})]
    assert scheduler.read(2 * S, [(TID, PID)], ())["queue"] == []
    assert (TID,) not in module["threads"].rows
    module["threads"].put((TID + 1,), thread(state=RUNS, queued=slots(s3=2, s5=4)))
    assert scheduler.read(3 * S, (), ())["queue"] == [(PID, {3: 4, 5: 4})]
    scheduler.read(4 * S, [(TID + 1, PID)], [PID])
    module["threads"].put((TID,), thread(state=RUNS, queued=slots(s3=4, s5=4)))
    assert scheduler.read(5 * S, (), ())["queue"] == [(PID, {3: 4, 5: 4})], "another process of the same id"


def test_the_three_that_woke_a_thread_most_are_told(module: RecordedModule, scheduler: SchedulerProbes) -> None:
    module["threads"].put((TID,), thread(state=RUNS))
    for waker, count in ((0, 5), (7, 9), (8, 1), (9, 2)):
        module["wakes"].put((TID, waker), (count,))
    module["wakes"].put((999, 7), (50,))
    assert scheduler.read(S, (), ())["wakes"] == [(PID, TID, 7, 9), (PID, TID, 0, 5), (PID, TID, 9, 2)]
    module["wakes"].put((TID, 7), (1,))
    assert scheduler.read(2 * S, (), ())["wakes"] == [(PID, TID, 7, 10)]
    scheduler.read(3 * S, [(TID, PID)], ())
    module["threads"].put((TID,), thread(state=RUNS))
    module["wakes"].put((TID, 7), (1,))
    assert scheduler.read(4 * S, (), ())["wakes"] == [(PID, TID, 7, 1)]


def test_what_a_thread_slept_goes_with_it(module: RecordedModule, scheduler: SchedulerProbes) -> None:
    module["threads"].put((TID,), thread(since=S))
    module["waits"].put((TID, READ, ASLEEP), (5, 1, PID, 3))
    assert len(scheduler.read(2 * S, [(TID, PID)], ())["waits"]) == 2
    assert module["waits"].rows == {}
    module["threads"].put((TID,), thread(since=2 * S))
    assert scheduler.read(3 * S, (), ())["waits"] == [(PID, TID, FUTEX, ASLEEP, 0, S)], "another of the same id"


def test_stacks_share_out_the_exact_time(module: RecordedModule, scheduler: SchedulerProbes) -> None:
    scheduler.set_stacks(1, 0)
    assert module["settings"].rows == {(0,): (1,), (1,): (1,), (2,): (1256,)}
    module["stacks"].put((1,), stack(0x20, 0x10))
    module["stacks"].put((2,), stack(0x30, 0x10))
    module["stacks"].put((3,), stack(0x90))
    module["threads"].put((TID,), thread(state=RUNS))
    module["waits"].put((TID, READ, ASLEEP), (8 * S, 4, PID, 7))
    module["stack_times"].put((TID, READ, ASLEEP, 1, 3, PID, 1), (3 * MS,))
    module["stack_times"].put((TID, READ, ASLEEP, 2, -1, PID, 1), (1 * MS,))
    module["stack_times"].put((TID, READ, ASLEEP, 2, -1, PID, 0), (9 * S,))
    assert scheduler.read(10 * S, (), ())["stacks"] == [
        (PID, TID, READ, ASLEEP, 7, ("main", "wait", "schedule_[k]"), 6 * S),
        (PID, TID, READ, ASLEEP, 7, ("main", "work"), 2 * S),
    ], "stacks of an earlier epoch mean other functions now"
    assert scheduler.read(11 * S, (), ())["stacks"] == [], "there is nothing owed"


def test_sleepers_have_the_stack_they_went_to_sleep_with(module: RecordedModule, scheduler: SchedulerProbes) -> None:
    """Of one that has slept since before stacks were asked for, only the kernel's side can be had."""
    scheduler.set_stacks(1, 5 * S)
    module["stacks"].put((1,), stack(0x20, 0x10))
    module["threads"].put((1,), thread(since=8 * S, stack=(1, -1), epoch=1))
    module["threads"].put((2,), thread(since=5 * S))
    module["threads"].put((3,), thread(since=6 * S))
    module["threads"].put((4,), thread(since=6 * S, voluntary=0))
    told = {row.tid: (row.frames, row.ns) for row in scheduler.read(10 * S, (), ())["stacks"]}
    assert told == {1: (("main", "wait"), 2 * S), 2: (("do_wait_[k]",), 5 * S), 4: (("do_wait_[k]",), 4 * S)}
    scheduler.set_stacks(0, 11 * S)
    assert scheduler.read(12 * S, (), ())["stacks"] == []
    scheduler.set_stacks(1, 12 * S)
    owed = {row.tid: row.ns for row in scheduler.read(13 * S, (), ())["stacks"]}
    assert owed == {1: S, 2: S, 3: S, 4: S}, "what was slept while nobody looked is not put down to a stack"


def test_a_kernel_that_does_not_tell_where_tasks_have_their_id_is_not_guessed_at(
    module: RecordedModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "place_of_id", lambda: None)
    SchedulerProbes(module.module, Named(), BY_FIELDS)
    assert module["settings"].get(2) == (0,)


def test_what_was_slept_when_the_probes_come_off_counts(module: RecordedModule, scheduler: SchedulerProbes) -> None:
    scheduler.set_on(True)
    module["threads"].put((TID,), thread(since=9 * S, runnable=11 * S, descriptor=6, queued=slots(s2=1)))
    module["threads"].put((TID + 1,), thread(state=RUNS))
    scheduler.set_on(False)
    assert (scheduler.is_on, module["threads"].rows) == (False, {})
    told = scheduler.read(20 * S, (), ())
    assert told["waits"] == [(PID, TID, FUTEX, ASLEEP, 6, 2 * S)]
    assert told["queue"] == [(PID, {2: 1})]
    module["threads"].put((TID,), thread(since=1))
    scheduler.set_on(True)
    assert module["threads"].rows == {}, "left by a program that still ran"


def test_sleepers_are_seeded_and_what_the_kernel_knows_better_is_left(
    module: RecordedModule, scheduler: SchedulerProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler._sleepers_now, "of", lambda tgid: [(1, 1, READ, 3), (70, 2, 0xFFFF, 0)])
    module["threads"].put((70,), thread(since=8 * S))
    scheduler.seed(PID, 9 * S)
    assert module["marks"].rows == {(1,): (1,), (6,): (1,)}, "by the place of an id in 64"
    scheduler.set_stacks(1, 9 * S)
    told = scheduler.read(10 * S, (), ())
    stacks = {row.tid: row.frames for row in told["stacks"]}
    assert stacks == {1: ("do_wait_[k]",), 70: ("do_wait_[k]",)}, "only the kernel's side can be had"
    assert told["waits"] == [
        (PID, 70, FUTEX, ASLEEP, 0, 2 * S),
        (PID, 1, READ, ASLEEP, 3, S),
    ]


def test_of_many_threads_those_that_sleep_on_are_told_every_fifth_time(
    module: RecordedModule, scheduler: SchedulerProbes
) -> None:
    for tid in range(301):
        module["threads"].put((tid,), thread(since=S))
    told = []
    for look in range(1, 7):
        module["threads"].put((7,), thread(since=(look + 1) * S - 1))
        told.append(len(scheduler.read((look + 1) * S, (), ())["waits"]))
    assert told == [301, 0, 0, 0, 300, 0]


def test_threads_that_came_back_after_their_end_are_swept(
    module: RecordedModule, scheduler: SchedulerProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "threads", lambda tgid: [TID] if tgid == PID else [])
    module["threads"].put((TID,), thread(since=S))
    module["threads"].put((999,), thread(since=S))
    for _ in range(29):
        scheduler.read(2 * S, (), ())
    assert set(module["threads"].rows) == {(TID,), (999,)}
    scheduler.read(2 * S, (), ())
    assert set(module["threads"].rows) == {(TID,)}


def test_ids_of_stacks_mean_nothing_once_their_map_was_emptied(
    module: RecordedModule, scheduler: SchedulerProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmtop.collectors.tracing.probes.helper.stack_table.MOST_IDS", 1)
    scheduler.set_stacks(4, 0)
    for number in (1, 2):
        module["stacks"].put((number,), stack(0x10))
        module["stack_times"].put((TID, READ, ASLEEP, number, -1, PID, 1), (S,))
    emptied_at: list[object] = []
    monkeypatch.setattr(module["stacks"], "clear", lambda: emptied_at.append(dict(module["settings"].rows)))
    scheduler.read(S, (), ())
    assert emptied_at == [{(0,): (0,), (1,): (1,), (2,): (1256,)}], "none is taken meanwhile"
    assert (module["settings"].get(0), module["settings"].get(1)) == ((4,), (2,))
    module["stacks"].rows.clear()
    module["stacks"].put((1,), stack(0x10))
    module["stack_times"].put((TID, READ, ASLEEP, 1, -1, PID, 2), (S,))
    scheduler.read(2 * S, (), ())
    assert (list(module["stacks"].rows), module["settings"].get(1)) == ([(1,)], (2,)), "there is room again"


# -- system calls ------------------------------------------------------------------------------------------------


def call(count: int, errors: int = 0, ns: int = 0, timeouts: int = 0, **counts: int) -> tuple[int, ...]:
    return (count, errors, ns, timeouts, *slots(**counts))


def test_calls_are_told_when_they_change_and_forgotten_with_their_process(module: RecordedModule) -> None:
    calls = SystemCallProbes(module.module)
    module["calls"].put((PID, READ), call(3, 1, 900, s2=3))
    module["calls"].put((PID, FUTEX), call(5, 4, 800, 4, s9=5))
    module["lost"].put((0,), (12,))
    told = calls.read((), ())
    assert told["calls"] == [(PID, READ, 3, 1, 900, {2: 3}), (PID, FUTEX, 5, 4, 800, {9: 5})]
    assert told["switch_timeouts"] == [(PID, 4)]
    assert calls.lost() == 12
    module["calls"].put((PID, READ), call(4, 1, 950, s2=4))
    told = calls.read((), [PID])
    assert (told["calls"], told["switch_timeouts"]) == ([(PID, READ, 4, 1, 950, {2: 4})], [])
    assert module["calls"].rows == {}
    module["calls"].put((PID, READ), call(1))
    assert calls.read((), ())["calls"] == [], "a call that was under way as its process ended"
    assert module["calls"].rows == {}
    module["calls"].put((PID, READ), call(4, 1, 950, 4, s2=4))
    told = calls.read((), ())
    assert told["calls"] == [(PID, READ, 4, 1, 950, {2: 4})], "another process of the same id"
    assert told["switch_timeouts"] == [(PID, 4)]


def test_spins_are_told_by_thread_and_outlive_it_in_their_process(module: RecordedModule) -> None:
    calls = SystemCallProbes(module.module)
    poll = POLL | WITHOUT_WAIT
    module["spins"].put((TID, poll), (6, PID))
    module["spins"].put((TID + 1, poll), (4, PID))
    told = calls.read((), ())
    assert (told["calls"], sorted(told["spins"])) == (
        [(PID, poll, 10, 0, 0, {})],
        [(PID, TID, "poll", 6), (PID, TID + 1, "poll", 4)],
    )
    module["spins"].put((TID, poll), (7, PID))
    module["started"].put((TID,), (1, 2))
    told = calls.read([(TID, PID)], ())
    assert (told["calls"], told["spins"]) == ([(PID, poll, 11, 0, 0, {})], [(PID, TID, "poll", 7)])
    assert (set(module["spins"].rows), module["started"].rows) == ({(TID + 1, poll)}, {})
    told = calls.read((), ())
    assert (told["calls"], told["spins"]) == ([], [])
    module["spins"].put((TID, poll), (2, PID))
    told = calls.read((), ())
    assert (told["calls"], told["spins"]) == ([(PID, poll, 13, 0, 0, {})], [(PID, TID, "poll", 2)])
    calls.read([(TID, PID), (TID + 1, PID)], [PID])
    assert calls.read((), ())["calls"] == []


def test_another_thread_of_the_same_id_has_spun_as_often_and_is_told(module: RecordedModule) -> None:
    calls = SystemCallProbes(module.module)
    spun = ((TID, POLL | WITHOUT_WAIT), (6, PID))
    module["spins"].put(*spun)
    assert calls.read((), ())["spins"] == [(PID, TID, "poll", 6)]
    calls.read([(TID, PID)], ())
    module["spins"].put(*spun)
    assert calls.read((), ())["spins"] == [(PID, TID, "poll", 6)]


def test_a_call_under_way_is_not_timed_over_a_gap(module: RecordedModule, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    path = "llmtop.collectors.tracing.probes.helper.calls"
    monkeypatch.setattr(f"{path}.attach_raw_tracepoint", lambda name, program: held.append(name))
    monkeypatch.setattr(f"{path}.close_all", lambda descriptors: held.pop() if descriptors else None)
    calls = SystemCallProbes(module.module)
    for mode, probes, counts in (
        ("timed", ["sys_enter", "sys_exit"], 0),
        ("counted", ["sys_enter"], 1),
        ("off", [], 0),
        ("counted", ["sys_enter"], 1),
    ):
        module["started"].put((TID,), (1, 2))
        calls.set_mode(mode)
        assert (held, module["settings"].get(0), module["started"].rows) == (probes, (counts,), {})
    module["started"].put((TID,), (1, 2))
    calls.set_mode("counted")
    assert module["started"].rows, "what is so already is left alone"


def test_which_calls_only_pass_the_time() -> None:
    assert (spin_kind(READ | WITHOUT_WAIT), spin_kind(READ)) == ("poll", "")


# -- what runs, and which processes there are --------------------------------------------------------------------


def test_samples_stand_for_the_time_between_two(module: RecordedModule) -> None:
    samples = Samples(module.module, Named())
    module["stacks"].put((1,), stack(0x30, 0x10))
    module["stacks"].put((2,), stack(0x90))
    module["stacks"].put((3,), stack(0x30, 0x10))
    for user, kernel, count in ((1, -1, 2), (3, -1, 1), (1, 2, 4)):
        module["samples"].put((TID, PID, user, kernel), (count,))
    period_ns = S // HERTZ
    assert samples.read() == [
        (PID, TID, ("main", "work"), 3 * period_ns),
        (PID, TID, ("main", "work", "schedule_[k]"), 4 * period_ns),
    ]
    assert samples.read() == []


def test_stacks_of_samples_are_emptied_when_there_are_many(
    module: RecordedModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their map has room for some thousands; a look later the same ids are others."""
    monkeypatch.setattr("llmtop.collectors.tracing.probes.helper.stack_table.MOST_IDS", 1)
    samples = Samples(module.module, Named())
    for number, address in ((1, 0x10), (2, 0x30)):
        module["stacks"].put((number,), stack(address))
        module["samples"].put((TID, PID, number, -1), (1,))
    assert [row.frames for row in samples.read()] == [("main",), ("work",)]
    assert module["stacks"].rows == {}
    module["stacks"].put((1,), stack(0x20))
    module["samples"].put((TID, PID, 1, -1), (1,))
    assert [row.frames for row in samples.read()] == [("wait",)]
    assert module["stacks"].rows, "there is room again"


class Counters:
    """Counters by place, as `kernel.CpuCounters`."""

    @classmethod
    def of(cls, map_: Any) -> Counters:
        return cls()

    def sum(self, place: int) -> int:
        return 10 + place


@pytest.fixture
def lifecycle(module: RecordedModule, monkeypatch: pytest.MonkeyPatch) -> Lifecycle:
    monkeypatch.setattr(lifecycle_module, "attach_tracepoint", lambda name, program: 0)
    monkeypatch.setattr(lifecycle_module, "CpuCounters", Counters)
    return Lifecycle(module.module)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    processes = {PID: "77"}
    monkeypatch.setattr(system, "start_time", lambda pid: processes.get(pid, ""))
    monkeypatch.setattr(system, "is_process", lambda tid: tid in processes)
    monkeypatch.setattr(system, "tells_ids_of", lambda pid: pid != OTHER)
    return processes


def test_children_come_and_go(module: RecordedModule, lifecycle: Lifecycle, alive: dict[int, str]) -> None:
    assert lifecycle.add(PID)
    assert not lifecycle.add(999)
    assert (module["targets"].rows, module["marks"].rows) == ({(PID,): (0,)}, {(PID % 64,): (1,)})
    alive[150] = "80"
    for tid in (150, 151):
        module["targets"].put((tid,), (0,))
    assert lifecycle.changes() == Changes((150,), (), (), ())
    assert lifecycle.processes == {PID: "77", 150: "80"}
    module["ended"].put((151,), (PID,))
    module["renewed"].put((150,), (1,))
    assert lifecycle.changes() == Changes((), (), (150,), ((151, PID),))
    alive[151] = "81"
    assert lifecycle.changes().born == (151,), "a process now, by an id that was a thread's"
    alive[150] = "82"
    assert lifecycle.changes() == Changes((), (150,), (), ())
    assert (150,) not in module["targets"].rows


def test_a_child_that_nobody_saw_is_told_gone(
    module: RecordedModule, lifecycle: Lifecycle, alive: dict[int, str]
) -> None:
    """What was counted of it must be forgotten too, once it is no more."""
    lifecycle.add(PID)
    alive[150] = "80"
    module["ended"].put((150,), (150,))
    module["targets"].put((150,), (0,))
    assert lifecycle.changes() == Changes((), (), (), ((150, 150),))
    del alive[150]
    assert lifecycle.changes() == Changes((), (150,), (), ())
    assert lifecycle.changes() == Changes((), (), (), ())


def test_processes_whose_ids_cannot_be_told_are_named(
    module: RecordedModule, lifecycle: Lifecycle, alive: dict[int, str]
) -> None:
    alive[OTHER] = "90"
    assert not lifecycle.add(OTHER)
    assert (lifecycle.unseen, lifecycle.processes, module["targets"].rows) == ({OTHER}, {}, {})
    lifecycle.remove(OTHER)
    assert lifecycle.unseen == set()


def test_each_kind_of_probe_has_its_counter(lifecycle: Lifecycle) -> None:
    assert lifecycle.hits() == {name: 10 + place for place, name in enumerate(HITS)}
    assert (lifecycle.hits_of(HITS[2]), lifecycle.stack_ns()) == (12, 10 + len(HITS))
