"""The same events say the same by every tracer: each one's reader is fed with the same stream, without a kernel."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.helper.budget import Account, Rests, given_up
from llmtop.collectors.tracing.helper.functions import KINDS
from llmtop.collectors.tracing.helper.governor import NS_PER_HIT, observe
from llmtop.collectors.tracing.helper.symbols import Symbols
from llmtop.collectors.tracing.helper.syscall_numbers import call_name, syscall_names
from llmtop.collectors.tracing.perf import perf_text
from llmtop.collectors.tracing.perf.budget import NS_PER_EVENT, ThreadLoad, plan
from llmtop.collectors.tracing.perf.sched import Seed, Slice
from llmtop.collectors.tracing.perf.totals import Books
from llmtop.collectors.tracing.probes.helper import scheduler as scheduler_module
from llmtop.collectors.tracing.probes.helper.calls import SystemCallProbes
from llmtop.collectors.tracing.probes.helper.sampling import Sampling
from llmtop.collectors.tracing.probes.helper.scheduler import BY_FIELDS, SchedulerProbes
from llmtop.collectors.tracing.reports import Reports
from tests.collectors.tracing.judging import judge
from tests.collectors.tracing.recorded_events import (
    Enter,
    Event,
    Leave,
    Switch,
    Wake,
    as_calls,
    as_switches,
    counted,
    into_call_maps,
    into_maps,
)
from tests.collectors.tracing.recorded_maps import RecordedModule
from tests.collectors.tracing.wire_types import assert_is_told

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are x86-64's")

PID, WORKER, OTHER, STRANGER = 100, 101, 200, 900
OWNERS = {PID: PID, WORKER: PID, OTHER: OTHER}
READ, FUTEX = 0, 202
PIPE = 5
MS, S = 1_000_000, 1_000_000_000
START, END = 10 * S, 11 * S
APART = ("syscall.latency", "syscall.observed", "syscall.timed", "scheduler.observed")
LOOKS = (START + 4 * MS, START + 14 * MS, END)
"""When tracers that look all the time tell: while some sleep, between two calls, and at the end."""

Tell = Callable[[Sequence[Event]], "list[tuple[int, wire.Sample]]"]


@pytest.fixture
def ebpf(monkeypatch: pytest.MonkeyPatch) -> Tell:
    monkeypatch.setattr(scheduler_module, "place_of_id", lambda: 1256)

    def tell(events: Sequence[Event]) -> list[tuple[int, wire.Sample]]:
        module, taken = RecordedModule(), Counter[tuple[int, int]]()
        scheduler, calls = (
            SchedulerProbes(module.module, Symbols(), BY_FIELDS),
            SystemCallProbes(module.module),
        )
        samples = []
        for t in LOOKS:
            found = counted(until(t, events), OWNERS)
            into_maps(found, module, taken)
            told = scheduler.read(t, (), ())
            into_call_maps(found, module)
            told |= calls.read((), ())
            told["names"] = {row.call: call_name(row.call) for row in told["calls"]}
            samples.append((t, told))
        return samples

    return tell


Reckoned: TypeAlias = "dict[tuple[str, str], float]"
BOUNDS = [*(float(1 << power) for power in range(8, 35)), float("inf")]
WAKERS, RESULTS = st.sampled_from([PID, WORKER, STRANGER]), st.sampled_from([-11, 0, 64])
NAMES = {READ: "read", FUTEX: "futex"}
SLEEPS = st.one_of(
    *(
        st.tuples(*map(st.just, place), WAKERS, RESULTS, *[st.integers(1000, 200 * MS)] * 4)
        for place in ((READ, PIPE, "pipe_read", "pipe"), (FUTEX, 0, "futex_wait_queue", "futex"))
    )
)
"""A call, its file, the kernel's function and the cause of a sleep in it; who ends it, its result, its steps in ns."""


def until(t: int, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.t <= t]


@pytest.fixture
def perf() -> Tell:
    def tell(events: Sequence[Event]) -> list[tuple[int, wire.Sample]]:
        books, account = Books(), Slice(START, END, {tid: Seed("R") for tid in OWNERS})
        for sample in perf_text.samples(as_switches(events, OWNERS).splitlines(keepends=True)):
            account.take(sample)
        told = books.add_slice(account.close(), OWNERS, END - START)
        tables = perf_text.raw_calls(as_calls(events).splitlines(), syscall_names())
        told |= books.add_calls(tables, OWNERS, END - START)
        return [(END, told)]

    return tell


@pytest.fixture(params=["ebpf", "perf"])
def tell(request: pytest.FixtureRequest) -> Tell:
    """What a tracer's readers say of a stream."""
    told: Tell = request.getfixturevalue(request.param)
    return told


def series(samples: Sequence[tuple[int, wire.Sample]]) -> dict[tuple[str, str], float]:
    """The last values, over the wire and through llmtop's reader; observed times and times of single calls apart."""
    reports = Reports(file_of=lambda pid, number: "pipe:[1]" if number == PIPE else None)
    values: dict[tuple[str, str], float] = {}
    before = START
    for t, told in samples:
        observed: wire.Observed = {"calls": 0, "timed": 0, "scheduler": 0}
        observe(observed, t - START, "timed", scheduler=True)
        sample: wire.Sample = {"kind": "sample", "t": t, "elapsed": t - before, "observed": observed, "missing": {}}
        said = json.loads(json.dumps({**sample, **told}))
        assert_is_told(said)
        for one in reports.readings(wire.sample(said)):
            if one.value and not one.metric.name.startswith(APART):
                values[one.track, one.metric.name] = one.value
        before = t
    return values


def queue(pid: int, waits: Mapping[str, int]) -> dict[tuple[str, str], float]:
    return {(f"process:{pid}", f"process.run_queue_latency|{bound}"): float(count) for bound, count in waits.items()}


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Event], Reckoned]:
    """What three threads do in a second, each on a CPU of its own, and what that comes to."""
    events: list[Event] = []
    reckoned: Reckoned = {}

    def add(track: str, name: str, more: float) -> None:
        reckoned[track, name] = reckoned.get((track, name), 0.0) + more

    for tid, pid in OWNERS.items():
        t = START
        for call, file, sleeps_in, cause, waker, result, *lengths in draw(st.lists(SLEEPS, max_size=5)):
            entered, slept, woken, back, left = accumulate(lengths, initial=t)
            t = left + MS
            life: list[Event] = [
                Enter(entered, tid, call, file),
                Switch(slept, tid, "S", STRANGER, sleeps_in),
                Wake(woken, waker, tid),
                Switch(back, STRANGER, "S", tid),
                Leave(left, tid, call, result),
            ]
            seen = [event for event in life if event.t < END]
            events += seen
            add(f"thread:{pid}/{tid}", f"thread.blocked|{cause}", max(0, min(woken, END) - min(slept, END)))
            if len(seen) > 2:
                add(f"thread:{pid}/{tid}", f"thread.wakes|{waker}", 1)
            for bound in BOUNDS if len(seen) > 3 else ():
                add(f"process:{pid}", f"process.run_queue_latency|{bound:g}", back - woken < bound)
            if len(seen) > 4:
                add(f"process:{pid}", f"syscall.count|{NAMES[call]}", 1)
                add(f"process:{pid}", f"syscall.errors|{NAMES[call]}", result < 0)
                add(f"process:{pid}", f"syscall.time|{NAMES[call]}", left - entered)
    return sorted(events, key=lambda event: event.t), {key: value for key, value in reckoned.items() if value}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives())
def test_whatever_threads_do_comes_out(tell: Tell, life: tuple[list[Event], Reckoned]) -> None:
    events, reckoned = life
    found = series(tell(events))
    queues = {key for key in reckoned if key[1].startswith("process.run_queue_latency")}
    assert {key for key in found if key not in queues} == reckoned.keys() - queues
    assert all(reckoned[key] == value for key, value in found.items())
    assert {key[0] for key in queues} == {key[0] for key in queues & found.keys()}, (
        "bounds between which none is stay out"
    )


def test_a_sleep_ends_with_its_wake_up_and_the_rest_is_the_run_queue(tell: Tell) -> None:
    events: list[Event] = [
        Enter(START + 100 * MS, WORKER, FUTEX),
        Switch(START + 101 * MS, WORKER, "S", STRANGER, "futex_wait_queue"),
        Wake(START + 301 * MS, PID, WORKER),
        Switch(START + 301 * MS + 3000, STRANGER, "S", WORKER),
        Leave(START + 302 * MS, WORKER, FUTEX),
    ]
    assert series(tell(events)) == {
        ("thread:100/101", "thread.blocked|futex"): 200 * MS,
        ("thread:100/101", "thread.wakes|100"): 1,
        ("process:100", "syscall.count|futex"): 1,
        ("process:100", "syscall.time|futex"): 202 * MS,
        **queue(PID, {"4096": 1, "inf": 1}),
    }


def test_a_sleep_that_goes_on_counts_up_to_now(tell: Tell) -> None:
    events: list[Event] = [Enter(START + MS, WORKER, FUTEX), Switch(START + 2 * MS, WORKER, "S", 0, "futex_wait_queue")]
    assert series(tell(events)) == {("thread:100/101", "thread.blocked|futex"): 998 * MS}


def test_who_was_woken_and_has_not_run_yet_sleeps_no_more(tell: Tell) -> None:
    events: list[Event] = [
        Enter(START + MS, WORKER, FUTEX),
        Switch(START + 2 * MS, WORKER, "S", 0, "futex_wait_queue"),
        Wake(START + 5 * MS, OTHER, WORKER),
    ]
    assert series(tell(events)) == {
        ("thread:100/101", "thread.blocked|futex"): 3 * MS,
        ("thread:100/101", "thread.wakes|200"): 1,
    }


def test_what_a_sleep_is_about_is_told_by_the_file(tell: Tell) -> None:
    events: list[Event] = [
        Enter(START + MS, PID, READ, PIPE),
        Switch(START + 2 * MS, PID, "S", 0, "pipe_read"),
        Wake(START + 12 * MS, 0, PID),
        Switch(START + 12 * MS + 200, 0, "R", PID),
        Leave(START + 13 * MS, PID, READ, 64),
        Enter(START + 14 * MS, PID, READ, 77),
        Leave(START + 15 * MS, PID, READ, -9),
    ]
    assert series(tell(events)) == {
        ("thread:100/100", "thread.blocked|pipe"): 10 * MS,
        ("thread:100/100", "thread.wakes|0"): 1,
        ("process:100", "syscall.count|read"): 2,
        ("process:100", "syscall.errors|read"): 1,
        ("process:100", "syscall.time|read"): 13 * MS,
        **queue(PID, {"256": 1, "inf": 1}),
    }


def test_who_is_preempted_queues_and_does_not_sleep(tell: Tell) -> None:
    events: list[Event] = [
        Switch(START + 100 * MS, PID, "R+", STRANGER),
        Switch(START + 102 * MS, STRANGER, "R+", PID),
        Switch(START + 103 * MS, PID, "R+", WORKER),
    ]
    found = series(tell(events))
    assert found == queue(PID, {"2.09715e+06": 1, "inf": 1})


def test_processes_are_told_apart_and_strangers_are_left_out(tell: Tell) -> None:
    events: list[Event] = [
        Enter(START + MS, OTHER, READ, PIPE),
        Enter(START + MS, WORKER, FUTEX),
        Switch(START + 2 * MS, OTHER, "S", WORKER, "pipe_read"),
        Switch(START + 3 * MS, WORKER, "S", STRANGER, "futex_wait_queue"),
        Switch(START + 4 * MS, STRANGER, "S", 0, "ep_poll"),
        Wake(START + 5 * MS, STRANGER, STRANGER),
    ]
    assert series(tell(events)) == {
        ("thread:200/200", "thread.blocked|pipe"): 998 * MS,
        ("thread:100/101", "thread.blocked|futex"): 997 * MS,
    }


# The budget of all that costs by the event: what a tracer lets its looks cost a second.

BUDGET_NS = 1e7
Spend = Callable[[float], float]
"""What is spent, in ns per second, on a function of a library (probes) or on switches (perf) that come so often
a second: once the tracer has seen how often that is."""


def spent_by_probes(per_second: float) -> float:
    ns = NS_PER_HIT["library"] * per_second
    account = Account(BUDGET_NS)
    sampling = Sampling(account, 0.0)
    sampling.close({"launch": 1.0}, {"launch": 1}, 1.0, 0.005)  # at first it was seldom called
    assert "launch" in sampling.steady
    judge(sampling, {"launch": ns}, 2.0)
    if "launch" in sampling.steady:
        return ns
    now_s, spent = 2.0, 0.0
    while now_s < 30.0 or not account.is_paid(now_s):
        now_s += 0.01
        if now_s < 30.0 and sampling.is_due(now_s):
            account.spend(ns * sampling.window_s, now_s)
            spent += ns * sampling.window_s
            sampling.close({"launch": ns}, {"launch": 9}, now_s, sampling.window_s)
    return spent / (now_s - 2.0)


def spent_by_perf(per_second: float) -> float:
    today = plan(ThreadLoad(per_second, 0.0), budget=BUDGET_NS / 1e9, interval_s=8.0, stacks=True)
    ns = NS_PER_EVENT["switch"] + NS_PER_EVENT["stack" if today.stacks else "armed"]
    return today.scheduler_s / 8.0 * per_second * ns


SPENDERS: tuple[Spend, ...] = (spent_by_probes, spent_by_perf)


@pytest.mark.parametrize("spend", SPENDERS)
@pytest.mark.parametrize("per_second", [10.0, 1e3, 6e3, 6.3e3, 1e5, 1e7])
def test_no_more_is_spent_than_the_budget(spend: Spend, per_second: float) -> None:
    assert spend(per_second) <= BUDGET_NS


@pytest.mark.parametrize("spend", SPENDERS)
def test_what_fits_the_budget_is_looked_at(spend: Spend) -> None:
    assert spend(6e3) > 0


@pytest.mark.parametrize(
    ("costs", "budget_ns", "gone"),
    [
        ({"launch": 5.0, "other": 3.0, "wait": 2.0}, 10.0, []),
        ({"launch": 5.0, "other": 3.0, "wait": 2.0}, 9.9, ["launch"]),
        ({"launch": 5.0, "other": 3.0, "wait": 2.0}, 4.0, ["launch", "other"]),
        ({"launch": 5.0, "other": 3.0, "wait": 2.0}, 1.0, ["launch", "other", "wait"]),
    ],
)
def test_what_is_worth_least_goes_first_until_the_rest_fits(
    costs: Mapping[str, float], budget_ns: float, gone: list[str]
) -> None:
    assert list(given_up(costs, reversed(KINDS), budget_ns)) == gone
    sampling = Sampling(Account(1e9), 0.0)
    sampling._account.budget_ns = budget_ns
    judge(sampling, costs, 1.0)
    assert [kind for kind in reversed(KINDS) if kind not in sampling.steady] == gone


def test_rests_are_twice_as_long_each_time_up_to_the_longest() -> None:
    rests = Rests(30.0, 100.0)
    assert "launch" not in rests
    lengths = []
    now_s = 0.0
    for _ in range(4):
        lengths.append(rests.begin("launch", now_s))
        assert "launch" in rests
        assert rests.over(now_s + lengths[-1] - 1) == []
        now_s += lengths[-1]
        assert (rests.over(now_s), rests.over(now_s), "launch" in rests) == (["launch"], [], False)
    assert lengths == [30.0, 60.0, 100.0, 100.0]
    assert rests.begin("other", now_s) == 30.0
