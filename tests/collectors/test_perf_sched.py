"""What a slice of scheduler events says of threads, where every event is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.perf import sched as perf_sched
from llmtop.collectors.tracing.perf.perf_text import SWITCH_IN, PerfSample, StackFrame
from llmtop.collectors.tracing.perf.sched import NEW, SWITCH, WAKEUP, Seed, Slice, SliceSums
from llmtop.vocabulary import ON_CPU, ThreadCause

ME, OTHER, STRANGER = 7, 8, 99
FUTEX = ("__schedule", "schedule", "futex_wait_queue", "do_futex", "__x64_sys_futex")
IRQ = ("try_to_wake_up", "hrtimer_wakeup", "__hrtimer_run_queues", "asm_sysvec_apic_timer_interrupt")


def kernel(*names: str) -> tuple[StackFrame, ...]:
    return tuple(StackFrame(1 << 63, name, "[kernel.kallsyms]") for name in names)


def event(
    name: str, t: int, tid: int, payload: str = "", frames: tuple[StackFrame, ...] = (), period: int = -1
) -> PerfSample:
    return PerfSample("", 1, tid, t, name, period, payload, frames)


def switch(t: int, prev: int, state: str, following: int, *names: str) -> PerfSample:
    payload = (
        f"prev_comm=a prev_pid={prev} prev_prio=120 prev_state={state} ==> next_comm=b next_pid={following} next_prio=9"
    )
    return event(SWITCH, t, prev, payload, kernel(*names))


def wake(t: int, waker: int, tid: int, *names: str, name: str = WAKEUP) -> PerfSample:
    return event(name, t, waker, f"comm=a pid={tid} prio=120 target_cpu=000", kernel(*names))


def account(*events: PerfSample, seeds: dict[int, Seed] | None = None) -> SliceSums:
    book = Slice(100, 1100, {ME: Seed("R"), OTHER: Seed("R")} if seeds is None else seeds)
    for one in events:
        book.take(one)
    return book.close()


def test_a_sleep_ends_with_the_wake_up_and_the_rest_is_the_run_queue() -> None:
    sums = account(switch(200, ME, "S", STRANGER, *FUTEX), wake(500, OTHER, ME), switch(900, STRANGER, "R", ME))
    assert sums.blocked == {(ME, ThreadCause.FUTEX): 300}
    assert {tid: dict(slots) for tid, slots in sums.queued.items()} == {ME: {perf_sched.slot_of(400): 1}}
    assert sums.wakes == {(ME, OTHER): 1}
    assert (sums.events, sums.switches) == (2, 1)


def test_a_thread_that_is_preempted_only_queues() -> None:
    sums = account(switch(200, ME, "R+", OTHER), switch(600, OTHER, "R", ME))
    assert sums.blocked == {}
    assert sums.queued[ME] == {perf_sched.slot_of(400): 1}


def test_a_sleep_that_goes_on_counts_to_the_end() -> None:
    assert account(switch(400, ME, "D", 0)).blocked == {(ME, ThreadCause.UNINTERRUPTIBLE): 700}


def test_a_thread_without_events_sleeps_on_in_what_proc_says() -> None:
    seeds = {ME: Seed("S", ThreadCause.EPOLL), OTHER: Seed("R"), 9: Seed("T"), 10: Seed("")}
    assert account(seeds=seeds).blocked == {(ME, ThreadCause.EPOLL): 1000, (9, ThreadCause.STOPPED): 1000}


def test_what_slept_before_is_counted_from_the_start() -> None:
    seeds = {ME: Seed("S", ThreadCause.PIPE)}
    sums = account(wake(300, 0, ME), switch(310, 0, "R", ME), seeds=seeds)
    assert sums.blocked == {(ME, ThreadCause.PIPE): 200}
    assert sums.wakes == {(ME, 0): 1}


def test_a_thread_that_ran_since_it_was_looked_at_did_not_sleep_from_the_start() -> None:
    sums = account(switch(600, ME, "S", 0, *FUTEX), seeds={ME: Seed("S", ThreadCause.PIPE)})
    assert sums.blocked == {(ME, ThreadCause.FUTEX): 500}


def test_a_lost_wake_up_makes_no_latency() -> None:
    sums = account(switch(200, ME, "S", 0), switch(700, 0, "R", ME))
    assert sums.blocked == {(ME, ThreadCause.UNSEEN): 500}
    assert not sums.queued


def test_events_outside_of_the_slice_and_of_strangers_are_passed_over() -> None:
    sums = account(
        switch(50, ME, "S", 0), switch(1200, ME, "S", 0), wake(500, ME, STRANGER), switch(500, 0, "R", STRANGER)
    )
    assert (sums.blocked, sums.events, sums.wakes) == ({}, 0, {})


def test_an_interrupt_is_no_waker() -> None:
    sums = account(wake(500, OTHER, ME, *IRQ), wake(600, OTHER, ME), wake(700, 0, ME), wake(800, OTHER, ME, name=NEW))
    assert sums.wakes == {(ME, 0): 2, (ME, OTHER): 2}


def test_a_thread_that_ends_is_left_alone() -> None:
    assert account(switch(200, ME, "X", 0), switch(900, 0, "R", ME)).blocked == {}


@pytest.mark.parametrize(
    ("names", "state", "cause"),
    [
        (("__schedule", "schedule", "futex_do_wait"), "S", ThreadCause.FUTEX),
        (("schedule", "schedule_hrtimeout_range_clock", "ep_poll", "do_epoll_wait"), "S", ThreadCause.EPOLL),
        (("schedule", "schedule_hrtimeout_range", "do_poll.constprop.0", "do_sys_poll"), "S", ThreadCause.POLL),
        (("schedule", "do_nanosleep", "hrtimer_nanosleep"), "S", ThreadCause.NANOSLEEP),
        (("schedule", "anon_pipe_read", "vfs_read"), "S", ThreadCause.PIPE),
        (("schedule", "schedule_timeout", "wait_woken", "tcp_recvmsg"), "S", ThreadCause.SOCKET),
        (("schedule", "io_schedule", "folio_wait_bit", "filemap_fault"), "D", ThreadCause.DISK),
        (("schedule", "io_schedule", "bit_wait_io"), "D", ThreadCause.DISK),
        (("schedule", "jbd2_log_wait_commit", "ext4_sync_file"), "D", ThreadCause.DISK),
        (("schedule", "do_wait", "kernel_wait4"), "S", ThreadCause.CHILD),
        (("schedule", "do_signal_stop"), "T", ThreadCause.STOPPED),
        (("schedule", "something_new"), "D", ThreadCause.UNINTERRUPTIBLE),
        (("schedule", "something_new"), "S", ThreadCause.OTHER),
        ((), "S", ThreadCause.UNSEEN),
    ],
)
def test_causes(names: tuple[str, ...], state: str, cause: ThreadCause) -> None:
    assert perf_sched.cause_of(kernel(*names), state) is cause


def test_functions_of_the_program_tell_no_cause() -> None:
    assert perf_sched.cause_of((StackFrame(0x1000, "futex_wait", "/bin/x"),), "S") is ThreadCause.OTHER


def test_stacks_of_what_ran_and_of_what_slept() -> None:
    running = (StackFrame(0x10, "work", "/bin/x"), StackFrame(0x20, "main", "/bin/x"))
    sleeping = (*kernel(*FUTEX), StackFrame(0x30, "wait", "/bin/x"))
    leaves = switch(300, ME, "S", 0)
    events = [
        event("cpu-clock/freq=199/", 200, ME, frames=running, period=5),
        event("cpu-clock/freq=199/", 210, ME, frames=running),
        event("cpu-clock/freq=199/", 220, STRANGER, frames=running),
        event(SWITCH, 300, ME, leaves.payload, sleeping),
        event(SWITCH_IN, 700, ME),
        switch(800, ME, "R", 0),
        event(SWITCH_IN, 900, ME),
        event(SWITCH, 1000, ME, leaves.payload, sleeping),
    ]
    weights = perf_sched.stacks_of(events, 100, 1100, frozenset({ME}), period_ns=10)
    asleep = ("wait", *(f"{name}_[k]" for name in reversed(FUTEX)))
    assert weights == {(ME, ON_CPU, ("main", "work")): 15, (ME, "futex", asleep): 500}
    shared = perf_sched.shared_out(weights, {(ME, ThreadCause.FUTEX): 250})
    assert shared == {(ME, ON_CPU, ("main", "work")): 15, (ME, "futex", asleep): 250}


@given(st.lists(st.tuples(st.sampled_from("SDRTX"), st.sampled_from("owi"), st.integers(100, 1100)), max_size=30))
def test_no_thread_sleeps_longer_than_the_slice(steps: list[tuple[str, str, int]]) -> None:
    events = []
    for state, kind, t in sorted(steps, key=lambda step: step[2]):
        if kind == "o":
            events.append(switch(t, ME, state, 0))
        else:
            events.append(wake(t, OTHER, ME) if kind == "w" else switch(t, 0, "R", ME))
    sums = account(*events, seeds={ME: Seed("S")})
    assert 0 <= sum(sums.blocked.values()) <= 1000
    assert all(ns > 0 for ns in sums.blocked.values())


def test_the_shortest_sleep_is_shared_out_whole() -> None:
    stacks: dict[tuple[int, str, tuple[str, ...]], int] = {(ME, "futex", ("lock",)): 1, (ME, "pipe", ("read",)): 0}
    exact = {(ME, ThreadCause.FUTEX): 9, (ME, ThreadCause.PIPE): 5}
    assert perf_sched.shared_out(stacks, exact) == {(ME, "futex", ("lock",)): 9, (ME, "pipe", ("read",)): 0}
